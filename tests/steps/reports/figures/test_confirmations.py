"""What the report says of counter-proofs: the share, and what was not confirmed with why."""

from __future__ import annotations

import pytest

from steps.contracts.verdict import Confirmation, CounterProof, Finding, Integrity
from steps.reports.figures.compute import summarise
from steps.reports.figures.units_table import units_table
from steps.reports.messages.terminal import summary_lines
from steps.reports.page.report_page import render_page
from steps.reports.page.unit_page import UnitPageInputs, instance_page
from steps.reports.stored_run import StoredRun
from tests.steps.reports.views import run_file, view

BECAME = {
    "a__a-1": "resolved",
    "a__a-2": "resolved",
    "a__a-3": "resolved",
    "a__a-4": "resolved",
    "a__a-5": "unresolved",
}
PROOFS = {
    "a__a-1": CounterProof(outcome=Confirmation.CONFIRMED, files=["t.py"], seconds=2.0),
    "a__a-2": CounterProof(
        outcome=Confirmation.CONTRADICTED, reason="test_x came out as: PASSED", excerpt="def test_x"
    ),
    "a__a-3": CounterProof(outcome=Confirmation.FLAKY, reason="1 listed test", flipped=["t.py::test_a"], seconds=1.0),
    "a__a-4": CounterProof(outcome=Confirmation.UNAVAILABLE, reason="no file of tests <b>"),
}


def confirmed(proofs: dict[str, CounterProof]) -> StoredRun:
    """A run whose units have these counter-proofs."""
    made = view(run_file(), BECAME)
    for unit in made.units:
        assert unit.grade is not None
        proof = proofs.get(unit.instance_id)
        update: dict[str, object] = {"counter_proof": proof}
        if proof is not None and proof.outcome is Confirmation.CONTRADICTED:
            finding = Finding(code="counter_proof_contradicted", detail=proof.reason)
            update["integrity"] = Integrity(verdict="suspect", findings=[finding])
        unit.grade = unit.grade.model_copy(update=update)
    return made


def test_the_summary_gives_the_share_and_what_was_not_confirmed() -> None:
    figures = summarise(confirmed(PROOFS)).counter_proof
    assert figures is not None
    assert (figures.resolved, figures.confirmed, figures.share, figures.seconds) == (4, 1, 0.25, 3.0)
    assert figures.outcomes == {"confirmed": 1, "contradicted": 1, "flaky": 1, "unavailable": 1}
    assert [(one.instance_id, one.outcome, one.flipped) for one in figures.unconfirmed] == [
        ("a__a-2", "contradicted", []),
        ("a__a-3", "flaky", ["t.py::test_a"]),
        ("a__a-4", "unavailable", []),
    ]


def test_what_is_not_confirmed_is_a_doubt_and_is_listed_with_why() -> None:
    made = confirmed(PROOFS)
    summary = summarise(made)
    said = "1 of 4 resolved confirmed by a counter-proof: 1 contradicted, 1 flaky and 1 cannot be made."
    assert said in summary.doubts
    html = render_page(made, summary).decode()
    assert "counter-proof, flaky: 1 listed test" in html
    assert "counter-proof, cannot be made: no file of tests &lt;b&gt;" in html
    assert "counter_proof_contradicted" in html
    assert any("1 of 4 resolved confirmed" in line for line in summary_lines(summary))


def test_what_was_put_in_stands_on_the_page_of_the_unit() -> None:
    made = confirmed(PROOFS)
    unit = made.units[1]
    material = UnitPageInputs(conversation=None, partial={}, up="../report.html#u1", before="", after="", remarks=[])
    assert "def test_x" in instance_page(made, unit, material).decode()


def test_a_run_that_is_confirmed_says_so_and_is_no_doubt() -> None:
    every = dict.fromkeys(list(BECAME)[:4], PROOFS["a__a-1"])
    summary = summarise(confirmed(every))
    assert not any("counter-proof" in doubt for doubt in summary.doubts)
    assert "4 of 4 resolved confirmed by a counter-proof" in summary_lines(summary)


def test_a_run_without_counter_proofs_says_nothing_of_them() -> None:
    summary = summarise(confirmed({}))
    assert summary.counter_proof is None
    assert not any("counter-proof" in line for line in [*summary.doubts, *summary_lines(summary)])


@pytest.mark.parametrize("name", list(BECAME))
def test_the_table_of_units_has_outcome_reason_and_flipped_tests(name: str) -> None:
    rows = units_table(confirmed(PROOFS)).to_pylist()
    row = next(row for row in rows if row["instance_id"] == name)
    proof = PROOFS.get(name)
    assert row["counter_proof"] == (proof.outcome.value if proof else None)
    assert row["counter_proof_reason"] == (proof.reason if proof else None)
    assert row["counter_proof_flipped"] == (proof.flipped if proof else None)
