from __future__ import annotations

import re
from pathlib import Path

import pytest

from swe_argo.steps.contracts.data import Instance, Patch
from swe_argo.steps.contracts.record import key
from swe_argo.steps.contracts.trajectory import Trajectory
from swe_argo.steps.reports.write import write_report
from swe_argo.steps.store import open_store
from tests.chromium import Scheme, Tab, needs_browser
from tests.steps.reports.conversations import trajectory
from tests.steps.reports.page_checks import check_contrast, check_quiet, check_served_by_argo, check_words
from tests.steps.reports.synthetic import Synthetic

pytestmark = [needs_browser, pytest.mark.browser]

RUNS = {
    "usual": Synthetic(instances=1, mix={"unresolved": 1}, agent="r2egym", turns=30, others=1),
    "failed": Synthetic(instances=1, mix={"failed": 1}, agent="r2egym", turns=5),
    "hostile": Synthetic(instances=1, mix={"unresolved": 1}, agent="r2egym", turns=12, hostile=True, suspects=1),
    "long": Synthetic(instances=1, mix={"resolved": 1}, agent="r2egym"),
}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The page of the one unit of every run, by name."""
    written = {}
    for name, synthetic in RUNS.items():
        folder = tmp_path_factory.mktemp(name)
        store = open_store(str(folder), create=True)
        unit = synthetic.write(store).units[0]
        if name == "long":
            long_one = trajectory((unit.instance_id, 1), turns=1000, observed=30_000)
            store.put(key(Trajectory, "synthetic", unit.instance_id, 1), long_one.to_bytes())
            place = key(Instance, "synthetic", unit.instance_id)
            issue = {"problem_statement": "It fails.\n\n" * 200}
            store.put(place, Instance.from_bytes(store.get(place)).model_copy(update=issue).to_bytes())
            patch = b"--- a/x\n+++ b/x\n@@ -0,0 +1,900 @@\n" + b"+x\n" * 900
            store.put(key(Patch, "synthetic", unit.instance_id, 1), patch)
        write_report(store, "synthetic")
        written[name] = folder / f"runs/synthetic/report/instances/{unit.instance_id}.1.html"
    return written


@pytest.mark.parametrize("run", RUNS)
def test_unit_page_is_quiet_and_fits(pages: dict[str, Path], tab: Tab, run: str) -> None:
    check_quiet(tab, pages[run])


def test_unit_page_escapes_hostile_text(pages: dict[str, Path], tab: Tab) -> None:
    tab.open(pages["hostile"].as_uri())
    assert tab.value("document.querySelectorAll('img, iframe, object, form, link').length") == 0
    assert tab.value("document.scripts.length") == 1
    assert tab.value("document.querySelectorAll('style').length") == 1
    assert tab.value("document.title").endswith("· Unresolved · synthetic")
    # nothing broke out of its turn: each holds its own, and all of them stand side by side
    assert tab.value("document.querySelectorAll('#turns > div > article').length") == 14
    assert tab.value("document.querySelectorAll('article article').length") == 0
    text = str(tab.value("document.body.textContent"))
    for text_part in (
        "<script>",
        "</details>",
        "␛[2J",
        "␀ NUL",
        "\\x9b31m",
        "\\u202egnp",
        "{{ 7*7 }}",
        "FAILED",
        "\\xff\\ud800",
    ):
        assert text_part in text, text_part
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\ud800-\udfff]", text)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("run", ["usual", "failed", "hostile"])
def test_unit_page_has_readable_contrast(pages: dict[str, Path], tab: Tab, run: str, scheme: Scheme) -> None:
    check_contrast(tab, pages[run], scheme, 12)


def test_unit_page_works_in_argo(pages: dict[str, Path], tab: Tab) -> None:
    check_served_by_argo(tab, pages["usual"])


def test_observation_unfolds_on_click(pages: dict[str, Path], tab: Tab) -> None:
    tab.size(1400)
    tab.open(pages["usual"].as_uri())
    visible_count = "[...document.querySelectorAll('.seen pre')].filter(e => e.checkVisibility()).length"
    assert tab.value(visible_count) == 0
    tab.click("#t5 .seen summary")
    assert tab.value(visible_count) == 1


def test_unit_page_unfolds_all_turns(pages: dict[str, Path], tab: Tab) -> None:
    tab.size(1400)
    tab.open(pages["usual"].as_uri())
    shut = "document.querySelectorAll('#turns details:not([open])').length"
    folded = tab.value(shut)
    assert folded > 20
    tab.click("[data-expand]")
    assert tab.value(shut) == 0
    tab.click("[data-expand]")
    assert tab.value(shut) == folded


def test_long_texts_are_cut_on_screen(pages: dict[str, Path], tab: Tab) -> None:
    cut = (
        "[...document.querySelectorAll('.fold > :first-child')].filter(e => e.scrollHeight > e.clientHeight + 1).length"
    )
    tab.size(1400)
    tab.open(pages["long"].as_uri())
    assert tab.value(cut) == 2
    tab.page.emulate_media(media="print")
    assert tab.value(cut) == 0
    tab.page.emulate_media(media="null")
    for label in tab.page.query_selector_all(".fold > label"):
        label.click()
    tab.settle()
    assert tab.value(cut) == 0


def test_thousand_turns_open(pages: dict[str, Path], tab: Tab) -> None:
    tab.size(1400)
    tab.open(pages["long"].as_uri())
    assert tab.value("document.querySelectorAll('article').length") == 1002


def test_unit_page_and_report_link(pages: dict[str, Path], tab: Tab) -> None:
    tab.size(1400)
    tab.open((pages["usual"].parents[1] / "report.html").as_uri())
    tab.open(str(tab.value("document.querySelector('#u0 th a').href")))
    assert str(tab.value("location.pathname")).endswith(f"instances/{pages['usual'].name}")
    tab.open(str(tab.value("document.querySelector('nav a').href")))
    assert tab.value("location.hash") == "#u0"
    assert tab.value("document.querySelector('.u:target .more').getClientRects().length") == 1


def test_unit_page_is_accessible(pages: dict[str, Path], tab: Tab) -> None:
    check_words(tab, pages["usual"])
