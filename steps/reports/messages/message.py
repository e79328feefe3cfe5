"""The chat message about a run: JSON for Slack's incoming webhooks.

Mattermost, Rocket.Chat and Discord's ``/slack`` address read ``text`` and ignore ``blocks``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from swe_argo.steps.reports.comparison.record import Comparison
from swe_argo.steps.reports.comparison.view import ComparisonView, InstanceLine, view_comparison
from swe_argo.steps.reports.figures.summary import Summary
from swe_argo.steps.reports.text.visible import make_visible

# Slack rejects a whole message if its header is longer than 150 characters or a section is longer than 3,000
# (docs.slack.dev, reference/block-kit/blocks: header-block, section-block).
HEADER = 150
SECTION = 3000
MAX_ITEMS = 15
"""Maximum number of items in a list."""


def build_message(summary: Summary, compared: Comparison | None, link: str = "") -> dict[str, Any]:
    """Return the message: ``text`` is a one-line summary, ``blocks`` are the details, differences in set-up first.

    ``link``: address of the report for people; empty if there is none.
    """
    rate = summary.headline
    attempts = f" in {len(summary.attempts)} attempts" if len(summary.attempts) > 1 else ""
    head = f"{summary.run_id}: {summary.why_no_score or rate.word + attempts}"
    head += f", {compared.word}" if compared and summary.valid else ""
    about = f"{summary.model} on {summary.dataset.name} ({summary.dataset.split})"
    missing = rate.total - rate.graded
    about += f"; {missing:,} without a verdict" if missing else ""
    parts = [
        escape(make_visible(about)),
        *(_compared(view_comparison(compared)) if compared else ["Not compared with an earlier run."]),
    ]
    notes = [escape(make_visible(line)) for line in (*summary.how, *summary.doubts)]
    parts += [_format_list("Notes", notes)] if notes else []
    blocks: list[dict[str, Any]] = [{"type": "header", "text": {"type": "plain_text", "text": _truncate(head, HEADER)}}]
    blocks += [{"type": "section", "text": {"type": "mrkdwn", "text": _truncate(part, SECTION)}} for part in parts]
    if link:
        blocks.append({"type": "section", "text": {"type": "mrkdwn", "text": f"<{escape(link)}|Open the report>"}})
    return {"text": escape(make_visible(head)) + (f" {escape(link)}" if link else ""), "blocks": blocks}


def _compared(view: ComparisonView) -> Iterable[str]:
    """Yield the sections about the comparison, in Slack's mark-up."""
    changes = [escape(line) for line in (*view.changes, view.unknown) if line]
    if view.changes:
        yield _format_list(f"Differences in set-up, {view.against} → {view.run_id}", changes)
    else:
        yield " ".join([escape(view.unchanged), *changes])
    yield escape(" ".join(filter(None, [view.headline, view.significance, view.means])))
    for part in view.moved:
        yield _format_list(part.heading, [_format_instance(one) for one in part.lines])


def _format_instance(line: InstanceLine) -> str:
    first = f": {_code(line.tests[0])}" if line.tests else ""
    more = f" and {line.failing - 1:,} more" if line.failing > 1 and line.tests else ""
    return f"{_code(line.instance_id)} {escape(line.note)}{first}{more}"


def _code(name: str) -> str:
    """Return the name as code, because underscores and asterisks would be mark-up."""
    return f"`{escape(name).replace('`', chr(39))}`"


def _format_list(title: str, items: list[str]) -> str:
    """Return the first items that fit, at most MAX_ITEMS, and the number of the others."""
    # 60 characters for the mark-up and the last line; below, 3 for each bullet and line end.
    lines, room = [f"*{escape(title)}*"], SECTION - len(title) - 60
    for item in items[:MAX_ITEMS]:
        room -= len(item) + 3
        if room < 0:
            break
        lines.append(f"• {item}")
    more = len(items) - len(lines) + 1
    return "\n".join([*lines, *([f"and {more:,} more"] if more else [])])


def escape(text: str) -> str:
    """Escape the three special characters of Slack's mark-up (docs.slack.dev, messaging/formatting-message-text)."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _truncate(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
