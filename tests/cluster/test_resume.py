"""A solve whose sandbox's pod is deleted, again and again, ends as one that nobody disturbed."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from swe_argo.steps.contracts.data import Patch
from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.solve_record import SolveRecord
from swe_argo.steps.contracts.trajectory import Trajectory
from swe_argo.steps.store import open_store
from tests.cluster.installed_chart import InstalledChart, leftovers
from tests.model_server import ModelServer, model_server, play
from tests.steps.resumable_solve import conversation_of, repeated_requests
from tests.steps.test_resume import r2egym
from tests.workflows.command import ids, swe_argo
from tests.workflows.models.run import KEY, environment

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

INSTANCE = "mini__slugkit-1"
TURNS = 15
PLAN = 1
"""What plan asks, to see that the model answers."""
LATENCY_S = 0.6
"""Of a call, so that kubectl comes in time: a turn takes a tenth of it beside."""
PLACES = 5
"""In a solve; each of its tries comes to one."""


def solve(store: Path, server: ModelServer, installed: InstalledChart, disturb: Callable[[], None]) -> None:
    words = ["run", "--store", str(store), "--run-id", "r", "--backend", "kubernetes", *ids(INSTANCE)]
    words += ["--agent", "r2egym", "--model", "openai/scripted", "--retries", str(PLACES)]
    disturbing = threading.Thread(target=disturb, daemon=True)
    disturbing.start()
    result = swe_argo(*words, env=environment(server) | installed.environment)
    assert result.returncode == 0, result.stdout + result.stderr
    disturbing.join(120)
    assert not disturbing.is_alive()


@pytest.mark.parametrize("number", range(int(os.environ.get("SWE_ARGO_TEST_KILLS", PLACES)) // PLACES))
def test_solve_resumes_in_another_pod(number: int, tmp_path: Path, installed: InstalledChart) -> None:
    chance = random.Random(number)
    places = sorted(chance.sample(range(2, TURNS), PLACES))

    def disturb() -> None:
        for place in places:
            while server.counts.requests < PLAN + place + sum(repeated_requests(server)):
                time.sleep(0.02)
            time.sleep(chance.uniform(0.0, 0.2))
            installed.kubectl("delete", "pods", "-l", "swe-argo/role=solve", "--grace-period=0", "--force")

    with model_server(play(*r2egym(TURNS)), key=KEY) as server:
        solve(tmp_path / "calm", server, installed, lambda: None)
        assert server.counts.requests == PLAN + TURNS
    with model_server(play(*r2egym(TURNS)), key=KEY, latency_s=LATENCY_S) as server:
        solve(tmp_path / "killed", server, installed, disturb)
        again = repeated_requests(server)
        assert sum(again) <= PLACES, "more than the calls in flight were asked again"
        assert server.counts.requests == PLAN + TURNS + sum(again)
    calm, killed = (open_store(str(tmp_path / name)) for name in ("calm", "killed"))
    assert killed.get(key(Patch, "r", INSTANCE, 1)) == calm.get(key(Patch, "r", INSTANCE, 1))
    did, undisturbed = (
        conversation_of(Trajectory.from_bytes(store.get(key(Trajectory, "r", INSTANCE, 1)))) for store in (killed, calm)
    )
    assert did == undisturbed
    record = SolveRecord.from_bytes(killed.get(key(SolveRecord, "r", INSTANCE, 1)))
    assert record.continued is not None
    assert not record.continued.started_over
    assert record.usage.calls == TURNS
    assert leftovers(installed) == []
