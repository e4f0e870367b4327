"""Decisions of a confirmation: better, worse, equivalent or undecided. Pure.

Every hypothesis, of a family (its settings' mean difference within each seed) or of a setting, gets
a p-value at each stage that its design tests at, over the share of the error that the stage spends:
the larger of the paired t test's and of sign flips'; with ``any_time`` 1 over the smaller of the t
e-process and of its bets on signs. The smallest so far is valid at every time and never rises: so
what is decided once stays decided, and the table's error holds whenever one stops, under the rule.
``multiplicity.gatekept`` makes the table of them. Equivalence is the same once more with the
p-values of TOST, and an error of its own: of all effects of 0 and of all effects as large as the
smallest of interest, each table's false claims stay at most ``error``.

Seeds count in the order of the plan, and up to the first that some setting of a family has not got
yet: an order that results cannot change. Shape suffixes: S settings, K seeds, H hypotheses (first
the families, then the settings), N stages; leading axes are simulated sweeps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from sweep.statistics import anytime, paired
from sweep.statistics.design import Design, Outcome
from sweep.statistics.multiplicity import gatekept
from sweep.statistics.paired import Floats
from sweep.statistics.row import Estimate, Row
from trainables.errors import UnknownName, require
from trainables.plain import finite

OUTCOMES: tuple[Outcome, ...] = ("undecided", "better", "worse", "equivalent")
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Decisions:
    """State of every hypothesis; arrays of [..., H], families first."""

    seeds: Ints  # whole ones
    counted: Ints  # of those, how many the numbers are of: the stage that decided, or the last
    mean: Floats  # difference, > 0: the first arm is better
    low: Floats  # of the interval that covers at all stages at once; NaN before the first
    high: Floats
    level: Floats  # of the interval at this stage alone
    p: Floats  # of this stage alone, unadjusted
    p_adjusted: Floats  # decided different where it is at most the design's error
    p_equivalent: Floats  # adjusted; 1 without a smallest effect of interest
    decided_at: Ints  # after how many seeds; 0: undecided
    outcome: Ints  # places in OUTCOMES
    # The same estimate over all whole seeds, whatever was decided before; its interval is NaN
    # between two looks.
    ended_mean: Floats
    ended_low: Floats
    ended_high: Floats
    ended_level: Floats


def aligned(
    design: Design, differences: Mapping[str, Mapping[int, float]], seeds: Sequence[int]
) -> Floats:
    """Differences by setting and seed, > 0 better, as an array [S, K]; NaN: not there yet.

    S is in the order of the design, K in that of ``seeds``: all that are planned, as they count.
    Raises UnknownName for a setting that is in no family, or a seed that is not planned.
    """
    for name, values in differences.items():
        if name not in design.settings:
            raise UnknownName.among("setting", name, design.settings)
        for seed in values:
            if seed not in seeds:
                raise UnknownName.among("seed", str(seed), map(str, seeds))
    rows = [[differences.get(name, {}).get(s, math.nan) for s in seeds] for name in design.settings]
    return np.array(rows, dtype=np.float64).reshape(len(rows), len(seeds))


def hypotheses(design: Design, differences_SK: Floats) -> Floats:
    """Differences of every hypothesis, [..., H, K]: means of families, then the settings.

    NaN from the first seed on that a family lacks a setting of.
    """
    differences_SK = np.asarray(differences_SK, dtype=np.float64)
    settings = differences_SK.shape[-2] if differences_SK.ndim > 1 else 0
    names = len(design.settings)
    require(settings == names, "differences", differences_SK.shape, f"[..., {names} settings, K]")
    whole_SK = np.empty_like(differences_SK)
    means = []
    for places in map(list, design.members):
        family_SK = differences_SK[..., places, :]
        is_whole_K = np.isfinite(family_SK).all(axis=-2, keepdims=True)
        # Up to the first seed that is missing: one that ends early may do so for a reason
        # (docs/decisions/0119).
        counts_K = np.logical_and.accumulate(is_whole_K, axis=-1)
        whole_SK[..., places, :] = np.where(counts_K, family_SK, np.nan)
        means.append(whole_SK[..., places, :].mean(axis=-2))
    return np.concatenate([np.stack(means, axis=-2), whole_SK], axis=-2)


def staged_p(design: Design, values_K: Floats) -> tuple[Floats, Floats]:
    """p-values at each stage, [..., N], over the stage's share of the error: different, equivalent.

    1 where a seed that the stage needs is missing, and where all seeds give the same value.
    """
    different, equivalent = [], []
    for n, share in design.stages(values_K.shape[-1]):
        different.append(_different_p(design, values_K[..., :n]) / share)
        equivalent.append(_equivalent_p(design, values_K[..., :n]) / share)
    none = np.ones((*values_K.shape[:-1], 0))

    def stacked(values: list[Floats]) -> Floats:
        # fmin and not minimum: p is NaN where a seed is missing, and must count as 1.
        return np.fmin(np.stack(values, axis=-1), 1.0) if values else none

    return stacked(different), stacked(equivalent)


def decide(design: Design, differences_SK: Floats) -> Decisions:
    """Decisions over differences by setting and seed, [..., S, K], in the order of the design.

    > 0 is better for the first arm; NaN where a seed has not been trained.
    """
    values_HK = hypotheses(design, differences_SK)
    seeds_H = np.isfinite(values_HK).sum(axis=-1)
    # Stage 0 is before the first, where nothing is tested.
    stages_N = np.array([0, *(n for n, _ in design.stages(values_HK.shape[-1]))], dtype=np.int64)
    before = np.ones((*seeds_H.shape, 1))
    different_HN, equivalent_HN = (
        np.concatenate([before, p_HN], axis=-1) for p_HN in staged_p(design, values_HK)
    )
    adjusted_HN = _adjusted(design, different_HN)
    same_HN = _adjusted(design, equivalent_HN)
    claimed_HN = (adjusted_HN <= design.error) | (same_HN <= design.error)
    decided_H, first_H = claimed_HN.any(axis=-1), claimed_HN.argmax(axis=-1)
    passed_H = (stages_N <= seeds_H[..., None]).sum(axis=-1) - 1
    last_H = np.where(decided_H, first_H, passed_H)

    def at_last(values_HN: Floats) -> Floats:
        taken: Floats = np.take_along_axis(values_HN, last_H[..., None], axis=-1)[..., 0]
        return taken

    is_same_H = decided_H & (at_last(same_HN) <= design.error)
    # Of a decision the numbers are those of the stage whose own p made it: a family that passes
    # later may open the gate of what a setting showed before.
    own_HN = np.where(is_same_H[..., None], equivalent_HN, different_HN)
    until_HN = np.arange(len(stages_N)) <= last_H[..., None]
    made_H = np.where(until_HN, own_HN, np.inf).argmin(axis=-1)
    stage_H = np.where(decided_H, made_H, last_H)
    counted_H = np.where(stage_H > 0, stages_N[stage_H], seeds_H)
    mean_H, low_H, high_H, level_H = _estimates(design, values_HK, counted_H)
    ended_mean_H, ended_low_H, ended_high_H, ended_level_H = _estimates(design, values_HK, seeds_H)
    outcome_H = np.where(is_same_H, 3, np.where(mean_H > 0, 1, 2))
    return Decisions(
        seeds=seeds_H,
        counted=counted_H,
        mean=mean_H,
        low=low_H,
        high=high_H,
        level=level_H,
        p=_p_of_stage(design, values_HK, counted_H),
        p_adjusted=at_last(adjusted_HN),
        p_equivalent=at_last(same_HN),
        decided_at=np.where(decided_H, stages_N[first_H], 0),
        outcome=np.where(decided_H, outcome_H, 0),
        ended_mean=ended_mean_H,
        ended_low=ended_low_H,
        ended_high=ended_high_H,
        ended_level=ended_level_H,
    )


def table(
    design: Design,
    differences: Mapping[str, Mapping[int, float]],
    seeds: Sequence[int],
    later: Mapping[str, int] | None = None,
) -> tuple[Row, ...]:
    """The lines of a confirmation: each family's, followed by its settings'; see ``aligned``.

    ``later``: settings whose numbers are those of a later stage than the one that decided.
    """
    differences_SK = aligned(design, differences, seeds)
    values_HK = hypotheses(design, differences_SK)
    decisions = decide(design, differences_SK)
    if later:
        decisions = _at_later(design, decisions, values_HK, later)
    row = partial(_row, design, decisions, values_HK)
    rows = []
    for f, (family, settings) in enumerate(design.families.items()):
        rows.append(row(f, name=family, family=family, settings=len(settings)))
        for place, name in zip(design.members[f], settings, strict=True):
            rows.append(row(len(design.families) + place, name=name, family=family, settings=0))
    return tuple(rows)


def _at_later(
    design: Design, decisions: Decisions, values_HK: Floats, later: Mapping[str, int]
) -> Decisions:
    counted_H, decided_H = decisions.counted.copy(), decisions.decided_at.copy()
    for name, stage in later.items():
        place = len(design.families) + design.settings.index(name)
        counted_H[place] = decided_H[place] = stage
    mean_H, low_H, high_H, level_H = _estimates(design, values_HK, counted_H)
    return replace(
        decisions, counted=counted_H, decided_at=decided_H, mean=mean_H, low=low_H, high=high_H,
        level=level_H, p=_p_of_stage(design, values_HK, counted_H),
    )  # fmt: skip


def interval_name(design: Design, level: float) -> str:
    """The name of a line's interval.

    >>> interval_name(Design.planned({"UT": ("L=4",)}, seeds=20), 0.985)
    'paired t interval, 95 % over all 2 looks (98.5 % at this one)'
    """
    level_text = f"{100 * (1 - design.error):g} %"
    if design.rule == "any_time":
        return f"t confidence sequence, {level_text} over all seeds"
    if len(design.looks) == 1:
        return f"paired t interval, {level_text}"
    here = "" if math.isnan(level) else f" ({100 * level:.4g} % at this one)"
    return f"paired t interval, {level_text} over all {len(design.looks)} looks{here}"


def _different_p(design: Design, values_K: Floats) -> Floats:
    """p of one stage, before its share of the error, that the mean differs from 0."""
    if design.rule == "any_time":
        return _one_over_e(design, values_K, 0.0)
    mean, error = paired.mean_and_error(values_K)
    p = np.where(error == 0, 1.0, paired.t_p(mean, error, values_K.shape[-1]))
    return _flipped(design, p, values_K)


def _equivalent_p(design: Design, values_K: Floats) -> Floats:
    """The same, that it is closer to 0 than the smallest effect of interest; 1 without one."""
    (mean, error), effect = paired.mean_and_error(values_K), design.smallest_effect
    if effect is None:
        return np.ones_like(mean)
    edges = (effect, -effect)
    if design.rule == "any_time":
        same = np.maximum(*(_one_over_e(design, values_K, edge) for edge in edges))
        return np.where(np.abs(mean) < effect, same, 1.0)
    same = paired.equivalence_p(mean, error, values_K.shape[-1], effect)
    for edge in edges:  # one-sided: half of the p of both sides
        same = _flipped(design, same, values_K - edge, sides=1)
    return same


def _flipped(design: Design, p: Floats, values_K: Floats, sides: int = 2) -> Floats:
    """p, or that of sign flips where it is larger: computed only where p is small already."""
    # Nowhere else can it change a decision: it only ever raises p.
    is_small = p <= design.error
    if design.sign_flips and is_small.any():
        p = p.copy()
        p[is_small] = np.maximum(p[is_small], paired.sign_flip_p(values_K[is_small]) * sides / 2)
    return p


def _one_over_e(design: Design, values_K: Floats, null: float) -> Floats:
    # fmin, likewise: evidence that is NaN decides nothing.
    return np.fmin(1 / _e_value(design, values_K, null), 1.0)


def _e_value(design: Design, values_K: Floats, null: float = 0.0) -> Floats:
    """The evidence against a mean of ``null`` that decides, by the design's rule."""
    mean, error = paired.mean_and_error(values_K)
    e = anytime.t_e_value(paired.t_of(mean, error, null), values_K.shape[-1])
    if design.sign_flips:
        e = np.fmin(e, anytime.symmetric_e_values(values_K - null)[..., -1])
    return np.where(error == 0, 1.0, e)


