"""The images that a store's runs use at E2B."""

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
    """The runs that use an image, perhaps with an agent's files."""

    image: str
    """Display name."""
    runs: list[str] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)
    """Those of the runs that have units without a verdict."""


def find_uses(store: Store) -> dict[str, ImageUse]:
    """Return name prefix of an image's templates -> its use. Unreadable runs are left out."""
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
            for prefix, title in _templates_of(image, file.program):
                use = uses.setdefault(prefix, ImageUse(title))
                use.runs.append(run)
                if not complete:
                    use.unfinished.append(run)
    return uses


def _templates_of(image: str, program: AgentProgram | None) -> Iterator[tuple[str, str]]:
    """Yield name prefix and display name of the templates that a run uses for an image."""
    yield image_name(image), image
    if program and program.bundle:
        agent = " ".join(filter(None, (program.recipe.name, program.recipe.version)))
        yield image_name(image, program.bundle.digest), f"{image} with {agent}"


def _is_complete(data: bytes | None) -> bool:
    try:
        return data is not None and Summary.from_bytes(data).complete
    except ValueError:
        return False
