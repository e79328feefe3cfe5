"""A training that is killed, again and again, ends in the checkpoints of one that is not."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.workflows.command import begin, children, kill, words_of
from tests.workflows.training.train import Bench, bench

pytestmark = pytest.mark.long
KILLS = int(os.environ.get("SWE_ARGO_TEST_KILLS", "3"))
STEPS = 10 if KILLS > 5 else 4
"""Every step costs some ten seconds of a processor, in both trainings."""
WORKERS = 2


def start(here: Bench, store: str) -> subprocess.Popen[str]:
    # A proxy that was killed is away for a while.
    file = here.spec(store, steps=STEPS, workers=WORKERS, num_retries=20)
    return begin("train", "--config_path", str(file), env=here.env)


def finish(runner: subprocess.Popen[str]) -> None:
    output, _ = runner.communicate(timeout=1500)
    assert runner.returncode == 0, output


def helper(runner: subprocess.Popen[str], module: bytes) -> int | None:
    """The process of a module among the runner's own."""
    return next((pid for pid in children(runner.pid) if module in words_of(pid)), None)


def rollout_requests(here: Bench, since: int) -> Counter[str]:
    """How often each rollout asked: its prompt on the weights of its step."""
    states = here.server.trainer.states
    calls = here.server.calls[since:]
    return Counter(f"{states.get(call.weights, call.weights)} {call.prompt}" for call in calls if len(call.prompt) > 60)


@pytest.mark.timeout(3600)
def test_killed_training_ends_alike(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seed = random.randrange(1 << 30)
    chance = random.Random(seed)
    with bench(tmp_path) as here:
        finish(start(here, "alone"))
        requests, calls = len(here.server.requested), len(here.server.calls)
        undisturbed = rollout_requests(here, 0)
        moments = sorted(chance.sample(range(requests), KILLS))
        killed = []
        runner = start(here, "killed")
        for moment in moments:
            while len(here.server.requested) - requests < moment:
                assert runner.poll() is None, runner.communicate()[0]
                time.sleep(0.01)
            time.sleep(chance.uniform(0, 3))  # some fall into what asks nobody: grading, reports, checkpoints
            kinds = {"driver": runner.pid, "proxy": helper(runner, b"swe_argo.steps.proxy")}
            kinds["learner"] = helper(runner, b"local.learning")
            kind = chance.choice([name for name, pid in kinds.items() if pid])
            pid = kinds[kind]
            assert pid
            killed.append((kind, len(here.checkpoints("killed"))))
            if kind == "driver":
                runner.send_signal(signal.SIGKILL)
                runner.communicate()
                runner = start(here, "killed")
            else:
                kill(pid)
        finish(runner)
        with capsys.disabled():
            print(f"\nseed {seed}: killed (who, after how many steps): {killed}")  # noqa: T201
        assert here.learned("killed") == here.learned("alone"), (seed, killed)
        assert len(here.learned("alone")) == STEPS
        again = rollout_requests(here, calls) - undisturbed
        assert again.total() <= KILLS * WORKERS, (seed, killed, again)
        assert not undisturbed - rollout_requests(here, calls)
