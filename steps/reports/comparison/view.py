"""Texts of a Comparison, for pages, terminals and messages alike."""

from __future__ import annotations

from dataclasses import dataclass

from swe_argo.steps.reports.comparison.record import Change, ChangedOutcome, Comparison
from swe_argo.steps.reports.figures.stats import MIN_DISCORDANT
from swe_argo.steps.reports.figures.summary import Rate
from swe_argo.steps.reports.formatting import count, cut_line, listing, make_visible, percent, utc
from swe_argo.steps.reports.labels import STANDINGS

ALPHA = 0.05
"""Significance level."""
MAX_IMAGES = 3
MAX_TESTS = 3
VALUE_WIDTH = 80
TEST_WIDTH = 120
REASON_WIDTH = 160


@dataclass(frozen=True, slots=True)
class InstanceLine:
    """A line of a list of instances."""

    instance_id: str
    note: str = ""
    tests: tuple[str, ...] = ()
    """The first failing tests of the unresolved run."""
    failing: int = 0

    @property
    def test_lines(self) -> list[str]:
        """The tests, and a line with the number of further tests."""
        more = self.failing - len(self.tests)
        return [*self.tests, f"and {count(more, 'more test')}"] if self.tests and more > 0 else [*self.tests]


@dataclass(frozen=True, slots=True)
class InstanceList:
    """A titled list of instances."""

    title: str
    lines: list[InstanceLine]

    @property
    def heading(self) -> str:
        """``Lost, 1,200``."""
        return f"{self.title}, {len(self.lines):,}"


@dataclass(frozen=True, slots=True)
class ComparisonView:
    """The texts of a comparison, sanitized for display; long values, tests and reasons are cut."""

    run_id: str
    against: str
    planned: str
    changes: list[str]
    """Differences in set-up, ``first → second``, one line each."""
    unchanged: str
    unknown: str
    headline: str
    """Scores of both runs over their common instances, and the gains and losses."""
    significance: str
    """Result of McNemar's test as a sentence; empty if the runs have no instance in common."""
    means: str
    rates: list[tuple[str, Rate]]
    """Run id and score of both runs; empty if they have no instance in common, or if one is not valid."""
    moved: list[InstanceList]
    apart: list[InstanceList]


def view_comparison(compared: Comparison) -> ComparisonView:
    """Return the comparison as text."""
    run_id, against = make_visible(compared.run_id), make_visible(compared.against)
    changes = _changes(compared)
    parts = f"rows, images, versions, spec and machines are the same as in {against}"
    unknown = f"{compared.images_unknown:,} of {count(compared.common, 'instance')}"
    unjudged = [
        InstanceLine(make_visible(item.instance_id), _outcome_note(item.before, item.after, _reason(item.reason)))
        for item in compared.without_verdict
    ]
    moved = [
        InstanceList("Lost", [_instance_line(item, tests=True) for item in compared.lost]),
        InstanceList("Gained", [_instance_line(item, tests=False) for item in compared.gained]),
        InstanceList("Without a verdict", unjudged),
    ]
    apart = [
        InstanceList(f"Only in {name}", [InstanceLine(make_visible(item)) for item in ids])
        for name, ids in ((against, compared.only_before), (run_id, compared.only_after))
    ]
    return ComparisonView(
        run_id=run_id,
        against=against,
        planned=make_visible(utc(compared.against_created_at)),
        changes=changes,
        unchanged="" if changes else f"No known difference in set-up: {parts}.",
        unknown=f"The images of {unknown} are known by name only: they may differ." if compared.images_unknown else "",
        headline=_headline(compared),
        significance=_significance(compared),
        means=_means(compared),
        rates=[] if compared.invalid or not compared.common else [(against, compared.before), (run_id, compared.after)],
        moved=[item for item in moved if item.lines],
        apart=[item for item in apart if item.lines],
    )


def _headline(compared: Comparison) -> str:
    if not compared.common:
        return "The two runs have no instance in common."
    first, second = make_visible(compared.against), make_visible(compared.run_id)
    before, after = (_score(rate, with_rate=not compared.invalid) for rate in (compared.before, compared.after))
    names = listing([make_visible(name) for name in compared.invalid])
    points = 100 * ((compared.after.rate or 0.0) - (compared.before.rate or 0.0))
    difference = f"no score, {names} is not valid" if names else f"{points:+.1f} points"
    return f"{first}: {before}. {second}: {after}. {second} minus {first}: {difference}; {compared.word}."


