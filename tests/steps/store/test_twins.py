"""Validated twins that runs share."""

from __future__ import annotations

from pathlib import Path

import pytest

from swe_argo.steps.contracts.data import Answer, DatasetLock, Instance, RunFile
from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.run_spec import RunSpec
from swe_argo.steps.contracts.twins import ValidatedTwins
from swe_argo.steps.store import open_store
from swe_argo.steps.store.protocol import Store
from swe_argo.steps.store.twins import copy_twins_in, copy_twins_out

ROW = "1" * 64


def make_run(run_id: str, digest: str | None = "sha256:1") -> RunFile:
    lock = DatasetLock(name="made", split="test", revision=None, rows=1, sha256="0" * 64)
    digests = {"acme/image": digest} if digest else {}
    return RunFile(
        run_id=run_id,
        spec=RunSpec(),
        dataset=lock,
        model="m",
        versions={},
        created_at="2026-01-01T00:00:00+00:00",
        image_digests=digests,
    )


def make_row(row_sha256: str = ROW, image: str = "acme/image") -> tuple[Instance, Answer]:
    instance = Instance(
        instance_id="acme__calc-1", repo="acme/calc", version="1", base_commit="0", image=image, problem_statement="p"
    )
    return instance, Answer(instance_id="acme__calc-1", row_sha256=row_sha256)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A store in which run ``first`` has validated the twins of one instance."""
    store = open_store(str(tmp_path), create=True)
    twins = ValidatedTwins(
        instance_id="acme__calc-1", row_sha256=ROW, image="acme/image", image_digest="sha256:1", passed=["a"]
    )
    store.put(key(ValidatedTwins, "first", "acme__calc-1"), twins.to_bytes())
    copy_twins_out(store, "first")
    return store


@pytest.mark.parametrize(
    ("digest", "row_sha256", "image", "is_known"),
    [
        ("sha256:1", ROW, "acme/image", True),
        ("sha256:2", ROW, "acme/image", False),
        (None, ROW, "acme/image", False),
        ("sha256:1", "2" * 64, "acme/image", False),
        ("sha256:1", ROW, "other/image", False),
        ("sha256:1", "", "acme/image", False),
    ],
)
def test_twins_are_shared_by_image(
    store: Store, digest: str | None, row_sha256: str, image: str, *, is_known: bool
) -> None:
    copy_twins_in(store, make_run("second", digest), [make_row(row_sha256, image)])
    name = key(ValidatedTwins, "second", "acme__calc-1")
    assert (name in store.get_many([name])) is is_known
