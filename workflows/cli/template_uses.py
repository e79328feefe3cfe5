"""A store -> which runs use which images at E2B."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from swe_argo.steps.contracts.data import Plan, RunFile
from swe_argo.steps.contracts.images import through_registry
from swe_argo.steps.contracts.recipe import AgentProgram
from swe_argo.steps.contracts.record import key
from swe_argo.steps.reports.figures.summary import Summary
from swe_argo.steps.sandbox.e2b.templates import image_name
from swe_argo.steps.store import Store


@dataclass
class ImageUse:
    """Of an image, or of one with an agent's files: in words, and the runs, of which those in ``unfinished`` have
    units without a verdict.
    """

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
            for name, what in _held(image, file.program):
                use = uses.setdefault(name, ImageUse(what))
                use.runs.append(run)
                if not complete:
                    use.unfinished.append(run)
    return uses


def _held(image: str, program: AgentProgram | None) -> Iterator[tuple[str, str]]:
    """What the names of a run's templates begin with, and what these hold."""
    yield image_name(image), image
    if program and program.bundle:
        agent = " ".join(filter(None, (program.recipe.name, program.recipe.version)))
        yield image_name(image, program.bundle.digest), f"{image} with {agent}"


def _is_complete(data: bytes | None) -> bool:
    try:
        return data is not None and Summary.from_bytes(data).complete
    except ValueError:
        return False
