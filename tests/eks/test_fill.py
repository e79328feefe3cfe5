"""A file with variables: every one is filled in, or none."""

from __future__ import annotations

import pytest

from tests.eks.files import EKS, VALUES, fill


@pytest.mark.parametrize("name", ["cluster.yaml", "karpenter.yaml"])
def test_every_variable_of_the_files_is_filled_in(name: str) -> None:
    done = fill(name, **VALUES)
    left = [line for line in done.stdout.splitlines() if "${" in line and not line.lstrip().startswith("#")]
    assert (done.returncode, left) == (0, [])


@pytest.mark.parametrize("missing", sorted(set(VALUES)))
def test_a_variable_that_is_not_set_is_named_and_nothing_is_printed(missing: str) -> None:
    done = fill("cluster.yaml", **{name: value for name, value in VALUES.items() if name != missing})
    assert (done.returncode, done.stdout) == (64, "")
    assert done.stderr == f"{EKS / 'cluster.yaml'}: {missing} is not set\n"


@pytest.mark.parametrize("value", ['x"', "a: b", "x\n  y: z", "$(id)", "*", "{}", " x"])
def test_a_value_that_yaml_could_read_as_something_else_is_refused(value: str) -> None:
    done = fill("cluster.yaml", **{**VALUES, "CLUSTER": value})
    assert (done.returncode, done.stdout) == (64, "")
    assert "is no plain value" in done.stderr


def test_a_prefix_may_be_empty() -> None:
    done = fill("cluster.yaml", **{**VALUES, "S3_PREFIX": ""})
    assert "arn:aws:s3:::our-runs/runs/*" in done.stdout
