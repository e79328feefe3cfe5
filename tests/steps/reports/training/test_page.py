from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from swe_argo.steps.contracts.training import held_out_run_of, run_of
from swe_argo.steps.reports.training.write import write_training_page
from swe_argo.steps.store import open_store
from tests.chromium import Scheme, Tab, needs_browser
from tests.steps.reports.page_checks import check_contrast, check_quiet, check_served_by_argo, check_words
from tests.steps.reports.training.made_up import HOSTILE_SPEC, MadeUpTraining

pytestmark = [needs_browser, pytest.mark.browser, pytest.mark.xdist_group("page")]

TRAININGS = {
    "none": MadeUpTraining(steps=0),
    "one": MadeUpTraining(steps=1, every=1, reports=1),
    "some": MadeUpTraining(steps=46, every=20, reports=2),
    "hostile": MadeUpTraining(steps=3, spec=HOSTILE_SPEC),
    "thousand": MadeUpTraining(steps=1000, of=1000, pool=400, groups=4),
}


class Pages(dict[str, Path]):
    """The page of every training, by name, each written when it is first looked at."""

    def __init__(self, folders: pytest.TempPathFactory) -> None:
        super().__init__()
        self.folders = folders

    def __missing__(self, name: str) -> Path:
        folder = self.folders.mktemp(name)
        store = open_store(str(folder), create=True)
        TRAININGS[name].write(store)
        write_training_page(store, "grpo")
        self[name] = folder / "trainings/grpo/report/training.html"
        return self[name]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Pages:
    return Pages(tmp_path_factory)


@pytest.mark.parametrize("training", TRAININGS)
def test_training_page_is_quiet_and_fits(pages: Pages, tab: Tab, training: str) -> None:
    check_quiet(tab, pages[training])


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_training_page_is_readable(pages: Pages, tab: Tab, scheme: Scheme) -> None:
    check_contrast(tab, pages["some"], scheme, 15)


def test_training_page_works_in_argo(pages: Pages, tab: Tab) -> None:
    check_served_by_argo(tab, pages["some"])


def test_training_page_is_accessible(pages: Pages, tab: Tab) -> None:
    check_words(tab, pages["some"])


def test_training_links_are_valid(pages: Pages, tab: Tab) -> None:
    page = pages["one"]
    tab.open(page.as_uri())
    links = [urlsplit(link) for link in tab.value("[...document.querySelectorAll('a')].map(a => a.href)")]
    files = [Path(unquote(link.path)) for link in links]
    assert [file for file in files if not file.is_file()] == []
    runs = page.parents[3] / "runs"
    for report in (runs / run_of("grpo", 1), runs / held_out_run_of("grpo", 1)):
        assert report / "report/report.html" in files
    units = [file for file in files if file.parent == runs / run_of("grpo", 1) / "report/instances"]
    assert len(units) == tab.value("document.querySelectorAll('[aria-labelledby=h-rollouts] tbody tr').length") == 3
    fragments = {(file, link.fragment) for file, link in zip(files, links, strict=True) if link.fragment}
    assert all(f'id="{fragment}"' in file.read_text() for file, fragment in fragments)


def test_curves_stay_in_frames(pages: Pages, tab: Tab) -> None:
    tab.size(1280)
    tab.open(pages["some"].as_uri())
    outside = """[...document.querySelectorAll('.plot svg')].filter(svg => {
      const frame = svg.getBoundingClientRect();
      return [...svg.querySelectorAll('path')].some(path => { const box = path.getBoundingClientRect();
        return box.top < frame.top - 5 || box.bottom > frame.bottom + 5
            || box.left < frame.left - 5 || box.right > frame.right + 5 }) }).length"""
    assert tab.value("document.querySelectorAll('.plot svg').length") > 12
    assert tab.value(outside) == 0


def test_page_opens_with_thousand_steps(pages: Pages, tab: Tab) -> None:
    assert pages["thousand"].stat().st_size < 1_500_000
    tab.open(pages["thousand"].as_uri())
    rows = "document.querySelectorAll('#steps tbody tr')"
    assert tab.value(f"{rows}.length") == 1000
    assert tab.value(f"{rows}[0].querySelector('th').innerText") == "1000"


def test_training_page_escapes_markup(pages: Pages, tab: Tab) -> None:
    tab.open(pages["hostile"].as_uri())
    assert tab.value("document.querySelectorAll('script, img, iframe, object, form').length") == 0
    text = str(tab.value("document.body.textContent"))
    assert "<script>" in text
    assert "\\u202e" in text
