"""What it costs to start a step: everything of a grade but its sandbox and its tests."""

from __future__ import annotations

import tempfile
from pathlib import Path

from bench.processes import cpu_s
from swe_argo.steps.contracts.data import Answer, DatasetLock, Instance, Patch, RunFile
from swe_argo.steps.contracts.run_spec import RunSpec
from swe_argo.steps.entry import write_all

RUN = RunFile(
    run_id="bench",
    spec=RunSpec(),
    dataset=DatasetLock(name="mini", split="test", revision=None, rows=1, sha256=""),
    model="gold",
    versions={},
    created_at="",
)
INSTANCE = Instance(instance_id="i", repo="o/r", version="1", base_commit="c", image="i", problem_statement="")
ANSWER = Answer(
    instance_id="i",
    repo="o/r",
    version="1",
    image="i",
    patch="",
    test_patch="",
    eval_script="",
    FAIL_TO_PASS=[],
    PASS_TO_PASS=[],
    log_parser="parse_log_pytest",
    eval_type="pass_and_fail",
)


def measure() -> dict[str, float]:
    """CPU seconds of a grade step that has nothing to run, and of the interpreter alone."""
    with tempfile.TemporaryDirectory() as folder:
        write_all(Path(folder, "in"), [RUN, INSTANCE, ANSWER, Patch(b"")])
        flags = ["--in", f"{folder}/in", "--out", f"{folder}/out"]
        grade = cpu_s(["-m", "swe_argo.steps.grade", *flags])
    return {
        "step_start_cpu_s": max(grade, cpu_s(["-m", "swe_argo.steps.solve", "--help"])),
        "python_start_cpu_s": cpu_s(["-c", "pass"]),
    }