def _adjusted(design: Design, p_HN: Floats) -> Floats:
    """The table's adjusted p-values at every stage, from each hypothesis' smallest so far."""
    # The smallest so far never rises, so that what was decided stays (docs/decisions/0119).
    p_NH = np.moveaxis(np.minimum.accumulate(p_HN, axis=-1), -1, -2)
    families = len(design.families)
    adjusted = gatekept(p_NH[..., :families], p_NH[..., families:], design.members)
    return np.moveaxis(np.concatenate(adjusted, axis=-1), -2, -1)


def _p_of_stage(design: Design, values_HK: Floats, counted_H: Ints) -> Floats:
    """p of the stage of each hypothesis' first ``counted`` seeds; NaN between two stages."""
    p_H = np.full(counted_H.shape, np.nan)
    for n, _ in design.stages(values_HK.shape[-1]):
        if (here := counted_H == n).any():
            p_H[here] = _different_p(design, values_HK[here][:, :n])
    return p_H


def _estimates(
    design: Design, values_HK: Floats, counted_H: Ints
) -> tuple[Floats, Floats, Floats, Floats]:
    """Mean, low, high and level of the first ``counted`` seeds of each hypothesis."""
    mean, low, high, level = (np.full(counted_H.shape, np.nan) for _ in range(4))
    shares = dict(design.stages(values_HK.shape[-1]))
    for n in np.unique(counted_H[counted_H > 0]).tolist():
        here = counted_H == n
        mean[here], error = paired.mean_and_error(values_HK[here][:, :n])
        if n not in shares:
            continue
        level[here] = 1 - design.error * shares[n]
        reach = anytime.sequence_reach if design.rule == "any_time" else paired.t_reach
        half = np.where(error == 0, np.nan, error) * reach(n, 1 - design.error * shares[n])
        low[here], high[here] = mean[here] - half, mean[here] + half
    return mean, low, high, level


