"""Comparisons against scipy, closed forms and planted outcomes, from stored records."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from sweep.cli.text.confirmed import print_confirmed
from sweep.confirmation.comparisons import summarize_confirmation
from sweep.confirmation.summary import ConfirmationSummary, Verdicts
from sweep.confirmation.tables import confirmed_table
from sweep.confirmation.words import sentences
from sweep.render.table import NOTHING
from sweep.report.pages.confirmation import _arms, _setting
from sweep.study.definition import Definition
from tests.support import confirmations as hand
from tests.support.records import ended, finished
from tests.support.schemas import validator
from tests.support.sweeps import FEASIBLE, FIRST, INFEASIBLE, SECOND
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore

NOISE = np.random.default_rng(7).normal(0.0, 0.3, 64)
KINDS = ("constrained", "unconstrained")
CONSTANT = 50.0  # what the constant prediction scores at every gamma


def score(setting: str, kind: str, seed: int, gain: float = 1.0) -> float:
    """RMSE: the constrained arm is ``gain`` better, with noise of its own and one of the seed's."""
    place = (2 * (seed - 1000) + (setting == SECOND)) % 30
    shared = 9.0 + NOISE[place]
    return shared - (gain + 0.2 * NOISE[place + 30] if kind == "constrained" else 0.0)


def shown(objects: ObjectStore, score_of: Any = score, of: Any = None, **options: Any) -> Any:
    hand.searched(objects)
    plan, definition = hand.stored(objects, of)
    hand.trained(objects, definition, score_of, **options)
    return summarize_confirmation(objects, definition, plan)


def contrast(entry: Any, setting: str = FIRST, other: str = "unconstrained") -> Any:
    return next(s for s in entry.settings if s.setting == setting).contrasts[other]


def test_a_confirmation_is_read_from_its_json(objects: ObjectStore) -> None:
    entry = shown(objects, of=hand.wanted(controls=("penalty",)))
    plain = json.loads(json.dumps(entry.to_json(), allow_nan=False))
    again = ConfirmationSummary.from_json(plain)
    assert again.to_json() == plain
    assert sentences(again) == sentences(entry)


def test_numbers_are_scipys(objects: ObjectStore) -> None:
    entry = shown(objects)
    seeds, least = range(1000, 1010), 2 / 2**10  # of sign flips: all seeds have one sign
    pairs = {
        setting: (
            [score(setting, "unconstrained", s) for s in seeds],
            [score(setting, "constrained", s) for s in seeds],
        )
        for setting in (FIRST, SECOND)
    }
    for setting, (plain, ours) in pairs.items():
        found = contrast(entry, setting)
        test = stats.ttest_rel(plain, ours)  # plain - ours: RMSE, lower is better
        low, high = test.confidence_interval(0.95)
        assert (found.mean, found.p, found.low, found.high) == pytest.approx(
            (np.mean(np.subtract(plain, ours)), max(test.pvalue, least), low, high), rel=1e-9
        )
        assert found.counted == 10
        assert found.outcome == "better"
    both = np.mean([np.subtract(plain, ours) for plain, ours in pairs.values()], axis=0)
    (family,) = entry.families
    assert stats.ttest_1samp(both, 0.0).pvalue < least == family.p


def test_every_planned_seed_counts(objects: ObjectStore) -> None:
    def with_failures(setting: str, kind: str, seed: int) -> float | str:
        if setting == FIRST and kind == "constrained" and seed in (1002, 1005):
            return "diverged" if seed == 1002 else "failed"
        return score(setting, kind, seed)

    entry = shown(objects, with_failures)
    per_seed = contrast(entry).per_seed
    assert len(per_seed) == 10
    for seed in (1002, 1005):
        worst = score(FIRST, "unconstrained", seed) - CONSTANT
        assert per_seed[str(seed)] == pytest.approx(worst)
    ours = entry.settings[0].arms["constrained"]
    assert ours.ended == {"finished": 8, "diverged": 1, "failed": 1}
    assert ours.counted_as_constant == 2
    assert any("2 constrained and 0 unconstrained" in text for text in entry.deviations)
    assert contrast(entry, SECOND).counted == 10


def test_an_arm_without_a_result_is_the_constant_of_its_own_seeds_data(
    objects: ObjectStore,
) -> None:
    """Else what it counts for could change while other seeds end."""
    hand.searched(objects)
    plan, definition = hand.stored(objects, hand.wanted(seeds=4))
    store, gammas = ArmStore(objects), ("0.00", "0.20", "0.40")
    for _, kind, config in hand.every_arm(definition):
        if (kind, config.seed) == ("constrained", 1002):
            store.put_record(ended(config, "diverged", "the loss is nan."))
            continue
        constant = dict.fromkeys(gammas, CONSTANT + config.seed - 1000)
        scores = {"scores": dict.fromkeys(gammas, 12.0), "references": {"constant": constant}}
        store.put_record(finished(config, list(FEASIBLE), split="test", **scores))
    per_seed = contrast(summarize_confirmation(objects, definition, plan)).per_seed
    assert per_seed["1002"] == pytest.approx(12.0 - CONSTANT - 2)