def _score(rate: Rate, *, with_rate: bool) -> str:
    """Return a run's score as text; without the rate in percent if one of the runs is not valid."""
    about = [f"{percent(rate.rate or 0.0)} %"] if with_rate else []
    about += filter(None, [rate.by_integrity, rate.on_neighbours])
    return f"{rate.resolved:,} of {rate.total:,} resolved" + (f" ({'; '.join(about)})" if about else "")


def _changes(compared: Comparison) -> list[str]:
    dataset = [_change(change) for change in compared.changes if change.kind == "dataset"]
    remaining = [_change(change) for change in compared.changes if change.kind != "dataset"]
    return [*dataset, *_instances(compared), *_images(compared), *remaining]


def _change(change: Change) -> str:
    return f"{change.title}: {_short(change.before)} → {_short(change.after)}"


def _short(value: str) -> str:
    return cut_line(make_visible(value), VALUE_WIDTH)


def _instances(compared: Comparison) -> list[str]:
    removed, added = len(compared.only_before), len(compared.only_after)
    names = (make_visible(compared.against), make_visible(compared.run_id))
    parts = [f"{n:,} only in {name}" for n, name in zip((removed, added), names, strict=True) if n]
    return [f"Instances: {compared.common:,} in both, {listing(parts)}"] if parts else []


def _images(compared: Comparison) -> list[str]:
    if not compared.images:
        return []
    images = [
        f"{change.instance_id} ({_image(change.before)} → {_image(change.after)})"
        for change in compared.images[:MAX_IMAGES]
    ]
    more = len(compared.images) - len(images)
    images += [f"{more:,} more"] if more else []
    return [f"Images of {count(len(compared.images), 'instance')}: {listing(images)}"]


def _image(identity: str) -> str:
    return identity.removeprefix("sha256:")[:12] if identity.startswith("sha256:") else _short(identity)


def _significance(compared: Comparison) -> str:
    if not compared.common:
        return ""
    if not compared.judged:
        return "No instance has a verdict in both runs, so the runs cannot be compared."
    test, judged = compared.test, count(compared.judged, "instance")
    discordant = test.gained + test.lost
    if not discordant:
        return f"Of {judged} with a verdict in both runs, none was gained or lost."
    sides = f"{test.gained:,} gained and {test.lost:,} lost"
    return f"{sides} of {judged} with a verdict in both{_explanation(compared)}"


def _explanation(compared: Comparison) -> str:
    """Return the end of that sentence: whether chance alone can explain the change."""
    test = compared.test
    name = f"McNemar's exact test, {_format_p(test.p)}"
    if compared.same_patches:
        cause = "images, machines or tests caused the change, not the agent"
        return f", each with the same patch in both runs: {cause} ({name})."
    if test.p < ALPHA:
        return f": more than chance alone explains ({name})."
    if test.gained + test.lost < MIN_DISCORDANT:
        return f": too few to rule out chance ({name}; that needs at least {MIN_DISCORDANT})."
    return f": chance alone can explain this ({name})."


def _format_p(p: float) -> str:
    """Return p as text: three decimals, two from 0.1 on."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.{3 if p < 0.0995 else 2}f}" if p < 0.995 else "p = 1"


def _means(compared: Comparison) -> str:
    mean = compared.mean
    if mean is None or compared.invalid:
        return ""
    first, second = make_visible(compared.against), make_visible(compared.run_id)
    return (
        f"pass@1 over all attempts at {count(mean.instances, 'instance')}: {first} {percent(mean.before)} %, "
        f"{second} {percent(mean.after)} %; {second} minus {first}: {100 * mean.difference:+.1f} points, 95 % interval "
        f"{100 * mean.low:+.1f} to {100 * mean.high:+.1f}. Gains and losses count first attempts."
    )


def _instance_line(outcome: ChangedOutcome, *, tests: bool) -> InstanceLine:
    """Return the line of a gained or lost instance, with its failing tests if ``tests``."""
    names = [cut_line(make_visible(name), TEST_WIDTH) for name in outcome.failing_tests[: MAX_TESTS if tests else 0]]
    doubt = _reason(outcome.doubt) if outcome.doubt else ""
    note = _outcome_note(
        outcome.before, outcome.after, "; ".join(filter(None, ["same patch" if outcome.same_patch else "", doubt]))
    )
    return InstanceLine(make_visible(outcome.instance_id), note, tuple(names), outcome.failing)


def _outcome_note(before: str, after: str, reason: str) -> str:
    return f"{_outcome(before)} → {_outcome(after)}" + (f"; {reason}" if reason else "")


def _outcome(standing: str) -> str:
    return STANDINGS[standing].short if standing in STANDINGS else make_visible(standing)


def _reason(reason: str) -> str:
    return cut_line(make_visible(reason), REASON_WIDTH)
