"""A run is watched to its end, through what may happen on the way, and asked for no more than it must be."""

from __future__ import annotations

import io
import itertools
import json
import threading
from collections import Counter
from collections.abc import Callable

import pytest
from rich.console import Console

from swe_argo.steps.contracts.trajectory import Usage
from swe_argo.steps.contracts.unit_progress import MARK, UnitProgress
from swe_argo.steps.errors import ConfigError, InfraError
from swe_argo.steps.kube.client import RetryPolicy
from swe_argo.workflows.argo.engine import Engine
from swe_argo.workflows.argo.status_display import progress_lines, render_screen
from swe_argo.workflows.argo.stop import stop
from swe_argo.workflows.argo.units_at_work import read_progress
from swe_argo.workflows.argo.watch import WatchedRun, watch
from tests.workflows.argo.test_run_status import seen
from tests.workflows.argo.world import World
from tests.workflows.command import wait_for

pytestmark = pytest.mark.filterwarnings("ignore:The `json` method is deprecated")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("swe_argo.workflows.argo.watch.POLL_S", 0.05)
    monkeypatch.setattr("swe_argo.workflows.argo.watch.SHARE", 0)
    monkeypatch.setattr("swe_argo.workflows.argo.kube_engine.PATIENCE", RetryPolicy(total_s=0.1, first_s=0.01))
    monkeypatch.setattr("swe_argo.workflows.argo.stop.POLL_S", 0.05)


def put(world: World, name: str, phase: str | None = None) -> None:
    """A recorded Workflow, of run r, as r-1 or its shard."""
    recorded = seen(name)
    shard = recorded["metadata"]["labels"].get("swe-argo/shard")
    labels = {"swe-argo/kind": "shard", "swe-argo/parent": "r-1", "swe-argo/shard": shard} if shard else {}
    phase = phase or recorded["status"]["phase"]
    world.workflow(
        f"r-1-s{shard}" if shard else "r-1", "r", phase, labels=labels, status=recorded["status"] | {"phase": phase}
    )


def bodies(world: World) -> Counter[str]:
    """How often each Workflow's body was asked for."""
    paths = [path for method, path, _ in world.asked if method == "GET" and path.rpartition("/")[2].startswith("r-")]
    return Counter(path.rpartition("/")[2] for path in paths)


def later(*acts: tuple[Callable[[], object], Callable[[], object]]) -> threading.Thread:
    """Do one after the other while the test watches, each (when, what) when its time has come."""

    def work() -> None:
        for due, act in acts:
            wait_for(due)
            act()

    thread = threading.Thread(target=work, daemon=True)  # whose time may never come where the test fails
    thread.start()
    return thread


def plain() -> Console:
    return Console(file=io.StringIO(), width=200)


