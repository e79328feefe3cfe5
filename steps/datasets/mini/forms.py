"""``mini-<family>``: rows and repositories of ``mini``'s issues in another family's form."""

from __future__ import annotations

import hashlib
from functools import cache, partial
from pathlib import Path

from swe_argo.steps.contracts.data import WORKDIR
from swe_argo.steps.datasets.mini.content import TASK_REPO, digest_issue
from swe_argo.steps.datasets.mini.history import make_repository, run_git
from swe_argo.steps.datasets.names import BUNDLED, MINI
from swe_argo.steps.datasets.records import SourcedValue
from swe_argo.steps.datasets.task_repo import read_task_repo
from swe_argo.steps.errors import ConfigError
from swe_argo.steps.families.example import load_example
from swe_argo.steps.families.family import Row
from swe_argo.steps.families.rows import normalise

FORMAT = "2"
"""Version of the format; raise it when the same issue gives another repository."""

# These have pytest tests, and ids without blanks, at which SWE-bench cuts ids but other families do not.
_ISSUES = ("mini__gridprint-1", "mini__stalecache-2")


def read_rows(dataset: str, split: str) -> tuple[list[SourcedValue], list[SourcedValue]]:
    """Return (rows of ``split``, rows that can only be selected by id), as ``read_task_repo``.

    Other families' forms have only one split.
    """
    if dataset == MINI:
        return read_task_repo(TASK_REPO, split)
    return [SourcedValue(f"{dataset}, {name}", row) for name, row in _rows_by_issue(dataset).items()], []


def find_issue(instance_id: str, dataset: str) -> str:
    """Return the issue of ``mini`` for an instance. Raises ConfigError for an unknown instance."""
    if dataset == MINI:
        return instance_id
    issues = {row["instance_id"]: issue for issue, row in _normalised_by_issue(dataset).items()}
    if instance_id not in issues:
        raise ConfigError(f"{dataset} has no instance {instance_id!r}; it has {', '.join(issues)}", field="instances")
    return issues[instance_id]


def find_workdir(instance_id: str, dataset: str) -> str:
    """Return the repository's path in the image. Raises ConfigError for an unknown instance."""
    if dataset == MINI:
        return WORKDIR
    return str(_normalised_by_issue(dataset)[find_issue(instance_id, dataset)].get("workdir", WORKDIR))


def image_by_id(dataset: str) -> dict[str, str]:
    """Return instance id -> image of a dataset."""
    if dataset == MINI:
        rows = [normalise(row, where) for where, row in read_rows(MINI, "test")[0]]
    else:
        rows = list(_normalised_by_issue(dataset).values())
    return {row["instance_id"]: row["image"] for row in rows}


def digest(instance_id: str, dataset: str = MINI) -> str:
    """Return ``sha256:...`` over all inputs of the instance's image, except its base."""
    of_issue = digest_issue(find_issue(instance_id, dataset))
    if dataset == MINI:
        return of_issue
    return f"sha256:{hashlib.sha256(f'{dataset} {FORMAT} {of_issue}'.encode()).hexdigest()}"


def materialise(instance_id: str, folder: Path, dataset: str = MINI) -> None:
    """Write ``<folder>/testbed``: the repository of the instance's image.

    Raises ConfigError for an unknown instance or if git is missing, InfraError if git fails, FileExistsError if
    testbed exists.
    """
    issue = find_issue(instance_id, dataset)
    make_repository(issue, folder)
    if dataset != MINI:
        testbed = folder / "testbed"
        load_example(BUNDLED[dataset]).change_image(testbed, _issues()[issue], partial(run_git, testbed))


@cache
def _issues() -> dict[str, Row]:
    rows, _ = read_task_repo(TASK_REPO, "test")
    return {str(row["instance_id"]): row for _, row in rows if row["instance_id"] in _ISSUES}


def _rows_by_issue(dataset: str) -> dict[str, Row]:
    make_row = load_example(BUNDLED[dataset]).make_row
    return {name: make_row(issue) for name, issue in _issues().items()}


@cache
def _normalised_by_issue(dataset: str) -> dict[str, Row]:
    rows = _rows_by_issue(dataset)
    return {name: normalise(row, f"{dataset}, {name}", BUNDLED[dataset]) for name, row in rows.items()}
