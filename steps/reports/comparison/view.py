"""A Comparison as text: the page, the terminal and a message show the same sentences and lists."""

from __future__ import annotations

from dataclasses import dataclass

from swe_argo.steps.reports.comparison.record import Change, ChangedOutcome, Comparison
from swe_argo.steps.reports.figures.stats import LEAST_MOVED
from swe_argo.steps.reports.figures.summary import Rate
from swe_argo.steps.reports.labels import STANDINGS
from swe_argo.steps.reports.text.formatting import count, listing, percent, utc
from swe_argo.steps.reports.text.visible import cut_line, make_visible

ALPHA = 0.05
IMAGES_NAMED = 3
TESTS_NAMED = 3
VALUE_WIDTH = 80
TEST_WIDTH = 120
REASON_WIDTH = 160


@dataclass(frozen=True, slots=True)
class InstanceLine:
    """A line of a list of instances."""

    instance_id: str
    note: str = ""
    """Its outcomes in the first and second run, and the reason."""
    tests: tuple[str, ...] = ()
    """The first tests that do not pass in the run that does not resolve it."""
    failing: int = 0
    """Number of all such tests."""

    @property
    def test_lines(self) -> list[str]:
        """The tests, and the number of those that are not named."""
        more = self.failing - len(self.tests)
        return [*self.tests, f"and {count(more, 'more test')}"] if self.tests and more > 0 else [*self.tests]


@dataclass(frozen=True, slots=True)
class InstanceList:
    """A list of instances of one kind, never empty."""

    title: str
    lines: list[InstanceLine]

    @property
    def heading(self) -> str:
        """``Lost, 1,200``."""
        return f"{self.title}, {len(self.lines):,}"


@dataclass(frozen=True, slots=True)
class ComparisonView:
    """The texts of a comparison, sanitized for display; each value, test and reason is cut."""

    run_id: str
    """Second run: gains, losses and differences are its figures minus those of ``against``."""
    against: str
    """First run."""
    planned: str
    """Planning time of the first run."""
    changes: list[str]
    """Differences in set-up, ``first → second``, one line each."""
    unchanged: str
    """Statement that the set-up is the same; empty if it differs."""
    unknown: str
    """Facts of which it is unknown whether they differ; empty if there are none."""
    headline: str
    """Scores of both runs over their common instances, and the gains and losses."""
    significance: str
    """McNemar's test in plain words; empty if the runs have no instance in common."""
    means: str
    """pass@1 over all attempts; empty if both runs made one."""
    rates: list[tuple[str, Rate]]
    """Run id and score of both runs; empty if they have no instance in common, or one of them is not valid."""
    moved: list[InstanceList]
    """Non-empty lists: lost, gained and without a verdict."""
    apart: list[InstanceList]
    """Non-empty lists of instances in one run only."""


