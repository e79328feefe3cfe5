"""Curves of a training's page."""

from __future__ import annotations

import json
import math
import re
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.training import Checkpoints, LearnedGroup, StepFigures, run_of, step_name
from swe_argo.steps.reports.formatting import decimal
from swe_argo.steps.reports.training.drawings import Axis, draw_curve
from swe_argo.steps.reports.training.page import write_training_page
from swe_argo.steps.store import open_store
from tests.steps.reports.synthetic_training import SyntheticTraining

NUMBERS = st.floats(-1e300, 1e300) | st.sampled_from([math.nan, math.inf, -math.inf])
VALUES = st.dictionaries(st.integers(0, 2000), st.none() | NUMBERS, max_size=80)


def places(path: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", path)]


@given(VALUES)
def test_curve_points_stay_in_box(values: dict[int, float | None]) -> None:
    axis = Axis(min(values, default=0), max(values, default=0))
    curve = draw_curve("any", values, axis, decimal)
    if curve is None:
        assert not any(value is not None and abs(value) < float("inf") for value in values.values())
        return
    finite = [value for value in values.values() if value is not None and abs(value) < float("inf")]
    assert len(places(curve.line)) == len(finite)
    for path in (curve.line, curve.mean, curve.dots):
        assert all(-0.01 <= x <= 100.01 and -0.01 <= y <= 100.01 for x, y in places(path))


def test_curve_has_gap_at_missing_value() -> None:
    curve = draw_curve("any", {1: 1.0, 2: None, 3: 1.0, 4: 0.5}, Axis(1, 4), decimal)
    assert curve is not None
    assert [command for command in curve.line if command in "ML"] == ["M", "M", "L"]
    assert len(places(curve.dots)) == 3


def test_curve_connects_measured_steps() -> None:
    curve = draw_curve("any", {0: 0.2, 20: 0.4, 40: 0.3}, Axis(0, 46), decimal, {0: (0.1, 0.3)})
    assert curve is not None
    assert [command for command in curve.line if command in "ML"] == ["M", "L", "L"]
    assert [x for x, _ in places(curve.bars)] == [0.0, 0.0]


def test_curve_axis_has_round_ends() -> None:
    curve = draw_curve("any", {1: 0.31, 2: 0.37}, Axis(1, 2), decimal)
    below = draw_curve("any", {1: -0.011, 2: 0.037}, Axis(1, 2), decimal)
    assert curve is not None
    assert below is not None
    assert (curve.bottom, curve.top, curve.zero) == ("0", "0.4", None)
    assert (below.bottom, below.top) == ("-0.012", "0.04")
    assert below.zero == 76.92


MEANS = ("reward_mean", "prompt_tokens_mean", "sampled_tokens_mean", "turns_mean", "kl", "entropy", "loss")
GROUPS = st.builds(
    LearnedGroup,
    instance_id=st.sampled_from(["a__a-1", "b__b-2"]),
    rewards=st.lists(st.floats(-1, 2), max_size=4),
    solved=st.integers(0, 4),
    missing=st.integers(0, 4),
    constant=st.booleans(),
)
FIGURES = st.builds(
    StepFigures,
    step=st.just(1),
    run=st.just(run_of("grpo", 1)),
    weights_used=st.dictionaries(st.sampled_from(["base", "000001"]), st.integers(0, 10)),
    lag=st.integers(0, 8),
    groups=st.lists(GROUPS, max_size=4),
    **dict.fromkeys(("rollouts", "learnt", "infra_failures"), st.integers(0, 64)),
    **dict.fromkeys(MEANS, st.none() | st.floats(-1e9, 1e9)),
    resolved_share=st.none() | st.floats(0, 1),
    seconds=st.dictionaries(st.sampled_from(["collect", "learn", "odd <b>"]), st.floats(0, 1e6)),
    tokens=st.dictionaries(st.sampled_from(["prompt", "sampled", "trained"]), st.integers(0, 10**12)),
    metrics=st.dictionaries(st.sampled_from(["loss:sum", "x"]), st.floats()),
    finished_at=st.just("2026-11-21T08:00:00Z"),
)


@settings(max_examples=40)
@given(st.lists(FIGURES, min_size=1, max_size=12))
def test_odd_figures_have_a_page(figures: list[StepFigures]) -> None:
    example = SyntheticTraining(steps=0)
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(str(Path(folder) / "store"), create=True)
        example.write(store)
        steps = [item.model_copy(update={"step": n}) for n, item in enumerate(figures, 1)]
        store.put_many({key(StepFigures, "grpo", name=step_name(item.step)): item.to_bytes() for item in steps})
        store.put(key(Checkpoints, "grpo"), Checkpoints.of([example.checkpoint(item) for item in steps]).to_bytes())
        training = write_training_page(store, "grpo")
        assert training.learnt == len(steps)
        text = store.get("trainings/grpo/report/training.html").decode()
        assert not re.search(r"\b(nan|inf|None)\b", text)
        lines = store.get("trainings/grpo/report/metrics.jsonl").splitlines()

        def refuse(word: str) -> float:
            raise AssertionError(word)

        assert [json.loads(line, parse_constant=refuse)["step"] for line in lines] == [item.step for item in steps]
