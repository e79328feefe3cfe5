"""The page of one unit: everything its agent did, turn by turn, what came of it, and what failed on the way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from steps.contracts.data import Patch, SolveAttempt
from steps.reports.labels import STOPS
from steps.reports.page.charts import columns
from steps.reports.page.excerpts import diff_runs, linked_files
from steps.reports.page.templating import as_page, page_templates
from steps.reports.stored_run import StoredRun, StoredUnit
from steps.reports.text.formatting import count, money, tokens
from steps.reports.text.visible import make_visible, patch_head
from steps.reports.unit.conversation import Conversation
from steps.reports.unit.turns import text_allowance
from steps.reports.unit.view import view_unit

PATCH_LINES = 2_000
PATCH_WIDTH = 400


@dataclass(frozen=True)
class UnitPageInputs:
    """What the page of a unit is made of beside the unit itself."""

    conversation: Conversation | None
    """None where there is no trajectory, or none that can be read."""
    partial: Mapping[str, Conversation]
    """Name of a failed try -> what its agent had got to."""
    up: str
    """Address of the run's page, at the place of the unit."""
    before: str
    after: str
    """Addresses of the pages beside it; empty where there are none."""
    remarks: Sequence[str]
    """What is to be known of the whole run."""
    folder: str = ""
    """Where its files lie; by default beside the report's folder."""


def instance_page(
    run: StoredRun, unit: StoredUnit, material: UnitPageInputs, template: str = "instance.html.j2", **others: object
) -> bytes:
    """The page, UTF-8, at most about 4 MB however much there is to tell.

    ``template``: one that extends the report's own; ``others``: what it wants to know beside.
    """
    conversation, partial = material.conversation, material.partial
    limit = text_allowance([*_flat(conversation), *(one for other in partial.values() for one in _flat(other))])
    patch = patch_head(unit.patch or b"", PATCH_LINES, PATCH_WIDTH)
    # Where the spec names the endpoint, the remarks on the run have it.
    view = view_unit(unit, conversation, partial, limit=limit, endpoint=not run.run.spec.llm.base_url)
    text = (
        page_templates()
        .get_template(template)
        .render(
            unit=unit,
            view=view,
            run=make_visible(run.run.run_id),
            model=make_visible(run.run.model),
            dataset=make_visible(f"{run.run.dataset.name}, {run.run.dataset.split}"),
            material=material,
            many=len(run.attempts) > 1,
            chart=_chart(conversation) if conversation else None,
            attempts=_attempts(unit.solve.attempts) if unit.solve else [],
            patch=diff_runs(patch.lines or view.changes),
            patch_note=f"{count(patch.left_out, 'more line')} in {Patch.file}" if patch.left_out else "",
            folder=material.folder or f"../../units/{unit.instance_id}/{unit.attempt}/",
            files=linked_files(unit),
            **others,
        )
    )
    return as_page(text)


def _flat(conversation: Conversation | None) -> list[Conversation]:
    return [conversation, *(one for other in conversation.others for one in _flat(other))] if conversation else []


def _chart(conversation: Conversation) -> dict[str, Any] | None:
    """Columns of tokens and of money, one an answer of the model; None where it was not asked."""
    usages = [turn.usage for turn in conversation.turns if turn.usage is not None]
    if not usages:
        return None
    token_columns, most = columns(
        [(s.completion, min(s.cached, s.prompt), max(0, s.prompt - s.cached)) for s in usages]
    )
    priced = [s.cost for s in usages if s.cost is not None]
    money_columns, dearest = columns([(s.cost or 0.0,) for s in usages])
    second_columns, slowest = columns([(s.seconds,) for s in usages])
    return {
        "width": max(len(usages), 16),
        "answers": len(usages),
        "tokens": list(zip(("out", "cached", "in"), token_columns, strict=True)),
        "most": int(most),
        "money": money_columns[0] if priced else "",
        "dearest": dearest,
        "total": sum(priced) if priced else None,
        "seconds": second_columns[0] if slowest else "",
        "slowest": slowest,
        "waited": sum(s.seconds for s in usages),
    }


def _attempts(attempts: Sequence[SolveAttempt]) -> list[dict[str, Any]]:
    return [
        {
            "number": one.number,
            "stop": STOPS[one.stop_reason].name,
            "temperature": "" if one.temperature is None else f"{one.temperature:g}",
            "critic": "accepted" if one.accepted else "refused",
            "chosen": one.chosen,
            "patch": f"{one.patch_bytes:,} B",
            "calls": f"{one.usage.calls:,}",
            "tokens": tokens(one.usage.prompt_tokens + one.usage.completion_tokens),
            "cost": "" if one.usage.cost_usd is None else money(one.usage.cost_usd),
        }
        for one in attempts
    ]
