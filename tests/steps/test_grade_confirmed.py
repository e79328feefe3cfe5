"""The counter-proof within the step: when there is one, and that nothing in it loses the verdict."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path

import pytest

from steps.contracts.failure import FailureClass
from steps.contracts.verdict import Confirmation, CounterProof, Outcome
from steps.errors import InfraError
from steps.grading import official
from steps.grading.counter_proof import confirm
from steps.grading.saved_logs import grade_text
from steps.sandbox.protocol import Sandbox
from tests.paths import ROOT
from tests.steps.grading.conftest import GOLD, Lab, eval_script
from tests.steps.grading.logs import make_log
from tests.steps.test_grade import Unit
from tests.workflows.command import wait_for

ALL_FILES = {"test_output.txt", "report.json", "run_instance.log", "eval.sh"}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    made = Lab(tmp_path_factory.mktemp("images"))
    yield made
    made.close()


def proof_of(unit: Unit) -> CounterProof:
    """The counter-proof of a unit that was graded as resolved, with all its official files."""
    assert unit.grade() == 0, unit.stderr
    assert unit.record.outcome is Outcome.RESOLVED
    assert unit.official == ALL_FILES
    proof = unit.record.counter_proof
    assert proof is not None
    return proof


def test_a_patch_that_is_not_ours_is_confirmed(lab: Lab, tmp_path: Path) -> None:
    unit = Unit(lab, tmp_path, GOLD, agent="given")
    proof = proof_of(unit)
    assert (proof.outcome, proof.reason, proof.files) == (Confirmation.CONFIRMED, "", ["tests/test_calc.py"])
    assert not proof.excerpt
    assert unit.record.seconds["counter_proof"] == proof.seconds > 0
    assert unit.record.integrity.verdict == "ok"


def test_the_official_files_are_those_of_the_first_run(lab: Lab, tmp_path: Path) -> None:
    script = eval_script(lab.base)
    unit = Unit(lab, tmp_path, GOLD, agent="given", eval_script=script)
    assert proof_of(unit).outcome is Confirmation.CONFIRMED
    patch = script.partition("<<'EOF_0123456789ab'\n")[2].partition("EOF_0123456789ab")[0]
    assert patch in (unit.outputs / "eval.sh").read_text()
    assert "2 passed" in (unit.outputs / "test_output.txt").read_text()


WRONG = b"diff --git a/x b/x\nnew file mode 100644\n--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+x\n"


@pytest.mark.parametrize(
    ("agent", "patch"),
    [("gold", GOLD), ("idle", b""), ("given", WRONG)],
    ids=["reference", "untouched", "unresolved"],
)
@pytest.mark.parametrize("setting", ["resolved", "always"])
def test_the_wish_says_when_there_is_one(lab: Lab, tmp_path: Path, setting: str, agent: str, patch: bytes) -> None:
    unit = Unit(lab, tmp_path, patch, agent=agent, counter_proof=setting)
    assert unit.grade() == 0, unit.stderr
    proof = unit.record.counter_proof
    assert (proof is not None) is (setting == "always")
    if proof is not None:
        assert proof.outcome is Confirmation.CONFIRMED


def test_there_is_none_where_none_is_wished_for(lab: Lab, tmp_path: Path) -> None:
    unit = Unit(lab, tmp_path, GOLD, agent="given", counter_proof="never")
    assert unit.grade() == 0, unit.stderr
    assert unit.record.resolved
    assert unit.record.counter_proof is None


# The second run is the one whose file has more than two tests, a number that a patch does not know.
SECOND = "if [ $(grep -c 'def ' tests/test_calc.py) -gt 2 ]; then {then}; fi; python -m pytest -rA tests/test_calc.py"


@pytest.mark.parametrize(
    ("then", "outcome", "reason"),
    [
        pytest.param(
            *("sleep 60", Confirmation.NOT_CONFIRMED, "the tests did not end within their time"), marks=pytest.mark.long
        ),
        ("exit 3", Confirmation.NOT_CONFIRMED, "the log is not gradeable"),
        ("echo 'assert 0' >>tests/test_calc.py", Confirmation.FLAKY, "2 listed tests passed officially"),
    ],
)
def test_what_goes_wrong_in_it_is_told_and_loses_nothing(
    lab: Lab, tmp_path: Path, then: str, outcome: Confirmation, reason: str
) -> None:
    script = eval_script(lab.base, SECOND.format(then=then))
    timeout_s = 15 if then.startswith("sleep") else 300
    unit = Unit(lab, tmp_path, GOLD, agent="given", timeout_s=timeout_s, eval_script=script)
    proof = proof_of(unit)
    assert proof.outcome is outcome, proof
    assert proof.reason.startswith(reason)
    assert proof.excerpt
    assert unit.record.integrity.verdict == "ok"


def test_a_step_that_is_told_to_end_in_the_midst_of_it_hands_on_its_verdict(lab: Lab, tmp_path: Path) -> None:
    word = f"{time.time_ns() % 10**6 + 1000}.125"
    script = eval_script(lab.base, SECOND.format(then=f"sleep {word}"))
    unit = Unit(lab, tmp_path, GOLD, agent="given", timeout_s=600, eval_script=script)
    step = subprocess.Popen(unit.command(), cwd=ROOT, env={**os.environ, "PYTHONUTF8": "1"})
    wait_for(lambda: step.poll() is not None or sleeps(word))
    step.send_signal(signal.SIGTERM)
    assert step.wait(60) == 0
    assert unit.record.resolved
    assert unit.official == ALL_FILES
    assert unit.record.counter_proof is not None
    assert unit.record.counter_proof.reason == "the step was told to end"
    wait_for(lambda: not sleeps(word))


def sleeps(word: str) -> bool:
    """Whether a process sleeps for so long."""
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if each.read_bytes().startswith(b"sleep\0" + word.encode()):
                return True
    return False


def test_a_sandbox_that_cannot_be_made_is_told(lab: Lab) -> None:
    row = lab.row()
    spec = official.make_test_spec(row)
    log = make_log("PASSED tests/test_calc.py::test_adds", "PASSED tests/test_calc.py::test_subtracts", code=0)
    graded = grade_text(spec, log, {"instance_id": row["instance_id"], "model_patch": "x"})

    def no_box() -> AbstractContextManager[Sandbox]:
        raise InfraError(FailureClass.SANDBOX_CREATE, "no room for another one")

    proof = confirm(no_box, spec, lab.base, GOLD, graded, timeout_s=60, folder="f")
    assert (proof.outcome, proof.reason) == (Confirmation.NOT_CONFIRMED, "no room for another one")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"log_parser": "parse_log_jq"}, "whole files"),
        ({"eval_script": "#!/bin/bash\n: '>>>>> Start Test Output'\ntrue\n: '>>>>> End Test Output'\n"}, "applies 0"),
    ],
)
def test_a_row_that_takes_no_further_test_is_told_before_a_sandbox_is_made(
    lab: Lab, changes: dict[str, str], reason: str
) -> None:
    spec = official.make_test_spec(lab.row(**changes))
    graded = grade_text(spec, make_log("PASS: a", code=0), {"instance_id": "acme__calc-1", "model_patch": "x"})

    def no_box() -> AbstractContextManager[Sandbox]:
        raise AssertionError("no sandbox is needed")

    proof = confirm(no_box, spec, lab.base, GOLD, graded, timeout_s=60, folder="f")
    assert proof.outcome is Confirmation.UNAVAILABLE
    assert reason in proof.reason
