"""Selection of the rows of a dataset for a run."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from swe_argo.steps.contracts.ids import is_safe_id
from swe_argo.steps.contracts.run_spec import SelectSpec
from swe_argo.steps.datasets.names import did_you_mean
from swe_argo.steps.datasets.records import local_path, read_bytes
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.families.family import Row

# Near misses are searched among all ids of the dataset, which takes time; this is also the most ids quoted of a file.
_MOST_HINTS = 5


def select(rows: list[Row], spec: SelectSpec, by_id: Sequence[Row] = ()) -> tuple[list[Row], list[str]]:
    """Return the rows that meet every given condition, and notices.

    The rows keep the dataset's order unless a seed shuffles them. ``by_id`` are rows that only a request by id reaches
    (LoadedSplit.by_id). Raises ConfigError for unknown ids (all in one error), unknown repositories, a bad regular
    expression, and if no row is left.
    """
    id_sets = _ids(spec)
    requested: set[str] = set().union(*id_sets)
    pool = [*rows, *(row for row in by_id if row["instance_id"] in requested)]
    typed = {*spec.instance_ids, *spec.exclude}
    _refuse_unknown([*sorted(requested), *spec.exclude], [row["instance_id"] for row in [*rows, *by_id]], typed)
    _refuse_unknown_repos(spec.repos, pool)

    selected, emptied = pool, "the dataset"
    for name, holds in _conditions(spec, id_sets):
        before, selected = selected, [row for row in selected if holds(row)]
        if before and not selected:
            emptied = f"{name} (of {len(before)} before)"
    if not selected:
        raise ConfigError(f"no instance is selected: nothing is left after {emptied}", field="select")
    return _slice(_shuffled(selected, spec.shuffle_seed), spec)


def _conditions(spec: SelectSpec, id_sets: list[set[str]]) -> Iterator[tuple[str, Callable[[Row], bool]]]:
    excluded, repos, pattern = set(spec.exclude), set(spec.repos), _regex(spec.regex)
    if id_sets:
        yield "the ids asked for", lambda row: all(row["instance_id"] in ids for ids in id_sets)
    if excluded:
        yield "exclude", lambda row: row["instance_id"] not in excluded
    if pattern is not None:
        yield f"regex {spec.regex!r}", lambda row: pattern.search(row["instance_id"]) is not None
    if repos:
        yield f"repo {', '.join(spec.repos)}", lambda row: row["repo"] in repos


def _slice(rows: list[Row], spec: SelectSpec) -> tuple[list[Row], list[str]]:
    if spec.start_idx >= len(rows):
        raise ConfigError(
            f"no instance is selected: {spec.start_idx} of {len(rows)} are skipped", field="select.start_idx"
        )
    rest = rows[spec.start_idx :]
    if spec.k is None or spec.k <= len(rest):
        return rest[: spec.k], []
    after = f" after start_idx {spec.start_idx}" if spec.start_idx else ""
    return rest, [f"k is {spec.k}, but only {len(rest)} instances are there{after}: all of them are taken"]


def _shuffled(rows: list[Row], seed: int | None) -> list[Row]:
    if seed is None:
        return rows
    # Only the ids are shuffled: random.Random with an int seed gives the same order on every machine.
    by_id = {row["instance_id"]: row for row in rows}
    ids = list(by_id)
    random.Random(seed).shuffle(ids)
    return [by_id[each] for each in ids]


def _ids(spec: SelectSpec) -> list[set[str]]:
    id_sets = [set(spec.instance_ids)] if spec.instance_ids else []
    if spec.ids_file is not None:
        id_sets.append(_ids_of_file(local_path(spec.ids_file, "select.ids_file")))
    return id_sets


def _ids_of_file(path: Path) -> set[str]:
    field = "select.ids_file"
    try:
        text = read_bytes(path, field).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not UTF-8 text", field=field) from None
    ids = {line.partition("#")[0].strip() for line in text.split("\n")} - {""}
    if not ids:
        raise ConfigError(f"{path} names no ids", field=field)
    return ids


def _regex(text: str | None) -> re.Pattern[str] | None:
    try:
        return None if text is None else re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise ConfigError(f"{text!r} is no regular expression: {error}", field="select.regex") from None


def _refuse_unknown(requested: list[str], instance_ids: list[str], typed: set[str]) -> None:
    """Raise ConfigError for unknown ids: it quotes typed ones, and of a file a few that have an id's form."""
    there = set(instance_ids)
    unknown = [each for each in dict.fromkeys(requested) if each not in there]
    if unknown:
        read = [each for each in unknown if each not in typed and is_safe_id(each)]
        quoted = [each for each in unknown if each in typed or each in read[:_MOST_HINTS]]
        listed = [f"{each}{did_you_mean(each, instance_ids)}" for each in quoted[:_MOST_HINTS]]
        listed += quoted[_MOST_HINTS:]
        if more := len(unknown) - len(quoted):
            listed.append(f"{more} more" if quoted else "none of them has the form of an id")
        count = "1 id is" if len(unknown) == 1 else f"{len(unknown)} ids are"
        raise ConfigError(f"{count} not in the dataset: {', '.join(listed)}", field="select")


def _refuse_unknown_repos(requested: list[str], pool: list[Row]) -> None:
    repos = sorted({row["repo"] for row in pool})
    unknown = [f"{repo}{did_you_mean(repo, repos)}" for repo in requested if repo not in repos]
    if unknown:
        raise ConfigError(
            f"the dataset has no repository {', '.join(unknown)}; it has {', '.join(repos)}", field="select.repos"
        )
