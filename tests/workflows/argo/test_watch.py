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
from swe_argo.workflows.argo.run_status import read_progress
from swe_argo.workflows.argo.stop import stop
from swe_argo.workflows.argo.watch import WatchedRun, progress_lines, render_screen, watch
from tests.workflows.argo.test_run_status import load_recorded
from tests.workflows.argo.world import World
from tests.workflows.command import wait_for

pytestmark = pytest.mark.filterwarnings("ignore:The `json` method is deprecated")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("swe_argo.workflows.argo.watch.POLL_S", 0.05)
    monkeypatch.setattr("swe_argo.workflows.argo.watch.SHARE", 0)
    monkeypatch.setattr("swe_argo.workflows.argo.kube_engine.PATIENCE", RetryPolicy(total_s=0.1, first_s=0.01))
    monkeypatch.setattr("swe_argo.workflows.argo.stop.POLL_S", 0.05)


def put_workflow(world: World, name: str, phase: str | None = None) -> None:
    """A recorded Workflow, of run r, as r-1 or its shard."""
    recorded = load_recorded(name)
    shard = recorded["metadata"]["labels"].get("swe-argo/shard")
    labels = {"swe-argo/kind": "shard", "swe-argo/parent": "r-1", "swe-argo/shard": shard} if shard else {}
    phase = phase or recorded["status"]["phase"]
    world.workflow(
        f"r-1-s{shard}" if shard else "r-1", "r", phase, labels=labels, status=recorded["status"] | {"phase": phase}
    )


def bodies(world: World) -> Counter[str]:
    """How often each Workflow's body was asked for."""
    paths = [path for method, path, _ in world.requests if method == "GET" and path.rpartition("/")[2].startswith("r-")]
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


def has_printed(console: Console, words: str) -> Callable[[], bool]:
    """When a person has read these words."""
    return lambda: words in text(console)


def test_watch_requests_changed_bodies(either: Engine, world: World) -> None:
    put_workflow(world, "working")
    put_workflow(world, "failing")
    run = WatchedRun(either, "r")
    assert run.poll()
    assert not run.poll()
    assert bodies(world) == Counter({"r-1": 1, "r-1-s00000": 1})
    put_workflow(world, "shard")
    assert run.poll()
    assert bodies(world) == Counter({"r-1": 1, "r-1-s00000": 2})


def test_watch_follows_run_to_end(either: Engine, world: World) -> None:
    put_workflow(world, "working")
    put_workflow(world, "failing")
    console = plain()
    going = later(
        (has_printed(console, "units 0/3"), lambda: put_workflow(world, "shard")),
        (has_printed(console, "units 4/4"), lambda: put_workflow(world, "parent")),
    )
    code = watch(either, "r", console)
    going.join()
    printed = text(console)
    assert printed.index("units 0/3, running 3") < printed.index("units 4/4, 4 resolved") < printed.index("succeeded")
    assert "cannot read the report" in printed
    assert code == 0


def test_watch_reports_api_outage_once(engine: Engine, world: World) -> None:
    put_workflow(world, "working")

    def back() -> None:
        world.away = 0
        put_workflow(world, "parent")

    def away() -> None:
        world.away = 10**6

    console = plain()
    going = later((has_printed(console, " r: "), away), (has_printed(console, "API unreachable"), back))
    watch(engine, "r", console)
    going.join()
    printed = text(console)
    assert printed.count("API unreachable") == printed.count("API reachable again") == 1
    assert printed.index("API unreachable") < printed.index("API reachable again") < printed.index("succeeded")


def test_screen_shows_api_outage(engine: Engine, world: World) -> None:
    put_workflow(world, "working")
    put_workflow(world, "failing")
    run = WatchedRun(engine, "r")
    run.poll()
    assert run.view is not None
    console = plain()
    console.print(render_screen("r", run.view, run.sorted_shards, "12:00:00"))
    printed = text(console)
    assert "API unreachable since 12:00:00" in printed
    assert "mini-gridprint-1" in printed
    assert "0/3" in printed


def test_watch_refuses_missing_run(either: Engine) -> None:
    with pytest.raises(ConfigError, match="no Workflow of it is in namespace evals"):
        watch(either, "r", plain())


def test_watch_refuses_deleted_run(engine: Engine, world: World) -> None:
    put_workflow(world, "working")
    console = plain()
    going = later((has_printed(console, " r: "), lambda: world.objects.pop(("workflows", "r-1"))))
    with pytest.raises(ConfigError, match="its Workflow was deleted"):
        watch(engine, "r", console)
    going.join()


@pytest.mark.parametrize(("code", "error"), [("64", ConfigError), ("75", InfraError)])
def test_watch_raises_plan_error(code: str, error: type[Exception], engine: Engine, world: World) -> None:
    step = {"id": "p", "type": "Pod", "templateName": "plan", "phase": "Failed", "outputs": {"exitCode": code}}
    status = {"nodes": {"p": step | {"message": f"main: Error (exit code {code}): plan: what went wrong"}}}
    world.workflow("r-1", "r", "Failed", status=status)
    with pytest.raises(error, match="'r' ended without a report: plan: what went wrong"):
        watch(engine, "r", plain())


def test_stop_stops_shards(either: Engine, world: World) -> None:
    put_workflow(world, "working")
    put_workflow(world, "failing")
    part, console = world.objects["workflows", "r-1-s00000"], plain()
    going = later((lambda: "shutdown" in part["spec"], lambda: put_workflow(world, "stopped")))
    code = stop(either, "r", console, wait=True)
    going.join()
    assert part["spec"]["shutdown"] == "Stop"
    assert "swe-argo resume r" in text(console)
    assert code == 3


