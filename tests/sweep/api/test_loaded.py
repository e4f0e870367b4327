"""`sweep.load`: frames hold the stored numbers, every column is described, HTML is sound."""

from __future__ import annotations

import math
import re
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import sweep
from sweep.api.loaded import FRAMES, OF_CONFIRMATION, Sweep
from sweep.confirmation.stages import summarize_stored
from sweep.confirmation.words import sentences
from sweep.report.figures import FIGURES
from sweep.results.facts import shown_facts
from sweep.results.sweep_view import load_sweep
from sweep.results.tables.results import results_table
from sweep.study.definition import put_definition
from sweep.study.lock import driver_lock
from sweep.study.pairs import join
from tests.support import confirmations, toy_sweeps
from tests.support.sweeps import (
    DIVERGED,
    FEASIBLE,
    FIRST,
    INFEASIBLE,
    PLAIN,
    SECOND,
    SPACE,
    point,
    store_sweep,
)
from trainables.errors import Misuse, UnknownName
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore

WHOLE = {FIRST: [FEASIBLE, INFEASIBLE, DIVERGED], SECOND: [INFEASIBLE]}


def loaded(objects: ObjectStore, of: dict[str, Any] = WHOLE, **options: Any) -> Sweep:
    definition = store_sweep(objects, of, **options)
    return sweep.load(definition.name, objects.root)


def confirmation(objects: ObjectStore, seeds: int = 3) -> Sweep:
    confirmations.searched(objects)
    wanted = confirmations.wanted(seeds, controls=("deep_supervision",))
    _, definition = confirmations.stored(objects, wanted)
    better = {"constrained": 3.0, "unconstrained": 4.0}

    def score(_: str, kind: str, seed: int) -> float:
        return better.get(kind, 2.0) + 0.01 * seed

    confirmations.trained(objects, definition, score)
    assert toy_sweeps.train(toy_sweeps.started(objects, definition)) == []  # stores the points
    return sweep.load(confirmations.NAME, objects.root)


# --- frames ---------------------------------------------------------------------------------------


def test_pairs_are_the_rows_of_tidy_csv(objects: ObjectStore) -> None:
    of = loaded(objects)
    view = load_sweep(objects, "tiny")
    rows = [fact._asdict() for one in view.settings for fact in shown_facts(one)]
    assert plain(of.pairs) == [{n: v for n, v in row.items() if v is not None} for row in rows]
    assert str(of.pairs["layer"].dtype) == "Int64"


def test_settings_have_the_numbers_of_results_csv(objects: ObjectStore) -> None:
    of = loaded(objects)
    table = results_table(SPACE, list(of.measured.entries.values()))
    for ours, theirs in zip(plain(of.settings), table.rows, strict=True):
        shared = ours.keys() & theirs.keys()
        assert len(shared) > 25
        assert ours == {**ours, **{n: theirs[n] for n in shared}}
    assert list(of.settings["winner"]) == [True, False]
    assert of.settings["alpha"][0] == point(0)["constraint.alpha"]


def test_arms_are_every_arm_with_what_its_record_says(objects: ObjectStore) -> None:
    of, read = loaded(objects), ArmStore(objects).record
    assert len(of.arms) == 2 * (1 + 3) + 2 * (1 + 1)  # both seeds of the baseline and the proposals
    for row in plain(of.arms):
        record = read(row["signature"])
        assert record is not None
        assert (row["seed"], row["arm"]) == (record.config.seed, record.config.arm)
        assert (row["status"], row.get("reason")) == (record.status, record.reason or None)
        assert row["wall_seconds"] == (record.ended_ms - record.started_ms) / 1000
        if record.evaluation is not None:
            assert row["objective"] == record.evaluation.objective
            assert row["mean_rmse"] == record.evaluation.mean_over_gammas
            assert row["held_out_loss"] == record.evaluation.held_out_losses()[-1]
    assert list(of.arms["status"]).count(DIVERGED) == 2


def test_an_arm_that_has_not_reported_has_no_status(objects: ObjectStore) -> None:
    of = loaded(objects, {})
    assert of.arms["status"].isna().all()
    assert of.arms["wall_seconds"].isna().all()
    assert set(of.arms["arm"]) == {"unconstrained"}


