"""Differences in the set-up of two runs: rows, images, versions, spec, conditions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from swe_argo.steps.contracts.data import RunFile
from swe_argo.steps.contracts.spec_fields import fields
from swe_argo.steps.reports.comparison.record import Change, ImageChange
from swe_argo.steps.reports.figures.conditions import run_conditions
from swe_argo.steps.reports.stored_run import StoredRun, StoredUnit
from swe_argo.steps.reports.text.formatting import listing

HASH_LENGTH = 12
"""Characters shown of a digest."""
_CONDITION_TITLES = {
    "sandbox.backend": "Sandboxes",
    "sandbox.solve_network": "Agent's network",
    "grading.network": "Tests' network",
}
"""Spec field -> title of the condition that the machines recorded for it, which replaces it in the list."""


def find_changes(before: StoredRun, after: StoredRun) -> list[Change]:
    """Return the differences, most relevant first: dataset, versions, conditions, spec; images are not included."""
    condition_changes = list(_conditions(before, after))
    titles = {change.title for change in condition_changes}
    spec_changes = [
        change for change in _spec_changes(before.run, after.run) if _CONDITION_TITLES.get(change.title) not in titles
    ]
    return [*_dataset(before.run, after.run), *_versions(before, after), *condition_changes, *spec_changes]


def file_changes(before: RunFile, after: RunFile) -> list[Change]:
    """Return the differences recorded in ``run.json``: rows, versions, image digests."""
    old, new = (StoredRun(run=run, plan=None, units=[], unreadable=[]) for run in (before, after))
    was, now = before.image_digests, after.image_digests
    moved = [name for name in sorted(was.keys() & now.keys()) if was[name] != now[name]]
    images = [Change(kind="image", what=f"Image {name}", before=was[name], after=now[name]) for name in moved]
    return [*_dataset(before, after), *images, *_versions(old, new)]


def image_changes(
    before: StoredRun, after: StoredRun, pairs: list[tuple[StoredUnit, StoredUnit]]
) -> tuple[list[ImageChange], int]:
    """Return (instances with different images, number of instances whose images are known by name only).

    The same name does not prove the same image: tags move. Only instances whose tests ran are counted.
    """
    images_by_run = [
        {unit.instance_id: unit.image for unit in view.plan.units} if view.plan else {} for view in (before, after)
    ]
    changed, unknown = [], 0
    for pair in pairs:
        instance = pair[0].instance_id
        images = [image_of.get(instance, "") for image_of in images_by_run]
        digests = [
            _digest(unit, image, view.run) for unit, image, view in zip(pair, images, (before, after), strict=True)
        ]
        if None in digests:
            unknown += all(unit.grade is not None and unit.grade.machine is not None for unit in pair)
        old, new = images if None in digests else digests
        if old != new:
            changed.append(ImageChange(instance_id=instance, before=str(old), after=str(new)))
    return changed, unknown


def _digest(unit: StoredUnit, image: str, run: RunFile) -> str | None:
    """Return the digest recorded when grading, else when solving, else when planning."""
    for record in (unit.grade, unit.solve):
        if record is not None and record.machine is not None and record.machine.image_digest:
            return record.machine.image_digest
    return run.image_digests.get(image)


def _dataset(before: RunFile, after: RunFile) -> Iterator[Change]:
    """Yield the differences of dataset, revision, validation and rows."""
    old, new = before.dataset, after.dataset
    validations = [run.validation.validation_id if run.validation else "none" for run in (before, after)]
    for title, was, now in (
        ("Dataset", f"{old.name}, {old.split}", f"{new.name}, {new.split}"),
        ("Revision", old.revision or "none", new.revision or "none"),
        ("Validation", validations[0], validations[1]),
        ("Rows", f"{old.rows:,} ({old.sha256[:HASH_LENGTH]})", f"{new.rows:,} ({new.sha256[:HASH_LENGTH]})"),
    ):
        if was != now:
            yield Change(kind="dataset", what=title, before=was, after=now)


def _versions(before: StoredRun, after: StoredRun) -> Iterator[Change]:
    """Yield the packages and tools with different versions."""
    old, new = _recorded_versions(before), _recorded_versions(after)
    for name in dict.fromkeys((*old, *new)):
        was, now = listing(sorted(old.get(name, {"unknown"}))), listing(sorted(new.get(name, {"unknown"})))
        if was != now:
            yield Change(kind="version", what=_VERSION_TITLES.get(name, name), before=was, after=now)


_VERSION_TITLES = {"code": "Code", "python": "Python", "platform": "Platform"}


def _recorded_versions(run: StoredRun) -> dict[str, set[str]]:
    """Return the versions of the plan and of each unit's grading: a resumed run can have several."""
    by_package: dict[str, set[str]] = {}
    for versions in (run.run.versions, *(unit.grade.versions for unit in run.units if unit.grade is not None)):
        for name, value in versions.items():
            by_package.setdefault(name, set()).add(value)
    return by_package


def _conditions(before: StoredRun, after: StoredRun) -> Iterator[Change]:
    """Yield the differences between the machines, networks and call formats that both runs recorded."""
    old, new = run_conditions(before), run_conditions(after)
    pairs = [
        ("Sandboxes", "; ".join(old.machines), "; ".join(new.machines)),
        ("Agent's network", old.solve_network, new.solve_network),
        ("Tests' network", old.grading_network, new.grading_network),
        ("Tool calls", old.format, new.format),
    ]
    for title, was, now in pairs:
        # A condition that a run did not record may be the same.
        if was not in (None, "") and now not in (None, "") and was != now:
            yield Change(kind="condition", what=title, before=_describe_value(was), after=_describe_value(now))


def _describe_value(value: str | bool | None) -> str:
    return value.replace("_", " ") if isinstance(value, str) else "open" if value else "none"


def _spec_changes(before: RunFile, after: RunFile) -> Iterator[Change]:
    """Yield the differences between the specs, between their models, and between their input files."""
    for name, was, now in _differing(before, after):
        if name not in ("dataset", "split", "revision"):  # compared by their resolved values in the dataset lock
            yield Change(kind="wish", what=name, before=_format_value(was), after=_format_value(now))
    if before.model != after.model and before.spec.agent.model == after.spec.agent.model:
        yield Change(kind="wish", what="model", before=before.model, after=after.model)
    for name in sorted(before.input_hashes.keys() & after.input_hashes.keys()):
        was, now = before.input_hashes[name], after.input_hashes[name]
        if was != now:
            yield Change(kind="wish", what=f"content of {name}", before=was[:HASH_LENGTH], after=now[:HASH_LENGTH])


def is_same_spec(first: RunFile, second: RunFile) -> bool:
    """Return whether both specs are equal, apart from the run id and fields that only affect execution.

    A dataset equals its alias, and files of predictions or trajectories are compared by content, not by path.
    """
    return first.model == second.model and not any(_differing(first, second))


def _differing(old: RunFile, new: RunFile) -> Iterator[tuple[str, Any, Any]]:
    """Yield (field, old value, new value) for fields that decide the results. Input files are compared by content."""
    resolved = {"dataset": (old.dataset.name, new.dataset.name), "split": (old.dataset.split, new.dataset.split)}
    same_files = {name for name, content in old.input_hashes.items() if new.input_hashes.get(name) == content}
    for field in fields():
        was, now = resolved.get(field.name, (field.of(old.spec), field.of(new.spec)))
        if not field.is_changeable and field.name != "run_id" and field.name not in same_files and was != now:
            yield field.name, was, now


def _format_value(value: Any) -> str:
    if value is None or value == []:
        return "not set"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
