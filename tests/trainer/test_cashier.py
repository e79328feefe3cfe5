"""The toy of the learning test: what the chain counts for an answer is what a learner is to find out."""

from __future__ import annotations

from pathlib import Path

import pytest

from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.verdict import GradeRecord
from swe_argo.steps.store import open_store
from tests.model_server import Answer, model_server, play
from tests.trainer.toy import AGENT, DATASET, INSTANCE
from tests.workflows.models.run import evaluate


@pytest.mark.parametrize(
    ("answer", "reward"),
    [("A1b2", 0.5), *(pytest.param(*case, marks=pytest.mark.long) for case in (("Abc~", 1.0), ("1234A", 0.0)))],
)
def test_reward_is_share_of_divisors(tmp_path: Path, answer: str, reward: float) -> None:
    with model_server(play(Answer(answer))) as server:
        result = evaluate(server, tmp_path / "store", AGENT, "--dataset", DATASET, instances=[INSTANCE])
    assert result.returncode == 0, result.stdout + result.stderr
    grade = GradeRecord.from_bytes(open_store(str(tmp_path / "store")).get(key(GradeRecord, "run", INSTANCE, 1)))
    assert grade.reward == reward