def test_layers_are_those_of_every_judged_proposal(objects: ObjectStore) -> None:
    of, read = loaded(objects), ArmStore(objects).record
    assert set(map(tuple, of.layers[["setting", "proposal"]].drop_duplicates().to_numpy())) == {
        (FIRST, 0), (FIRST, 1), (FIRST, 2), (SECOND, 0),
    }  # fmt: skip
    for number, losses in enumerate([FEASIBLE, INFEASIBLE]):
        setting = SPACE.setting(FIRST)
        ours = SPACE.run(setting, point(number), seed=1)
        theirs = SPACE.run(setting, {}, seed=1).unconstrained()
        record = read(ours.signature())
        assert record is not None
        pair = join(record, read(theirs.signature()))
        assert pair.judgement is not None
        assert pair.unconstrained_judgement is not None
        rows = of.layers.query("setting == @FIRST and proposal == @number and seed == 1")
        for arm, expected, judged in (
            ("constrained", losses, pair.judgement),
            ("unconstrained", PLAIN, pair.unconstrained_judgement),
        ):
            found = rows[rows["arm"] == arm]
            assert list(found["held_out_loss"]) == expected
            assert math.isnan(found["missing_share"].iloc[0])  # nothing is asked of the input
            assert list(found["missing_share"])[1:] == list(judged.held_out)
            assert list(found["shown"]) == [number == 0] * 4


def test_curves_are_the_stored_scores_and_say_what_was_seen(objects: ObjectStore) -> None:
    of, read = loaded(objects), ArmStore(objects).record
    config = SPACE.run(SPACE.setting(FIRST), point(1), seed=1)
    record = read(config.signature())
    assert record is not None
    assert record.evaluation is not None
    rows = of.curves.query("setting == @FIRST and proposal == 1")
    ours = rows.query("arm == 'constrained' and seed == 1")
    assert dict(zip(ours["severity"], ours["rmse"], strict=True)) == {
        float(gamma): score for gamma, score in record.evaluation.scores.items()
    }
    assert list(ours["seen"]) == [True, True, False]  # up to 0.15 + 0.10
    wiener = rows.query("arm == 'wiener'")
    assert list(wiener["rmse"]) == list(record.evaluation.references["wiener"].values())


def test_steps_are_the_reports_of_the_pair_that_is_shown(objects: ObjectStore) -> None:
    rows = loaded(objects).steps.query("setting == @FIRST and series == 'losses' and seed == 0")
    assert list(rows.query("arm == 'constrained'")["value"]) == FEASIBLE * 2
    assert list(rows.query("arm == 'unconstrained' and step == 40")["value"]) == PLAIN


def test_numbers_of_a_confirmation_are_those_of_its_table(objects: ObjectStore) -> None:
    of = confirmation(objects)
    shown = summarize_stored(objects, of.view.definition)
    expected = [contrast.mean for contrast in shown.contrasts]
    assert list(of.settings.query("level == 'setting'")["gain"]) == expected
    # The control scores better: the pair shown is the one that is confirmed all the same.
    ours = of.pairs.query(
        "setting == @FIRST and arm == 'constrained' and metric == 'mean_over_gammas'"
    )
    assert list(ours["value"]) == pytest.approx([3.0 + 0.01 * seed for seed in ours["seed"]])
    assert len(ours) == 3
    assert set(of.arms["point"].dropna()) == {"constrained", "deep_supervision"}


def with_noise(objects: ObjectStore) -> Sweep:
    """A sweep whose reports hold the noise of the violations, as those of training do."""
    of, store = loaded(objects), ArmStore(objects)
    for signature in of.view.arms:
        record = store.record(signature)
        assert record is not None
        reports = [
            replace(one, layers={**one.layers, "violation_noise": [0.1] * 3})
            for one in record.reports
        ]
        objects.put_json(
            f"arms/{signature}/record.json", replace(record, reports=reports).to_json()
        )
    return of.reload()


CASES: dict[str, Callable[[ObjectStore], Sweep]] = {
    "whole": loaded,
    "one seed": lambda objects: loaded(objects, space=replace(SPACE, search_seeds=(0,))),
    "nothing feasible": lambda objects: loaded(objects, {FIRST: [INFEASIBLE, DIVERGED]}),
    "not begun": lambda objects: loaded(objects, {}),
    "shifts": lambda objects: loaded(
        objects, space=replace(SPACE, base=replace(SPACE.base, shifts=("blur",)))
    ),
    "noise of violations": with_noise,
    "confirmation": confirmation,
}


