"""Validated twins shared by all runs, by dataset row and image: plan copies them into a run, report out of it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from swe_argo.steps.contracts.data import Answer, Instance, RunFile
from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.twins import TWINS_VERSION, ValidatedTwins
from swe_argo.steps.store.protocol import Store


def shared_key(row_sha256: str, image: str, image_digest: str | None) -> str:
    """Return the key of the shared twins for a dataset row (its hash) in an image; the digest is None if unknown."""
    machine = hashlib.sha256(f"{image}@{image_digest or ''}".encode()).hexdigest()[:16]
    return f"twins/{TWINS_VERSION}/{row_sha256}-{machine}.json"


def copy_twins_in(store: Store, run: RunFile, rows: Iterable[tuple[Instance, Answer]]) -> None:
    """Copy twins that earlier runs validated into a run with the same instances."""
    pairs = [
        (
            shared_key(answer.row_sha256, instance.image, run.image_digests.get(instance.image)),
            key(ValidatedTwins, run.run_id, instance.instance_id),
        )
        for instance, answer in rows
        if answer.row_sha256
    ]
    existing = set(store.keys(f"twins/{TWINS_VERSION}/")) if pairs else set()
    store.copy_many([(source, target) for source, target in pairs if source in existing])


def copy_twins_out(store: Store, run_id: str) -> None:
    """Copy the twins that a run validated to the place shared by all runs."""
    folder = f"runs/{run_id}/instances/"
    names = [name for name in store.keys(folder) if name.endswith(f"/{ValidatedTwins.file}")]
    pairs = []
    for name, data in store.get_many(names).items():
        twins = ValidatedTwins.from_bytes(data)
        if twins.row_sha256:
            pairs.append((name, shared_key(twins.row_sha256, twins.image, twins.image_digest)))
    existing = set(store.keys(f"twins/{TWINS_VERSION}/")) if pairs else set()
    store.copy_many([(source, target) for source, target in pairs if target not in existing])
