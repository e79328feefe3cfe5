"""What an earlier Workflow of a run left at work is ended before the run goes on: its units are not done twice."""

from __future__ import annotations

import pytest

from swe_argo.steps.argo import earlier_workflows
from swe_argo.steps.errors import ConfigError, InfraError
from tests.steps.argo.api_server import Api, serving
from tests.steps.argo.test_shards import PARENT, RUN, impatient, pod, shard

__all__ = ["impatient"]


def remove(api: Api) -> list[str]:
    return earlier_workflows.remove_earlier_shards(api.cluster(), RUN, "nightly-new", patience_s=0.2, pause_s=0.05)


def test_shards_that_another_workflow_of_the_run_left_at_work_are_deleted_and_no_others() -> None:
    with serving() as api:
        api.add(shard(0, "Succeeded"), shard(1, "Running"), shard(2, "Pending"), shard(3, ""))
        api.add(shard(4, "Running", run="other"), shard(5, "Running", parent="nightly-new"))
        assert remove(api) == [f"{PARENT}-s{number:05d}" for number in (1, 2, 3)]
        assert api.changed("DELETE") == [f"{PARENT}-s{number:05d}" for number in (1, 2, 3)]


def test_where_nothing_was_left_two_questions_are_enough() -> None:
    with serving() as api:
        api.add(shard(0, "Succeeded"), pod("a", "grade", "Failed"))
        assert remove(api) == []
        assert [how for how, *_ in api.asked] == ["GET", "GET"]


def test_pods_that_work_on_are_waited_for_and_then_told() -> None:
    with serving() as api:
        api.add(pod("a", "solve"))
        with pytest.raises(InfraError, match=r"an earlier Workflow of run nightly works on, .*: pods a"):
            remove(api)
        api.objects["pods", "a"]["status"]["phase"] = "Failed"
        assert remove(api) == []


@pytest.mark.usefixtures("impatient")
def test_without_the_right_the_account_and_the_right_are_named() -> None:
    with (
        serving(forbidden=("workflows",)) as api,
        pytest.raises(ConfigError, match=r"evals:one may not list workflows"),
    ):
        remove(api)