@pytest.mark.parametrize("case", CASES)
def test_every_column_and_kind_of_value_is_described(objects: ObjectStore, case: str) -> None:
    of = CASES[case](objects)
    for name in FRAMES:
        said = of.columns(name)
        assert list(said.index)[: len(getattr(of, name).columns)] == list(getattr(of, name))
        assert said["meaning"].str.len().min() > 5 or said.empty
        assert not said.map(lambda text: "{" in text).any(axis=None)


def test_units_and_directions_are_those_of_the_task(objects: ObjectStore) -> None:
    said = loaded(objects).columns("settings")
    unit, meaning = said.loc["gain_mean_rmse"]
    assert unit == "grey levels"
    assert "above 0 it is better" in meaning
    assert "lower is better" in meaning
    assert said.loc["alpha", "meaning"] == "searched value of the field constraint.alpha"


# --- figures --------------------------------------------------------------------------------------


def test_a_figure_is_one_that_a_notebook_shows(objects: ObjectStore) -> None:
    of = loaded(objects)
    assert of.figures == tuple(FIGURES)
    drawn: Any = of.figure("layers")
    assert list(drawn.axes[0].get_lines()[0].get_ydata()) == FEASIBLE
    assert drawn._repr_png_().startswith(b"\x89PNG")


def test_a_confirmation_has_the_figures_that_show_pairs(objects: ObjectStore) -> None:
    of = confirmation(objects)
    assert set(OF_CONFIRMATION) < set(FIGURES)
    drawn: Any = of.figure("scores")
    line = drawn.axes[0].get_lines()[0]
    seeds = [c.seed for c in configs(of)]
    expected = statistics.fmean(3.0 + 0.01 * seed for seed in seeds)
    assert list(line.get_ydata()) == pytest.approx([expected] * 3)
    forest: Any = of.figure("forest")
    assert [axis.get_xlabel() for axis in forest.axes]
    with pytest.raises(UnknownName, match=r"unknown figure 'progress'\. Known: anytime, cost"):
        of.figure("progress")


def configs(of: Sweep) -> Iterator[Any]:
    space = of.view.definition.space
    return (space.run(space.setting(FIRST), {}, seed=seed) for seed in space.search_seeds)


def test_a_figure_without_anything_to_show_is_told(objects: ObjectStore) -> None:
    with pytest.raises(Misuse, match="tiny has nothing measured that the figure scores"):
        loaded(objects, {}).figure("scores")
    with pytest.raises(Misuse, match="page must be 1 to 1 of the figure scores, got 2"):
        loaded(objects).figure("scores", page=2)


# --- what is refused, and what changes ------------------------------------------------------------


def test_unknown_names_are_told_with_the_known_ones(objects: ObjectStore) -> None:
    of = loaded(objects)
    place = re.escape(f"Looked below {objects.root}; --storage")
    with pytest.raises(UnknownName, match=f"unknown sweep 'tini'. Known: tiny.*{place}"):
        sweep.load("tini", objects.root)
    with pytest.raises(UnknownName, match=re.escape(FIRST)):
        of["g9"]
    with pytest.raises(UnknownName, match=r"unknown frame 'pair'\. Known: arms.*'pairs'"):
        of.columns("pair")
    with pytest.raises(UnknownName, match=r"unknown arm '5f3a'\. Known: "):
        of.unit_scores("5f3a")
    assert [one.name for one in of] == [FIRST, SECOND] == of._ipython_key_completions_()


