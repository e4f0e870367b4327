"""Diagnosis of multipliers from a run's reports: four signs, and advice. Pure.

Read once, when training has ended, over the reports that follow the warm-up:

* *oscillation*: a layer's violation keeps changing sign, and swings as far at the end as before;
* *stall*: a layer is missed, and its multiplier has stopped rising;
* *complementary slackness*: at a solution lambda_l (g_l - u_l) = 0 in every layer, where resilience
  grants u; its size over the last reports, relative to the loss;
* *duality gap*: sum_l lambda_l g_l, the Lagrangian less the loss. Where the weights minimise the
  Lagrangian, that is the dual function less the loss, so that of a feasible network its size bounds
  how far the loss is from the best. No network is known to be such a minimum, so it is an estimate:
  far from 0 says that training has not ended at a solution, near 0 does not say that it has.

Multipliers are those at a report, violations the means over the steps before it. Shape suffixes: R
one per report, L one per constraint.

Source: Boyd and Vandenberghe 2004, sections 5.2 and 5.5.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from trainables.config.arm import ArmConfig
from trainables.config.constraint import TOLERANCE
from trainables.primal_dual.constraints import Floats
from trainables.records.arm_record import Report
from trainables.signs import limits


def dual_warnings(
    config: ArmConfig, reports: Sequence[Report], tolerance: float = TOLERANCE
) -> list[str]:
    """One sentence for each sign, with what to do; none of fewer than ``LEAST_REPORTS`` reports."""
    constraint = config.constraint
    if constraint is None or constraint.is_control:
        return []
    settled = [r for r in reports if r.step > constraint.warmup_steps]
    if len(settled) < limits.LEAST_REPORTS or any("multipliers" not in r.layers for r in settled):
        return []
    names = ("missing_shares", "violations", "multipliers", "slacks")
    series = {name: np.array([r.layers[name] for r in settled], dtype=np.float64) for name in names}
    losses_R = np.array([r.layers["losses"][-1] for r in settled])
    if not all(np.isfinite(values).all() for values in (*series.values(), losses_R)):
        return []  # it diverged, and that is said
    first = constraint.first_layer
    warnings = [*_by_layer(series, first, tolerance), *_slackness(series, losses_R, first)]
    if constraint.grad_through_previous:  # else there is no Lagrangian
        warnings += _gap(series, losses_R)
    return warnings


def _by_layer(series: dict[str, Floats], first: int, tolerance: float) -> Iterator[str]:
    for index, (shares_R, violations_R, multipliers_R) in enumerate(
        zip(
            series["missing_shares"].T, series["violations"].T, series["multipliers"].T, strict=True
        )
    ):
        layer = index + first
        if oscillates(shares_R, tolerance):
            yield (
                f"Layer {layer} oscillates: its violation changed sign "
                f"{sign_changes(shares_R)} times over the reports and does not settle. Lower "
                "dual_lr, let both rates fall for longer (decay_fraction), or use "
                "dual_optimizer=augmented or nupi."
            )
        is_missed_R = (shares_R > tolerance) & (violations_R > 0)
        if stalls(is_missed_R, shares_R, multipliers_R):
            yield (
                f"The multiplier of layer {layer} stopped rising while its constraint was missed "
                "(stall): its decay balances the signal, or the dual rate has ended. Lower "
                "resilience, raise dual_lr, or train longer."
            )


def sign_changes(values_R: Floats) -> int:
    """The number of times a series goes from above 0 to below or back; a 0 is no side.

    >>> sign_changes(np.array([1.0, -2.0, 0.0, -1.0, 3.0]))
    2
    """
    signs = np.sign(values_R[values_R != 0])
    return int((signs[1:] != signs[:-1]).sum())


def oscillates(values_R: Floats, least: float) -> bool:
    """True when a series changes sign repeatedly, with an amplitude that does not fall.

    ``SIGN_CHANGES`` of them, one in the second half, and there the smaller of the two swings, above
    and below 0, is larger than ``least`` and than ``STEADY`` times that of the first half.

    >>> times = np.arange(16)
    >>> oscillates(np.cos(times), 0.1), oscillates(0.7**times * np.cos(times), 0.1)
    (True, False)
    """
    half = len(values_R) // 2
    before, after = _swing(values_R[:half]), _swing(values_R[half:])
    changes = sign_changes(values_R) >= limits.SIGN_CHANGES
    return changes and after > least and after >= limits.STEADY * before


def _swing(values_R: Floats) -> float:
    """The smaller of how far a series goes above and below 0; 0 where it stays on one side."""
    if not len(values_R):
        return 0.0
    return float(max(0.0, min(values_R.max(), -values_R.min())))


def stalls(is_missed_R: Sequence[bool] | Floats, shares_R: Floats, multipliers_R: Floats) -> bool:
    """True when a layer was missed at the last reports, no better, and its multiplier stood.

    >>> missed, share, flat = np.ones(4, bool), np.full(4, 0.5), np.full(4, 2.0)
    >>> stalls(missed, share, flat), stalls(missed, share, np.arange(4.0))
    (True, False)
    """
    no_better = shares_R[-1] >= shares_R[-limits.LAST]
    stands = multipliers_R[-1] <= multipliers_R[-limits.LAST]
    return bool(all(is_missed_R[-limits.LAST :]) and no_better and stands)


def slackness(multipliers_RL: Floats, violations_RL: Floats, slacks_RL: Floats) -> Floats:
    """|lambda_l (g_l - u_l)| of every layer, mean over the last reports, over f_c: 0 at a solution.

    >>> one = np.ones((4, 2))
    >>> slackness(2 * one, np.array([[0.5, -0.25]] * 4), np.array([[0.5, 0.0]] * 4)).tolist()
    [0.0, 0.5]
    """
    products_RL = np.abs(multipliers_RL * (violations_RL - slacks_RL))
    means_L: Floats = products_RL[-limits.LAST :].mean(axis=0)
    return means_L


def duality_gap(multipliers_L: Floats, violations_L: Floats) -> float:
    """sum_l lambda_l g_l, over f_c: the Lagrangian less the loss.

    Below 0: multipliers press layers that meet their constraints. Above 0: layers that are pressed
    miss them, as resilience lets them.

    >>> duality_gap(np.array([2.0, 0.0]), np.array([-0.1, -5.0]))
    -0.2
    """
    return math.fsum(multipliers_L * violations_L)


def _slackness(series: dict[str, Floats], losses_R: Floats, first: int) -> Iterator[str]:
    products_L = slackness(series["multipliers"], series["violations"], series["slacks"])
    share = products_L.sum() / max(losses_R[-limits.LAST :].mean(), np.finfo(float).tiny)
    if share > limits.MUCH:
        worst = int(products_L.argmax())
        is_met = (series["violations"] - series["slacks"])[-limits.LAST :, worst].mean() < 0
        pressed = "presses a layer that meets its constraint" if is_met else "has not yet closed it"
        yield (
            f"Multipliers and violations do not complement each other: their products are "
            f"{share:.0%} of the loss at the last reports, most in layer {worst + first}, whose "
            f"multiplier {pressed} (complementary slackness). Train longer, with a smaller dual_lr."
        )


def _gap(series: dict[str, Floats], losses_R: Floats) -> Iterator[str]:
    gap = duality_gap(series["multipliers"][-1], series["violations"][-1])
    share = gap / max(losses_R[-1], np.finfo(float).tiny)
    if share > limits.MUCH:
        yield (
            f"The Lagrangian ended {share:.0%} of the loss above the loss (duality gap, an "
            "estimate): layers with a multiplier still miss their constraints. Lower alpha, which "
            "asks for less descent, or lower resilience."
        )
    elif share < -limits.MUCH:
        yield (
            f"The Lagrangian ended {-share:.0%} of the loss below the loss (duality gap, an "
            "estimate): layers that meet their constraints are pressed. Let both rates fall for "
            "longer (decay_fraction), or lower dual_lr."
        )
