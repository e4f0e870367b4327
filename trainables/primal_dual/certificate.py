"""Certificate of feasibility: confidence bounds over held-out units. Pure.

A missing share is a point estimate: on other clips or texts it would be another. Of unit j and
layer l let h_{j,l} = f_{j,l} - (1 - (1 - tau) alpha) f_{j,l-1} (of the first constraint: its gap
less tau alpha f0), which is linear in the losses: its mean is at most 0 exactly where the missing
share of the mean losses is at most the tolerance tau. So a one-sided t bound of that mean decides:

* certified feasible: the upper 95 % bound is at most 0 in *every* layer. An intersection-union
  test: no correction for the number of layers, at most 5 % false certificates.
* certified infeasible: the lower bound at level 1 - 0.05 / L is above 0 in *some* layer.
* else undecided; and fewer than LEAST_UNITS units certify nothing, either way.
* a loss that is no finite number, of any unit and layer, is certified infeasible: on that unit the
  network meets nothing, and no mean exists that could.

Shape suffixes: J one per unit, F one per prediction 0..L, L one per constraint, C one per cluster.
Losses are over f_c, as in ``primal_dual``. Source: Berger (1982) for the intersection-union test.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from trainables.primal_dual.constraints import DescentConstraints, Floats

Verdict = Literal["feasible", "infeasible", "undecided"]
LEAST_UNITS = 10  # fewer certify nothing: a t bound over them leans on normality alone
ERROR = 0.05  # of either certificate


@dataclass(frozen=True)
class Certificate:
    """The verdict of held-out units on the constraints of one arm, or of the mean of several."""

    verdict: Verdict
    units: int  # C: how many independent units the bounds count
    cluster: str  # what one of them is: clip, text
    held_out: int  # J: how many units lie in them, windows say
    # Bounds of the missing share per layer: above the tolerance exactly where those of h are above
    # 0. NaN where there is one unit.
    upper: tuple[float, ...]  # 95 %, one-sided
    lower: tuple[float, ...]  # 95 % for all layers together, one-sided
    met: tuple[float, ...]  # per layer, the fraction of held-out units whose own losses meet it

    @property
    def least_met(self) -> float:
        """The fraction of units that meet the layer that fewest of them meet."""
        return min(self.met)


def certify(
    constraints: DescentConstraints,
    losses_JF: Floats,
    *,
    tolerance: float,
    clusters: Sequence[str],
    cluster: str,
) -> Certificate:
    """The certificate of the mean of these units' losses.

    Args:
        constraints: what is asked.
        losses_JF: per held-out unit, its mean losses over the noise draws, layers 0..L, over f_c.
        tolerance: the missing share that is still feasible.
        clusters: per unit, what it is part of; units of one cluster count as one.
        cluster: what a cluster is, in words.
    """
    losses_JF = np.asarray(losses_JF, dtype=np.float64)
    is_finite = bool(np.isfinite(losses_JF).all())
    losses_JF = np.where(np.isinf(losses_JF), np.nan, losses_JF)  # both say: no number
    excess_JL = excesses(constraints, losses_JF, tolerance)
    mean_L = excess_JL.mean(axis=0)
    count = len(set(clusters))
    error_L = standard_errors(excess_JL, clusters)
    layers = excess_JL.shape[1]
    up_L = mean_L + t_quantile(1 - ERROR, count - 1) * error_L
    down_L = mean_L - t_quantile(1 - ERROR / layers, count - 1) * error_L
    verdict: Verdict = "undecided"
    if not is_finite:
        verdict = "infeasible"
    elif count >= LEAST_UNITS and bool((up_L <= 0).all()):
        verdict = "feasible"
    elif count >= LEAST_UNITS and bool((down_L > 0).any()):
        verdict = "infeasible"
    demanded_L = demanded(constraints, losses_JF).mean(axis=0)
    return Certificate(
        verdict=verdict,
        units=count,
        cluster=cluster,
        held_out=len(losses_JF),
        upper=_shares(up_L, demanded_L, tolerance),
        lower=_shares(down_L, demanded_L, tolerance),
        met=tuple((excess_JL <= 0).mean(axis=0).tolist()),
    )


def upper_shares(
    constraints: DescentConstraints, losses_KF: Floats, tolerance: float
) -> tuple[float, ...] | None:
    """Upper 95 % bound of every layer's missing share over K seeds; None for a single one.

    One-sided t over the seeds' own mean losses: what other seeds would come to on the same units.
    """
    losses_KF = np.asarray(losses_KF, dtype=np.float64)
    if len(losses_KF) < 2:
        return None
    excess_KL = excesses(constraints, losses_KF, tolerance)
    error_L = standard_errors(excess_KL, list(map(str, range(len(losses_KF)))))
    up_L = excess_KL.mean(axis=0) + t_quantile(1 - ERROR, len(losses_KF) - 1) * error_L
    return _shares(up_L, demanded(constraints, losses_KF).mean(axis=0), tolerance)


def excesses(constraints: DescentConstraints, losses_JF: Floats, tolerance: float) -> Floats:
    """The excess h_JL of each unit's losses over what the tolerance still allows; <= 0 met."""
    gaps_JL = losses_JF @ constraints.matrix_LF.T - constraints.bounds_L
    excess_JL: Floats = gaps_JL * constraints.scale_L - tolerance * demanded(constraints, losses_JF)
    return excess_JL


