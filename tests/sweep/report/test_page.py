"""The report's pages: they stand alone, and say of every setting what is stored."""

from __future__ import annotations

import errno
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from PIL import Image

from search_spaces.space import Choice, Setting
from sweep.confirmation.replications import plan_replications
from sweep.glossary import TERMS
from sweep.render.table import NOTHING
from sweep.report import drawing
from sweep.report.drawing import drawn
from sweep.report.figures import FIGURES, drawing_of
from sweep.report.measured import confirmations as confirmations_of
from sweep.report.measured import measured
from sweep.report.pages import search as search_page
from sweep.report.pages.markup import Commands, Picture
from sweep.report.report import PAGE, report, write_files
from sweep.report.source import Reported, search_commands
from sweep.results.best import best_summaries
from sweep.results.findings import next_step
from sweep.results.provenance import manifest
from sweep.results.status import status_of
from sweep.results.sweep_view import SweepView, load_sweep
from sweep.study.arms import arms_of_proposal
from sweep.study.proposals import drop_outcomes
from tests.support import confirmations
from tests.support.code_figures import ROOT
from tests.support.command_line import contents, refused, sweep
from tests.support.confirmations import NAME
from tests.support.sweeps import (
    DIVERGED,
    FEASIBLE,
    FIRST,
    INFEASIBLE,
    SECOND,
    SPACE,
    point,
    store_sweep,
)
from trainables.errors import Misuse, StoreError, SweepError, UnknownName
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore
from trainables.signs.early_signs import WENT


def view_of(objects: ObjectStore, name: str = "tiny") -> SweepView:
    return load_sweep(objects, name)


def written(
    objects: ObjectStore,
    out: Path,
    name: str = "tiny",
    *,
    formats: Sequence[str] = (),
    patterns: Sequence[str] = (),
) -> str:
    of = Reported(objects, view_of(objects, name), {}, ArmStore(objects).record, patterns)
    report(of, out, formats=formats)
    return (out / PAGE).read_text(encoding="utf-8")


def words_of(objects: ObjectStore, name: str = "tiny", **texts: Any) -> Parsed:
    """The page of a search without figures, which take seconds to draw."""
    return Parsed(page_of(objects, name, {}, **texts))


def page_of(
    objects: ObjectStore,
    name: str,
    figures: Mapping[str, Mapping[str, Picture]],
    following: Mapping[str, str] = MappingProxyType({"Go on.": "sweep resume tiny"}),
    summary: str = SPACE.summary,
) -> str:
    view = view_of(objects, name)
    return search_page.page(
        status_of(view),
        replace(view.definition.space, summary=summary),
        [],
        best_summaries(view, {}),
        [],
        figures,
        manifest(view, {}),
        Commands(following, again={}),
        confirmations_of(objects, name),
    )


