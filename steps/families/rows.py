"""A row of any family: checked and in one shape, whatever file it came from, and what an agent may know of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from itertools import islice

from swe_argo.steps.contracts.data import WORKDIR, Answer, Instance, TaskMachine
from swe_argo.steps.contracts.families import FAMILIES, SWEBENCH
from swe_argo.steps.families.columns import bad_row, describe_kind
from swe_argo.steps.families.family import FAMILY_COLUMN, MACHINE_COLUMN, Family, Row, load_family
from swe_argo.steps.families.swebench import retrieval

_IMAGES = ("http://", "https://", "data:image/")
_UNSUPPORTED = {
    "SWE-bench Pro": {"before_repo_set_cmd", "selected_test_files_to_run"},
    "SWE-bench-Live": {"test_cmds", "log_parser"},
    "Multi-SWE-bench": {"org", "number", "fix_patch"},
    "SWE-PolyBench": {"F2P", "P2P", "test_command"},
}
"""Benchmark that cannot be graded yet -> columns that its rows are known by."""
_MOST = 40
"""Columns of a row that a message names."""


def normalise(source_value: object, where: str, family: str | None = None) -> Row:
    """The row in one shape; ``where`` names its place in messages (``rows.jsonl, row 17``). Raises ConfigError.

    It is of ``family``, by default of the first that recognizes its columns.
    """
    if not isinstance(source_value, Mapping):
        raise bad_row(where, f"is {describe_kind(source_value)}, not an object")
    row = {str(column): value for column, value in source_value.items()}
    name = family or _recognize(row, where)
    row = load_family(name).normalise(row, where)
    return row if name == SWEBENCH else {**row, FAMILY_COLUMN: name}


def _recognize(row: Mapping[str, object], where: str) -> str:
    """The family of a row. Raises ConfigError where it is of none."""
    for benchmark, columns in _UNSUPPORTED.items():
        if columns <= row.keys():
            raise bad_row(
                where, f"is a row of {benchmark}, which is not supported yet; docs/add-a-family.md says how to add it"
            )
    for name in FAMILIES:
        if load_family(name).recognizes(row):
            return name
    known = "; ".join(f"{name} needs {load_family(name).columns.describe()}" for name in FAMILIES)
    shown = ", ".join(ascii(column)[1:-1][:80] for column in islice(row, _MOST))
    shown += " and more" if len(row) > _MOST else ""
    raise bad_row(where, f"is of no known family: it has {shown or 'no columns'}; {known}")


def family_name(row: Row) -> str:
    """The name of a normalised row's family."""
    return str(row.get(FAMILY_COLUMN, SWEBENCH))


def family_of(row: Row) -> Family:
    """The family of a normalised row."""
    return load_family(family_name(row))


def to_answer(row: Row) -> Answer:
    """What only grade may know."""
    update = {"family": family_name(row), "row_sha256": digest_rows([row])}
    return family_of(row).to_answer(row).model_copy(update=update)


def why_not_gradeable(row: Row) -> str | None:
    """Why a row cannot be graded, or None where it can: what ``plan`` says before anything runs."""
    return family_of(row).why_not_gradeable(row)


def machines_of(rows: Iterable[Row]) -> dict[str, TaskMachine]:
    """Image -> what its task says of the machine, of the rows whose task says anything."""
    return {row["image"]: TaskMachine.model_validate(stated) for row in rows if (stated := row.get(MACHINE_COLUMN))}


def to_instance(row: Row, hints: bool, style: retrieval.Style | None = None) -> Instance:
    """What an agent may know; the issue's discussion only where ``hints`` asks for it, and retrieved files only for a
    prompt ``style`` that shows them."""
    difficulty = row.get("difficulty")
    return Instance(
        instance_id=row["instance_id"],
        repo=row["repo"],
        version=row["version"],
        base_commit=row["base_commit"],
        image=row["image"],
        problem_statement=row["problem_statement"],
        hints_text=row["hints_text"] if hints else None,
        images=_issue_images(row),
        context=retrieval.file_context(row, style) if style else None,
        created_at=row["created_at"],
        family=family_name(row),
        workdir=workdir_of(row),
        machine=row.get(MACHINE_COLUMN),
        difficulty=difficulty if isinstance(difficulty, str) else None,
    )


def workdir_of(row: Row) -> str:
    """Where the image of a normalised row has the repository."""
    return WORKDIR if family_name(row) == SWEBENCH else row.get("workdir") or WORKDIR


def _issue_images(row: Row) -> list[str]:
    """Those of the issue itself: what else SWE-bench Multimodal names is of the answer."""
    assets = row.get("image_assets") if family_name(row) == SWEBENCH else None
    urls = (assets.get("problem_statement") or []) if isinstance(assets, dict) else []
    return [url for url in urls if isinstance(url, str) and url.startswith(_IMAGES)]


def digest_rows(rows: Iterable[Row]) -> str:
    """sha256 in hex over the rows as canonical JSON, in order of their ids: equal rows from any form are equal."""
    ordered = sorted(rows, key=lambda row: str(row["instance_id"]))
    text = json.dumps(ordered, sort_keys=True, separators=(",", ":"), ensure_ascii=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()
