"""Whole runs of mini in sandboxes of the test server: the verdicts of backend local, and nothing is left."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("e2b", reason="the extra e2b is not installed")

from swe_argo.steps.sandbox.local import bubblewrap
from tests import small_agent, solutions
from tests.model_server import Answer, Call, call, model_server, play
from tests.model_server.scripts import by_text
from tests.steps.agents.gateway.toolchain import needs_go
from tests.steps.sandbox.e2b.limits import Limits
from tests.steps.sandbox.e2b.runs import E2BRuns
from tests.workflows.command import QUICK, ids, summary, swe_argo
from tests.workflows.models.run import environment

pytestmark = pytest.mark.skipif(bubblewrap.probe() is not None, reason=str(bubblewrap.probe()))
FAST = ["--e2b-creations-per-second", "20"]


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[E2BRuns]:
    runs = E2BRuns(tmp_path)
    with runs.server.running():
        yield runs


@pytest.mark.slow
@pytest.mark.parametrize("agent", ["gold", pytest.param("idle", marks=pytest.mark.long)])
def test_run_has_the_verdicts_of_local(runs: E2BRuns, agent: str) -> None:
    words = ["run", "--store", runs.store, "--agent", agent, "--agent-timeout", "600", *ids(*QUICK)]
    for name, backend in (("local", ["--backend", "local"]), ("remote", [*runs.backend, *FAST])):
        result = swe_argo(*words, "--run-id", name, *backend, env=runs.env)
        assert result.returncode == 0, result.stdout + result.stderr
    assert _verdicts(runs, "local") == _verdicts(runs, "remote")
    assert summary(runs.store, "remote").headline.resolved == (len(QUICK) if agent == "gold" else 0)
    assert len(runs.server.control.creates) >= len(QUICK)
    assert runs.orphans == []


@pytest.mark.slow
@pytest.mark.long
def test_scaffold_solves_as_locally(runs: E2BRuns) -> None:
    """One answer right, one that changes nothing: the model's server sees the same conversations from both."""
    right, wrong = "mini__slugkit-2", "mini__gridprint-1"
    good = solutions.solving("r2egym")
    wrong_row = solutions.rows()[wrong]["problem_statement"]
    script = by_text({wrong_row.partition("\n")[0]: play(call("finish", command="submit"))}, otherwise=good)

    for name, backend in (("local", ["--backend", "local"]), ("remote", [*runs.backend, *FAST])):
        words = ["--store", runs.store, "--run-id", name, "--agent", "r2egym", "--model", "openai/scripted"]
        words += ["--use-fn-calling", "true", "--allow-host", "--agent-timeout", "600", *ids(right, wrong)]
        with model_server(script) as models:
            result = swe_argo("run", *words, *backend, env=runs.env | environment(models))
            assert result.returncode == 0, result.stdout + result.stderr
    assert _verdicts(runs, "local") == _verdicts(runs, "remote")
    assert summary(runs.store, "remote").headline.resolved == 1
    solving = _creates(runs, "solve")
    assert len(solving) == 2
    assert all(body["allow_internet_access"] is False for body in solving)
    assert runs.orphans == []


@needs_go
@pytest.mark.long
def test_agent_is_in_solve_templates(runs: E2BRuns) -> None:
    """Built ahead, found by the run, told of by the list, and kept for as long as the run is there."""
    runs.install_gateway()
    chosen = ids("mini__slugkit-1", "mini__ledgerlet-1")
    command = shlex.join(["./small-agent", *small_agent.words()])
    agent = ["--agent-command", command, "--agent-folder", str(small_agent.FOLDER)]
    built = swe_argo("templates", "build", "mini", *chosen, *agent, env=runs.env)
    assert built.returncode == 0, built.stdout + built.stderr
    assert "2 images of mini, each also with the files of small-agent" in built.stdout
    assert "4 templates: 2 built and 2 existed" in built.stdout
    plane = runs.server.control.templates
    with_files = {build.name for build in plane.builds}
    assert (len(with_files), plane.uploads) == (2, 1)

    words = ["--store", runs.store, "--run-id", "program", *agent, "--model", "openai/scripted", "--allow-host"]
    words += ["--agent-timeout", "600", "--no-e2b-build-templates", *chosen]
    script = play(Answer("I try.", calls=(Call("bash", {"command": "echo >new"}),)), Answer("That is all."))
    with model_server(script) as models:
        result = swe_argo("run", *words, *runs.backend, *FAST, env=runs.env | environment(models))
    assert result.returncode == 0, result.stdout + result.stderr
    used = {role: {body["templateID"] for body in _creates(runs, role)} for role in ("solve", "grade")}
    assert used["solve"] == with_files
    assert len(used["grade"] - with_files) == len(used["grade"]) == 2
    assert plane.uploads == 1

    listed = swe_argo("templates", "list", "--store", runs.store, env=runs.env).stdout
    lines = {line.split()[0]: line for line in listed.splitlines()}
    assert all(lines[name].split()[-3:] == ["with", "small-agent", "program"] for name in with_files)
    swe_argo("templates", "prune", "--store", runs.store, "--yes", env=runs.env)
    assert set(runs.server.machines.templates) == with_files | used["grade"]


def _creates(runs: E2BRuns, role: str) -> list[dict[str, Any]]:
    return [body for body in runs.server.control.creates if body["metadata"]["role"] == role]


def _verdicts(runs: E2BRuns, run: str) -> object:
    """The official summary, which names instances, and no run."""
    (file,) = Path(runs.store, "runs", run, "report").glob(f"*.{run}.json")
    return json.loads(file.read_bytes())


def _many(runs: E2BRuns, limits: Limits, per_second: int, attempts: int) -> None:
    runs.server.control.limits = limits
    units = attempts * len(QUICK)
    flags = ["--store", runs.store, "--run-id", "many", "--agent", "gold", "--attempts", str(attempts)]
    flags += ["-j", str(units), "--e2b-creations-per-second", str(per_second), "--counter-proof", "never"]
    result = swe_argo("run", *flags, *ids(*QUICK), *runs.backend, env=runs.env, timeout_s=1200)
    assert result.returncode == 0, result.stdout + result.stderr
    records = list(Path(runs.store).glob("runs/many/units/*/*/grade.json"))
    assert len(records) == units
    assert all(json.loads(record.read_text())["resolved"] for record in records)
    assert limits.refused["creation rate"] == limits.refused["lifecycle API"] == limits.refused["operations"] == 0
    assert runs.orphans == []


@pytest.mark.slow
def test_units_wait_for_free_places(runs: E2BRuns) -> None:
    limits = Limits(5, concurrent=2)
    _many(runs, limits, 5, 1)
    assert limits.refused["concurrency"] > 0
    assert limits.most_running == 2


@pytest.mark.long
@pytest.mark.timeout(1500)
@pytest.mark.parametrize(("per_second", "concurrent"), [(1, 20), (5, 100)], ids=["hobby", "pro"])
def test_many_units_keep_the_plan_limits(runs: E2BRuns, per_second: int, concurrent: int) -> None:
    limits = Limits(per_second, concurrent)
    _many(runs, limits, per_second, 16)
    assert limits.most_running <= concurrent