def test_pairs_are_of_one_seed_and_count_up_to_the_first_that_is_missing(
    objects: ObjectStore,
) -> None:
    def without(setting: str, kind: str, seed: int) -> float | None:
        return None if (kind, seed) == ("unconstrained", 1006) else score(setting, kind, seed)

    entry = shown(objects, without, hand.wanted(rule="any_time"))
    assert "1006" not in contrast(entry).per_seed
    assert contrast(entry).counted == 6  # a later seed cannot stand for an earlier one


def test_equal_arms_are_undecided_or_equivalent(objects: ObjectStore) -> None:
    entry = shown(objects, lambda setting, kind, seed: 9.0)
    assert {contrast(entry).outcome, contrast(entry, SECOND).outcome} <= {
        "undecided",
        "equivalent",
    }
    assert contrast(entry).mean == 0.0


def test_no_gain_is_no_claim(objects: ObjectStore) -> None:
    entry = shown(objects, lambda s, k, seed: score(s, k, seed, gain=0.0))
    assert contrast(entry).marked in ("undecided", "equivalent")


def test_cells_say_slightly_as_the_sentences_below_them(
    objects: ObjectStore, capsys: pytest.CaptureFixture[str]
) -> None:
    hand.searched(objects)
    plan, definition = hand.stored(objects, hand.wanted(smallest_effect=5.0))
    hand.trained(objects, definition, score)
    entry = summarize_confirmation(objects, definition, plan)
    # As where the difference alone is tested, the interval reaching beyond what matters.
    settings = []
    for one in entry.settings:
        against = replace(one.against_plain, marked="better", outcome="better")
        settings.append(replace(one, contrasts={"unconstrained": against}))
    entry = replace(entry, settings=settings)
    assert "slightly better" in sentences(entry)[0]
    assert dict(confirmed_table(entry).shown)["outcome"] == ["slightly better"] * 2
    assert [r["outcome"] for r in confirmed_table(entry).rows][1:] == ["better", "better"]
    against = dict(_arms(entry.settings[0], entry).shown)["outcome against it"]
    assert sorted(against) == ["slightly better", NOTHING]
    assert _setting(entry.settings[0], entry)[1] == "slightly better"
    print_confirmed(entry)
    assert capsys.readouterr().out.count("slightly better") >= 2  # a cell each


def test_to_diverge_is_never_better_than_to_finish_badly(objects: ObjectStore) -> None:
    def bad(setting: str, kind: str, seed: int) -> float | str:
        return "diverged" if kind == "constrained" else CONSTANT + 10.0

    hand.searched(objects)
    plan, definition = hand.stored(objects)
    hand.trained(objects, definition, bad)
    entry = summarize_confirmation(objects, definition, plan)
    assert set(contrast(entry).per_seed.values()) == {0.0}
    assert contrast(entry).marked != "better"


def test_a_constraint_that_plain_training_meets_is_no_finding(objects: ObjectStore) -> None:
    hand.searched(objects)
    plan, definition = hand.stored(objects)
    hand.trained(objects, definition, score, plain=FEASIBLE)
    entry = summarize_confirmation(objects, definition, plan)
    assert [contrast(entry, name).marked for name in (FIRST, SECOND)] == [
        "not binding",
        "not binding",
    ]
    assert sentences(entry)[0].startswith("Not binding: plain training meets the constraint too")
    assert not any("is better" in text for text in sentences(entry))
    validator("confirmed").validate(json.loads(json.dumps(entry.to_json())))


@pytest.mark.parametrize("lost", [2, 3, 9])
def test_plain_arms_without_a_result_do_not_make_a_constraint_bind(
    objects: ObjectStore, lost: int
) -> None:
    def diverging(setting: str, kind: str, seed: int) -> float | str:
        is_lost = kind == "unconstrained" and seed < 1000 + lost
        return "diverged" if is_lost else score(setting, kind, seed)

    entry = shown(objects, diverging, plain=FEASIBLE)
    assert contrast(entry).outcome in ("better", "undecided")
    assert [one.not_binding for one in entry.settings] == [True, True]
    assert contrast(entry).marked == "not binding"


def test_it_can_be_shown_while_baselines_alone_are_final(objects: ObjectStore) -> None:
    entry = shown(objects, lambda s, kind, seed: 9.0 if kind == "unconstrained" else None)
    assert contrast(entry).mean is None
    assert "Nothing to compare yet" in sentences(entry)[0]


def test_seeds_that_were_not_planned_do_not_count(objects: ObjectStore) -> None:
    hand.searched(objects)
    plan, definition = hand.stored(objects)
    more = definition.extended(search_seeds=(*plan.seeds, 77))
    hand.trained(objects, more, score)
    entry = summarize_confirmation(objects, more, plan)
    assert contrast(entry).counted == 10
    assert any("1 seeds that were not planned ([77])" in text for text in entry.deviations)


