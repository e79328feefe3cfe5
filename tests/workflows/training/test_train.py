"""Trainings from the command line, from their first rollout to their last checkpoint."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from swe_argo.steps.contracts.data import DatasetLock
from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.train_spec import TrainSpec
from swe_argo.steps.contracts.training import StepFigures, TrainFile, Weights, held_out_run_of, run_of, step_name
from swe_argo.steps.errors import EXIT_CONFIG, ConfigError, InfraError
from swe_argo.steps.store import open_store
from swe_argo.workflows.local.learner_process import running_learner
from swe_argo.workflows.local.proxy_process import ProxyProcess
from tests.workflows.command import begin, children, kill, plan, summary, swe_argo, wait_for, whole_steps_of, words_of
from tests.workflows.training.train import Bench, bench

pytestmark = pytest.mark.slow


def figures(here: Bench, store: str, step: int) -> StepFigures:
    return StepFigures.from_bytes(
        open_store(str(here.folder / store)).get(key(StepFigures, "one", name=step_name(step)))
    )


@pytest.mark.long
def test_step_uses_previous_weights(tmp_path: Path) -> None:
    with bench(tmp_path) as here:
        file = here.spec("s", steps=3, held_out="{share: 0.25, every: 3}")
        result = swe_argo(
            "train", "--config_path", str(file), "--steps", "1", env=here.env, cwd=tmp_path, timeout_s=600
        )
        assert result.returncode == 0, result.stdout + result.stderr
        again = swe_argo("train", "--config_path", str(file), env=here.env, cwd=tmp_path, timeout_s=600)
        assert again.returncode == 0, again.stdout + again.stderr
        checkpoints, store = here.checkpoints("s"), str(tmp_path / "s")
    assert "one: 1 of 1 step learnt" in result.stdout
    assert "one: 3 of 3 steps learnt" in again.stdout
    assert [checkpoint.run for checkpoint in checkpoints] == [run_of("one", step) for step in (1, 2, 3)]
    before = ["base", *(checkpoint.weights.version for checkpoint in checkpoints)]
    assert len(set(before)) > 1
    for step in (1, 2, 3):
        assert set(figures(here, "s", step).weights_used) == {before[step - 1]}
        assert figures(here, "s", step).lag == 0
        assert [unit.attempt for unit in plan(store, run_of("one", step)).units] == [1, 2, 1, 2]
    for step in (0, 3):
        measured = summary(store, held_out_run_of("one", step)).headline
        assert measured.graded == measured.total == 1
        assert f"held out after step {step}: {measured.resolved} of 1 resolved" in result.stdout + again.stdout


@pytest.fixture
def dying(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each Python that is begun says a word and dies."""
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho a word before the end >&2\nexit 3\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))


@pytest.mark.usefixtures("dying")
def test_learner_failure_names_its_log(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "s"), create=True)
    with (
        running_learner(store, "one", 0, print) as learner,
        pytest.raises(InfraError, match="the learner died") as failed,
    ):
        learner.learn(1)
    assert failed.value.__notes__ == [f"the learner's log: {tmp_path}/s/trainings/one/learner.log"]
    assert store.get("trainings/one/learner.log") == b"a word before the end\n"


@pytest.mark.usefixtures("dying")
def test_restarted_learner_closes_pipes(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "s"), create=True)
    with running_learner(store, "one", 1, print) as learner, pytest.raises(InfraError, match="the learner died"):
        learner.learn(1)  # a pipe that nobody closed is a warning, and fails this
    assert store.get("trainings/one/learner.log") == b"a word before the end\n" * 2


@pytest.mark.long
def test_lagged_rollouts_overlap_step(tmp_path: Path) -> None:
    with bench(tmp_path) as here:
        here.hold("optim_step", until=lambda: has_begun(here, 2))
        file = here.spec("s", steps=2, max_lag=1)
        result = swe_argo("train", "--config_path", str(file), env=here.env, cwd=tmp_path, timeout_s=600)
        assert result.returncode == 0, result.stdout + result.stderr
        assert here.requests_held
    assert [figures(here, "s", step).lag for step in (1, 2)] == [0, 1]


def has_begun(here: Bench, step: int) -> bool:
    """Whether anything of a step's run was solved."""
    return any(
        name.endswith("/solve.json") for name in open_store(str(here.folder / "s")).keys(f"runs/{run_of('one', step)}/")
    )


@pytest.mark.long
def test_ctrl_c_ends_training(tmp_path: Path) -> None:
    with bench(tmp_path) as here:
        words = ("train", "--config_path", str(here.spec("s")))
        runner = begin(*words, env=here.env)
        wait_for(lambda: here.checkpoints("s") and has_begun(here, 2))
        helpers = [
            pid
            for pid in children(runner.pid)
            if b"swe_argo.steps.proxy" in words_of(pid) or b"learning" in words_of(pid)
        ]
        assert len(helpers) == 2
        runner.send_signal(signal.SIGINT)
        output, _ = runner.communicate(timeout=300)
        assert runner.returncode == 130, output
        assert "stopped; continue with: swe-argo train" in output
        assert not any(words_of(pid) for pid in helpers)
        learned = here.learned("s")
        result = swe_argo(*words, env=here.env, timeout_s=600)
        assert result.returncode == 0, result.stdout + result.stderr
        assert here.learned("s")[: len(learned)] == learned