def demanded(constraints: DescentConstraints, losses_JF: Floats) -> Floats:
    """The descent asked of each layer, [J, L]: alpha f_{l-1}, of the first constraint alpha f0."""
    previous_JL = losses_JF @ constraints.previous_LF.T + constraints.start_L
    demanded_JL: Floats = constraints.alpha * previous_JL
    return demanded_JL


def standard_errors(values_JL: Floats, clusters: Sequence[str]) -> Floats:
    """Standard error of the mean over J units, per column, where those of one cluster are one.

    With a unit in each it is the sample's standard deviation over sqrt(J); in general the square
    root of C / (C - 1) times the sum over clusters of the square of what each adds to the mean's
    deviation. NaN for a single cluster: it says nothing of another one.
    """
    names = sorted(set(clusters))
    if len(names) < 2:
        return np.full(values_JL.shape[1], math.nan)
    place = {name: i for i, name in enumerate(names)}
    deviations_CL = np.zeros((len(names), values_JL.shape[1]))
    centred_JL = (values_JL - values_JL.mean(axis=0)) / len(values_JL)
    # add.at, since += with repeated indices would keep one unit of a cluster.
    np.add.at(deviations_CL, [place[c] for c in clusters], centred_JL)
    errors_L: Floats = np.sqrt(len(names) / (len(names) - 1) * (deviations_CL**2).sum(axis=0))
    return errors_L


def clusters_of(names: Sequence[str], unit: str) -> tuple[tuple[str, ...], str]:
    """The cluster of each held-out unit, and the word for such a cluster.

    Windows ("clip08:0010") of one clip are alike, so clips are the units. Texts and units of other
    packages stand for themselves.

    >>> clusters_of(["a:0000", "a:0010", "b:0000"], "window")
    (('a', 'a', 'b'), 'clip')
    """
    if unit == "window":
        return tuple(name.rpartition(":")[0] for name in names), "clip"
    return tuple(names), unit


def counted(units: int, cluster: str, held_out: int | None) -> str:
    """The units that a certificate counts, in words; ``held_out`` None: old records lack it.

    >>> counted(4, "clip", 72), counted(30, "text", 30)
    ('72 windows of 4 clips', '30 texts')
    """
    text = f"{units} {cluster}{'s' * (units != 1)}"
    if held_out is None or cluster != "clip":
        return text
    return f"{held_out} window{'s' * (held_out != 1)} of {text}"


@lru_cache(maxsize=256)
def t_quantile(probability: float, freedom: int) -> float:
    """Quantile of Student's t; NaN without a degree of freedom.

    >>> round(t_quantile(0.95, 9), 3)
    1.833
    """
    if freedom < 1:
        return math.nan
    from scipy.special import stdtrit  # takes a fifth of a second to import

    return float(stdtrit(freedom, probability))


def _shares(excess_L: Floats, demanded_L: Floats, tolerance: float) -> tuple[float, ...]:
    with np.errstate(divide="ignore", invalid="ignore"):  # nothing demanded: infinite or NaN
        return tuple((tolerance + excess_L / demanded_L).tolist())
