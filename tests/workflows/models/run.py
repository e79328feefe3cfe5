"""``swe-argo run`` with an agent that asks the model server."""

from __future__ import annotations

import subprocess
from pathlib import Path

from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.trajectory import Trajectory
from swe_argo.steps.store import open_store
from tests.model_server import ModelServer
from tests.workflows.command import ids, swe_argo

KEY = "sk-tests-0123456789abcdef0123456789abcdef"
"""What no file of a run may hold."""


def environment(server: ModelServer, api_key: str = KEY) -> dict[str, str]:
    """The endpoint and its key, as a person has them in the environment."""
    return {"LLM_BASE_URL": server.url, "OPENAI_API_KEY": api_key}


def evaluate(
    server: ModelServer, store: Path, agent: str, *words: str, instances: list[str], run_id: str = "run", jobs: int = 2
) -> subprocess.CompletedProcess[str]:
    """Run it on these instances, resumably, isolated where this machine can: what the server answers is our own."""
    flags = ["--store", str(store), "--run-id", run_id, "--agent", agent, "--model", "openai/scripted", "-j", str(jobs)]
    flags += ["--allow-host"]
    return swe_argo("run", *flags, *ids(*instances), *words, env=environment(server))


def trajectory(store: Path, instance: str, run_id: str = "run", attempt: int = 1) -> Trajectory:
    """What the agent did."""
    return Trajectory.from_bytes(open_store(str(store)).get(key(Trajectory, run_id, instance, attempt)))


def files_with(folder: Path, text: str) -> list[Path]:
    """The files below ``folder`` whose bytes hold ``text``."""
    return [path for path in folder.rglob("*") if path.is_file() and text.encode() in path.read_bytes()]
