"""The page and the metrics of a training."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.training import Checkpoints, StepFigures, TrainFile, held_out_run_of, run_of
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.reports.figures.summary import Summary
from swe_argo.steps.reports.training.drawings import classify_instances
from swe_argo.steps.reports.training.page import training_page_key, write_training_page
from swe_argo.steps.reports.training.stored_training import find_doubts
from swe_argo.steps.store import Store, open_store
from tests.steps.reports.synthetic_training import SyntheticTraining

METRICS = "trainings/grpo/report/metrics.jsonl"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A training of two steps with measurements of the first weights and of the last, and its page."""
    store = open_store(str(tmp_path_factory.mktemp("training")), create=True)
    SyntheticTraining(steps=2, every=2, groups=4).write(store)
    write_training_page(store, "grpo")
    return store


def metrics(store: Store) -> dict[int, dict[str, object]]:
    lines = [json.loads(line) for line in store.get(METRICS).splitlines()]
    assert len({line["step"] for line in lines}) == len(lines)
    return {line.pop("step"): line for line in lines}


def page(store: Store) -> str:
    return store.get(training_page_key("grpo")).decode()


def test_metrics_have_object_per_step(written: Store) -> None:
    lines = metrics(written)
    assert list(lines) == [0, 1, 2]
    figures = StepFigures.from_bytes(written.get(key(StepFigures, "grpo", name="000002")))
    assert lines[2]["run"] == run_of("grpo", 2)
    assert lines[2]["reward_mean"] == figures.reward_mean
    assert lines[2]["infra_share"] == figures.infra_failures / figures.rollouts
    assert lines[2]["seconds/learn"] == figures.seconds["learn"]
    assert lines[2]["tinker/loss:sum"] == -0.3
    assert not any(isinstance(value, dict | list) for value in lines[2].values())
    for step in (0, 2):
        rate = Summary.from_bytes(written.get(key(Summary, held_out_run_of("grpo", step)))).headline
        assert lines[step]["held_out/resolved_share"] == rate.rate
        assert (lines[step]["held_out/low"], lines[step]["held_out/high"]) == (rate.low, rate.high)
    assert "held_out/resolved_share" not in lines[1]
    assert "Held out, before the first step" in page(written)


def test_step_needs_checkpoint(store: Store) -> None:
    SyntheticTraining(steps=3).write(store)
    lines = Checkpoints(store.get(key(Checkpoints, "grpo"))).list
    store.put(key(Checkpoints, "grpo"), Checkpoints.of(lines[:2]).to_bytes())
    assert write_training_page(store, "grpo").learnt == 2
    assert list(metrics(store)) == [1, 2]
    assert "resumes with step 3" in page(store)


def test_page_states_resume_point(store: Store) -> None:
    for steps, texts in (
        (0, ["continues with step 1."]),
        (12, ["resumes with step 13", "tinker://6f1d/weights/000012", "expires 7 days after", "1 checkpoint without"]),
    ):
        SyntheticTraining(steps=steps).write(store)
        write_training_page(store, "grpo")
        text = page(store).replace("\u00a0", " ")
        assert [part for part in texts if part not in text] == []
        assert (store.get(METRICS) == b"") is (steps == 0)


def test_instances_are_classified() -> None:
    groups = [("a", 2, 2), ("b", 1, 2), ("c", 0, 3), ("d", 0, 0), ("a", 1, 1), ("e", 0, 2), ("e", 1, 1)]
    steps = [
        SimpleNamespace(groups=[SimpleNamespace(instance_id=name, solved=solved, rewards=[0.0] * graded)])
        for name, solved, graded in groups
    ]
    classes = classify_instances(steps)  # type: ignore[arg-type]
    counts = {kind: [(one.instance_id, one.solved, one.graded) for one in some] for kind, some in classes.items()}
    assert counts == {
        "always": [("a", 3, 3)],
        "sometimes": [("e", 1, 3), ("b", 1, 2)],
        "never": [("c", 0, 3)],
        "no_verdict": [("d", 0, 0)],
    }


def test_find_doubts_lists_problems(store: Store) -> None:
    SyntheticTraining(steps=4).write(store)
    newest = key(StepFigures, "grpo", name="000004")
    figures = StepFigures.from_bytes(store.get(newest))
    store.put(newest, figures.model_copy(update={"learnt": 0, "infra_failures": 32}).to_bytes())
    store.put(key(StepFigures, "grpo", name="000001"), b"{}")
    doubts = find_doubts(write_training_page(store, "grpo"))
    assert doubts == [
        "trainings/grpo/steps/000001.json cannot be read: it is broken or from another version.",
        "Nothing was learnt in the last step: every group had equal rewards.",
        "32 of 64 rollouts of step 4 have no verdict because of infrastructure failures.",
    ]
    assert list(metrics(store)) == [2, 3, 4]


def test_training_page_names_unusable_training(store: Store) -> None:
    SyntheticTraining(steps=1).write(store)
    with pytest.raises(ConfigError, match=r"there is no training 'grop' .*\(did you mean grpo\?\)"):
        write_training_page(store, "grop")
    store.put(key(TrainFile, "grpo"), b"{}")
    with pytest.raises(ConfigError, match=r"train\.json is broken or from another version"):
        write_training_page(store, "grpo")


def test_page_samples_same_rollouts(store: Store) -> None:
    SyntheticTraining(steps=2, reports=1).write(store)
    write_training_page(store, "grpo")
    first = page(store)
    write_training_page(store, "grpo")
    assert page(store) == first
    assert ">Best<" in first
