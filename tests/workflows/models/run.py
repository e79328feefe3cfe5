"""``swe-argo run`` with an agent that asks the model server."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.trajectory import StopReason, Trajectory
from swe_argo.steps.store import open_store
from tests.model_server import Counts, ModelServer
from tests.workflows.command import ids, summary, swe_argo

KEY = "sk-tests-0123456789abcdef0123456789abcdef"
"""A key that no file of a run may contain."""


def environment(server: ModelServer, api_key: str = KEY) -> dict[str, str]:
    return {"LLM_BASE_URL": server.url, "OPENAI_API_KEY": api_key}


def evaluate(
    server: ModelServer, store: Path, agent: str, *words: str, instances: list[str], run_id: str = "run", jobs: int = 2
) -> subprocess.CompletedProcess[str]:
    """Run an agent on these instances; a repeated call resumes the run."""
    flags = ["--store", str(store), "--run-id", run_id, "--agent", agent, "--model", "openai/scripted", "-j", str(jobs)]
    flags += ["--allow-host"]
    return swe_argo("run", *flags, *ids(*instances), *words, env=environment(server))


def assert_totals(store: Path, counts: Counts) -> None:
    """Check that the report has all calls, requests and tokens of the server, and no file the key."""
    usage = summary(str(store), "run").cost.usage
    mine = (usage.calls, usage.requests, usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens)
    assert mine == (
        counts.calls, counts.requests, counts.prompt_tokens, counts.completion_tokens, counts.cached_tokens
    )  # fmt: skip
    assert files_with(store, KEY) == []


def assert_resolved(store: Path, instance: str) -> Trajectory:
    """Check that the official report has the instance resolved by an agent that finished; return its trajectory."""
    report = json.loads((store / "runs" / "run" / "units" / instance / "1" / "report.json").read_text())
    assert report[instance]["resolved"] is True
    solved = trajectory(store, instance)
    assert solved.extra.stop_reason is StopReason.FINISHED
    return solved


def trajectory(store: Path, instance: str, run_id: str = "run", attempt: int = 1) -> Trajectory:
    return Trajectory.from_bytes(open_store(str(store)).get(key(Trajectory, run_id, instance, attempt)))


def files_with(folder: Path, text: str) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and text.encode() in path.read_bytes()]
