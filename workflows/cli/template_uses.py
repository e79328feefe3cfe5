"""A store -> which runs use which images at E2B."""

from __future__ import annotations

from dataclasses import dataclass, field

from steps.contracts.data import Plan, RunFile
from steps.contracts.images import through_registry
from steps.contracts.record import key
from steps.reports.figures.summary import Summary
from steps.sandbox.e2b.templates import image_name
from steps.store import Store


@dataclass
class ImageUse:
    """Of one image: as it is pulled, and the runs, of which those in ``unfinished`` have units without a verdict."""

    image: str
    runs: list[str] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)


def find_uses(store: Store) -> dict[str, ImageUse]:
    """What the names of an image's templates begin with -> its use. A run that cannot be read is left out."""
    uses: dict[str, ImageUse] = {}
    names = store.folders("runs/")
    contents = store.get_many(name for run in names for name in (key(RunFile, run), key(Plan, run), key(Summary, run)))
    for run in names:
        try:
            file, plan = RunFile.from_bytes(contents[key(RunFile, run)]), Plan.from_bytes(contents[key(Plan, run)])
        except (KeyError, ValueError):
            continue
        if file.spec.sandbox.backend != "e2b":
            continue
        complete = _is_complete(contents.get(key(Summary, run)))
        for image in {through_registry(unit.image, file.spec.sandbox.registry) for unit in plan.units}:
            use = uses.setdefault(image_name(image), ImageUse(image))
            use.runs.append(run)
            if not complete:
                use.unfinished.append(run)
    return uses


def _is_complete(data: bytes | None) -> bool:
    try:
        return data is not None and Summary.from_bytes(data).complete
    except ValueError:
        return False
