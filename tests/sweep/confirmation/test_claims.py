"""Claims of a confirmation: never more than seeds, test units and binding settings bear out."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from search_spaces.space import SearchSpace
from sweep.cli.text.confirmed import print_confirmed
from sweep.confirmation.comparisons import agrees, is_decided, summarize_confirmation
from sweep.confirmation.paper_tables import paper_confirmed_table
from sweep.confirmation.summary import Verdicts
from sweep.confirmation.tables import confirmed_table
from sweep.confirmation.words import limits, of_family, of_setting, sentences
from sweep.report.pages.confirmation import _arms, _families, _family_table
from sweep.statistics.decisions import table
from sweep.statistics.design import Design
from sweep.statistics.two_sources import group_parts
from tests.support import confirmations as hand
from tests.support.code_figures import ROOT
from tests.support.paper_sweeps import CONFIRMED, PED
from tests.support.sweeps import FEASIBLE, FIRST, PLAIN, SECOND, SPACE, store_sweep
from trainables.records.objects import ObjectStore

NOISE = np.random.default_rng(11).normal(0.0, 0.02, 64)
GAMMAS = (0.0, 0.2, 0.4, 0.6, 0.8)  # the last ones of them unseen
ONE = replace(SPACE, base=replace(SPACE.base, test_gammas=GAMMAS), settings=SPACE.settings[:1])
TWO = replace(SPACE, base=replace(SPACE.base, test_gammas=GAMMAS))


def early(setting: str, kind: str, seed: int) -> float:
    """RMSE: 0.3 better on the first five seeds, 0.1 worse on the later ones."""
    gain = 0.3 if seed < 1005 else -0.1
    noise = NOISE[2 * (seed - 1000) + (setting == SECOND)]
    return 14.0 - ((gain + noise) if kind == "constrained" else 0.0)


def decided_early(objects: ObjectStore, **wanted: Any) -> tuple[SearchSpace, Any]:
    hand.searched(objects, space=CONFIRMED)
    plan, definition = hand.stored(objects, hand.wanted(rule="of before", **wanted))
    hand.trained(objects, definition, early)
    return definition.space, summarize_confirmation(objects, definition, plan)


def of_units(
    objects: ObjectStore,
    losses_of: hand.LossesOf,
    space: SearchSpace = ONE,
    plain: Any = None,
    names: Callable[[int], list[str]] = hand.clip_each,
    **wanted: Any,
) -> tuple[Any, bool]:
    """What is shown of arms with unit scores, and whether all is decided."""
    settings = [setting.name for setting in space.settings]
    best = {(setting, 1): -0.9 for setting in settings}
    came_to = dict.fromkeys(settings, [FEASIBLE] * 3)
    store_sweep(objects, came_to, objectives=best, space=space)
    plan, definition = hand.stored(objects, hand.wanted(**wanted))
    hand.measured(objects, definition, losses_of, plain or PLAIN, names)
    return summarize_confirmation(objects, definition, plan), is_decided(objects, definition, plan)


def contrast(entry: Any, setting: str = FIRST, other: str = "unconstrained") -> Any:
    return next(s for s in entry.settings if s.setting == setting).contrasts[other]


# --- one line, one set of seeds -------------------------------------------------------------------


def test_all_numbers_of_a_line_are_of_the_seeds_that_it_counts(objects: ObjectStore) -> None:
    space, entry = decided_early(objects)
    found = contrast(entry)
    assert (found.decided_at, found.counted, found.seeds) == (5, 5, 10)
    first = np.mean([early(FIRST, "unconstrained", s) - early(FIRST, "constrained", s)
                     for s in range(1000, 1005)])  # fmt: skip
    for measure in ("unseen_mean", "mean_over_gammas"):  # every gamma has the same score by hand
        assert found.beside[measure].mean == pytest.approx(first)
    (row,) = (r for r in confirmed_table(entry).rows if r["setting"] == FIRST)
    assert row["gain"] == pytest.approx(row["unseen_mean_gain"])
    assert row["other_mean"] - row["constrained_mean"] == pytest.approx(row["gain"])
    for line in paper_confirmed_table(space, entry).rows:
        ours, theirs = line[f"{PED}_constrained"], line[f"{PED}_unconstrained"]
        assert line[f"{PED}_gain"] == pytest.approx(theirs - ours), line["numbers"]


def test_means_beside_a_contrast_are_of_its_seeds_whatever_others_count(
    objects: ObjectStore,
) -> None:
    hand.searched(objects)
    wanted = hand.wanted(rule="of before", controls=("mixed_gamma",))
    plan, definition = hand.stored(objects, wanted)

    def score(setting: str, kind: str, seed: int) -> float:
        if kind == "mixed_gamma":  # undecided to the end
            return early(setting, "constrained", seed) + 20 * NOISE[seed - 980]
        return early(setting, kind, seed)

    hand.trained(objects, definition, score)
    entry = summarize_confirmation(objects, definition, plan)
    plain, control = contrast(entry), contrast(entry, other="mixed_gamma")
    assert (plain.counted, control.counted) == (5, 10)
    means = {kind: of["unseen_mean"] for kind, of in control.means.items()}
    assert means["mixed_gamma"] - means["constrained"] == pytest.approx(control.mean)
    shown = dict(_arms(entry.settings[0], entry).shown)
    place = shown["arm"].index("mixed gamma")
    assert shown["gain over it"][place] == f"{control.mean:+.3f}"
    assert shown["constrained on these seeds"][place] == f"{means['constrained']:.3f}"


# --- what was decided early -----------------------------------------------------------------------


def test_beside_an_early_decision_stands_the_estimate_over_all_ended_seeds(
    objects: ObjectStore, capsys: pytest.CaptureFixture[str]
) -> None:
    space, entry = decided_early(objects)
    every = [early(FIRST, "unconstrained", s) - early(FIRST, "constrained", s)
             for s in range(1000, 1010)]  # fmt: skip
    for found in (contrast(entry), *entry.families):
        assert found.ended.mean == pytest.approx(np.mean(every), abs=0.02)
        assert found.ended.low < found.ended.mean < found.ended.high
        assert "2 looks" in found.ended.interval
    said = f"{contrast(entry).ended.mean:+.3g} ("
    assert f"Over all 10 that ended it is {said}" in of_setting(entry.settings[0], entry)
    assert f"over all that ended {said}" in " ".join(sentences(entry))
    family = f"{entry.families[0].ended.mean:+.3g} ("
    assert f"Over all 10 seeds that ended: {family}" in of_family(entry.families[0], entry)
    table = confirmed_table(entry)
    assert dict(table.shown)["gain over all ended"][0].startswith(said)
    assert any(
        "decided at 5 seeds; over all 10" in n for n in paper_confirmed_table(space, entry).notes
    )
    assert family in dict(_family_table(entry).shown)["gain over all ended"][0]
    print_confirmed(entry)
    assert "all ended seeds" in capsys.readouterr().out


def test_the_legend_explains_what_is_there(
    objects: ObjectStore, capsys: pytest.CaptureFixture[str]
) -> None:
    _, entry = decided_early(objects)
    for shrinkage in (None, 0.5):
        fields = {"search_gain": 0.2, "shrinkage": shrinkage, "equal_tries": None}
        print_confirmed(replace(entry, settings=[replace(one, **fields) for one in entry.settings]))
        shown = " ".join(capsys.readouterr().out.split())
        assert "in search: the gain on" in shown
        assert ("shrunk by:" in shown) == (shrinkage is not None)
        assert "best of tries" not in shown


def test_between_two_looks_the_estimate_over_all_ended_has_no_interval(
    objects: ObjectStore,
) -> None:
    hand.searched(objects)
    plan, definition = hand.stored(objects, hand.wanted(rule="of before"))
    hand.trained(objects, definition, lambda *of: early(*of) if of[2] < 1007 else None)
    found = contrast(summarize_confirmation(objects, definition, plan))
    assert (found.counted, found.seeds) == (5, 7)
    assert found.ended.mean is not None
    assert found.ended.low is None


# --- families -------------------------------------------------------------------------------------


def one_unit(gain: float) -> hand.LossesOf:
    """The constrained arm is better by one unit of twelve alone, on every seed."""

    def losses_of(setting: str, kind: str, seed: int) -> Any:
        own = np.random.default_rng([len(kind), seed]).uniform(0.3, 0.301, 12)
        if kind == "constrained":
            own += 0.002
            own[3] -= gain
        return own

    return losses_of


def test_a_family_is_better_only_where_a_setting_may_be_over_units(objects: ObjectStore) -> None:
    entry, decided = of_units(objects, one_unit(0.2), seeds=8)
    (family,) = entry.families
    assert (family.outcome, contrast(entry).marked) == ("better", "undecided")
    assert family.marked == "undecided"
    assert not decided
    rows = {row["level"]: row["outcome"] for row in confirmed_table(entry).rows}
    assert rows == {"family": "undecided", "setting": "undecided"}
    assert dict(_family_table(entry).shown)["outcome"] == ["undecided"]
    first = next(iter(_families(entry)))
    assert "undecided: better for these test units" in first


def test_a_family_whose_settings_all_do_not_bind_says_so(objects: ObjectStore) -> None:
    def better(setting: str, kind: str, seed: int) -> Any:
        own = np.random.default_rng([len(kind), seed]).uniform(0.3, 0.301, 12)
        return own - 0.1 * (kind == "constrained")

    entry, decided = of_units(objects, better, plain=FEASIBLE, seeds=8)
    (family,) = entry.families
    assert (family.outcome, family.marked) == ("better", "not binding")
    assert decided  # more seeds cannot tell more of it
    assert "not binding" in of_family(family, entry)
    assert "better;" not in of_family(family, entry)


def test_a_family_is_better_where_one_binding_setting_bears_it_out(objects: ObjectStore) -> None:
    def losses_of(setting: str, kind: str, seed: int) -> Any:
        if setting == FIRST:
            return one_unit(0.2)(setting, kind, seed)
        own = np.random.default_rng([len(kind), seed]).uniform(0.3, 0.301, 12)
        return own - 0.1 * (kind == "constrained")

    entry, decided = of_units(objects, losses_of, TWO, seeds=8)
    (family,) = entry.families
    assert [one.contrasts["unconstrained"].marked for one in entry.settings] == [
        "undecided",
        "better",
    ]
    assert family.marked == "better"
    assert decided


def test_what_units_bear_out_at_a_later_look_is_claimed_with_its_numbers(
    objects: ObjectStore,
) -> None:
    """A seed that is far off at the first look widens the interval over units there alone."""

    def losses_of(setting: str, kind: str, seed: int) -> Any:
        own = np.random.default_rng([len(kind), seed]).uniform(0.3, 0.301, 12)
        if kind == "constrained":
            own -= 0.03
            own[seed % 5] += 0.3 if seed < 1005 else 0.0  # one unit a seed is bad at first
            own[6:] -= 0.03 if seed < 1005 else 0.0
        return own

    entry, decided = of_units(objects, losses_of, rule="of before")
    found = contrast(entry)
    seeds = range(1000, 1010)
    by_seed = {FIRST: {seed: found.per_seed[str(seed)] for seed in seeds}}
    by_seeds_alone = table(entry.design, by_seed, seeds)[1]
    assert (by_seeds_alone.decided_at, by_seeds_alone.counted) == (5, 5)
    assert (found.decided_at, found.counted, found.marked) == (10, 10, "better")
    assert found.units.low > 0
    assert found.low > 0
    assert decided


# --- failures -------------------------------------------------------------------------------------


@pytest.mark.parametrize("fails", [("constrained", "unconstrained"), ("constrained",)])
def test_a_failed_seed_never_makes_a_claim_easier(
    objects: ObjectStore, fails: tuple[str, ...]
) -> None:
    def failing(setting: str, kind: str, seed: int) -> Any:
        if seed == 1004 and kind in fails:
            return "diverged"
        return one_unit(0.2)(setting, kind, seed)

    entry, decided = of_units(objects, failing)
    found = contrast(entry)
    assert found.units.seeds == 10
    assert found.units.mean == pytest.approx(found.mean, rel=1e-5)
    assert found.marked == "undecided"
    assert not decided


def test_a_network_that_always_diverges_is_worse_over_units_too(objects: ObjectStore) -> None:
    def failing(setting: str, kind: str, seed: int) -> Any:
        return "diverged" if kind == "constrained" else one_unit(0.2)(setting, kind, seed)

    entry, _ = of_units(objects, failing)
    assert contrast(entry).units.high < 0
    assert contrast(entry).marked == entry.families[0].marked == "worse"


# --- what was published ---------------------------------------------------------------------------


def test_published_replications_say_what_their_gains_bear_out() -> None:
    published = json.loads((ROOT / "benchmarks/results/confirmed.json").read_text())
    replicated = [of for of in published.values() if "tuned" in of]
    assert replicated
    for of in replicated:
        design = Design.from_json(of["plan"]["design"])
        for one in of["tuned"]["settings"]:
            gains = list(one["per_replication"].values())
            assert len(gains) == one["replications"] == len(of["plan"]["seeds"])
            half = stats.t.ppf(0.975, len(gains) - 1) * stats.sem(gains)
            assert one["mean"] == pytest.approx(np.mean(gains), abs=1e-5)
            assert [one["low"], one["high"]] == pytest.approx(
                [one["mean"] - half, one["mean"] + half], abs=1e-5
            )
            assert agrees(one["marked"], one["units"]["low"], one["units"]["high"], design)
            reaches = max(-one["low"], one["high"]) > design.smallest_effect
            assert (one["marked"] == "undecided") == reaches


def test_published_outcomes_are_those_that_units_bear_out() -> None:
    """The file of results says equivalent of MiniLM against plain training; the page does not."""
    published = json.loads((ROOT / "benchmarks/results/confirmed.json").read_text())
    taken_back = []
    for of in (of for of in published.values() if "confirmed" in of):
        design = Design.from_json(of["plan"]["design"])
        for one in of["confirmed"]["settings"]:
            for other, found in one["contrasts"].items():
                low, high = (found["units"][end] for end in ("low", "high"))
                if not agrees(found["marked"], low, high, design):
                    taken_back.append((one["setting"], other, found["marked"]))
    assert taken_back == [("imdb-minilm-g0.4", "unconstrained", "equivalent")]
    page = (ROOT / "docs/confirmed.md").read_text(encoding="utf-8")
    (line,) = (line for line in page.splitlines() if line.startswith("| MiniLM, IMDb"))
    assert line.count("undecided") == 2  # by its plan, and by the rule of today


# --- equivalence ----------------------------------------------------------------------------------


def test_equivalent_holds_over_units_too(objects: ObjectStore) -> None:
    """Units differ by far more than the smallest effect, and by their mean not at all."""

    def losses_of(setting: str, kind: str, seed: int) -> Any:
        own = np.random.default_rng([len(kind), seed]).uniform(0.3, 0.3001, 12)
        signs = np.tile([1.0, -1.0], 6)
        return own + 0.1 * signs * (kind == "constrained")

    entry, decided = of_units(objects, losses_of)
    found = contrast(entry)
    assert (found.outcome, found.marked) == ("equivalent", "undecided")
    assert entry.families[0].marked == "undecided"
    said = of_setting(entry.settings[0], entry)
    assert said.startswith("undecided: no difference that matters, ")
    assert "for these test units, but not where other units are drawn as well" in said
    assert not decided


def test_equivalent_stays_where_units_agree(objects: ObjectStore) -> None:
    def losses_of(setting: str, kind: str, seed: int) -> Any:
        return np.random.default_rng([len(kind), seed]).uniform(0.3, 0.3001, 12)

    entry, decided = of_units(objects, losses_of)
    assert contrast(entry).marked == entry.families[0].marked == "equivalent"
    assert decided


# --- groups of units ------------------------------------------------------------------------------


def by_clip(setting: str, kind: str, seed: int) -> Any:
    """The difference is one of clips alone: on three of four the constrained arm is better."""
    own = np.random.default_rng([len(kind), seed]).uniform(0.3, 0.301, 48)
    return own - np.repeat([0.09, 0.06, 0.05, -0.01], 12) * (kind == "constrained")


def names_of(clips: int) -> Callable[[int], list[str]]:
    return lambda units: [f"c{u * clips // units}:{u:04d}" for u in range(units)]


def test_of_few_clips_nothing_is_certified_and_means_say_what_binds(objects: ObjectStore) -> None:
    """Else what plain training meets by itself could be claimed as soon as clips are few."""
    entry, _ = of_units(objects, by_clip, plain=FEASIBLE, names=names_of(4))
    (one,) = entry.settings
    for arm in one.arms.values():
        assert arm.certified == Verdicts(feasible=0, infeasible=0, undecided=10)
        assert arm.feasible_by_mean == 10
    assert (one.not_binding, entry.families[0].marked) == (True, "not binding")
    assert "48 windows of 4 clips; fewer than 10" in " ".join(confirmed_table(entry).notes)


def test_windows_of_one_clip_are_drawn_together(
    objects: ObjectStore, capsys: pytest.CaptureFixture[str]
) -> None:
    entry, _ = of_units(objects, by_clip, names=names_of(4))
    found = contrast(entry)
    assert found.outcome == "better"
    assert "clips" in found.units.name
    assert (found.units.units, found.units.groups) == (48, 4)
    alone = np.array([0.09, 0.06, 0.05, -0.01])
    draws = np.random.default_rng(2).choice(alone, (4_000, 4)).mean(axis=1)
    slope = found.mean / alone.mean()  # of the root, all but straight here
    low, high = np.quantile(draws, [0.025, 0.975]) * slope
    near = 0.15 * (high - low)  # two percentile bootstraps, and the curve of the root
    assert (found.units.low, found.units.high) == pytest.approx((low, high), abs=near)
    said = of_setting(entry.settings[0], entry)
    assert "48 windows of 4 clips; fewer than 10 certify nothing)" in said
    (row,) = (r for r in confirmed_table(entry).rows if r["level"] == "setting")
    assert (row["units"], row["unit_groups"]) == (48, 4)
    print_confirmed(entry)
    shown = " ".join(capsys.readouterr().out.split())
    assert "(4 clips)" in shown
    assert "Intervals over test units draw 4 clips anew" in shown


def test_windows_that_are_clips_by_themselves_are_told_of_as_before(objects: ObjectStore) -> None:
    entry, _ = of_units(objects, by_clip)
    assert "windows of" not in of_setting(entry.settings[0], entry)
    assert contrast(entry).units.groups == 48


def test_of_one_clip_its_windows_are_drawn_and_the_line_says_so(objects: ObjectStore) -> None:
    entry, _ = of_units(objects, by_clip, names=names_of(1))
    found = contrast(entry)
    assert found.units.groups == 1
    assert "the windows of one clip" in found.units.name
    assert "48 windows of 1 clip; fewer than 10" in of_setting(entry.settings[0], entry)
    (text,) = (text for text in limits(entry) if text.startswith("Intervals over test units"))
    assert "draw the windows of 1 clip anew" in text


def test_groups_keep_the_mean_and_variance_is_theirs() -> None:
    """One window a clip: as before. Windows that are alike within clips: the clips' variance."""
    parts_KU = np.random.default_rng(4).normal(size=(6, 12))
    assert group_parts(parts_KU, [f"c{u}" for u in range(12)]) == pytest.approx(parts_KU)
    twice_KU = np.repeat(parts_KU, 3, axis=1)
    grouped = group_parts(twice_KU, [f"c{u // 3}" for u in range(36)])
    assert grouped == pytest.approx(parts_KU)
    uneven = group_parts(parts_KU, ["a"] * 7 + ["b"] * 5)
    assert uneven.mean(axis=1) == pytest.approx(parts_KU.mean(axis=1))
