"""Verbs for people on terminals of many widths: the same words in each, none of them broken."""

from __future__ import annotations

from dataclasses import replace

import pytest

from search_spaces.catalog import space_names
from search_spaces.space import Setting
from sweep.render.terminal import phrases, table
from tests.support.command_line import sweep
from tests.support.sweeps import FEASIBLE, INFEASIBLE, SPACE, store_sweep
from trainables.records.objects import ObjectStore

WIDTHS = (40, 60, 80, 120)
NAMES = tuple(
    f"{data}-ut-L5-g0.15-detached"
    for data in ("cuhk_avenue", "shanghaitech", "ucsd_ped2", "photographs", "own_clips")
)
VERBS = (("list",), ("status", "wide"), ("best", "wide"), ("best", "wide", "--full"))
BESIDE_ROWS_ALONE = {"setting", "name"}  # headings of names


@pytest.fixture
def wide(stored: ObjectStore) -> ObjectStore:
    space = replace(SPACE, settings=tuple(Setting(name, {}) for name in NAMES))
    store_sweep(stored, {n: [INFEASIBLE, FEASIBLE] for n in NAMES}, name="wide", space=space)
    return stored


def words(text: str) -> set[str]:
    """What is read; commands are printed whole, so that they can be copied."""
    lines = [line for line in text.splitlines() if not line.startswith("Continue with")]
    return set(" ".join(lines).split())


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_no_word_is_broken_and_none_is_left_out_on_a_narrow_terminal(
    wide: ObjectStore, monkeypatch: pytest.MonkeyPatch, verb: tuple[str, ...]
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    unbroken = words(sweep(*verb).stdout)
    for width in WIDTHS:
        monkeypatch.setenv("COLUMNS", str(width))
        text = sweep(*verb).stdout
        assert words(text) <= unbroken, width
        assert unbroken - words(text) <= BESIDE_ROWS_ALONE, width
        lines = [line for line in text.splitlines() if not line.startswith("Continue with")]
        assert max(map(len, lines)) <= width


def test_no_word_of_the_list_of_spaces_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    unbroken = words(sweep("spaces").stdout)
    monkeypatch.setenv("COLUMNS", "40")
    assert unbroken - words(sweep("spaces").stdout) <= BESIDE_ROWS_ALONE
    assert words(sweep("spaces").stdout) <= unbroken


def test_numbers_stand_in_blocks_of_columns_that_fit_beside_the_rows_names() -> None:
    rows = [{"": "ours", "mean\nRMSE": "11.531", "seen": "6.300", "feasible": "yes"}]
    rows += [{"": "the gain", "mean\nRMSE": "+0.106", "seen": "+0.157", "feasible": ""}]
    shown = table(rows, right=("mean\nRMSE", "seen", "feasible"))
    assert [text for text, _ in shown.lines(28)] == [
        "            mean",
        "            RMSE    seen",
        "ours      11.531   6.300",
        "the gain  +0.106  +0.157",
        "          feasible",
        "ours           yes",
    ]
    assert [text for text, _ in shown.lines(80)][1:3] == [
        "            RMSE    seen  feasible",
        "ours      11.531   6.300       yes",
    ]


def test_words_stand_one_field_a_line_where_no_table_fits() -> None:
    rows = [{"setting": "ped2-ut-L3-g0.15", "outcomes": phrases("2 feasible, 1 infeasible")}]
    shown = table(rows, unbroken=("setting",))
    assert [text for text, _ in shown.lines(33)] == [
        "setting           outcomes",
        "ped2-ut-L3-g0.15  2 feasible,",
        "                  1 infeasible",
    ]
    assert list(shown.lines(26)) == [
        ("ped2-ut-L3-g0.15", True),
        ("  outcomes  2 feasible,", False),
        ("            1 infeasible", False),
    ]


def test_sentences_stand_below_their_rows_where_the_table_is_wider_than_a_line() -> None:
    rows = [
        {"name": "ped2", "summary": "UT on two data sets", "arms": "68"},
        {"name": "imdb", "summary": "MiniLM", "arms": "6"},
    ]
    shown = table(rows, right=("arms",), unbroken=("name",), below="summary")
    assert [text for text, _ in shown.lines(31)] == [
        "name  summary              arms",
        "ped2  UT on two data sets    68",
        "imdb  MiniLM                  6",
    ]
    assert list(shown.lines(16)) == [
        ("name  arms", True),
        ("ped2    68", False),
        ("  UT on two data", False),
        ("  sets", False),
        ("imdb     6", False),
        ("  MiniLM", False),
    ]


def test_a_space_takes_two_lines_of_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert len(sweep("spaces").stdout.splitlines()) == 1 + 2 * len(space_names())
