"""Tests of a made instance that run inside this process: a TwinTests whose patches behave as a test says."""

from __future__ import annotations

import atexit
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from types import SimpleNamespace
from typing import Any, cast

from swe_argo.steps.contracts.verdict import Confirmation, ValidatedTwins
from swe_argo.steps.grading.procedure import InstanceLogWriter, ProcedureRun
from swe_argo.steps.grading.twins.confirmation import ConfirmationRequest, confirm, validate_twins
from swe_argo.steps.grading.twins.sites import SiteChange, find_sites
from swe_argo.steps.grading.twins.twin_tests import OpenSandbox, TestFile, TestReading, TestRuns
from swe_argo.steps.sandbox.protocol import Sandbox

PATH = "tests/test_made.py"
WORDS = ["alpha", "bravo", "cobra", "delta", "ember", "fossil", "gravel", "hotel", "indigo", "jumble"]
REFERENCE, PATCH = b"reference", b"patch"
Statuses = dict[str, str]
Behaviour = Callable[[Statuses, int], Statuses | str]
"""Gets the honest statuses and the number of the patch's run, from 0; returns statuses, or why there are none."""


def honest(statuses: Statuses, _: int) -> Statuses:
    return statuses


def pass_all(statuses: Statuses, _: int) -> Statuses:
    return dict.fromkeys(statuses, "PASSED")


def fail_all(statuses: Statuses, _: int) -> Statuses:
    return dict.fromkeys(statuses, "FAILED")


def only_in(numbers: range, behaviour: Behaviour) -> Behaviour:
    """Return a behaviour that is honest in all other runs."""
    return lambda statuses, number: behaviour(statuses, number) if number in numbers else statuses


class MadeTests:
    """See ``TwinTests``. The first tests are FAIL_TO_PASS, three more are PASS_TO_PASS."""

    instance_id = "made__made-1"
    row_sha256 = "0" * 64
    reference = REFERENCE

    def __init__(self, count: int = 4, *, without_site: int = 0, behaviours: Mapping[bytes, Behaviour] | None = None):
        words = WORDS[: count + 3]
        self.words = {f"q{number}": word for number, word in enumerate(words)}
        self.numbers = {f"q{number}": int(f"{number + 1}37") for number in range(len(words))}
        spare = [f"{word}{end}" for word in WORDS for end in ("s", "er")] + [f"{n}" * 3 for n in range(1, 10)]
        source = f"spare = '{' '.join(spare)}'\n"
        for n, word in enumerate(words):
            with_site = f" == '{word}'\n    assert g('q{n}') == {n + 1}37\n"
            source += f"def test_{n}():\n    assert f('q{n}'){with_site if n >= without_site else chr(10)}"
        self.source = source.encode()
        self.names = [f"test_{number}" for number in range(count + 3)]
        self.fail_to_pass: Sequence[str] | None = self.names[:count]
        self.pass_to_pass: Sequence[str] = self.names[count:]
        unsolved = dict.fromkeys(self.names[:count], "FAILED")
        self.behaviours = {REFERENCE: honest, b"": lambda statuses, _: statuses | unsolved, **(behaviours or {})}
        self.answers: dict[bytes, dict[str, Any]] = {}
        """Patch -> its own functions in place of the right ones."""
        self.run_files: dict[bytes, list[bytes]] = {}
        """Patch -> the test file of each of its runs."""

    def require_files(self) -> None:
        pass

    def set_up(self, box: Sandbox) -> None:
        pass

    def put(self, box: Sandbox, contents: Mapping[str, bytes]) -> None:
        pass

    def read_base(self, box: Sandbox) -> dict[str, str | None]:
        return {PATH: None}

    def find_files(self, base: Mapping[str, str | None], passed: Sequence[str]) -> list[TestFile]:
        assert set(base) == {PATH}
        sites = find_sites(PATH, self.source, pass_to_pass=list(passed))
        return [TestFile(PATH, self.source, {test: [s for s in sites if s.test == test] for test in passed})]

    def rename(self, test: str, change: SiteChange) -> str:
        return test

    def run(
        self,
        box: Sandbox,
        base: Mapping[str, str | None],
        contents: Mapping[str, bytes],
        patch: bytes | None,
        *,
        timeout_s: int,
        folder: str,
    ) -> ProcedureRun:
        assert set(base) == {PATH}
        source, patch = contents.get(PATH, self.source), patch or b""
        number = len(self.run_files.setdefault(patch, []))
        self.run_files[patch].append(source)
        with redirect_stdout(io.StringIO()) as printed:
            result = self.behaviours[patch](self.evaluate(source, patch), number)
        atexit.unregister(print)  # of recorders, whose process ends with the tests elsewhere
        run = ProcedureRun(InstanceLogWriter(), log=f"{json.dumps(result)}\n{printed.getvalue()}".encode())
        run.seconds["tests"] = 1.0
        return run

    def evaluate(self, source: bytes, patch: bytes) -> Statuses:
        """Return what the tests come to with a patch's answers."""
        names: dict[str, Any] = {"f": self.words.get, "g": self.numbers.get, **self.answers.get(patch, {})}
        exec(source, names)
        statuses = {}
        for test in self.names:
            try:
                names[test]()
                statuses[test] = "PASSED"
            except AssertionError:
                statuses[test] = "FAILED"
        return statuses

    def read(self, run: ProcedureRun) -> TestReading:
        result = json.loads((run.log or b"{}").partition(b"\n")[0])
        return TestReading({}, result) if isinstance(result, str) else TestReading(result)


@contextmanager
def no_sandbox(network: bool) -> Iterator[Sandbox]:
    yield cast(Sandbox, SimpleNamespace(machine=SimpleNamespace(network=network)))


def validate(tests: MadeTests) -> ValidatedTwins:
    runs = TestRuns(tests, None, no_sandbox, timeout_s=60, folder="f", _wait_s=0.0)
    return validate_twins(runs, image="made/made", image_digest=None, network=False)


def confirm_patch(
    tests: MadeTests, patch: bytes = PATCH, open_sandbox: OpenSandbox = no_sandbox, **changes: Any
) -> tuple[Confirmation, ValidatedTwins | None]:
    runs = TestRuns(tests, patch, open_sandbox, timeout_s=60, folder="f", _wait_s=0.0)
    fields: dict[str, Any] = {"seed": b"s" * 32, "image": "made/made", "image_digest": None, "network": False}
    fields |= {"twins": None, "max_runs": None, "max_chance": 1 / 8}
    return confirm(runs, ConfirmationRequest(**(fields | changes)))