def test_stop_terminates_waiting_shard(engine: Engine, world: World) -> None:
    put_workflow(world, "working")
    put_workflow(world, "failing", "Pending")
    stop(engine, "r", plain(), wait=False)
    shutdowns = {name: body["spec"]["shutdown"] for (_, name), body in world.objects.items()}
    assert shutdowns == {"r-1": "Stop", "r-1-s00000": "Terminate"}


def test_stop_refuses_ended_run(either: Engine, world: World) -> None:
    put_workflow(world, "parent")
    with pytest.raises(ConfigError, match="it is not running: it ended, Succeeded"):
        stop(either, "r", plain(), wait=True)


def test_stop_ends_stuck_last_step(engine: Engine, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("swe_argo.workflows.argo.stop.STALL_S", 3.0)  # in which the controller comes to its turn
    pull = "ImagePullBackOff: Back-off pulling image"
    pod = {"id": "f", "type": "Pod", "templateName": "finalize", "phase": "Pending", "message": pull}
    world.workflow("r-1", "r", "Running", status={"phase": "Running", "nodes": {"f": pod}})
    put_workflow(world, "failing")
    over = threading.Event()

    def controller() -> None:
        """Argo's: it heeds no Stop of what cannot begin, and says something else of it at each look."""
        for poll in itertools.count():
            if over.wait(0.05):
                return
            waiting_pod = pod | {"message": ("ErrImagePull: rpc error", pull)[poll % 2]}
            spec = world.objects["workflows", "r-1"]["spec"]
            world.workflow("r-1", "r", "Running", status={"phase": "Running", "nodes": {"f": waiting_pod}}, spec=spec)
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
    assert "without a report, because its last step did not start: the pod of finalize waits: " in text(console)
    assert "swe-argo resume r" in text(console)
    assert ("workflows", "r-1-s00000") not in world.objects  # what is gone holds no places


def test_stop_gives_up_in_the_end(engine: Engine, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("swe_argo.workflows.argo.stop.STALL_S", 0.2)
    put_workflow(world, "working")
    with pytest.raises(InfraError, match=r"was terminated but does not end .* is .*controller running\?"):
        stop(engine, "r", plain(), wait=True)


def at_work(world: World, action: str) -> None:
    """The recorded shard with one solve that runs, and what it printed."""
    recorded = json.loads(json.dumps(load_recorded("failing")))
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


def test_screen_shows_progress_of_units(either: Engine, world: World) -> None:
    put_workflow(world, "working")
    at_work(world, "bash: ls \x1b[2J \udce9")
    run = WatchedRun(either, "r")
    run.poll()
    (progress,) = read_progress(either, run.sorted_shards)
    assert (progress.turn, progress.most_turns) == (12, 40)
    assert run.view is not None
    console = plain()
    console.print(render_screen("r", run.view, run.sorted_shards, "", [progress]))
    line = next(line for line in text(console).splitlines() if "turn 12 of 40" in line)
    assert line.startswith("  mini__gridprint-1  turn 12 of 40, ")
    assert ", 34,000 tokens, $0.50, bash: ls " in line
    assert line.endswith("bash: ls ␛[2J \\xe9")


def test_progress_lines_escape_controls() -> None:
    progress = UnitProgress(
        run="r", instance_id="\x1b]0;own\x07x", attempt=1, step="solve", phase="agent", since="2026-01-01T00:00:00Z"
    )
    (line,) = progress_lines([progress])
    assert line.startswith("  ␛]0;own␇x  ")


def test_quiet_watch_shows_progress(engine: Engine, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("swe_argo.workflows.argo.watch.QUIET_S", 0)
    put_workflow(world, "working")
    at_work(world, "bash: ls")
    console = plain()
    going = later(
        (has_printed(console, "turn 12 of 40"), lambda: put_workflow(world, "shard")),
        (has_printed(console, "units 4/4"), lambda: put_workflow(world, "parent")),
    )
    watch(engine, "r", console)
    going.join()
    assert "r: mini__gridprint-1  turn 12 of 40" in text(console)


def test_missing_log_has_no_progress(either: Engine, world: World) -> None:
    put_workflow(world, "working")
    at_work(world, "bash: ls")
    world.logs.clear()
    run = WatchedRun(either, "r")
    run.poll()
    assert run.sorted_shards[0].step_pods
    assert read_progress(either, run.sorted_shards) == []


def test_watch_prints_resume_command(engine: Engine, world: World) -> None:
    put_workflow(world, "parent")
    recorded = json.loads(json.dumps(load_recorded("shard")))
    units = [node for node in recorded["status"]["nodes"].values() if node.get("templateName") == "unit"]
    next(node for node in units if node["type"] == "DAG")["phase"] = "Failed"
    labels = {"swe-argo/kind": "shard", "swe-argo/parent": "r-1", "swe-argo/shard": "00000"}
    world.workflow("r-1-s00000", "r", "Failed", labels=labels, status=recorded["status"])
    console = plain()
    assert watch(engine, "r", console) == 3
    assert text(console).splitlines()[-1] == "continue with: swe-argo resume r --namespace evals"


def test_watch_states_why_run_waits(engine: Engine, world: World) -> None:
    pull = "ImagePullBackOff: Back-off pulling image"
    pod = {"id": "p", "type": "Pod", "templateName": "plan", "phase": "Pending", "message": pull}
    world.workflow("r-1", "r", "Running", status={"phase": "Running", "nodes": {"p": pod}})
    console = plain()
    going = later((has_printed(console, pull), lambda: put_workflow(world, "parent")))
    watch(engine, "r", console)
    going.join()
    assert f"planning, the pod of plan waits: {pull}" in text(console)
