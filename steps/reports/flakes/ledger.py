"""``flakes.parquet``: all known flipping tests of a store, merged from the files of its runs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from swe_argo.steps.reports.flakes.gradings import (
    FOLDER,
    Grading,
    dataset_key,
    find_gradings,
    gradings_key,
    read_gradings,
    read_rows,
    write_gradings,
)
from swe_argo.steps.reports.parquet_bytes import make_table, write_parquet
from swe_argo.steps.reports.stored_run import KnownFlip, StoredRun, StoredUnit
from swe_argo.steps.store import Store

if TYPE_CHECKING:
    import pyarrow as pa

LEDGER = "flakes.parquet"
MERGES = 5
"""Maximum number of merges if other writers change the ledger meanwhile; the next report merges again."""
FILES_AT_ONCE = 64
"""Number of files in memory at once."""
_COLUMNS = ("dataset", "instance_id", "test", "times_seen", "times_flipped", "last_seen")

Flips = Mapping[str, Mapping[str, KnownFlip]]
"""Instance -> test -> its flips, for one dataset."""


def record_flips(store: Store, run: StoredRun) -> Flips:
    """Store the run's gradings, merge the ledger, and return the known flips of the run's dataset.

    The run's own file is written first. Each writer reads all files after the ledger that it replaces was written, so
    concurrent writers lose nothing. Raises InfraError if the store fails.
    """
    gradings, name = list(find_gradings(run)), gradings_key(run.run.run_id)
    if gradings or store.get_many([name]):  # an older release stored the gradings of agents' patches
        store.put(name, write_gradings(gradings))
    for _ in range(MERGES):
        before = store.get_many([LEDGER]).get(LEDGER)
        flips = count_flips(_all_gradings(store))
        after = _write(flips)
        if after == before or (before is None and not flips) or store.swap(LEDGER, before, after):
            return _select_dataset(flips, run.run.dataset.name)
    return read_flips(store, run.run.dataset.name)


def read_flips(store: Store, dataset: str) -> Flips:
    """Return the ledger's flips of a dataset. Raises InfraError if the store fails."""
    data = store.get_many([LEDGER]).get(LEDGER)
    rows = read_rows(data, _schema()) if data is not None else []
    return _select_dataset(
        {
            (row["dataset"], row["instance_id"], row["test"]): KnownFlip(
                row["test"], row["times_seen"], row["times_flipped"], row["last_seen"]
            )
            for row in rows
        },
        dataset,
    )


def mark_flips(units: Iterable[StoredUnit], flips: Flips) -> None:
    """Set ``flips`` of each unit to its failing tests that are known to flip."""
    for unit in units:
        flips_of = flips.get(unit.instance_id, {})
        tests = unit.grade.failing_tests if unit.grade and flips_of else []
        unit.flips = [flips_of[test] for test in tests if test in flips_of]


@dataclass
class _InstanceGradings:
    """The gradings of one instance, by patch."""

    failing: dict[str, list[frozenset[str]]] = field(default_factory=lambda: defaultdict(list))
    last_seen: str = ""


def count_flips(gradings: Iterable[Grading]) -> dict[tuple[str, str, str], KnownFlip]:
    """Return (dataset, instance, test) -> flips: for each patch, the number of gradings in the minority.

    A test counts as seen in every grading of a patch that was graded more than once.
    """
    tallies: dict[tuple[str, str], _InstanceGradings] = defaultdict(_InstanceGradings)
    for grading in gradings:
        tally = tallies[grading.dataset, grading.instance_id]
        tally.failing[grading.patch_sha256].append(grading.failing)
        tally.last_seen = max(tally.last_seen, grading.seen_at)
    flips = {}
    for (dataset, instance_id), tally in tallies.items():
        repeated = [failing for failing in tally.failing.values() if len(failing) > 1]
        flipped: Counter[str] = Counter()
        for group in repeated:
            fails = Counter(test for failing in group for test in failing)
            # Number of gradings with the less frequent result: failed or passed.
            flipped.update({test: min(number, len(group) - number) for test, number in fails.items()})
        times_seen = sum(map(len, repeated))
        for test, number in flipped.items():
            if number:
                flips[dataset, instance_id, test] = KnownFlip(test, times_seen, number, tally.last_seen)
    return dict(sorted(flips.items()))


def _all_gradings(store: Store) -> Iterable[Grading]:
    names = [name for name in store.keys(FOLDER) if name.endswith(".parquet")]
    for start in range(0, len(names), FILES_AT_ONCE):
        for data in store.get_many(names[start : start + FILES_AT_ONCE]).values():
            yield from read_gradings(data)


def _write(flips: Mapping[tuple[str, str, str], KnownFlip]) -> bytes:
    rows = [
        dict(zip(_COLUMNS, (dataset, instance, test, flip.gradings, flip.flipped, flip.last_seen), strict=True))
        for (dataset, instance, test), flip in flips.items()
    ]
    return write_parquet(make_table(rows, _schema()))


def _schema() -> pa.Schema:
    import pyarrow as pa

    text, whole = pa.string(), pa.int64()
    return pa.schema(list(zip(_COLUMNS, (text, text, text, whole, whole, text), strict=True)))


def _select_dataset(flips: Mapping[tuple[str, str, str], KnownFlip], dataset: str) -> Flips:
    """Return the flips of one dataset, by instance and test."""
    by_instance: dict[str, dict[str, KnownFlip]] = defaultdict(dict)
    dataset = dataset_key(dataset)
    for (name, instance_id, test), flip in flips.items():
        if name == dataset:
            by_instance[instance_id][test] = flip
    return by_instance