class Parsed(HTMLParser):
    """A page as it is read: text, tables by id, what is labelled, and where links lead."""

    ALONE = ("meta", "link", "br")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.addresses: list[str] = []
        self.ids: list[str] = []
        self.labels: list[str] = []
        self.tables: dict[str, list[list[str]]] = {}  # rows of cells, by the part's id
        self.text = ""
        self._part = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag not in self.ALONE:
            self.open.append(tag)
        self.addresses += [given[key] or "" for key in ("src", "href") if key in given]
        self.ids += [given["id"] or ""] if "id" in given else []
        if given.get("role") == "img":
            self.labels.append(given.get("aria-label") or "")
        if tag == "section":
            self._part = given.get("id") or given.get("aria-labelledby") or ""
        if tag == "tr":
            self.tables.setdefault(self._part, []).append([])
        if tag in ("td", "th"):
            self.tables[self._part][-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("script", "style"):
            self.text += data
        if {"td", "th"} & set(self.open):
            self.tables[self._part][-1][-1] += data

    def column(self, part: str, header: str) -> list[str]:
        head, *rows = self.tables[part]
        return [row[head.index(header)] for row in rows]


# --- words ----------------------------------------------------------------------------------------


def test_the_overview_is_of_the_stored_records(stored: ObjectStore) -> None:
    page = words_of(stored)
    assert page.column("table-overview", "setting") == [FIRST, SECOND]
    assert page.column("table-overview", "pair") == ["winner, proposal 1", "closest, proposal 0"]
    assert page.column("table-overview", "feasible") == ["yes", "no"]
    shown = view_of(stored).settings[0].chosen.shown
    assert shown is not None
    evaluations = [pair.constrained.evaluation for pair in shown.pairs]
    unseen = statistics.fmean(e.scores["0.40"] for e in evaluations if e is not None)
    assert page.column("table-overview", "unseen, constrained") == [f"{unseen:.3f}", NOTHING]
    # Stored: better by 0.5 on seed 0, worse by as much on seed 1. The second has no unseen gamma.
    assert page.column("table-overview", "gain, unseen") == ["0.000", NOTHING]


def test_every_setting_says_its_verdict_and_what_was_searched(stored: ObjectStore) -> None:
    page = words_of(stored)
    assert "Why there is no winner: " in page.text
    assert "0 of 1 winner" in page.text  # 12 clips certify nothing
    assert "no result before fresh seeds confirm them" in page.text
    assert page.tables["table-searched"][1] == ["alpha", "0.2 to 0.3", "all"]
    assert "Sampler random, seed 0" in page.text
    signatures = page.column(FIRST, "signature of its first seed")
    shown = view_of(stored).settings[0].chosen.shown
    assert shown is not None
    assert signatures[0] == shown.pairs[0].constrained.signature


def test_ranges_of_single_settings_stand_beside_those_of_all(tmp_path: Path) -> None:
    objects = ObjectStore(tmp_path)
    own = {"constraint.alpha": Choice((0.1, 0.2))}
    settings = (SPACE.settings[0], Setting(SECOND, {"train_gamma": 0.2}, ranges=own))
    store_sweep(objects, {}, space=replace(SPACE, settings=settings))
    assert words_of(objects).tables["table-searched"][1:] == [
        ["alpha", "0.2 to 0.3", FIRST],
        ["alpha", "0.1 or 0.2", SECOND],
    ]


def test_an_unfinished_sweep_says_so_and_what_failed(tmp_path: Path) -> None:
    objects = ObjectStore(tmp_path)
    store_sweep(objects, {FIRST: [DIVERGED]})
    page = words_of(objects)
    assert "not at its end" in page.text
    assert "has a winner" in page.text
    assert "the loss is nan at step 0." in page.text
    store_sweep(objects, {}, name="begun")
    assert "Nothing is found yet" in words_of(objects, "begun").text


def test_a_sign_that_no_longer_stood_is_told_after_those_that_do(tmp_path: Path) -> None:
    objects = ObjectStore(tmp_path)
    definition = store_sweep(objects, {FIRST: [INFEASIBLE] * 2})
    past = f'{WENT[1]}500 and no longer true at step 750: "Layer 5 is wound up."'
    store = ArmStore(objects)
    for number, signs in enumerate(([past], ["Layer 1 is paid to raise its loss."])):
        (arm, *_) = arms_of_proposal(definition, FIRST, number, point(number))
        record = store.record(arm.signature)
        assert record is not None
        store.forget(arm.signature)
        store.put_record(replace(record, warnings=signs))
    drop_outcomes(objects, "tiny", FIRST, (0, 1))  # judged from the records anew
    view = view_of(objects)
    said = [one.warning for one in status_of(view).warnings]
    assert said == ["Layer 1 is paid to raise its loss.", past]
    assert past in words_of(objects).text
    shown = " ".join(sweep("status", "tiny", "--storage", objects.root).stdout.split())
    assert "1 early sign of arms that train badly, and 1 that no longer held later" in shown


def test_where_nothing_won_page_and_terminal_advise_the_same_next_step(tmp_path: Path) -> None:
    objects = ObjectStore(tmp_path)
    store_sweep(objects, {FIRST: [INFEASIBLE] * 3, SECOND: [INFEASIBLE] * 3})
    view = view_of(objects)
    entries = best_summaries(view, {})
    step = next_step(entries)
    assert step is not None
    assert step.text.startswith("Ask for less than alpha 0.2")  # and not: search on
    of = Reported(objects, view, {}, ArmStore(objects).record)
    assert search_commands(of, status_of(view), entries).following == {step.text: ""}
    page = page_of(objects, "tiny", {}, following={step.text: ""})
    assert f"<p>{step.text}</p></dd>" in re.sub(r"\n", "", page)  # no command below it
    said = sweep("best", "tiny", "--storage", objects.root).stdout
    assert step.text in " ".join(said.split())


def test_a_setting_named_as_a_part_of_the_page_keeps_its_command(tmp_path: Path) -> None:
    objects = ObjectStore(tmp_path)
    settings = (replace(SPACE.settings[0], name="next"), replace(SPACE.settings[1], name="again"))
    infeasible = {"next": [INFEASIBLE] * 3, "again": [INFEASIBLE] * 3}
    store_sweep(objects, infeasible, space=replace(SPACE, settings=settings))
    view = view_of(objects)
    reported = Reported(objects, view, {}, ArmStore(objects).record)
    commands = search_commands(reported, status_of(view), best_summaries(view, {}))
    for name in ("next", "again"):
        (command,) = commands.by_setting[name].values()
        assert command.startswith(f"sweep reproduce tiny {name} ")


def test_words_of_the_page_are_explained_as_the_documentation_does(stored: ObjectStore) -> None:
    page = words_of(stored)
    assert "words" in page.ids
    for word in ("proposal", "missing share", "certificate", "unseen", "gain", "held-out unit"):
        assert TERMS[word].meaning.split("`")[0] in page.text.partition("Everything, as JSON")[2]
    assert "sparse-coding" not in page.text  # DUST is not on it
    assert page.open == []
    rows = [line.split(" | ") for line in (ROOT / "docs/words.md").read_text().splitlines()]
    listed = {row[1]: row[0].replace("*", "").lower() for row in rows if len(row) == 3}
    for word, term in TERMS.items():
        assert word.lower() in listed[term.meaning]


def test_verdicts_stand_before_figures_of_which_five_at_most_are_open(stored: ObjectStore) -> None:
    pages = {key: {key: Picture(of.title, "", "<svg></svg>", [])} for key, of in FIGURES.items()}
    text = page_of(stored, "tiny", pages)
    assert text.index('id="table-overview"') < text.index(">How sure<")
    assert text.index('id="settings"') < text.index('id="figures"')
    shown = re.findall(r'(?<!</summary>)<figure id="figure-([^"]*)"', text)  # else it is folded
    assert shown == ["gains", "forest", "search-gain", "scores", "layers"]
    assert text.count("<figure") == len(FIGURES)


def test_words_of_the_user_are_no_markup(stored: ObjectStore) -> None:
    page = words_of(stored, summary="<script>alert(1)</script> & more")
    assert "<script>alert(1)</script> & more" in page.text


# --- confirmations --------------------------------------------------------------------------------


def confirmed(objects: ObjectStore, ended: Mapping[int, float | None] | None = None) -> Parsed:
    """The page of a confirmation whose constrained arms are better by 1, but for a little noise."""
    confirmations.searched(objects)
    _, definition = confirmations.stored(objects)

    def score(_: str, kind: str, seed: int) -> float | None:
        if ended is not None and seed in ended:
            return ended[seed]
        return 9.0 + 0.01 * (seed % 3) if kind == "unconstrained" else 8.0

    confirmations.trained(objects, definition, score)
    return Parsed(written(objects, Path(objects.root).parent / "out", NAME))


def test_a_confirmation_shows_its_plan_and_its_comparisons(tmp_path: Path) -> None:
    page = confirmed(objects := ObjectStore(tmp_path / "store"))
    assert page.open == []
    said = sweep("best", NAME, "--json", "--storage", objects.root).stdout
    digest = re.search(r'"plan": "([0-9a-f]{12})"', said)
    assert digest is not None
    assert digest[1] in page.text
    heads, *rows = page.tables["table-confirmed"]
    assert heads[:5] == ["setting", "against", "outcome", "gain", "certified"]
    seeds = page.column("table-confirmed", "seeds")
    assert [(row[0], row[1], seed) for row, seed in zip(rows, seeds, strict=True)] == [
        (name, "unconstrained", "10") for name in (FIRST, SECOND)
    ]
    plain = [9.0 + 0.01 * (seed % 3) for seed in range(1000, 1010)]
    assert {row[3] for row in rows} == {f"{statistics.fmean(plain) - 8.0:+.3f}"}
    assert "Nothing departs from the plan." in page.text
    assert "Equivalent below 0.2 grey levels." in page.text
    assert {FIRST, SECOND} <= set(page.ids)


def test_an_open_confirmation_says_that_it_is_open(tmp_path: Path) -> None:
    page = confirmed(ObjectStore(tmp_path / "store"), dict.fromkeys(range(1003, 1010)))
    assert "stopped and not at its end" in page.text
    assert "3 of 10 planned seeds count" in page.text


def test_a_search_says_what_its_confirmations_found(tmp_path: Path) -> None:
    objects = ObjectStore(tmp_path / "store")
    confirmed(objects)
    page = words_of(objects)
    assert page.text.count("fresh seeds: shallow_ut-L3-g0.15 +1.01 (") == 1
    assert "10 of 10 planned seeds count" in page.text
    assert "#confirmed" in page.addresses


def test_the_damaged_plan_of_another_search_is_not_this_ones_trouble(tmp_path: Path) -> None:
    objects = ObjectStore(tmp_path / "store")
    confirmed(objects)
    objects.put("sweeps/other.confirmation/plan.json", b"{")
    assert "10 of 10 planned seeds count" in words_of(objects).text
    objects.put(f"sweeps/{NAME}/plan.json", b"{")
    with pytest.raises(SweepError, match=r"plan\.json"):
        words_of(objects)


# --- page and files -------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_page_stands_alone_and_shows_every_figure(stored: ObjectStore, tmp_path: Path) -> None:
    page = Parsed(written(stored, tmp_path / "out", formats=("png",)))
    assert page.open == []
    assert [a for a in page.addresses if not a.startswith(("#", "data:"))] == []
    assert {a[1:] for a in page.addresses if a.startswith("#")} <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))
    assert {FIRST, SECOND} <= set(page.ids)
    shown = {p.stem for p in (tmp_path / "out" / "figures").glob("*.png")}
    assert {label.split(".")[0] for label in page.labels} == {drawing_of(k).title for k in shown}
    assert len(page.labels) == len(shown)
    folder = tmp_path / "out" / "figures"
    (folder / "mine.pdf").write_bytes(b"of the user")
    (folder / "layers-2.pdf").write_bytes(b"of a larger sweep")
    write_files(tmp_path / "out", "tiny", {"figures/layers.pdf": b"one page"})
    assert not (folder / "layers-2.pdf").exists()
    assert (folder / "scores.png").exists()
    write_files(tmp_path / "out", "tiny", {PAGE: b"another"}, replace=True)
    assert [path.name for path in folder.iterdir()] == ["mine.pdf"]  # others: the report before


