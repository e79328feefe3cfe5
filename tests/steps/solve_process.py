"""One solve: its folders, and the step run on them as the program it is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from swe_argo.steps.contracts.chain import OUTCOME
from swe_argo.steps.contracts.data import DatasetLock, Instance, RunFile
from swe_argo.steps.contracts.record import Record
from swe_argo.steps.contracts.recording import Action, Recording
from swe_argo.steps.contracts.run_spec import RunSpec
from swe_argo.steps.contracts.trajectory import Trajectory
from tests.forked_program import run_program
from tests.steps.agents.machine import git, image


class SolveProcess:
    """The folders of one solve, and the step run on them as the program it is."""

    def __init__(self, root: Path, agent: dict[str, Any], sandbox: dict[str, Any] | None = None, **more: Any) -> None:
        self.inputs, self.outputs, images = root / "in", root / "out", root / "images"
        self.inputs.mkdir()
        image(images / "test__image" / "testbed")
        self.repo = images / "test__image" / "testbed"
        chosen_spec = {"backend": "local", "local": {"images": str(images)}, **(sandbox or {})}
        llm, fields = more.pop("llm", {}), more.pop("run_spec", {})
        spec = RunSpec.model_validate({"run_id": "run", "agent": agent, "sandbox": chosen_spec, "llm": llm, **fields})
        lock = DatasetLock(name="d", split="test", revision=None, rows=1, sha256="0")
        created_at = "2026-01-01T00:00:00+00:00"
        self.put(RunFile(run_id="run", spec=spec, dataset=lock, model="m", versions={}, created_at=created_at, **more))
        self.put(
            Instance(
                instance_id="o__r-1",
                repo="o/r",
                version="1",
                base_commit=git(self.repo, "rev-parse", "HEAD~1"),
                image="test/image",
                problem_statement="p",
            )
        )

    def put(self, record: Record) -> None:
        (self.inputs / record.file).write_bytes(record.to_bytes())

    def record(self, *commands: str) -> None:
        actions = [Action(tool="bash", arguments={"command": command}) for command in commands]
        self.put(Recording(source="test", actions=actions))

    def command(self) -> list[str]:
        folders = ["--in", str(self.inputs), "--out", str(self.outputs)]
        return [sys.executable, "-m", "swe_argo.steps.solve", *folders, "--attempt", "2"]

    def solve(self, **environment: str) -> subprocess.CompletedProcess[str]:
        _, _, module, *words = self.command()
        return run_program(module, words, env=os.environ | environment)

    def files(self) -> list[str]:
        return sorted(path.name for path in self.outputs.rglob("*") if path.is_file() and path.name != OUTCOME)

    def get(self, kind: type[Any]) -> Any:
        return kind.from_bytes(next(self.outputs.rglob(kind.file)).read_bytes())


def observations(trajectory: Trajectory) -> list[str]:
    return [
        result.content or "" for turn in trajectory.steps if turn.observation for result in turn.observation.results
    ]
