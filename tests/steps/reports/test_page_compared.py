from __future__ import annotations

from pathlib import Path

import pytest

from swe_argo.steps.reports.comparison.record import Comparison
from swe_argo.steps.reports.write import write_report
from swe_argo.steps.store import open_store
from tests.chromium import Tab, needs_browser
from tests.steps.reports.synthetic import Synthetic

pytestmark = [pytest.mark.long, needs_browser, pytest.mark.browser]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``tuesday`` beside ``monday``: another limit of steps, ten instances fewer, more of them unresolved."""
    place = tmp_path_factory.mktemp("nights")
    store = open_store(str(place))
    Synthetic("monday", instances=130, spec={"agent": {"name": "replay", "max_steps": 60}}, log_lines=2).write(store)
    worse = {"resolved": 40, "unresolved": 50, "empty_patch": 4, "failed": 4}
    Synthetic("tuesday", instances=120, mix=worse, attempts=2, log_lines=2).write(store)
    write_report(store, "tuesday", "monday")
    return place / "runs/tuesday/report"


@pytest.fixture(scope="module")
def tab(tab: Tab, folder: Path) -> Tab:
    tab.size(1400)
    tab.open((folder / "report.html").as_uri())
    return tab


@pytest.fixture(scope="module")
def compared(folder: Path) -> Comparison:
    return Comparison.from_bytes((folder / "compare.json").read_bytes())


def test_comparison_is_above_outcomes(tab: Tab) -> None:
    headings = tab.value("[...document.querySelectorAll('h2')].map(e => e.firstChild.textContent.trim())")
    assert headings.index("Compared with monday") < headings.index("Outcomes")


def test_comparison_is_ordered(tab: Tab) -> None:
    tops = "document.querySelector('.compared {}').getBoundingClientRect().top"
    places = [tab.value(tops.format(where)) for where in (".changes", ".groups", ".verdict", ".lost")]
    assert places == sorted(places)
    assert len(set(places)) == 4
    changes = tab.value("[...document.querySelectorAll('.changes li')].map(e => e.textContent)")
    assert "agent.max_steps: 60 → not set" in changes
    assert "attempts: 1 → 2" in changes


def test_comparison_lists_lost_instances(tab: Tab, compared: Comparison) -> None:
    assert 8 < len(compared.lost) < 50
    lost = tab.value(
        f"[...document.querySelectorAll('.compared .lost li')].slice(0, {len(compared.lost)}).map(e => e.textContent)"
    )
    for instance, text in zip(compared.lost, lost, strict=True):
        assert text.startswith(f"{instance.instance_id} resolved → ")
        assert all(test in text for test in instance.failing_tests[:3])


def test_comparison_unfolds(tab: Tab, compared: Comparison) -> None:
    visible_count = "[...document.querySelectorAll('.compared details li')].filter(e => e.checkVisibility()).length"
    assert tab.value(visible_count) == 0
    tab.click(".compared summary")
    assert tab.value(visible_count) == len(compared.lost) - 8
    tab.click(".compared summary")
    headings = tab.value("[...document.querySelectorAll('.compared h3')].map(e => e.textContent)")
    assert headings[1:] == [
        f"Lost, {len(compared.lost)}",
        f"Gained, {len(compared.gained)}",
        f"Without a verdict, {len(compared.without_verdict)}",
        f"Only in monday, {len(compared.only_before)}",
        f"Only in tuesday, {len(compared.only_after)}",
    ]


def test_comparison_links_to_rows(tab: Tab) -> None:
    tab.click(".compared .lost a")
    unfolded = tab.value("document.querySelector('.u:target').className")
    assert " a1" in unfolded
    assert tab.value("document.querySelector('.u:target th a').textContent") == tab.value(
        "document.querySelector('.compared .lost a').textContent"
    )


def test_comparison_fits_every_width(tab: Tab) -> None:
    for width in (360, 700, 1400):
        tab.size(width)
        assert tab.sideways() <= 0
        hidden = (
            "[...document.querySelectorAll('.compared li, .compared p')].filter(e => e.scrollWidth > e.clientWidth + 1)"
        )
        assert tab.value(f"{hidden}.length") == 0