def test_the_storage_is_that_of_the_command_line(
    objects: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded(objects)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SWEEP_STORAGE")
    with pytest.raises(UnknownName, match=re.escape(str(tmp_path / "sweeps"))):
        sweep.load("tiny")
    monkeypatch.setenv("SWEEP_STORAGE", objects.root)
    assert sweep.load("tiny").state == "stopped"


def test_a_sweep_stays_as_it_was_loaded_until_it_is_loaded_again(objects: ObjectStore) -> None:
    before = loaded(objects, {FIRST: [INFEASIBLE]})
    store_sweep(objects, {FIRST: [INFEASIBLE, FEASIBLE]})
    assert list(before.settings["winner"]) == [False, False]
    assert list(before.reload().settings["winner"]) == [True, False]


# --- HTML -----------------------------------------------------------------------------------------


class Parsed(HTMLParser):
    """Tags that were opened and not closed, and the texts of cells."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.cells: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []
        assert not {"script", "link", "img"} & set(re.findall(r"<(\w+)", text))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] == ["td"]:
            self.cells.append(data)


def test_html_of_a_finished_sweep_says_what_was_found(objects: ObjectStore) -> None:
    of = loaded(objects, {FIRST: [FEASIBLE] * 3, SECOND: [FEASIBLE] * 3})
    text = of._repr_html_()
    cells = Parsed(text).cells
    assert "Finished: 16 of 16 arms final." in text
    assert str(of).startswith("tiny is finished.\n2 of 2 settings have a winner: ")
    assert repr(of) == "<sweep tiny: finished>"
    assert "2 of 2 settings have a winner" in text
    assert "RMSE in grey levels, mean over test gammas and seeds; lower is better" in text
    assert cells[:2] == [FIRST, "proposal 2"]
    row = of.settings.iloc[0]
    assert f"{row['constrained_unseen_mean']:.3f}" in cells
    assert row["gain_seen_mean"] == 0
    assert "0.000" in cells  # what rounds to zero has no sign
    one = of[FIRST]._repr_html_()
    assert Parsed(one).cells[0] == "constrained"
    assert "Winner: proposal 2; 3 of 3 proposals finished: 3 feasible." in one
    assert "alpha 0.2" in one
    assert "required: all layers together remove" in one


def test_html_of_a_running_sweep_says_how_far_it_is(objects: ObjectStore) -> None:
    asked = store_sweep(objects, {FIRST: [FEASIBLE]})
    with driver_lock(objects, asked.name):
        of = sweep.load("tiny", objects.root)
    assert of.state == "running"
    assert "Running: 4 of 16 arms final." in of._repr_html_()
    text = of[SECOND]._repr_html_()
    Parsed(text)
    assert "No pair yet; 0 of 3 proposals finished: none yet." in text


def test_html_of_a_setting_without_a_winner_says_why(objects: ObjectStore) -> None:
    of = loaded(objects, {FIRST: [INFEASIBLE]})
    Parsed(of._repr_html_())
    text = of[FIRST]._repr_html_()
    Parsed(text)
    assert "No winner; the closest: proposal 0; 1 of 3 proposals finished: 1 infeasible." in text
    assert "Why: no proposal is feasible: the closest, proposal 0, misses" in text


def test_html_of_a_confirmation_is_its_findings_and_its_table(objects: ObjectStore) -> None:
    of = confirmation(objects)
    text = of._repr_html_()
    cells = Parsed(text).cells
    said = sentences(summarize_stored(objects, of.view.definition))
    assert len(said) > 2
    assert all(escape(sentence) in text for sentence in said)
    assert str(of).splitlines() == [f"{of.name} is finished.", *said]
    gains = of.settings.query("level == 'setting'")["gain"]
    assert {f"{gain:+.3f}" for gain in gains} <= {*cells}
    one = of[SECOND]._repr_html_()
    assert SECOND in one
    assert FIRST not in one
    assert "deep supervision" in Parsed(one).cells


def test_words_of_the_user_are_no_markup(objects: ObjectStore) -> None:
    of = loaded(objects, space=replace(SPACE, summary="<script>alert(1)</script> & more"))
    text = of._repr_html_()
    Parsed(text)
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; more" in text


def test_a_sweep_that_has_just_begun_has_frames_and_html(objects: ObjectStore) -> None:
    asked = put_definition(objects, toy_sweeps.definition())
    coordinator = toy_sweeps.started(objects, asked)
    toy_sweeps.train(coordinator, limit=3)
    of = sweep.load("toy", objects.root)
    Parsed(of._repr_html_())
    assert len(of.settings) == 2
    assert list(of.arms["status"].dropna()) == ["finished"] * 3


def plain(frame: Any) -> list[dict[str, Any]]:
    """Rows as plain values, without what is missing."""
    import pandas as pd

    rows = frame.astype(object).to_dict("records")
    return [{n: v for n, v in row.items() if not pd.isna(v)} for row in rows]


def test_a_notebook_completes_what_is_not_imported_yet() -> None:
    ran = subprocess.run(
        (sys.executable, "-c", "import sweep; print(*dir(sweep))"), capture_output=True, text=True
    )
    assert {"load", "run", "sweeps"} <= set(ran.stdout.split())
