"""The report's page in Chromium: wide and narrow, sorted, pointed at, printed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sweep.report.report import PAGE, report
from sweep.report.source import Reported
from sweep.results.sweep_view import load_sweep
from tests.support.browser import DESKTOP, PHONE, Page, browser
from tests.support.sweeps import FEASIBLE, FIRST, INFEASIBLE, SECOND, store_sweep
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[ObjectStore, Path]:
    """The report of a sweep of two settings, and its storage."""
    folder = tmp_path_factory.mktemp("report")
    objects = ObjectStore(folder / "store")
    store_sweep(objects, {FIRST: [INFEASIBLE, FEASIBLE], SECOND: [INFEASIBLE]})
    of = Reported(objects, load_sweep(objects, "tiny"), {}, ArmStore(objects).record)
    report(of, folder / "out", formats=())
    return objects, folder / "out" / PAGE


@pytest.fixture(scope="module")
def page(written: tuple[ObjectStore, Path]) -> Iterator[Page]:
    with browser() as opened:
        opened.open(written[1].as_uri())
        yield opened


def press(page: Page, key: str, text: str = "") -> None:
    """A key, as a keyboard presses it; one that types gives ``text``."""
    typed = {"text": text, "windowsVirtualKeyCode": ord(text)} if text else {}
    page.tell("Input.dispatchKeyEvent", type="keyDown", key=key, **typed)
    page.tell("Input.dispatchKeyEvent", type="keyUp", key=key)


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_it_is_as_wide_as_the_window_and_asks_for_nothing(
    page: Page, size: tuple[int, int], dark: bool
) -> None:
    page.resize(size, dark=dark)
    assert page.ask("document.documentElement.scrollWidth") <= size[0]
    background = page.ask("getComputedStyle(document.body).backgroundColor")
    assert background == ("rgb(18, 18, 18)" if dark else "rgb(255, 255, 255)")
    assert FIRST in page.text()
    assert page.errors == []
    assert page.outside() == []


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_every_figure_is_whole_and_its_letters_are_read(page: Page, size: tuple[int, int]) -> None:
    page.resize(size)
    page.ask("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    boxes = (
        "[...document.querySelectorAll('.picture svg')].map(s => s.getBoundingClientRect())"
        ".map(b => [b.left, b.right])"
    )
    letters = (
        "Math.min(...[...document.querySelectorAll('.picture svg')].flatMap(s => "
        "[...s.querySelectorAll('text')].map(t => parseFloat(getComputedStyle(t).fontSize) * "
        "s.getScreenCTM().a)))"
    )
    drawn = page.ask(boxes)
    assert all(left >= 0 and right <= size[0] for left, right in drawn)
    assert page.ask(letters) >= (11 if size == DESKTOP else 9)
    if size == DESKTOP:
        widths = "[...document.querySelectorAll('.panels')].map(p => p.getBoundingClientRect())"
        text = page.ask("document.querySelector('figcaption').getBoundingClientRect().width")
        layers = "document.querySelector('#figure-failure .panels').getBoundingClientRect().width"
        assert page.ask(f"{widths}.every(b => b.right <= innerWidth)")
        assert page.ask(layers) > text
    page.ask("document.querySelectorAll('details').forEach(d => { d.open = false; })")


def test_the_first_screen_of_a_phone_has_the_answer(page: Page) -> None:
    page.resize(PHONE)
    page.ask("scrollTo(0, 0)")
    cells = page.ask(
        "[...document.querySelectorAll('#table-overview tr')].slice(0, 2).map(r => "
        "[...r.cells].slice(0, 5).map(c => [c.innerText, c.getBoundingClientRect().right, "
        "c.getBoundingClientRect().bottom]))"
    )
    heads = [head for head, _, _ in cells[0]]
    assert heads == ["setting", "gain, unseen", "feasible", "certificate", "missing share"]
    assert all(right <= PHONE[0] and down <= PHONE[1] for row in cells for _, right, down in row)


def test_verdicts_come_first_and_few_figures_are_open(page: Page) -> None:
    places = page.ask(
        "['settings', 'figures'].map(i => document.getElementById(i).getBoundingClientRect().top)"
    )
    assert places == sorted(places)
    every = "[...document.querySelectorAll('figure')]"
    assert 1 <= page.ask(f"{every}.filter(f => f.checkVisibility()).length") <= 5
    assert page.ask(f"{every}.length") > 10


def test_a_header_sorts_and_says_so(page: Page) -> None:
    page.resize(DESKTOP)
    cells = (
        "[...document.querySelectorAll('#table-overview tbody tr')].map(r => r.cells[0].innerText)"
    )
    head = "document.querySelector('#table-overview th button')"
    assert page.ask(cells) == [FIRST, SECOND]
    for direction, expected in (("ascending", [FIRST, SECOND]), ("descending", [SECOND, FIRST])):
        page.ask(f"{head}.focus()")
        press(page, "Enter", "\r")
        assert page.ask(cells) == expected
        assert page.ask(f"{head}.parentNode.getAttribute('aria-sort')") == direction


def test_pointing_at_a_point_tells_the_stored_value(
    page: Page, written: tuple[ObjectStore, Path]
) -> None:
    page.resize(DESKTOP)
    data = page.ask("document.querySelector('#figure-layers script').textContent")
    panel = json.loads(data)[0]
    series = next(s for s in panel["series"] if s["name"] == "constrained")
    at = 2  # the layer
    point = json.dumps(series["at"][2 * at : 2 * at + 2])
    svg = "document.querySelector('#figure-layers .panels > svg')"
    page.ask(f"{svg}.scrollIntoView({{ block: 'center' }})")
    page.ask("new Promise(done => setTimeout(done, 300))")  # scrolling takes what is told away
    place = page.ask(
        f"(() => {{ const at = new DOMPoint(...{point}).matrixTransform("
        f"{svg}.getScreenCTM());"
        "return [at.x, at.y]; })()"
    )
    page.tell("Input.dispatchMouseEvent", type="mouseMoved", x=place[0] + 2, y=place[1] + 2)
    said = page.ask("document.querySelector('#tip').innerText")
    shown = load_sweep(written[0], "tiny").settings[0].chosen.shown
    assert shown is not None
    evaluation = shown.pairs[0].constrained.evaluation
    assert evaluation is not None
    assert said.split("\n")[:2] == [f"{FIRST} winner: proposal 1", "constrained"]
    assert re.findall(r": ([\d.e-]+)$", said, flags=re.M) == [
        f"{at}", f"{evaluation.held_out_losses()[at]:g}",
    ]  # fmt: skip
    assert page.ask("getComputedStyle(document.querySelector('#tip')).display") == "block"
    page.ask("scrollTo(0, 0)")


def test_arrow_keys_go_from_point_to_point(page: Page) -> None:
    page.ask("document.querySelector('#figure-layers .picture').focus()")
    press(page, "Escape")  # the pointer's own point, of the test before
    told = []
    for key in ("ArrowRight", "ArrowRight", "ArrowDown"):
        press(page, key)
        told.append(page.ask("document.querySelector('#tip').innerText").split("\n")[1:])
    assert [lines[0] for lines in told] == ["constrained", "constrained", "plain training"]
    assert [lines[1].rpartition(": ")[2] for lines in told] == ["0", "1", "0"]
    press(page, "Escape")
    assert page.ask("document.querySelector('#tip').style.display") == "none"


def test_the_numbers_of_a_figure_are_a_table_of_it(page: Page) -> None:
    rows = page.ask(
        "(() => { const d = document.querySelector('#figure-layers details'); d.open = true;"
        "return new Promise(done => setTimeout(() => done("
        "[...d.querySelectorAll('tbody tr')].map(r => [...r.cells].map(c => c.innerText))), 200));"
        "})()"
    )
    ours = [row for row in rows if row[0].startswith(FIRST) and row[1] == "constrained"]
    assert [float(row[5]) for row in ours] == FEASIBLE
    page.ask("document.querySelector('#figure-layers details').open = false")


def test_it_prints_all_of_it(page: Page) -> None:
    printed: dict[str, Any] = dict(page.tell("Page.printToPDF", preferCSSPageSize=True))
    assert len(printed["data"]) > 10_000
    assert page.ask("[...document.querySelectorAll('details.printed')].every(d => d.open)")
    assert page.errors == []
