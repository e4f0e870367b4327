"""A verdict in plain words: how sure it is, what it asks, what was counted, where it lies."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sweep.cli.text.best import print_best
from sweep.render.markdown import to_markdown
from sweep.results.best import best_summaries
from sweep.results.summary import ArmSummary, SettingSummary
from sweep.results.sweep_view import load_sweep
from sweep.results.tables.results import results_table
from sweep.results.verdict_text import certificate_text, infeasible_seeds, verdict_lines
from tests.support.records import ended
from tests.support.summaries import setting_summary
from tests.support.sweeps import FEASIBLE, FIRST, SPACE, store_sweep
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore


def test_every_certificate_has_its_words() -> None:
    values = ArmSummary(
        feasible=True, certificate="feasible", certificate_units=30, certificate_cluster="text",
        worst_missing_share_upper=0.05, least_units_met=0.9,
    )  # fmt: skip
    assert certificate_text(values, 0.1) == (
        "certified feasible: over 30 texts no layer's missing share is above 0.05 (95 % bound, "
        "allowed 0.10); the constraint that fewest texts meet is met by 90 % of them"
    )
    missed = replace(values, feasible=False, certificate="infeasible")
    text = certificate_text(missed, 0.1)
    assert "certified infeasible: over 30 texts some layer's missing share is above 0.10" in text
    one = replace(values, certificate="undecided", certificate_units=1)
    text = certificate_text(replace(one, worst_missing_share_upper=None), 0.1)
    assert text.startswith("undecided: feasible by its mean, but over 1 text the worst layer's")
    assert "missing share has no 95 % bound (allowed 0.10; fewer than 10 texts certify" in text
    clips = replace(one, certificate_cluster="clip", certificate_units=4, certificate_held_out=72)
    text = certificate_text(clips, 0.1)
    assert "over 72 windows of 4 clips the worst" in text
    assert "fewer than 10 clips certify nothing" in text


def test_a_winner_that_one_of_its_seeds_does_not_bear_out_says_so() -> None:
    def of(*shares: float, feasible: bool = True) -> SettingSummary:
        arms = [{"feasible": share <= 0.1, "worst_missing_share": share} for share in shares]
        seeds = {
            str(seed): {"constrained": arm, "gain": {"selection_biased": False}}
            for seed, arm in enumerate(arms)
        }
        return setting_summary(constrained={"feasible": feasible}, seeds=seeds)

    assert infeasible_seeds(of(0.05, 0.542)) == {"1": 0.542}
    assert infeasible_seeds(of(0.05, 0.06)) == {}
    assert infeasible_seeds(of(0.5, 0.6, feasible=False)) == {}
    assert infeasible_seeds(setting_summary()) == {}


def test_best_says_how_sure_it_is_what_was_asked_and_what_counted(
    objects: ObjectStore, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = tuple(replace(s, least_descent=0.3) for s in SPACE.settings)
    space = replace(SPACE, settings=settings)
    store_sweep(objects, {FIRST: [FEASIBLE, FEASIBLE]}, space=space, objectives={(FIRST, 0): -0.3})
    plain = space.run(space.setting(FIRST), {}, seed=1).unconstrained()
    ArmStore(objects).forget(plain.signature())
    ArmStore(objects).put_record(ended(plain, "diverged", "the loss is nan"))
    summaries = best_summaries(load_sweep(objects, "tiny"), {})
    lines = verdict_lines(summaries[0])
    for words in (
        "undecided: feasible by its mean, but over 2 windows",
        "(95 % t bound from 2 seeds)",
        "together remove 36 % of the reference loss f0; a winner must ask for 30 % at least",
        "the best may lie beyond its range: alpha 0.2 is at the low end",
        "the unconstrained arm diverged on 1 of 2 seeds, and counts as the best constant",
        "for the required fraction of f0: -0.2950 for 36 % (p0), -0.1950 for 36 % (p1)",
    ):
        assert any(words in line for line in lines), words
    print_best(summaries)
    printed = " ".join(capsys.readouterr().out.split())
    assert all(" ".join(line.split()) in printed for line in lines)
    assert "selection-biased" in printed
    notes = to_markdown(results_table(space, summaries))
    assert "diverged on 1 of 2 seeds, and counts as the best constant prediction" in notes
    assert "winner, at an edge" in notes


def test_nothing_says_biased_where_nothing_was_selected(
    objects: ObjectStore, capsys: pytest.CaptureFixture[str]
) -> None:
    space = replace(SPACE, n_proposals=1)
    store_sweep(objects, {FIRST: [FEASIBLE]}, space=space)
    summaries = best_summaries(load_sweep(objects, "tiny"), {})
    print_best(summaries)
    assert "biased" not in capsys.readouterr().out
    table = results_table(space, summaries)
    assert "biased" not in to_markdown(table)
    assert [row["selection_biased"] for row in table.rows] == [False, False]
