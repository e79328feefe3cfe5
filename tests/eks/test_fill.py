"""A file with variables: every one is filled in, or none."""

from __future__ import annotations

import pytest

from tests.eks.files import EKS, VALUES, fill


@pytest.mark.parametrize("name", ["cluster.yaml", "karpenter.yaml"])
def test_fill_replaces_every_variable(name: str) -> None:
    result = fill(name, **VALUES)
    unfilled = [line for line in result.stdout.splitlines() if "${" in line and not line.lstrip().startswith("#")]
    assert (result.returncode, unfilled) == (0, [])


@pytest.mark.parametrize("missing", sorted(set(VALUES)))
def test_fill_names_unset_variable(missing: str) -> None:
    result = fill("cluster.yaml", **{name: value for name, value in VALUES.items() if name != missing})
    assert (result.returncode, result.stdout) == (64, "")
    assert result.stderr == f"{EKS / 'cluster.yaml'}: {missing} is not set\n"


@pytest.mark.parametrize("value", ['x"', "a: b", "x\n  y: z", "$(id)", "*", "{}", " x"])
def test_fill_refuses_ambiguous_value(value: str) -> None:
    result = fill("cluster.yaml", **{**VALUES, "CLUSTER": value})
    assert (result.returncode, result.stdout) == (64, "")
    assert "is no plain value" in result.stderr


def test_fill_accepts_empty_prefix() -> None:
    result = fill("cluster.yaml", **{**VALUES, "S3_PREFIX": ""})
    assert "arn:aws:s3:::our-runs/runs/*" in result.stdout