def _row(
    design: Design, decisions: Decisions, values_HK: Floats, h: int,
    *, name: str, family: str, settings: int,
) -> Row:  # fmt: skip
    counted, decided_at = int(decisions.counted[h]), int(decisions.decided_at[h])
    values_K = values_HK[h, :counted]
    e_value = math.nan
    if design.rule == "any_time":
        e_value = float(_e_value(design, values_K)) if counted else 1.0
    row = Row(
        name=name,
        family=family,
        settings=settings,
        seeds=int(decisions.seeds[h]),
        counted=counted,
        mean=float(decisions.mean[h]),
        low=float(decisions.low[h]),
        high=float(decisions.high[h]),
        interval=interval_name(design, float(decisions.level[h])),
        p=float(decisions.p[h]),
        p_adjusted=float(decisions.p_adjusted[h]),
        p_equivalent=float(decisions.p_equivalent[h]),
        e_value=e_value,
        d_z=paired.standardised_effect(values_K) if counted > 1 else math.nan,
        outcome=OUTCOMES[int(decisions.outcome[h])],
        decided_at=decided_at or None,
        ended=Estimate(
            mean=float(decisions.ended_mean[h]),
            low=float(decisions.ended_low[h]),
            high=float(decisions.ended_high[h]),
            interval=interval_name(design, float(decisions.ended_level[h])),
        ),
        sign_flip=paired.sign_flip(values_K),
    )
    return finite(row)
