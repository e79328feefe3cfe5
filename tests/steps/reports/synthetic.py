"""Builder of a run in a store as the other steps leave it: any number of units, every outcome, hostile texts."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from typing import Any

from swe_argo.steps.contracts.data import DatasetLock, Instance, Machine, Patch, Plan, RunFile, Stage, Unit
from swe_argo.steps.contracts.failure import Failure, FailureClass
from swe_argo.steps.contracts.record import Raw, Record, key
from swe_argo.steps.contracts.run_spec import RunSpec
from swe_argo.steps.contracts.solve_record import History, SolveRecord
from swe_argo.steps.contracts.trajectory import StopReason, Trajectory, Usage
from swe_argo.steps.contracts.verdict import (
    EvalScript,
    Evidence,
    Finding,
    GradeRecord,
    InstanceLog,
    Integrity,
    Outcome,
    Report,
    TestCounts,
    TestLog,
)
from swe_argo.steps.store import Store
from tests.steps.reports.trajectories import HOSTILE, trajectory

REPOS = {
    **{"django/django": 46, "sympy/sympy": 15, "sphinx-doc/sphinx": 9, "matplotlib/matplotlib": 7},
    **{"astropy/astropy": 11, "pydata/xarray": 8, "psf/requests": 4},
}
TITLES = (
    "QuerySet.delete() reports the wrong number of affected rows when the model has no related objects",
    "KeyError in `merge` when coordinates differ only in dtype",
    "Cookies are lost when a redirect changes the port",
)
USUAL: Mapping[str, float] = {
    **{"resolved": 60, "unresolved": 27, "empty_patch": 3, "patch_does_not_apply": 3},
    **{"tests_timed_out": 2, "log_not_gradeable": 2, "failed": 2, "not_run": 1},
}
HISTORY = History(
    head="b" * 40, refs_removed=31, objects_before=90_000, objects_after=60_000, unreachable_after=0, verified=True
)
STOPS = {
    **{StopReason.FINISHED: 84, StopReason.MAX_STEPS: 8, StopReason.CONTEXT_LIMIT: 3, StopReason.TIMEOUT: 2},
    **{StopReason.MALFORMED: 1, StopReason.COST_LIMIT: 1, StopReason.REFUSAL: 1},
}
VERSIONS = {
    **{"swe-argo": "0.1.0", "swebench": "5.0.2", "python": "3.11.9", "code": "90710df0c2a1"},
    "platform": "linux-x86_64",
}
FAILURES = {FailureClass.SANDBOX_CREATE: 5, FailureClass.IMAGE_PULL: 4, FailureClass.SANDBOX_LOST: 2}
LOCK = DatasetLock(
    name="SWE-bench/SWE-bench_Verified", split="test", revision="c104f840cc67", rows=500, sha256="9f" * 32
)
USAGE = Usage(
    **{"calls": 31, "requests": 33, "prompt_tokens": 412_000, "cached_tokens": 300_000, "completion_tokens": 9_100},
    reasoning_tokens=2_000,
    cost_usd=0.37,
    seconds=88.0,
)
FIRST_AT = datetime(2026, 11, 20, 22, 5, tzinfo=UTC)


@dataclass
class Synthetic:
    """The parameters of a run; its contents follow from them and the seed."""

    run_id: str = "synthetic"
    instances: int = 12
    attempts: int = 1
    mix: Mapping[str, float] = field(default_factory=lambda: USUAL)
    agent: str = "replay"
    model: str = "lab/model-1"
    created_at: str = "2026-11-20T22:04:11Z"
    seed: int = 1
    hostile: bool = False
    suspects: float = 0.02
    priced: bool = True
    log_lines: int = 300
    turns: int = 4
    others: int = 0
    """Inner attempts of each solve that were not chosen."""
    spec: dict[str, Any] = field(default_factory=dict)
    usd_per_hour: float | None = None
    """Price of the sandboxes."""
    workers: int = 0
    """Units at a time; 0: records have no times, as of older versions."""

    _free: list[datetime] = field(default_factory=list, repr=False)

    def write(self, store: Store) -> Plan:
        """Write the run, in batches, and return its plan."""
        rng = random.Random(self.seed)
        repos = rng.choices(list(REPOS), list(REPOS.values()), k=self.instances)
        spec = RunSpec.model_validate({"agent": {"name": self.agent}, "attempts": self.attempts} | self.spec)
        ids = [
            (f"{repo.replace('/', '__')}-{1000 + 7 * n}", repo) for n, repo in enumerate(sorted(repos, key=str.lower))
        ]
        run = RunFile(
            run_id=self.run_id,
            spec=spec,
            dataset=LOCK.model_copy(update={"rows": max(500, self.instances)}),
            model=self.model,
            versions=VERSIONS,
            created_at=self.created_at,
        )
        plan = Plan(
            run_id=self.run_id,
            units=[
                Unit(instance_id=name, attempt=a, begins=Stage.SOLVE, repo=repo, image=f"swebench/{name}:latest")
                for name, repo in ids
                for a in range(1, self.attempts + 1)
            ],
        )
        store.put(key(RunFile, self.run_id), run.to_bytes())
        store.put(key(Plan, self.run_id), plan.to_bytes())
        items: dict[str, bytes] = {}
        for name, repo in ids:
            self._put(items, self._instance(rng, name, repo), name, 0)
        for unit in plan.units:
            outcome = rng.choices(list(self.mix), list(self.mix.values()))[0]
            self._unit(items, rng, unit, outcome)
            if len(items) > 2000:
                store.put_many(items)
                items = {}
        store.put_many(items)
        return plan

    def _put(self, items: dict[str, bytes], datum: Record | Raw, instance: str, attempt: int, name: str = "") -> None:
        items[key(type(datum), self.run_id, instance, attempt, name)] = datum.to_bytes()

    def _instance(self, rng: random.Random, name: str, repo: str) -> Instance:
        return Instance(
            instance_id=name,
            repo=repo,
            version="4.2",
            base_commit="a" * 40,
            image=f"swebench/{name}:latest",
            problem_statement=(HOSTILE if self.hostile else rng.choice(TITLES))
            + "\n\nSteps to reproduce:\n"
            + "x\n" * 40,
            difficulty=rng.choices(["<15 min fix", "15 min - 1 hour", "1-4 hours", ">4 hours"], [39, 52, 8, 1])[0],
        )

    def _unit(self, items: dict[str, bytes], rng: random.Random, unit: Unit, outcome: str) -> None:
        where = (unit.instance_id, unit.attempt)
        failed = outcome == "failed"
        if failed or (outcome != "not_run" and rng.random() < 0.04):
            self._tries(items, rng, unit, 3 if failed else 1)
        if failed or outcome == "not_run":
            return
        patch = b"" if outcome == "empty_patch" else self._patch(rng)
        self._put(items, Patch(patch), *where)
        whole = self._trajectory(unit)
        solve = self._solve(rng, unit, len(patch), whole.extra.usage)
        self._put(items, whole, *where)
        grade = self._grade(rng, unit, Outcome(outcome), patch)
        if self.workers:
            solve, grade = self._at_work(solve, grade)
        self._put(items, solve, *where)
        self._put(items, grade, *where)
        if outcome == "empty_patch":
            return
        self._put(items, InstanceLog(f"2026-11-20 22:10:01 - INFO - {unit.instance_id}\n".encode()), *where)
        if outcome == "patch_does_not_apply":
            return
        self._put(items, EvalScript(b"#!/bin/bash\nset -uxo pipefail\n"), *where)
        self._put(items, TestLog(self._log(rng, Outcome(outcome))), *where)
        if outcome != "tests_timed_out":
            self._put(items, Report(_official(unit.instance_id, grade)), *where)

    def _at_work(self, solve: SolveRecord, grade: GradeRecord) -> tuple[SolveRecord, GradeRecord]:
        """Return both with times, one after the other, on the first free worker."""
        began = heappop(self._free) if len(self._free) == self.workers else FIRST_AT
        between = began + timedelta(seconds=sum(solve.seconds.values()))
        ended = between + timedelta(seconds=sum(grade.seconds.values()))
        heappush(self._free, ended)
        moments = [moment.isoformat(timespec="milliseconds") for moment in (began, between, ended)]
        return (
            solve.model_copy(update={"began_at": moments[0], "ended_at": moments[1]}),
            grade.model_copy(update={"began_at": moments[1], "ended_at": moments[2]}),
        )

    def _tries(self, items: dict[str, bytes], rng: random.Random, unit: Unit, times: int) -> None:
        kind = rng.choices(list(FAILURES), list(FAILURES.values()))[0]
        reason = HOSTILE.strip() if self.hostile else f"{kind.value.replace('_', ' ')}: the engine did not answer"
        for n in range(times):
            failure = Failure(
                step="solve",
                instance_id=unit.instance_id,
                attempt=unit.attempt,
                failure_class=kind,
                reason=reason,
                detail="Error response from daemon: no such host\n" * 3,
                exit_code=75,
                occurred_at=f"2026-11-20T22:1{n}:00Z",
                seconds=40.0 + n,
            )
            self._put(items, failure, unit.instance_id, unit.attempt, f"try-{n}")
            if n == 0:
                place = key(Failure, self.run_id, unit.instance_id, unit.attempt, f"try-{n}")
                items[place.replace(Failure.file, Trajectory.file)] = self._trajectory(unit).to_bytes()

    def _trajectory(self, unit: Unit) -> Trajectory:
        names = {"agent": self.agent, "model": self.model}
        figures = {"turns": self.turns, "priced": self.priced, "hostile": self.hostile, "others": self.others}
        whole = trajectory((unit.instance_id, unit.attempt), **names, **figures)  # type: ignore[arg-type]
        usage = USAGE if self.priced else USAGE.model_copy(update={"cost_usd": None})
        return whole.model_copy(update={"extra": whole.extra.model_copy(update={"usage": usage})})

    def _solve(self, rng: random.Random, unit: Unit, patch_bytes: int, usage: Usage) -> SolveRecord:
        return SolveRecord(
            instance_id=unit.instance_id,
            attempt=unit.attempt,
            agent=self.agent,
            stop_reason=rng.choices(list(STOPS), list(STOPS.values()))[0],
            history=HISTORY,
            machine=_machine(unit, network=False, usd_per_hour=self.usd_per_hour),
            seconds={
                "create": rng.lognormvariate(1.2, 0.6),
                "prepare": rng.lognormvariate(0.5, 0.4),
                "agent": rng.lognormvariate(5.2, 0.8),
                "patch": rng.uniform(0.1, 0.6),
            },
            usage=usage,
            patch_bytes=patch_bytes,
        )

    def _grade(self, rng: random.Random, unit: Unit, outcome: Outcome, patch: bytes) -> GradeRecord:
        resolved = outcome is Outcome.RESOLVED
        f2p, p2p = rng.randint(1, 4), int(rng.lognormvariate(3.8, 1))
        broken = 0 if resolved else rng.randint(1, f2p)
        also = 0 if resolved or rng.random() < 0.7 else min(p2p, rng.randint(1, 60))
        tests = [self._test(n) for n in range(broken)] + [self._test(1000 + n) for n in range(also)]
        suspect = resolved and rng.random() < self.suspects
        findings = [Finding(code="exit_code_mismatch", detail="the log says 0, the shell says 1")] if suspect else []
        common: dict[str, Any] = {"instance_id": unit.instance_id, "attempt": unit.attempt, "resolved": resolved}
        common |= {"outcome": outcome, "versions": VERSIONS, "patch_sha256": hashlib.sha256(patch).hexdigest()}
        common["integrity"] = Integrity(verdict="suspect" if suspect else "ok", findings=findings)
        if outcome is Outcome.EMPTY_PATCH:
            return GradeRecord(**common)
        return GradeRecord(
            **common,
            fail_to_pass=TestCounts(passed=f2p - broken, total=f2p),
            pass_to_pass=TestCounts(passed=p2p - also, total=p2p),
            failing_tests=tests,
            apply_command="git apply --verbose",
            evidence=Evidence(exit_code=int(not resolved), logged_exit_codes=["0"], start_markers=1, end_markers=1),
            machine=_machine(unit, network=True, usd_per_hour=self.usd_per_hour),
            seconds={
                "create": rng.lognormvariate(1.1, 0.5),
                "apply": rng.uniform(0.1, 0.9),
                "tests": rng.lognormvariate(3.4, 1.1),
                "grade": 0.01,
            },
        )

    def _test(self, n: int) -> str:
        name = f"tests/delete/test_fast_{n}.py::DeleteTests::test_keeps_the_count[rows-{n} of many]"
        return name + HOSTILE.strip() if self.hostile else name

    def _patch(self, rng: random.Random) -> bytes:
        added = [f"+        removed = {n} + self._raw_delete(using)\n" for n in range(rng.randint(2, 40))]
        text = (
            "diff --git a/src/query.py b/src/query.py\n--- a/src/query.py\n+++ b/src/query.py\n"
            "@@ -700,9 +700,12 @@ class QuerySet:\n         if not self.query.can_filter():\n"
            "-            raise TypeError('Cannot use limit')\n" + "".join(added) + "         return removed\n"
        )
        patch = text.encode()
        if self.hostile:
            patch += b"+" + HOSTILE.encode() + b"+\xff\xfe not UTF-8\n+" + b"z" * 200_000 + b"\n"
        return patch

    def _log(self, rng: random.Random, outcome: Outcome) -> bytes:
        size = int(rng.lognormvariate(0, 0.8) * self.log_lines)
        lines = ["+ : '>>>>> Start Test Output'"]
        lines += [f"PASSED tests/delete/test_fast_{n}.py::DeleteTests::test_keeps_the_count[{n}]" for n in range(size)]
        if self.hostile:
            lines += [HOSTILE, "y" * 300_000, "\x1b[31m" * 1000]
        if outcome is Outcome.TESTS_TIMED_OUT:
            return ("\n".join(lines) + "\n\nTimeout error: 1800 seconds exceeded.").encode()
        if outcome is Outcome.LOG_UNREADABLE:
            return ("\n".join(lines) + "\nKilled\n").encode()
        lines += ["FAILED tests/delete/test_fast_0.py - AssertionError: (0, {}) != (0, {'app.User': 0})"]
        lines += ["+ : '>>>>> End Test Output'", "+ git checkout aaaa tests/delete", "Updated 1 path from 4f2c1aa"]
        return "\n".join(lines).encode()


def _machine(unit: Unit, *, network: bool, usd_per_hour: float | None) -> Machine:
    return Machine(
        backend="docker",
        image=unit.image,
        image_digest="sha256:" + "c" * 64,
        isolation="container",
        network=network,
        cpus=2.0,
        memory_mb=4096,
        usd_per_hour=usd_per_hour,
    )


def _official(instance_id: str, grade: GradeRecord) -> bytes:
    """Return the official report of a grade."""
    inner = {
        "patch_is_None": False,
        "patch_exists": True,
        "patch_successfully_applied": grade.outcome is not Outcome.LOG_UNREADABLE,
        "resolved": grade.resolved,
        "infra_failure": False,
        "tests_status": {
            "FAIL_TO_PASS": {"success": [], "failure": grade.failing_tests},
            "PASS_TO_PASS": {"success": [], "failure": []},
        },
    }
    return json.dumps({instance_id: inner}, indent=4).encode()
