"""What a training is made of, and what each of its steps takes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from swe_argo.steps.contracts.data import DatasetLock, Plan, RunFile
from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.training import (
    Checkpoint,
    Checkpoints,
    LearnedGroup,
    StepFigures,
    TrainFile,
    held_out_run_of,
    run_of,
    step_name,
)
from swe_argo.steps.contracts.validation import Fitness, ValidatedInstance, Validation, ValidationResources
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.plan_training import plan_training
from swe_argo.steps.reports.figures.summary import Summary
from swe_argo.steps.store import Store, open_store
from swe_argo.steps.training.checkpoints import FIRST
from swe_argo.steps.training.rounds import plan_measurement, plan_rollouts
from swe_argo.steps.training.train_spec_parsing import read_train_spec
from tests.paths import ROOT

MINI = 12


def plan(store: Store, **fields: Any) -> TrainFile:
    tables: dict[str, Any] = {"name": "one", "base_model": "test/model", "groups": 2, "group_size": 2, "steps": 9}
    sets = [f"{name}={json.dumps(value)}" for name, value in ({"run.store": store.url} | fields).items()]
    return plan_training(read_train_spec([tables], sets, "spec"))


def learn(store: Store, steps: int, solved: dict[str, float] | None = None) -> None:
    """Write the checkpoints of ``steps`` steps; their figures say how often each instance was solved."""
    lines = []
    for step in range(1, steps + 1):
        lines.append(
            Checkpoint(
                step=step,
                weights=FIRST,
                run=run_of("one", step),
                samples_sha256="",
                rollouts=4,
                kept=False,
                saved_at="",
            )
        )
        groups = [
            LearnedGroup(instance_id=name, rewards=[share] * 8, solved=round(8 * share), missing=0, constant=True)
            for name, share in (solved or {}).items()
        ]
        store.swap(key(StepFigures, "one", name=step_name(step)), None, figures(step, groups).to_bytes())
    store.put(key(Checkpoints, "one"), Checkpoints.of(lines).to_bytes())


def figures(step: int, groups: list[LearnedGroup]) -> StepFigures:
    nothing: dict[str, Any] = {
        name: {} if "dict" in str(info.annotation) else None if "None" in str(info.annotation) else 0
        for name, info in StepFigures.model_fields.items()
    }
    return StepFigures(**nothing | {"step": step, "run": "", "finished_at": "", "groups": groups})


def validation(dataset: DatasetLock, fitness: dict[str, Fitness]) -> Validation:
    shared: dict[str, Any] = {"row_sha256": "", "image": "i", "image_digest": None, "gold": [], "gold_resolved": 0}
    numbers = {"resource_factor": 1.0, "timeout_s": 9, "grading_network": True}
    resources = ValidationResources(backend="local", cpus=None, memory_mb=None, disk_mb=None, machines=[], **numbers)
    return Validation(
        validation_id="v",
        dataset=dataset,
        created_at="",
        gold_runs=1,
        resources=resources,
        versions={},
        image_digests={},
        counts={},
        instances=[
            ValidatedInstance(instance_id=name, fitness=kind, idle=None, **shared) for name, kind in fitness.items()
        ],
    )


def test_held_out_share_follows_seed(store: Store) -> None:
    training = plan(store, **{"held_out.share": 0.25, "held_out.every": 1})
    assert len(training.held_out) == 3
    assert len(training.pool) == MINI - 3
    assert not set(training.pool) & set(training.held_out)
    trainings = [plan(store, **{"held_out.share": 0.25, "held_out.every": 1, "seed": seed}) for seed in (0, 1, 2)]
    assert trainings[0].held_out == training.held_out
    assert len({tuple(candidate.held_out) for candidate in trainings}) > 1
    assert TrainFile.from_bytes(store.get(key(TrainFile, "one"))) == trainings[-1]


def test_held_out_ids_need_no_selection(store: Store) -> None:
    select = ["mini__slugkit-1", "mini__slugkit-2", "mini__ledgerlet-1"]
    held_out = ["mini__slugkit-2", "mini__gridprint-1"]
    training = plan(store, **{"run.select.instance_ids": select, "held_out.instance_ids": held_out})
    assert training.held_out == held_out
    assert training.pool == ["mini__ledgerlet-1", "mini__slugkit-1"]
    assert training.dataset.rows == 4


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"held_out.instance_ids": ["mini__slugkit-9"]}, r"not in the dataset: mini__slugkit-9"),
        (
            {"groups": 12, "held_out.share": 0.5},
            "^groups: 12 instances per step are more than the 6 .* with 6 held out",
        ),
        ({"run.dataset": "nothing.jsonl"}, "nothing.jsonl"),
    ],
)
def test_impossible_training_is_refused(store: Store, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        plan(store, **fields)
    assert store.keys("trainings/") == []


def test_training_excludes_invalid(store: Store, tmp_path: Path) -> None:
    whole = plan(store)
    fitness = {name: Fitness.FLAKY if name == whole.pool[0] else Fitness.VALID for name in whole.pool}
    file = tmp_path / "validation.json"
    file.write_bytes(validation(whole.dataset, fitness).to_bytes())
    training = plan(store, **{"run.select.validated": str(file)})
    assert training.pool == whole.pool[1:]
    assert training.left_out == {whole.pool[0]: "flaky"}


def test_training_resumes(store: Store) -> None:
    first = plan(store, **{"loss.suspect": "drop"})  # the default of older releases
    learn(store, 1)
    again = plan(store, steps=20, checkpoint_every=3, workers=7)
    assert again.spec.loss.suspect == "by-outcome"
    assert (again.pool, again.created_at, again.dataset) == (first.pool, first.created_at, first.dataset)
    assert (again.spec.steps, again.spec.run.workers) == (20, 7)
    with pytest.raises(ConfigError, match=r"exists with another spec \(lr was 1e-05, now 0.1\); use another name"):
        plan(store, lr=0.1)
    with pytest.raises(ConfigError, match=r"run.agent.max_steps was None, now 3"):
        plan(store, max_steps=3)


def test_spec_can_change_before_step(store: Store) -> None:
    plan(store, lr=0.1)
    assert plan(store).spec.lr == 1e-5
    store.put(key(Plan, run_of("one", 1)), Plan(run_id="r", units=[]).to_bytes())
    with pytest.raises(ConfigError, match="another spec"):
        plan(store, lr=0.1)


def test_plan_rollouts_is_deterministic(store: Store) -> None:
    training = plan(store, **{"run.canary": 3})
    first = plan_rollouts(store, training, 1)
    assert first is not None
    assert (first.run_id, first.attempts, first.canary) == ("one.000001", 2, 3)
    assert len(first.select.instance_ids) == 2
    assert plan_rollouts(store, training, 1) == first
    learn(store, 1)
    assert plan_rollouts(store, training, 1) is None
    second = plan_rollouts(store, training, 2)
    assert second is not None
    assert second.canary == 0
    assert not set(second.select.instance_ids) & set(first.select.instance_ids)
    with pytest.raises(ConfigError, match="has learnt 1 steps: step 3 is not due"):
        plan_rollouts(store, training, 3)
    with pytest.raises(ConfigError, match="has steps 1 to 9"):
        plan_rollouts(store, training, 10)


def test_early_rollouts_equal_late_ones(store: Store) -> None:
    training = plan(store, max_lag=1, **{"curriculum.max_solved": 0.5})
    learn(store, 1, dict.fromkeys(training.pool[:4], 1.0))
    early = plan_rollouts(store, training, 3)
    learn(store, 2, dict.fromkeys(training.pool[4:8], 1.0))
    assert early is not None
    assert plan_rollouts(store, training, 3) == early
    assert not set(early.select.instance_ids) & set(training.pool[:4])
    late = plan_rollouts(store, training, 4)
    assert late is not None
    assert set(late.select.instance_ids) <= set(training.pool[8:])


def test_measurement_is_due_once(store: Store) -> None:
    training = plan(store, **{"held_out.share": 0.2, "held_out.every": 3, "held_out.attempts": 2})
    due = [step for step in range(10) if plan_measurement(store, training, step)]
    assert due == [0, 3, 6, 9]
    spec = plan_measurement(store, training, 3)
    assert spec is not None
    assert (spec.run_id, spec.attempts, spec.llm.temperature) == ("one.000003.held-out", 2, 0.0)
    assert spec.select.instance_ids == training.held_out
    store.put(key(RunFile, held_out_run_of("one", 3)), b"begun")
    assert plan_measurement(store, training, 3) is not None
    store.put(key(Summary, held_out_run_of("one", 3)), b"reported")
    assert plan_measurement(store, training, 3) is None


def test_training_defaults_yield_to_spec(tmp_path: Path) -> None:
    """As Argo starts the program: an empty value says nothing."""
    defaults = ["run.sandbox.backend=kubernetes", "run.retries=4", "proxy_url=", "run.sandbox.resource_factor=2"]
    text = 'name = "one"\nbase_model = "test/model"\nagent = "r2egym"\nretries = 1\n'
    result = subprocess.run(
        [
            *(sys.executable, "-m", "swe_argo.steps.plan_training", f"--store={tmp_path / 'store'}", "--training=two"),
            *(f"--default={default}" for default in defaults),
            *(f"--spec-text={text}", "--set=steps=3", f"--out={tmp_path / 'out'}"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert ((tmp_path / "out" / "steps").read_text(), (tmp_path / "out" / "next_step").read_text()) == ("3", "1")
    spec = TrainFile.from_bytes(open_store(str(tmp_path / "store")).get(key(TrainFile, "two"))).spec
    assert (spec.name, spec.proxy_url, spec.run.retries) == ("two", None, 1)
    assert (spec.run.sandbox.backend, spec.run.sandbox.resource_factor) == ("kubernetes", 2.0)