def view_comparison(compared: Comparison) -> ComparisonView:
    """Return the comparison as text."""
    run_id, against = make_visible(compared.run_id), make_visible(compared.against)
    changes = _changes(compared)
    same = f"rows, images, versions, spec and machines are those of {against}"
    unjudged = [
        InstanceLine(make_visible(one.instance_id), _stand(one.before, one.after, _reason(one.reason)))
        for one in compared.without_verdict
    ]
    moved = [
        InstanceList("Lost", [_changed(one, tests=True) for one in compared.lost]),
        InstanceList("Gained", [_changed(one, tests=False) for one in compared.gained]),
        InstanceList("Without a verdict", unjudged),
    ]
    apart = [
        InstanceList(f"Only in {name}", [InstanceLine(make_visible(one)) for one in ids])
        for name, ids in ((against, compared.only_before), (run_id, compared.only_after))
    ]
    return ComparisonView(
        run_id=run_id,
        against=against,
        planned=make_visible(utc(compared.against_created_at)),
        changes=changes,
        unchanged="" if changes else f"No difference in set-up is known: {same}.",
        unknown=_unknown(compared),
        headline=_headline(compared),
        significance=_significance(compared),
        means=_means(compared),
        rates=[] if compared.invalid or not compared.common else [(against, compared.before), (run_id, compared.after)],
        moved=[one for one in moved if one.lines],
        apart=[one for one in apart if one.lines],
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
    about = [f"{percent(rate.rate or 0.0)} %"] if with_rate else []
    about += filter(None, [rate.by_integrity, rate.on_neighbours])
    return f"{rate.resolved:,} of {rate.total:,} resolved" + (f" ({'; '.join(about)})" if about else "")


# -- differences in set-up -------------------------------------------------------------------------------------------


def _changes(compared: Comparison) -> list[str]:
    dataset = [_change(change) for change in compared.changes if change.kind == "dataset"]
    others = [_change(change) for change in compared.changes if change.kind != "dataset"]
    return [*dataset, *_instances(compared), *_images(compared), *others]


def _unknown(compared: Comparison) -> str:
    if not compared.images_unknown:
        return ""
    of = f"{compared.images_unknown:,} of {count(compared.common, 'instance')}"
    return f"The images of {of} are known by name only: they may differ."


def _change(change: Change) -> str:
    return f"{change.what}: {_short(change.before)} → {_short(change.after)}"


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
        f"{one.instance_id} ({_image(one.before)} → {_image(one.after)})" for one in compared.images[:IMAGES_NAMED]
    ]
    more = len(compared.images) - len(images)
    images += [f"{more:,} more"] if more else []
    return [f"Images of {count(len(compared.images), 'instance')}: {listing(images)}"]


def _image(identity: str) -> str:
    return identity.removeprefix("sha256:")[:12] if identity.startswith("sha256:") else _short(identity)


# -- what the difference says ----------------------------------------------------------------------------------------


def _significance(compared: Comparison) -> str:
    if not compared.common:
        return ""
    if not compared.judged:
        return "No instance has a verdict in both runs: nothing can be said of the difference."
    test, judged = compared.test, count(compared.judged, "instance")
    discordant = test.gained + test.lost
    if not discordant:
        return f"None of the {judged} with a verdict in both runs changed sides."
    sides = f"{test.gained:,} gained and {test.lost:,} lost"
    return f"{sides} of {judged} with a verdict in both{_why(compared)}"


def _why(compared: Comparison) -> str:
    test = compared.test
    name = f"McNemar's exact test, {_p(test.p)}"
    if compared.same_patches:
        why = "it was not the agent that moved them, but images, machines or tests"
        return f", each on the same patch in both runs: {why} ({name})."
    if test.p < ALPHA:
        return f": more than chance alone explains ({name})."
    if test.gained + test.lost < LEAST_MOVED:
        return f": too few to tell from chance ({name}; fewer than {LEAST_MOVED} never can)."
    return f": within what chance alone does ({name})."


def _p(p: float) -> str:
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


# -- instances -------------------------------------------------------------------------------------------------------


def _changed(one: ChangedOutcome, *, tests: bool) -> InstanceLine:
    names = [cut_line(make_visible(name), TEST_WIDTH) for name in one.failing_tests[: TESTS_NAMED if tests else 0]]
    doubt = _reason(one.doubt) if one.doubt else ""
    note = _stand(one.before, one.after, "; ".join(filter(None, ["same patch" if one.same_patch else "", doubt])))
    return InstanceLine(make_visible(one.instance_id), note, tuple(names), one.failing)


def _stand(before: str, after: str, why: str) -> str:
    return f"{_outcome(before)} → {_outcome(after)}" + (f"; {why}" if why else "")


def _outcome(standing: str) -> str:
    """Return the outcome's display name, or the outcome itself if this version does not know it."""
    return STANDINGS[standing].short if standing in STANDINGS else make_visible(standing)


def _reason(reason: str) -> str:
    return cut_line(make_visible(reason), REASON_WIDTH)