CASES: dict[str, dict[str, Any]] = {
    "nothing feasible": {FIRST: [INFEASIBLE, INFEASIBLE]},
    "all diverged": {FIRST: [DIVERGED, DIVERGED]},
    "nothing tried yet": {FIRST: []},
    "not begun": {},
    "whole": {FIRST: [FEASIBLE, INFEASIBLE, DIVERGED], SECOND: [FEASIBLE]},
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("seeds", [(0,), (0, 1)])
def test_every_sweep_has_a_page(tmp_path: Path, case: str, seeds: tuple[int, ...]) -> None:
    objects = ObjectStore(tmp_path / "store")
    store_sweep(objects, CASES[case], space=replace(SPACE, search_seeds=seeds))
    page = Parsed(written(objects, tmp_path / "out"))
    assert page.open == []
    assert ("Nothing is measured yet" in page.text) == (not page.labels)
    assert ("figure-scores" in page.ids) == (case != "not begun")


@pytest.mark.slow
def test_the_same_sweep_gives_the_same_bytes(stored: ObjectStore, tmp_path: Path) -> None:
    for out in ("a", "b"):
        written(stored, tmp_path / out, formats=("pdf",), patterns=[FIRST])
    assert len(contents(tmp_path / "a")) > 8
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


@pytest.mark.slow
def test_many_settings_are_drawn_by_processes_as_by_one(
    stored: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = measured(view_of(stored), ArmStore(stored).record, {}, [FIRST, SECOND])
    keys = ["gains", "gain-by-gamma", "layers"]
    alone = drawn(data, keys, ("png",))
    monkeypatch.setattr(drawing, "FEW", 1)
    assert drawn(data, keys, ("png",)) == alone
    assert list(alone) == keys


@pytest.mark.slow
def test_only_shows_the_settings_asked_for(stored: ObjectStore, tmp_path: Path) -> None:
    page = Parsed(written(stored, tmp_path / "out", patterns=["*g0.15"]))
    assert FIRST in page.ids
    assert SECOND not in page.ids
    assert "Shown are 1 of 2 settings (*g0.15)" in page.text
    with pytest.raises(UnknownName, match=re.escape(SECOND)):
        written(stored, tmp_path / "out", patterns=["*g9"])


@pytest.mark.slow
def test_the_verb_says_where_the_page_is_and_replaces_one_that_is_there(
    stored: ObjectStore, tmp_path: Path
) -> None:
    for _ in range(2):
        where = ("--storage", stored.root, "--out", str(tmp_path / "out"))
        said = sweep("report", "tiny", "--page", "--only", FIRST, *where)
        assert said.stdout.strip() == str(tmp_path / "out" / PAGE)
    assert not list((tmp_path / "out").rglob("*.tmp"))
    assert "--replications" not in (tmp_path / "out" / PAGE).read_text()


@pytest.mark.slow
def test_replications_are_shown_by_a_command_that_knows_them(tmp_path: Path) -> None:
    objects = ObjectStore(tmp_path / "store")
    confirmations.searched(objects)
    search = load_sweep(objects, "tiny").definition
    asked = replace(confirmations.wanted(3), name="tiny.replications")
    objects.put_json(
        "sweeps/tiny.replications/replications.json", plan_replications(search, asked).to_json()
    )
    where = ("--storage", objects.root, "--out", str(tmp_path / "out"))
    sweep("report", "tiny", "--page", "--only", FIRST, *where)
    page = Parsed((tmp_path / "out" / PAGE).read_text())
    assert "confirm tiny --replications 3" in page.text
    shown = sweep("confirm", "tiny", "--replications", "3", "--dry-run", "--storage", objects.root)
    assert "tiny.replications: 3 replications of tiny" in shown.stdout


def test_single_figures_are_written_alone(stored: ObjectStore, tmp_path: Path) -> None:
    where = ("--storage", stored.root, "--out", str(tmp_path / "out"))
    said = sweep("report", "tiny", "--figure", "gains", "--figure", "gain-by-gamma", *where)
    files = [
        f"figures/{key}.{form}" for key in ("gain-by-gamma", "gains") for form in ("pdf", "png")
    ]
    assert said.stdout.split() == [str(tmp_path / "out" / file) for file in files]
    there = contents(tmp_path / "out")
    assert sorted(there) == files
    assert there["figures/gain-by-gamma.pdf"].startswith(b"%PDF")
    assert there["figures/gain-by-gamma.png"].startswith(b"\x89PNG")
    about = "tiny: Gain by test gamma; photographs: ut (distance)"
    with Image.open(tmp_path / "out/figures/gain-by-gamma.png") as picture:
        assert picture.info["Title"] == about
    assert about.partition(" (")[0].encode() in there["figures/gain-by-gamma.pdf"]


def test_a_full_disk_leaves_no_half_of_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, content: bytes) -> int:
        with path.open("wb") as stream:
            stream.write(content[:3])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(StoreError, match="No space left"):
        write_files(tmp_path, "tiny", {PAGE: b"a page"})
    assert not list(tmp_path.iterdir())


def test_a_fuller_report_is_not_replaced_unless_asked_for(
    stored: ObjectStore, tmp_path: Path
) -> None:
    """As ``test_a_fuller_export_is_not_replaced_unless_asked_for``."""
    out = tmp_path / "out"

    def page(name: str = "tiny") -> dict[str, bytes]:
        return {PAGE: page_of(stored, name, {}).encode()}

    write_files(out, "tiny", page())
    write_files(out, "tiny", page())  # of as many
    before = contents(out)
    chosen = view_of(stored).settings[0].chosen.winner
    assert chosen is not None
    ArmStore(stored).forget(chosen.pairs[0].constrained.signature)
    with pytest.raises(Misuse, match=r"fuller report .* 10 arms, where this one has 9.*--replace"):
        write_files(out, "tiny", page())
    of = Reported(stored, view_of(stored), {}, ArmStore(stored).record, [SECOND])
    with pytest.raises(Misuse, match="fuller report"):
        report(of, out, formats=())
    store_sweep(stored, {}, name="begun")
    with pytest.raises(Misuse, match="holds the report of sweep 'tiny', not of 'begun'"):
        write_files(out, "begun", page("begun"))
    assert contents(out) == before
    write_files(out, "tiny", page(), replace=True)
    assert contents(out) != before
    (out / PAGE).write_text("a page of the user's")
    write_files(out, "tiny", page())  # as it always was


def test_what_cannot_be_reported_is_told(stored: ObjectStore, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    at = ("--storage", stored.root)
    assert "must be a folder" in refused("report", "tiny", *at, "--out", str(tmp_path / "file"))
    assert "tiny" in refused("report", "tini", *at)
    unknown = refused("report", "tiny", "--figure", "layer", *at)
    assert "Did you mean 'layers'?" in unknown
    assert all(key in unknown for key in FIGURES)
    assert "give one of them" in refused("report", "tiny", "--page", "--figure", "cost", *at)
    store_sweep(stored, {}, name="begun")
    where = ("--out", str(tmp_path / "none"), *at)
    nothing = sweep("report", "begun", "--figure", "progress", *where, exits=1)
    assert "nothing measured that the figure progress could show" in nothing.stderr
    assert not (tmp_path / "none").exists()
    nowhere = refused("report", "tiny", "--figure", "gains", "--out", str(tmp_path / "file/x"), *at)
    assert "the report could not be written below" in nowhere
    assert "--out" in nowhere


def test_a_report_from_a_cluster_stays_in_its_folder(tmp_path: Path) -> None:
    for name in ("../report.html", "/report.html"):
        with pytest.raises(StoreError, match="no report of tiny"):
            write_files(tmp_path / "out", "tiny", {name: b""})
    with pytest.raises(StoreError, match="no file"):
        write_files(tmp_path / "out", "tiny", {})
    assert contents(tmp_path) == {}
