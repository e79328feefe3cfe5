"""Episodes of verifiers over an export of mini, with a scripted model."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import verifiers.v1 as vf

from swe_argo.steps.contracts.run_spec import RunSpec
from swe_argo.workflows.verl.dataset import VerlOptions, export_dataset
from tests.model_server import Answer, Script, call, model_server
from tests.rollouts import failing_backend
from tests.solutions import rows

ID = "swe-argo-verifiers"
INSTANCE = "mini__slugkit-2"
GOLD = rows()[INSTANCE]["patch"]
SUBMIT = call("submit_solution", patch=GOLD)
SOLVE = call("bash", command="sed -i 's/+ len(separator)$/+ (len(separator) if kept else 0)/' slugkit/slug.py")
FINAL = Answer("I am done.")


def export_mini(out: Path, backend: str = "local", *, style: str | None = None, **fields: Any) -> Path:
    """Export mini for training; return the folder. ``fields``: of the spec."""
    spec = {"dataset": "mini", "sandbox": {"backend": backend}, "store": str(out.parent / "none"), **fields}
    export_dataset(RunSpec.model_validate(spec), VerlOptions(style=style, out=out, val_ratio=0))
    return out


def export_failing(folder: Path, *orders: str, retries: int) -> Path:
    """Export one instance for a backend that fails to create these sandboxes (``role attempt``), once each."""
    shutil.copy(Path(failing_backend.__file__), folder / "failing_backend.py")
    (folder / "orders").write_text("\n".join(orders))
    backend = f"{folder}/failing_backend.py:FailingBackend"
    return export_mini(folder / "out", backend, select={"instance_ids": [INSTANCE]}, retries=retries)


def make_env(data: Path, **fields: Any) -> vf.Env:
    """Make an environment by the taskset's id."""
    taskset = {"id": ID, "data": str(data), **fields.pop("taskset", {})}
    return vf.load_environment(vf.resolve_env_config({"taskset": taskset, **fields}))


def task_of(env: vf.Env, instance_id: str = INSTANCE) -> vf.Task:
    [task] = env.taskset.include(ids=[instance_id])
    return task


async def play_episode(env: vf.Env, script: Script) -> vf.Episode:
    with model_server(script) as server:
        return await run_episode(env, vf.EvalClientConfig(base_url=server.url, api_key_var="NO_KEY"))


async def run_episode(env: vf.Env, client: Any) -> vf.Episode:
    async with env.serving():
        return await env.run_episode(task_of(env), vf.ModelContext(model="scripted", client=client))
