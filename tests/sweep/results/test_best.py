"""Best pairs of a stored sweep: winners, closest pairs, aggregates over seeds, partial sweeps."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from search_spaces.effects.edges import edges_of
from search_spaces.space import LogUniform, Uniform
from sweep.cli.text.best import print_best
from sweep.results import aggregates as score_entries
from sweep.results.best import best_entries, best_summaries, lost
from sweep.results.status import status_of
from sweep.results.summary import ArmSummary, Gain, SettingSummary, shift_mean
from sweep.results.sweep_view import load_sweep
from tests.support.records import ended
from tests.support.sweeps import (
    DIVERGED,
    FEASIBLE,
    FIRST,
    INFEASIBLE,
    PLAIN,
    SECOND,
    SPACE,
    USELESS,
    point,
    store_sweep,
)
from trainables.config.arm import ArmConfig
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore


def entries(objects: ObjectStore, run_ids: dict[str, str] | None = None) -> list[dict[str, Any]]:
    return best_entries(load_sweep(objects, "tiny"), run_ids or {})


def measure_again(objects: ObjectStore, config: ArmConfig, losses: list[float]) -> None:
    """A stored arm comes to other held-out losses."""
    store = ArmStore(objects)
    record = store.record(config.signature())
    assert record is not None
    assert record.evaluation is not None
    record.evaluation.dev_losses[:] = [losses] * len(record.evaluation.dev_units)
    store.forget(config.signature())
    store.put_record(record)


def test_a_setting_with_a_feasible_and_useful_proposal_has_a_winner(objects: ObjectStore) -> None:
    store_sweep(objects, {FIRST: [INFEASIBLE, FEASIBLE, USELESS]})
    entry = entries(objects)[0]
    assert (entry["setting"], entry["winner"], entry["why"]) == (FIRST, True, None)
    assert entry["proposal"] == 1
    assert entry["constrained"]["feasible"] is True
    assert entry["constrained"]["beats_trivial"] is True
    assert entry["outcomes"] == {
        "feasible": 2, "infeasible": 1, "diverged": 0, "stopped": 0, "failed": 0,
    }  # fmt: skip
    assert entry["lost"] == {"infeasible": 1, "feasible, beats no trivial predictor": 1}


def test_without_a_winner_the_closest_pair_is_shown_with_the_reason(objects: ObjectStore) -> None:
    store_sweep(objects, {FIRST: [INFEASIBLE, DIVERGED]})
    entry = entries(objects)[0]
    assert entry["winner"] is False
    assert "layer 2" in entry["why"]
    assert entry["constrained"]["feasible"] is False
    assert entry["constrained"]["worst_layer"] == 2
    assert entry["constrained"]["worst_missing_share"] == pytest.approx(1.0)
    assert entry["outcomes"]["diverged"] == 1


def test_numbers_are_means_over_the_seeds_and_each_seed_is_there(objects: ObjectStore) -> None:
    store_sweep(objects, {FIRST: [FEASIBLE]}, objectives={(FIRST, 0): -0.5})
    entry = entries(objects)[0]
    one, two = (entry["seeds"][seed] for seed in ("0", "1"))
    assert entry["constrained"]["objective"] == pytest.approx(-0.495)
    assert (one["constrained"]["objective"], two["constrained"]["objective"]) == (-0.5, -0.49)
    assert entry["constrained"]["mean_over_gammas"] == pytest.approx((1 + 4 + 9) / 3)
    assert entry["constrained"]["ood_auc"] == pytest.approx(1.8)
    assert entry["gain"]["mean_over_gammas"] == pytest.approx(0.0)
    assert one["gain"]["mean_over_gammas"] == pytest.approx(0.5)
    assert entry["constrained"]["signature"] == one["constrained"]["signature"]
    assert one["constrained"]["signature"] != two["constrained"]["signature"]


def test_seeds_are_judged_by_their_mean_and_each_stays_visible(objects: ObjectStore) -> None:
    definition = store_sweep(objects, {FIRST: [FEASIBLE]})
    setting = definition.space.setting(FIRST)
    measure_again(objects, definition.space.run(setting, point(0), seed=1), INFEASIBLE)
    entry = entries(objects)[0]
    assert entry["winner"] is False
    ours = entry["constrained"]
    assert ours["feasible"] is False
    # layer 2 of the mean of both seeds: 0.3 and 0.4 against 0.8 of 0.4
    assert ours["worst_missing_share"] == pytest.approx((0.35 - 0.32) / 0.08, abs=1e-2)
    seeds = [entry["seeds"][seed]["constrained"] for seed in "01"]
    assert [seed["feasible"] for seed in seeds] == [True, False]
    assert seeds[1]["worst_missing_share"] == pytest.approx(1.0)
    # other seeds: t over two of them reaches far beyond the worse one
    assert ours["worst_missing_share_seeds_upper"] > 3
    assert seeds[0]["missing_share_seeds_upper"] is None
    measure_again(objects, definition.space.run(setting, point(0), seed=1), [0.5, 0.4, 0.33, 0.2])
    assert entries(objects)[0]["winner"] is True


def test_gains_are_marked_as_biased_where_a_pair_was_selected(objects: ObjectStore) -> None:
    once = replace(SPACE, n_proposals=1)
    again = replace(once, selected_seeds=(1, 2))  # of a configuration that was a winner on them
    fresh = replace(again, search_seeds=(3, 4))
    for k, (space, biased) in enumerate(
        [(SPACE, True), (once, False), (again, True), (fresh, False)]
    ):
        store = ObjectStore(f"{objects.root}/{k}")
        store_sweep(store, {FIRST: [FEASIBLE]}, space=space)
        entry = entries(store)[0]
        assert entry["gain"]["selection_biased"] is biased
        assert all(s["gain"]["selection_biased"] is biased for s in entry["seeds"].values())


def test_json_holds_no_nan(objects: ObjectStore) -> None:
    broken = [0.5, 0.4, math.nan, 0.2]
    store_sweep(objects, {FIRST: [broken, DIVERGED]})
    json.dumps(entries(objects), allow_nan=False)
    json.dumps(status_of(load_sweep(objects, "tiny")).to_json(), allow_nan=False)


def test_nan_losses_are_never_feasible(objects: ObjectStore) -> None:
    store_sweep(objects, {FIRST: [[0.5, 0.4, math.nan, 0.2]]})
    entry = entries(objects)[0]
    assert entry["winner"] is False
    assert entry["constrained"] is None or entry["constrained"]["feasible"] is False


def test_a_setting_that_never_started_has_no_pair_and_says_so(objects: ObjectStore) -> None:
    store_sweep(objects, {FIRST: [FEASIBLE]})
    entry = entries(objects)[1]
    assert (entry["setting"], entry["winner"]) == (SECOND, False)
    assert entry["why"] == "no proposal has finished"
    assert entry["constrained"] is None
    assert entry["unconstrained"] is None
    assert entry["gain"] == {"selection_biased": True}


def test_unconstrained_arms_are_shown_before_any_proposal_is_finished(
    objects: ObjectStore,
) -> None:
    store_sweep(objects, {FIRST: []})
    entry = entries(objects)[0]
    assert entry["constrained"] is None
    assert entry["unconstrained"]["mean_over_gammas"] == pytest.approx((1 + 4 + 9) / 3)
    assert entry["unconstrained"]["feasible"] is None  # there is no constraint to judge it by yet
    assert entry["references"]["identity"]["mean_over_gammas"] == pytest.approx(8.0)


def test_mlflow_runs_are_named_where_they_are_known(objects: ObjectStore) -> None:
    store_sweep(objects, {FIRST: [FEASIBLE]})
    signature = entries(objects)[0]["constrained"]["signature"]
    entry = entries(objects, {signature: "run-1"})[0]
    assert entry["constrained"]["mlflow_run_id"] == "run-1"
    assert entry["unconstrained"]["mlflow_run_id"] is None


def test_a_pair_whose_unconstrained_arm_is_feasible_is_not_binding(objects: ObjectStore) -> None:
    definition = store_sweep(objects, {FIRST: [FEASIBLE]})
    assert entries(objects)[0]["not_binding"] is False
    for seed in definition.space.search_seeds:
        setting = definition.space.setting(FIRST)
        baseline = definition.space.run(setting, {}, seed=seed).unconstrained()
        measure_again(objects, baseline, FEASIBLE)
    assert entries(objects)[0]["not_binding"] is True


SHIFTED = SPACE.with_base({"shifts": ["blur", "brightness"]})


def test_shifts_and_blocks_are_in_the_json_of_both_arms(objects: ObjectStore) -> None:
    store_sweep(objects, {FIRST: [FEASIBLE]}, space=SHIFTED)
    entry = json.loads(json.dumps(entries(objects)[0], allow_nan=False))
    # 10, 20 and 30 times the last layer's loss, on both seeds
    blur = {"0.5": 2.0, "2.0": 4.0, "5.0": 6.0}
    assert entry["constrained"]["shifts"]["blur"] == pytest.approx(blur)
    assert list(entry["unconstrained"]["shifts"]) == ["blur", "brightness"]
    gain = entry["gain"]["shifts"]["brightness"]
    assert gain == pytest.approx({"0.1": 0.5, "0.25": 1.0, "0.5": 1.5})
    assert shift_mean(Gain.from_json(entry["gain"]), "blur") == pytest.approx(1.0)
    assert entry["references"]["identity"]["shifts"]["blur"]["5.0"] == 15.0
    assert entry["references"]["wiener"]["shifts"] == {}
    for name in ("constrained", "unconstrained"):
        assert (entry[name]["seen_mean"], entry[name]["unseen_mean"]) == (2.5, 9.0)
    assert (entry["gain"]["seen_mean"], entry["gain"]["unseen_mean"]) == (0.0, 0.0)
    assert entry["seeds"]["1"]["constrained"]["shifts"]["blur"] == pytest.approx(blur)


def test_without_shifts_there_are_blocks_and_no_shift(objects: ObjectStore) -> None:
    store_sweep(objects, {FIRST: [FEASIBLE]})
    entry = entries(objects)[0]
    assert entry["constrained"]["shifts"] == {}
    assert entry["constrained"]["unseen_mean"] == 9.0
    assert shift_mean(ArmSummary.from_json(entry["constrained"]), "blur") is None


def test_a_summary_is_read_from_its_json_and_holds_no_nan(objects: ObjectStore) -> None:
    losses = {FIRST: [FEASIBLE, INFEASIBLE] * 3, SECOND: [[0.5, 0.4, math.nan, 0.2]]}
    store_sweep(objects, losses, space=SHIFTED)
    for summary in best_summaries(load_sweep(objects, "tiny"), {}):
        plain = json.loads(json.dumps(summary.to_json(), allow_nan=False))
        again = SettingSummary.from_json(plain)
        assert again.to_json() == plain
        assert again == summary
        del plain["importance"], plain["codes"], plain["is_control"]  # as an earlier version
        assert SettingSummary.from_json(plain).gain == summary.gain
        with pytest.raises(TypeError, match="missing 1 required"):
            SettingSummary.from_json({k: v for k, v in plain.items() if k != "winner"})


def with_key(value: Any, key: str) -> Any:
    """The value with one more key in every object that it holds."""
    if isinstance(value, dict):
        return {name: with_key(v, key) for name, v in value.items()} | {key: None}
    return [with_key(v, key) for v in value] if isinstance(value, list) else value


def without_key(value: Any, key: str) -> Any:
    if isinstance(value, dict):
        return {name: without_key(v, key) for name, v in value.items() if name != key}
    return [without_key(v, key) for v in value] if isinstance(value, list) else value


def test_what_a_newer_version_adds_to_a_summary_is_passed_over(objects: ObjectStore) -> None:
    store_sweep(objects, {FIRST: [FEASIBLE, INFEASIBLE] * 3, SECOND: []}, space=SHIFTED)
    for entry in entries(objects):
        again = SettingSummary.from_json(with_key(entry, "of_tomorrow")).to_json()
        assert without_key(again, "of_tomorrow") == entry
        assert "of_tomorrow" not in again | again["gain"]


def test_shifts_never_choose_the_winner(objects: ObjectStore) -> None:
    better_shifted = [*FEASIBLE[:-1], 0.1]
    for space, name in ((SHIFTED, "shifted"), (SPACE, "plain")):
        store = ObjectStore(f"{objects.root}/{name}")
        store_sweep(
            store,
            {FIRST: [FEASIBLE, better_shifted]},
            space=space,
            objectives={(FIRST, 0): -0.2, (FIRST, 1): -0.1},
        )
        entry = entries(store)[0]
        assert (entry["winner"], entry["proposal"]) == (True, 0)
        assert entry["constrained"]["objective"] == pytest.approx(-0.195)


def test_an_arm_that_failed_has_no_blocks(objects: ObjectStore) -> None:
    store_sweep(objects, {FIRST: [DIVERGED]}, space=SHIFTED)
    view = load_sweep(objects, "tiny")
    failed = ArmStore(objects).record(view.settings[0].results[0].signatures[0])
    assert failed is not None
    entry = score_entries.arm_summary([failed], None, {}).to_json()
    assert entry is not None
    assert (entry["seen_mean"], entry["unseen_mean"], entry["shifts"]) == (None, None, {})


def test_unmatched_capacity_is_said_of_the_setting(objects: ObjectStore) -> None:
    paper = SPACE.with_base({"model.name": "dust", "model.variant": "paper"})
    for space, matched in ((SPACE, True), (paper, False)):
        store = ObjectStore(f"{objects.root}/{matched}")
        store_sweep(store, {FIRST: [FEASIBLE]}, space=space)
        # of the second setting nothing is finished
        both = [e["matched_capacity"] for e in entries(store)]
        assert both == [matched, matched]


def test_best_prints_the_blocks_and_marks_unmatched_capacity(
    objects: ObjectStore, capsys: pytest.CaptureFixture[str]
) -> None:
    fields = {"shifts": ["brightness", "salt_and_pepper"]}
    paper = {**fields, "model.name": "dust", "model.variant": "paper"}
    for values, marked in ((fields, False), (paper, True)):
        store = ObjectStore(f"{objects.root}/{marked}")
        store_sweep(store, {FIRST: [FEASIBLE]}, space=SPACE.with_base(values))
        print_best(best_summaries(load_sweep(store, "tiny"), {}))
        lines = capsys.readouterr().out.splitlines()
        who = (
            "constrained",
            "unconstrained",
            "gain* ",
            "Identity",
            "Wiener  ",
            "Wiener (train)",
        )
        found = [
            line.removeprefix(f"  {name}").split()
            for name in who
            for line in lines
            if line.startswith(f"  {name}")
        ]
        # mean and area over all gammas, seen, unseen; below, those under shifts
        assert [cells[:4] for cells in found if len(cells) > 3] == [
            ["4.667", "1.800", "2.500", "9.000"],
            ["4.667", "1.800", "2.500", "9.000"],
            ["0.000", "0.000", "0.000", "0.000"],
            ["8.000", "3.200", "4.000", "16.000"],
            ["4.333", "1.800", "2.500", "8.000"],
            ["7.000", "2.600", "4.000", "13.000"],
        ]
        assert [cells for cells in found if len(cells) == 2] == [
            ["4.000", "4.000"],
            ["5.000", "5.000"],
            ["+1.000", "+1.000"],
            ["10.000", "10.000"],
        ]
        assert any("salt+pepper" in line for line in lines)
        assert max(map(len, lines)) <= 80
        assert any("unmatched capacity" in line for line in lines) is marked


def test_layers_keep_their_numbers_where_layer_0_is_constrained(objects: ObjectStore) -> None:
    space = SPACE.with_base({"constraint.reference": "bound_zero"})
    misses_first = [1.5, 0.4, 0.3, 0.2]  # the input's loss is above f0 = 1: layer 0 misses
    store_sweep(objects, {FIRST: [misses_first]}, space=space)
    ours = entries(objects)[0]["constrained"]
    assert len(ours["missing_share"]) == 4
    assert (ours["first_layer"], ours["worst_layer"]) == (0, 0)
    assert "of layer 0" in entries(objects)[0]["why"]


def test_the_mean_over_all_gammas_is_that_of_its_seen_and_unseen_blocks(
    objects: ObjectStore,
) -> None:
    """Of arms, of the gain and of references; two gammas are seen, one is not."""
    store_sweep(objects, {FIRST: [FEASIBLE]})
    entry = entries(objects)[0]
    assert entry["references"]["identity"]["mean_over_gammas"] == pytest.approx((0 + 8 + 16) / 3)
    for values in (
        *(entry[who] for who in ("constrained", "unconstrained", "gain")),
        *entry["references"].values(),
    ):
        blocks = (2 * values["seen_mean"] + values["unseen_mean"]) / 3
        assert values["mean_over_gammas"] == pytest.approx(blocks)


def test_a_least_descent_and_the_frontier_keep_the_weakest_constraint_from_winning(
    objects: ObjectStore,
) -> None:
    best_weak = {(FIRST, 0): -0.3, (FIRST, 1): -0.25, (FIRST, 2): -0.27}
    demands = [1 - (1 - point(k)["constraint.alpha"]) ** 2 for k in range(3)]
    for least, winner in ((0.0, 0), ((demands[0] + demands[1]) / 2, 2)):
        store = ObjectStore(f"{objects.root}/{winner}")
        settings = tuple(replace(s, least_descent=least) for s in SPACE.settings)
        store_sweep(
            store,
            {FIRST: [FEASIBLE, FEASIBLE, FEASIBLE]},
            space=replace(SPACE, settings=settings),
            objectives=best_weak,
        )
        entry = entries(store)[0]
        assert entry["proposal"] == winner
        assert entry["demanded_descent"] == pytest.approx(demands[winner])
        assert entry["least_descent"] == least
        # proposal 2 asks for more than 1 and is better; 0 is the best of all and asks for least
        assert [p["number"] for p in entry["frontier"]] == [0, 2]
        assert [p["objective"] for p in entry["frontier"]] == pytest.approx([-0.295, -0.265])
        stored = load_sweep(store, "tiny").settings[0]
        assert lost(stored) == (
            {"worse objective": 2}
            if not least
            else {"worse objective": 1, "feasible, asks for too little": 1}
        )


def test_one_that_is_as_good_and_asks_for_less_is_not_called_worse(objects: ObjectStore) -> None:
    store_sweep(objects, {FIRST: [FEASIBLE, FEASIBLE, FEASIBLE]})
    demands = [point(number)["constraint.alpha"] for number in range(3)]
    assert entries(objects)[0]["proposal"] == demands.index(max(demands))
    assert entries(objects)[0]["lost"] == {"equal objective": 2}


def test_a_winner_at_an_end_of_its_range_is_marked(objects: ObjectStore) -> None:
    store_sweep(objects, {FIRST: [FEASIBLE, INFEASIBLE], SECOND: [FEASIBLE]})
    (edge,) = entries(objects)[0]["edges"]
    assert entries(objects)[1]["edges"] == []  # one proposal, which was not chosen among others
    assert edge == "alpha 0.2 is at the low end of its range, which asks for the least"
    middle = replace(SPACE, ranges={"constraint.alpha": Uniform(0.1, 0.3)})
    store = ObjectStore(f"{objects.root}/middle")
    store_sweep(store, {FIRST: [FEASIBLE, INFEASIBLE]}, space=middle)
    assert entries(store)[0]["edges"] == []


@pytest.mark.parametrize("alpha", [0.05, 0.35])
def test_a_listed_value_outside_its_range_lies_at_no_end_of_it(alpha: float) -> None:
    ranges = {"constraint.alpha": Uniform(0.1, 0.3), "constraint.resilience": LogUniform(0.1, 1)}
    space = replace(SPACE, ranges=ranges)
    setting = space.settings[0]
    assert edges_of(space, setting, {"constraint.alpha": alpha, "constraint.resilience": 0.0}) == []
    (edge,) = edges_of(space, setting, {"constraint.alpha": 0.3, "constraint.resilience": 0.3})
    assert "alpha 0.3 is at the high end" in edge


def test_a_tolerance_is_that_of_the_space_and_changes_no_signature(objects: ObjectStore) -> None:
    losses = [0.5, 0.4, 0.335, 0.2]  # layer 2 misses 0.19 of what is asked of it
    signatures = []
    for tolerance, wins in ((0.1, False), (0.25, True)):
        store = ObjectStore(f"{objects.root}/{tolerance}")
        space = replace(SPACE, tolerance=tolerance)
        store_sweep(store, {FIRST: [losses]}, space=space)
        entry = entries(store)[0]
        assert entry["winner"] is wins
        assert entry["tolerance"] == tolerance
        signatures.append(entry["constrained"]["signature"])
    assert signatures[0] == signatures[1]


@pytest.mark.parametrize("status", ["diverged", "stopped"])
def test_an_unconstrained_arm_that_ended_early_counts_as_the_constant_prediction(
    objects: ObjectStore, status: str
) -> None:
    definition = store_sweep(objects, {FIRST: [FEASIBLE]})
    space = definition.space
    plain = space.run(space.setting(FIRST), {}, seed=1).unconstrained()
    ArmStore(objects).forget(plain.signature())
    ArmStore(objects).put_record(ended(plain, status, "the loss is nan"))
    entry = entries(objects)[0]
    assert entry["winner"] is True
    theirs = entry["unconstrained"]
    assert theirs["counted_as_constant"] == 1
    assert theirs["status"] == ["finished", status]
    # 50 grey levels everywhere on seed 1, its own scores (1, 4 and 9) on seed 0
    assert theirs["mean_over_gammas"] == pytest.approx((50 + 14 / 3) / 2)
    assert theirs["held_out_loss"] == pytest.approx((1.0 + PLAIN[-1]) / 2)
    assert entry["gain"]["mean_over_gammas"] == pytest.approx(
        theirs["mean_over_gammas"] - entry["constrained"]["mean_over_gammas"]
    )
    # what was not measured is not made up
    assert (theirs["feasible"], theirs["missing_share"], theirs["layer_losses"]) == (None,) * 3


def test_an_unconstrained_arm_that_failed_still_keeps_a_pair_from_winning(
    objects: ObjectStore,
) -> None:
    definition = store_sweep(objects, {FIRST: [FEASIBLE]})
    space = definition.space
    plain = space.run(space.setting(FIRST), {}, seed=1).unconstrained()
    ArmStore(objects).forget(plain.signature())
    ArmStore(objects).put_record(ended(plain, "failed", "no memory"))
    entry = entries(objects)[0]
    assert entry["winner"] is False
    assert "no finished unconstrained arm to compare with: no memory" in entry["why"]
