"""Files that a spec names in a bucket are read as if they were here."""

from __future__ import annotations

from pathlib import Path

import pytest

from swe_argo.steps.contracts.agent_spec import AgentSpec
from swe_argo.steps.contracts.run_spec import RunSpec
from swe_argo.steps.datasets.bucket_inputs import fetch_inputs
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.store import open_store


def test_bucket_inputs_are_fetched(bucket: str) -> None:
    files = {"in/preds.jsonl": b"one", "in/trajs/a.json": b"a", "in/trajs/b/c.json": b"c"}
    open_store(f"s3://{bucket}").put_many(files)
    spec = RunSpec(
        agent=AgentSpec(predictions=f"s3://{bucket}/in/preds.jsonl", trajectories=f"s3://{bucket}/in/trajs/"),
        answers="here.json",
    )
    with fetch_inputs(spec) as here:
        predictions, trajectories = Path(here.agent.predictions or ""), Path(here.agent.trajectories or "")
        assert (predictions.name, predictions.read_bytes()) == ("preds.jsonl", b"one")
        names = {str(path.relative_to(trajectories)) for path in trajectories.rglob("*") if path.is_file()}
        assert names == {"a.json", "b/c.json"}
        assert (here.answers, here.dataset) == ("here.json", "mini")
    assert not predictions.exists()
    assert spec.agent.predictions == f"s3://{bucket}/in/preds.jsonl"


def test_bucket_input_can_be_at_root(bucket: str) -> None:
    open_store(f"s3://{bucket}").put("rows.jsonl", b"{}")
    with fetch_inputs(RunSpec(dataset=f"s3://{bucket}/rows.jsonl")) as here:
        assert Path(here.dataset).read_bytes() == b"{}"


@pytest.mark.parametrize("key", ["nothing.jsonl", "in/nothing/"])
def test_missing_bucket_input_is_named(bucket: str, key: str) -> None:
    spec = RunSpec(agent=AgentSpec(predictions=f"s3://{bucket}/{key}"))
    with (
        pytest.raises(ConfigError, match=f"agent.predictions: s3://{bucket}/{key}"),
        fetch_inputs(spec),
    ):
        pass


def test_bucket_without_key_is_refused(bucket: str) -> None:
    with (
        pytest.raises(ConfigError, match="names a bucket, not a file"),
        fetch_inputs(RunSpec(dataset=f"s3://{bucket}")),
    ):
        pass