@pytest.mark.long
def test_planning_waits_for_proxy(tmp_path: Path) -> None:
    with bench(tmp_path) as here:
        runner = begin("train", "--config_path", str(here.spec("s", steps=1)), env=here.env)

        def proxies() -> list[int]:
            return [pid for pid in children(runner.pid) if b"swe_argo.steps.proxy" in words_of(pid)]

        wait_for(lambda: proxies() and whole_steps_of(runner.pid))
        while whole_steps_of(runner.pid):  # whenever it comes back
            for pid in proxies():
                kill(pid)
            time.sleep(0.02)
        output, _ = runner.communicate(timeout=600)
        assert runner.returncode == 0, output
        assert "refuses connections" in output
        assert len(here.checkpoints("s")) == 1


def test_ctrl_c_ends_waiting_training(tmp_path: Path) -> None:
    with bench(tmp_path) as here:
        here.server.before = lambda _: 503
        runner = begin("train", "--config_path", str(here.spec("s")), env=here.env)
        wait_for(lambda: here.server.requested)
        runner.send_signal(signal.SIGINT)
        output, _ = runner.communicate(timeout=120)  # the SDK alone would try again for some minutes more
    assert runner.returncode == 130, output
    assert "stopped; continue with: swe-argo train" in output


NEXT = Weights(version="000001", state_path="tinker://a/weights/1", sampler_path="tinker://a/sampler_weights/1")


@contextmanager
def started_proxy(here: Bench, monkeypatch: pytest.MonkeyPatch) -> Iterator[ProxyProcess]:
    """A training's own proxy, on the base model."""
    for name, value in here.env.items():
        monkeypatch.setenv(name, value)
    spec = TrainSpec(name="one", base_model="test/model", tokenizer=str(here.model))
    file = TrainFile(
        name="one",
        spec=spec,
        dataset=DatasetLock(name="mini", split="test", revision=None, rows=0, sha256=""),
        pool=[],
        held_out=[],
        versions={},
        created_at="",
    )
    proxy = ProxyProcess(file, open_store(str(here.folder / "s"), create=True), print)
    proxy.begin()
    try:
        yield proxy
    finally:
        proxy.close()


def test_restarted_proxy_closes_pipes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with bench(tmp_path) as here, started_proxy(here, monkeypatch) as proxy:
        first = proxy._process
        assert first
        kill(first.pid)
        wait_for(lambda: proxy.deaths and not proxy.is_away)
        assert [pipe.closed for pipe in (first.stdin, first.stdout) if pipe] == [True, True]


def test_proxy_refuses_expired_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with bench(tmp_path) as here:
        here.server.missing.add(NEXT.sampler_path or "")
        with (
            started_proxy(here, monkeypatch) as proxy,
            pytest.raises(ConfigError, match=r"checkpoints: weights 000001.*If they have expired"),
        ):
            proxy.serve(NEXT, lambda: False)


@pytest.mark.parametrize("status", [401, 403])
def test_proxy_refuses_revoked_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    with bench(tmp_path) as here, started_proxy(here, monkeypatch) as proxy:
        here.server.before = lambda _: status
        with pytest.raises(ConfigError, match="TINKER_API_KEY: Tinker refused the key"):
            proxy.serve(NEXT, lambda: False)


@pytest.mark.parametrize(
    ("words", "env", "message"),
    [
        ((), {"TINKER_API_KEY": ""}, "TINKER_API_KEY: is not set"),
        ((), {"TINKER_API_KEY": "tml-of-nobody"}, "TINKER_API_KEY: "),
        (("--set", "tokenizer=nowhere"), {}, "nowhere is neither a folder nor a hub id"),
        (("--set", "lrr=1"), {}, "there is no field 'lrr'; did you mean 'lr'?"),
        (("--set", "base_model=test/other"), {}, "Tinker has no model 'test/other'; it has test/model"),
        (
            ("--set", "lora_rank=4096"),
            {},
            "lora_rank: request to Tinker to train test/model with an adapter of rank 4096",
        ),
        (("--set", "groups=9"), {}, "groups: 9 instances per step are more than the 4"),
        (("--name", "a/b"), {}, "'a/b' is not a valid training name"),
    ],
)
def test_train_refuses_in_one_line(tmp_path: Path, words: tuple[str, ...], env: dict[str, str], message: str) -> None:
    with bench(tmp_path) as here:
        result = swe_argo("train", "--config_path", str(here.spec("s")), *words, env=here.env | env, cwd=tmp_path)
    assert result.returncode == EXIT_CONFIG, result.stdout + result.stderr
    assert message in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1, result.stderr
    assert not (tmp_path / "s" / "runs").exists()