def test_a_score_that_is_no_number_counts_as_the_constant_prediction(objects: ObjectStore) -> None:
    def odd(setting: str, kind: str, seed: int) -> float:
        lost = kind == "constrained" and seed == 1003 and setting == FIRST
        return math.nan if lost else score(setting, kind, seed)

    entry = shown(objects, odd)
    found = contrast(entry)
    assert found.counted == contrast(entry, SECOND).counted == 10
    assert found.per_seed["1003"] == pytest.approx(score(FIRST, "unconstrained", 1003) - CONSTANT)


def test_all_arms_diverged(objects: ObjectStore) -> None:
    entry = shown(objects, lambda setting, kind, seed: "diverged")
    assert contrast(entry).mean is None
    assert contrast(entry).outcome == "undecided"
    assert "Nothing to compare yet; unconstrained: 10 diverged" in sentences(entry)[0]


def test_networks_that_miss_their_constraint_are_no_result_about_feasible_ones(
    objects: ObjectStore,
) -> None:
    entry = shown(objects, losses=INFEASIBLE)
    ours = entry.settings[0].arms["constrained"]
    assert ours.certified == Verdicts(feasible=0, infeasible=10, undecided=0)
    assert not ours.feasible
    assert "no result about feasible networks" in " ".join(sentences(entry))
    good = shown(objects, score)  # the same arms are stored already: records are final
    assert good.settings[0].arms["constrained"].certified.infeasible == 10


def test_seeds_after_the_decision_are_told_of_and_do_not_count(objects: ObjectStore) -> None:
    """To go on until enough networks are certified would be to choose by the outcome."""
    hand.searched(objects)
    plan, definition = hand.stored(objects, hand.wanted(rule="of before"))

    def first(setting: str, kind: str, seed: int) -> float | None:
        return score(setting, kind, seed, gain=5.0) if seed < 1005 else None

    hand.trained(objects, definition, first)
    hand.trained(objects, definition, lambda s, k, seed: score(s, k, seed, 5.0), losses=INFEASIBLE)
    entry = summarize_confirmation(objects, definition, plan)
    assert contrast(entry).counted == 5
    ours = entry.settings[0].arms["constrained"]
    assert (ours.seeds, ours.ended) == (5, {"finished": 10})
    assert ours.certified == Verdicts(feasible=5, infeasible=0, undecided=0)
    assert ours.feasible
    both = [entry.settings[0].arms[kind].mean["unseen_mean"] for kind in KINDS]
    assert contrast(entry).mean == pytest.approx(both[1] - both[0])
    rows = [row for row in confirmed_table(entry).rows if row["setting"] == FIRST]
    assert (rows[0]["certified"], rows[0]["seeds"], rows[0]["seeds_ended"]) == ("5 of 5", 5, 10)
    assert any("over 5 of the 10 fresh seeds" in text for text in confirmed_table(entry).notes)


@pytest.mark.parametrize(
    ("penalty", "text"),
    [(0.0, "better than penalty, too"), (1.0, "not shown to beat penalty")],
)
def test_controls_say_whether_it_is_the_constraint(
    objects: ObjectStore, penalty: float, text: str
) -> None:
    def with_control(setting: str, kind: str, seed: int) -> float:
        if kind == "penalty":
            place = 2 * (seed - 1000) + (setting == SECOND)
            return score(setting, "unconstrained", seed) - penalty - 0.2 * NOISE[place + 10]
        return score(setting, kind, seed)

    entry = shown(objects, with_control, hand.wanted(controls=("penalty",)))
    assert text in " ".join(sentences(entry))
    assert contrast(entry, other="penalty").question == "matched"


def test_search_and_confirmed_gain_stand_side_by_side(objects: ObjectStore) -> None:
    entry = shown(objects, lambda s, k, seed: score(s, k, seed, gain=0.5))
    for one in entry.settings:
        # the search's arms differ from their baseline by 0.5 - seed at every gamma
        assert one.search_gain == pytest.approx(0.0)
        assert one.confirmed_gain == pytest.approx(0.5, abs=0.2)
        assert one.shrinkage is None  # the search saw no gain that could shrink


def definition_of(objects: ObjectStore) -> Definition:
    hand.searched(objects)
    return hand.stored(objects)[1]


def test_what_is_trained_is_fresh(objects: ObjectStore) -> None:
    definition = definition_of(objects)
    space = definition.space
    assert space.phase == "confirmation"
    assert space.search_seeds == tuple(range(1000, 1010))
    for setting in space.settings:
        config = space.run(setting, setting.points["constrained"], seed=1000)
        assert config.measured_on == "test"
        assert not config.early_stop
        assert config.constraint is not None
        assert config.constraint.alpha == pytest.approx(0.2001)  # the winner's, proposal 1