def text(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def told(console: Console, words: str) -> Callable[[], bool]:
    """When a person has read these words."""
    return lambda: words in text(console)


def test_a_body_is_asked_for_only_when_it_changed(either: Engine, world: World) -> None:
    put(world, "working")
    put(world, "failing")
    run = WatchedRun(either, "r")
    assert run.look()
    assert not run.look()
    assert bodies(world) == Counter({"r-1": 1, "r-1-s00000": 1})
    put(world, "shard")
    assert run.look()
    assert bodies(world) == Counter({"r-1": 1, "r-1-s00000": 2})


def test_a_run_is_followed_to_its_end(either: Engine, world: World) -> None:
    put(world, "working")
    put(world, "failing")
    console = plain()
    going = later(
        (told(console, "units 0/3"), lambda: put(world, "shard")),
        (told(console, "units 4/4"), lambda: put(world, "parent")),
    )
    code = watch(either, "r", console)
    going.join()
    said = text(console)
    assert said.index("units 0/3, running 3") < said.index("units 4/4, 4 resolved") < said.index("succeeded")
    assert "the report is not to be seen from here" in said
    assert code == 0


def test_an_outage_of_the_api_is_said_once_and_lived_through(engine: Engine, world: World) -> None:
    put(world, "working")

    def back() -> None:
        world.away = 0
        put(world, "parent")

    def away() -> None:
        world.away = 10**6

    console = plain()
    going = later((told(console, " r: "), away), (told(console, "API away"), back))
    watch(engine, "r", console)
    going.join()
    said = text(console)
    assert said.count("API away") == said.count("API back") == 1
    assert said.index("API away") < said.index("API back") < said.index("succeeded")


def test_an_outage_shows_on_the_live_screen(engine: Engine, world: World) -> None:
    put(world, "working")
    put(world, "failing")
    run = WatchedRun(engine, "r")
    run.look()
    assert run.view is not None
    console = plain()
    console.print(render_screen("r", run.view, run.parts, "12:00:00"))
    said = text(console)
    assert "API away since 12:00:00" in said
    assert "mini-gridprint-1" in said
    assert "0/3" in said


def test_a_run_that_is_not_there_is_refused(either: Engine) -> None:
    with pytest.raises(ConfigError, match="no Workflow of it is in namespace evals"):
        watch(either, "r", plain())


def test_a_run_that_is_deleted_meanwhile_is_refused_too(engine: Engine, world: World) -> None:
    put(world, "working")
    console = plain()
    going = later((told(console, " r: "), lambda: world.objects.pop(("workflows", "r-1"))))
    with pytest.raises(ConfigError, match="its Workflow was deleted"):
        watch(engine, "r", console)
    going.join()


@pytest.mark.parametrize(("code", "error"), [("64", ConfigError), ("75", InfraError)])
def test_a_run_without_a_report_ends_as_its_plan_did(
    code: str, error: type[Exception], engine: Engine, world: World
) -> None:
    step = {"id": "p", "type": "Pod", "templateName": "plan", "phase": "Failed", "outputs": {"exitCode": code}}
    status = {"nodes": {"p": step | {"message": f"main: Error (exit code {code}): plan: what went wrong"}}}
    world.workflow("r-1", "r", "Failed", status=status)
    with pytest.raises(error, match="'r' ended without a report: plan: what went wrong"):
        watch(engine, "r", plain())


def test_units_without_a_verdict_are_exit_code_3(engine: Engine, world: World) -> None:
    put(world, "parent")
    recorded = json.loads(json.dumps(seen("shard")))
    for each in recorded["status"]["nodes"].values():
        if each.get("templateName") == "unit" and each["type"] == "DAG":
            each["phase"] = "Failed"
    labels = {"swe-argo/kind": "shard", "swe-argo/parent": "r-1", "swe-argo/shard": "00000"}
    world.workflow("r-1-s00000", "r", "Failed", labels=labels, status=recorded["status"])
    assert watch(engine, "r", plain()) == 3


def test_stopping_reaches_the_parts_and_tells_what_became_of_it(either: Engine, world: World) -> None:
    put(world, "working")
    put(world, "failing")
    part, console = world.objects["workflows", "r-1-s00000"], plain()
    going = later((lambda: "shutdown" in part["spec"], lambda: put(world, "stopped")))
    code = stop(either, "r", console, wait=True)
    going.join()
    assert part["spec"]["shutdown"] == "Stop"
    assert "swe-argo resume r" in text(console)
    assert code == 3


def test_a_part_that_waits_for_its_turn_is_terminated(engine: Engine, world: World) -> None:
    put(world, "working")
    put(world, "failing", "Pending")
    stop(engine, "r", plain(), wait=False)
    asked = {name: each["spec"]["shutdown"] for (_, name), each in world.objects.items()}
    assert asked == {"r-1": "Stop", "r-1-s00000": "Terminate"}


def test_what_has_ended_cannot_be_stopped(either: Engine, world: World) -> None:
    put(world, "parent")
    with pytest.raises(ConfigError, match="it is not running: it ended, Succeeded"):
        stop(either, "r", plain(), wait=True)


def test_a_run_whose_last_step_cannot_begin_is_ended_without_it_and_says_why(
    engine: Engine, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("swe_argo.workflows.argo.stop.STANDSTILL_S", 3.0)  # in which the controller comes to its turn
    pull = "ImagePullBackOff: Back-off pulling image"
    pod = {"id": "f", "type": "Pod", "templateName": "finalize", "phase": "Pending", "message": pull}
    world.workflow("r-1", "r", "Running", status={"phase": "Running", "nodes": {"f": pod}})
    put(world, "failing")
    over = threading.Event()

    def controller() -> None:
        """Argo's: it heeds no Stop of what cannot begin, and says something else of it at each look."""
        for look in itertools.count():
            if over.wait(0.05):
                return
            shown = pod | {"message": ("ErrImagePull: rpc error", pull)[look % 2]}
            spec = world.objects["workflows", "r-1"]["spec"]
            world.workflow("r-1", "r", "Running", status={"phase": "Running", "nodes": {"f": shown}}, spec=spec)
            if world.objects["workflows", "r-1"].get("spec", {}).get("shutdown") == "Terminate":
                world.workflow("r-1", "r", "Failed", status={"phase": "Failed", "nodes": {"f": pod}})
                return

    thread = threading.Thread(target=controller)
    thread.start()
    console = plain()
    try:
        code = stop(engine, "r", console, wait=True)
    finally:
        over.set()
        thread.join()
    assert code == 3
    assert "without a report, for its last step did not begin: the pod of finalize waits: " in text(console)
    assert "swe-argo resume r" in text(console)
    assert ("workflows", "r-1-s00000") not in world.objects  # what is gone holds no places


def test_a_run_that_nothing_ends_is_given_up(engine: Engine, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("swe_argo.workflows.argo.stop.STANDSTILL_S", 0.2)
    put(world, "working")
    with pytest.raises(InfraError, match=r"does not end, though it was terminated: is .*controller running\?"):
        stop(engine, "r", plain(), wait=True)


def at_work(world: World, action: str) -> None:
    """The recorded shard with one solve that runs, and what it printed."""
    recorded = json.loads(json.dumps(seen("failing")))
    recorded["status"]["nodes"]["t6-s00000-531552619"]["phase"] = "Running"
    labels = {"swe-argo/kind": "shard", "swe-argo/parent": "r-1", "swe-argo/shard": "00000"}
    world.workflow("r-1-s00000", "r", "Running", labels=labels, status=recorded["status"])
    progress = UnitProgress(
        run="r", instance_id="mini__gridprint-1", attempt=1, step="solve", phase="agent", since="2026-01-01T00:00:00Z",
        turn=12, most_turns=40, usage=Usage(requests=12, prompt_tokens=34_000, cost_usd=0.5), action=action,
    )  # fmt: skip
    earlier = progress.model_copy(update={"turn": 11})
    lines = ["solve: begins", f"{MARK}{earlier.to_line()}", f"{MARK}{progress.to_line()}", "DEBUG call of m", MARK]
    world.logs["r-1-s00000-solve-531552619"] = "".join(f"{line}\n" for line in lines)


def test_each_unit_at_work_tells_how_far_it_is(either: Engine, world: World) -> None:
    put(world, "working")
    at_work(world, "bash: ls \x1b[2J \udce9")
    run = WatchedRun(either, "r")
    run.look()
    (progress,) = read_progress(either, run.parts)
    assert (progress.turn, progress.most_turns) == (12, 40)
    assert run.view is not None
    console = plain()
    console.print(render_screen("r", run.view, run.parts, "", [progress]))
    line = next(line for line in text(console).splitlines() if "turn 12 of 40" in line)
    assert line.startswith("  mini__gridprint-1  turn 12 of 40, ")
    assert ", 34,000 tokens, $0.50, bash: ls " in line
    assert line.endswith("bash: ls ␛[2J \\xe9")


def test_a_name_in_a_log_does_nothing_to_a_terminal() -> None:
    progress = UnitProgress(
        run="r", instance_id="\x1b]0;own\x07x", attempt=1, step="solve", phase="agent", since="2026-01-01T00:00:00Z"
    )
    (line,) = progress_lines([progress])
    assert line.startswith("  ␛]0;own␇x  ")


def test_a_log_says_what_is_at_work_where_nothing_else_is_new(
    engine: Engine, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("swe_argo.workflows.argo.watch.QUIET_S", 0)
    put(world, "working")
    at_work(world, "bash: ls")
    console = plain()
    going = later(
        (told(console, "turn 12 of 40"), lambda: put(world, "shard")),
        (told(console, "units 4/4"), lambda: put(world, "parent")),
    )
    watch(engine, "r", console)
    going.join()
    assert "r: mini__gridprint-1  turn 12 of 40" in text(console)


def test_a_log_that_is_not_there_is_no_error(either: Engine, world: World) -> None:
    put(world, "working")
    at_work(world, "bash: ls")
    world.logs.clear()
    run = WatchedRun(either, "r")
    run.look()
    assert run.parts[0].pods
    assert read_progress(either, run.parts) == []


def test_a_run_with_something_left_says_what_does_it(engine: Engine, world: World) -> None:
    put(world, "parent")
    recorded = json.loads(json.dumps(seen("shard")))
    units = [each for each in recorded["status"]["nodes"].values() if each.get("templateName") == "unit"]
    next(each for each in units if each["type"] == "DAG")["phase"] = "Failed"
    labels = {"swe-argo/kind": "shard", "swe-argo/parent": "r-1", "swe-argo/shard": "00000"}
    world.workflow("r-1-s00000", "r", "Failed", labels=labels, status=recorded["status"])
    console = plain()
    assert watch(engine, "r", console) == 3
    assert text(console).splitlines()[-1] == "to go on: swe-argo resume r --namespace evals"


def test_watch_says_why_nothing_moves(engine: Engine, world: World) -> None:
    pull = "ImagePullBackOff: Back-off pulling image"
    pod = {"id": "p", "type": "Pod", "templateName": "plan", "phase": "Pending", "message": pull}
    world.workflow("r-1", "r", "Running", status={"phase": "Running", "nodes": {"p": pod}})
    console = plain()
    going = later((told(console, pull), lambda: put(world, "parent")))
    watch(engine, "r", console)
    going.join()
    assert f"planning, the pod of plan waits: {pull}" in text(console)
