"""The CronWorkflow fires, and every night after the first is compared with the one before."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from swe_argo.steps.settings import settings
from swe_argo.steps.store import open_store
from tests.argo.disturbances import comes
from tests.argo.pipeline import ENDED, Pipeline, installed
from tests.broken_s3 import Way
from tests.workflows.command import summary

EVERY_MINUTE = [
    *("--set", "nightly.enabled=true", "--set", "nightly.schedules={* * * * *}"),
    *("--set-string", "nightly.k=1", "--set", "nightly.agent=gold"),
]


@pytest.fixture
def nights(pipeline: Pipeline, s3_way: Way) -> Iterator[Pipeline]:
    """A second installation, whose nights are a minute long."""
    with installed(pipeline.cluster, s3_way.url, *EVERY_MINUTE) as chart_pipeline:
        # Helm makes it before the template that it names, and Argo then looks at it again when it changes, or after 20
        # minutes: nights are longer than that elsewhere.
        chart_pipeline.kubectl("annotate", "cronworkflow", "swe-argo-nightly", "seen=again")
        yield chart_pipeline


def runs(nights: Pipeline) -> list[dict[str, Any]]:
    """The Workflows of the nights that are over, the oldest first."""
    items = nights.get_json("workflows", "-l", "swe-argo/nightly=true")["items"]
    over = [workflow for workflow in items if workflow["status"].get("phase") in ENDED]
    return sorted(over, key=lambda workflow: str(workflow["metadata"]["creationTimestamp"]))


def test_nights_are_compared(nights: Pipeline) -> None:
    settings()  # the bucket is reached as the pipeline's fixture says
    comes(lambda: len(runs(nights)) >= 2)
    nights.kubectl("patch", "cronworkflow", "swe-argo-nightly", "--type=merge", "-p", '{"spec": {"suspend": true}}')
    first, second = (workflow["metadata"]["name"] for workflow in runs(nights)[:2])
    for name in (first, second):
        nights.succeeds(name)
        assert summary(nights.store, name).headline.resolved == 1
    assert nights.node(second, "compare")["phase"] == "Succeeded"
    compared = json.loads(open_store(nights.store).get(f"runs/{second}/report/compare.json"))
    assert first in json.dumps(compared)
    assert nights.sandboxes() == []
