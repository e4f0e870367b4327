"""The certificate decides as its closed forms do, and errs no oftener than it says."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from trainables.config.arm import ConstraintConfig
from trainables.primal_dual.certificate import (
    LEAST_UNITS,
    Certificate,
    certify,
    clusters_of,
    excesses,
    standard_errors,
    upper_shares,
)
from trainables.primal_dual.constraints import (
    DescentConstraints,
    Floats,
    Scales,
    demanded_descent,
    descent_constraints,
    is_feasible,
    missing_shares,
)

LAYERS = 3


def asked(reference: str = "bound_first", **fields: object) -> DescentConstraints:
    config = ConstraintConfig(
        alpha=0.2, reference=reference, reference_loss=1.0, reference_unit="constant", **fields
    )  # type: ignore[arg-type]
    return descent_constraints(config, LAYERS, Scales(1.0, 1.0))


def certified(losses_JF: Floats, constraints: DescentConstraints | None = None) -> Certificate:
    names = [str(j) for j in range(len(losses_JF))]
    return certify(constraints or asked(), losses_JF, tolerance=0.1, clusters=names, cluster="text")


def at_limit(noise_JL: Floats, missing: Floats | float = 0.1) -> Floats:
    """Losses whose every layer misses this fraction of alpha 0.2 in the mean, but for the noise."""
    shares_L = np.broadcast_to(missing, (LAYERS,))
    losses_F = [1.0, 1.0 + 0.2 * shares_L[0]]
    for share in shares_L[1:]:
        losses_F.append(losses_F[-1] * (1 - 0.2 * (1 - share)))
    losses_JF = np.tile(losses_F, (len(noise_JL), 1))
    losses_JF[:, 1:] += noise_JL
    return losses_JF


def test_bounds_are_those_of_scipys_t_distribution() -> None:
    rng = np.random.default_rng(0)
    losses_JF = at_limit(0.01 * rng.standard_normal((12, LAYERS)), 0.0)
    got = certified(losses_JF)
    for layer, (f, before) in enumerate(((1, None), (2, 1), (3, 2))):
        # by hand: f_l - (1 - 0.9 alpha) f_{l-1}, and of the first layer f_1 - f0 - 0.1 alpha f0
        if before is None:
            h_J, demanded = losses_JF[:, f] - 1.02, 0.2
        else:
            h_J = losses_JF[:, f] - 0.82 * losses_JF[:, before]
            demanded = 0.2 * losses_JF[:, before].mean()
        low, _ = stats.t.interval(1 - 2 * 0.05 / 3, 11, h_J.mean(), stats.sem(h_J))
        _, high = stats.t.interval(0.90, 11, h_J.mean(), stats.sem(h_J))
        assert got.upper[layer] == pytest.approx(0.1 + high / demanded)
        assert got.lower[layer] == pytest.approx(0.1 + low / demanded)
        assert got.met[layer] == np.mean(h_J <= 0)
    assert got.least_met == min(got.met)


@pytest.mark.parametrize("reference", ["bound_first", "virtual_layer0", "bound_zero"])
@pytest.mark.parametrize("form", ["difference", "ratio"])
def test_the_mean_excess_is_above_zero_where_the_missing_share_is_above_the_tolerance(
    reference: str, form: str
) -> None:
    rng = np.random.default_rng(1)
    constraints = asked(reference, form=form)
    for losses_JF in rng.uniform(0.3, 1.1, (20, 5, LAYERS + 1)):
        mean_L = excesses(constraints, losses_JF, 0.1).mean(axis=0)
        shares_L = missing_shares(constraints, losses_JF.mean(axis=0))
        assert ((mean_L <= 0) == (shares_L <= 0.1)).all()


def test_equal_units_are_certified_as_their_mean_is_judged() -> None:
    for share, verdict in ((0.05, "feasible"), (0.15, "infeasible")):
        losses_JF = at_limit(np.zeros((LEAST_UNITS, LAYERS)), share)
        assert certified(losses_JF).verdict == verdict
        assert certified(losses_JF).upper == pytest.approx([share] * LAYERS)
        assert is_feasible(missing_shares(asked(), losses_JF[0])) == (verdict == "feasible")


def test_fewer_than_ten_units_do_not_certify_feasible_and_one_certifies_nothing() -> None:
    met = np.zeros((LEAST_UNITS, LAYERS)) - 0.1
    assert certified(at_limit(met)).verdict == "feasible"
    assert certified(at_limit(met[1:])).verdict == "undecided"
    missed = certified(at_limit(met[:1] + 1.0))
    assert missed.verdict == "undecided"
    assert math.isnan(missed.upper[0])


def test_one_layer_that_surely_misses_is_enough_and_one_that_may_is_too_much() -> None:
    rng = np.random.default_rng(2)
    noise_JL = 0.01 * rng.standard_normal((40, LAYERS))
    assert certified(at_limit(noise_JL, np.array([-1.0, -1.0, 0.9]))).verdict == "infeasible"
    assert certified(at_limit(noise_JL, np.array([-1.0, -1.0, 0.1]))).verdict == "undecided"
    assert certified(at_limit(noise_JL, np.array([-1.0, -1.0, -0.9]))).verdict == "feasible"


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("layer", range(LAYERS + 1))
@pytest.mark.parametrize("units", [1, 12])
def test_a_loss_that_is_no_number_is_infeasible(units: int, layer: int, value: float) -> None:
    """As the mean is judged: more units could not turn it."""
    losses_JF = at_limit(np.zeros((units, LAYERS)), -1.0)
    losses_JF[units // 2, layer] = value
    assert certified(losses_JF).verdict == "infeasible"


@pytest.mark.parametrize("units", [10, 40])
def test_a_constraint_exactly_at_its_limit_is_rarely_certified_feasible(units: int) -> None:
    rng = np.random.default_rng(units)
    missing_L = np.array([-1.0, 0.1, -1.0])  # layer 2 misses exactly what is allowed
    noise = 0.02 * rng.standard_normal((2000, units, LAYERS))
    verdicts = [certified(at_limit(noise_JL, missing_L)).verdict for noise_JL in noise]
    assert verdicts.count("feasible") / 2000 <= 0.06  # 5 %, and two standard errors of 0.5 %
    assert verdicts.count("feasible") / 2000 >= 0.03  # nor is the bound idle
    assert verdicts.count("infeasible") / 2000 <= 0.03  # corrected for three layers


def test_windows_of_few_clips_taken_for_independent_certify_too_much() -> None:
    rng = np.random.default_rng(3)
    shared = rng.standard_normal((500, 12, 1, LAYERS)).repeat(8, axis=2)  # correlation 0.3
    own = rng.standard_normal((500, 12, 8, LAYERS))
    noise = 0.02 * (math.sqrt(0.3) * shared + math.sqrt(0.7) * own).reshape(500, 96, LAYERS)
    names = [f"clip{c:02d}:{10 * w:04d}" for c in range(12) for w in range(8)]
    clips, unit = clusters_of(names, "window")
    assert unit == "clip"

    def rate(clusters: tuple[str, ...]) -> float:
        found = [
            certify(asked(), at_limit(noise_JL, np.array([-1.0, 0.1, -1.0])), tolerance=0.1,
                    clusters=clusters, cluster="").verdict
            for noise_JL in noise
        ]  # fmt: skip
        return found.count("feasible") / len(found)

    assert rate(clips) <= 0.07  # 5 %, and two standard errors of 1 %
    assert rate(tuple(names)) > 0.12


def test_clusters_of_equal_size_are_their_means_and_others_weigh_as_they_are() -> None:
    rng = np.random.default_rng(4)
    values_JL = rng.standard_normal((12, 2))
    of_three = [str(j // 3) for j in range(12)]
    means = values_JL.reshape(4, 3, 2).mean(axis=1)
    assert standard_errors(values_JL, of_three) == pytest.approx(stats.sem(means))
    alone = list(map(str, range(12)))
    assert standard_errors(values_JL, alone) == pytest.approx(stats.sem(values_JL))
    uneven = ["a"] * 5 + ["b"] * 4 + ["c"] * 3
    total = np.zeros(2)
    for name in "abc":
        rows = [j for j in range(12) if uneven[j] == name]
        total += sum((values_JL[j] - values_JL.mean(axis=0)) / 12 for j in rows) ** 2
    assert standard_errors(values_JL, uneven) == pytest.approx(np.sqrt(total * 3 / 2))


def test_windows_count_by_their_clips_and_texts_stand_for_themselves() -> None:
    nine = [f"clip{c}:{t:04d}" for c in range(9) for t in (0, 10)]
    clips, unit = clusters_of(nine, "window")
    assert (len(set(clips)), unit) == (9, "clip")
    assert clusters_of(nine, "text") == (tuple(nine), "text")


@pytest.mark.parametrize("missing", [-1.0, 1.0])
def test_fewer_than_ten_clips_certify_nothing_whatever_their_windows(missing: float) -> None:
    noise_JL = 0.001 * np.random.default_rng(5).standard_normal((160, LAYERS))

    def found(clips: int) -> Certificate:
        names = [f"clip{j % clips}:{j:04d}" for j in range(160)]
        clusters, cluster = clusters_of(names, "window")
        return certify(
            asked(), at_limit(noise_JL, missing), tolerance=0.1, clusters=clusters, cluster=cluster
        )

    assert found(9).verdict == "undecided"
    assert (found(9).units, found(9).cluster, found(9).held_out) == (9, "clip", 160)
    assert found(10).verdict == ("feasible" if missing < 0 else "infeasible")


def test_seeds_bound_the_share_by_t_over_their_means() -> None:
    losses_KF = at_limit(np.array([[0.0, 0.01, 0.0], [0.0, 0.03, 0.0], [0.0, 0.02, 0.0]]), -0.5)
    upper = upper_shares(asked(), losses_KF, 0.1)
    assert upper is not None
    h_K = losses_KF[:, 2] - 0.82 * losses_KF[:, 1]
    high = h_K.mean() + stats.t.ppf(0.95, 2) * stats.sem(h_K)
    assert upper[1] == pytest.approx(0.1 + high / (0.2 * losses_KF[:, 1].mean()))
    assert upper_shares(asked(), losses_KF[:1], 0.1) is None


@pytest.mark.parametrize("reference", ["bound_first", "virtual_layer0", "bound_zero"])
def test_the_demanded_descent_is_that_of_the_last_layers_target(reference: str) -> None:
    config = ConstraintConfig(alpha=0.2, reference=reference, reference_unit="constant")  # type: ignore[arg-type]
    constraints = descent_constraints(config, LAYERS, Scales(1.0, 1.0))
    target = constraints.scale_L[-1]  # s_L, with scale="schedule"
    assert demanded_descent(config, LAYERS) == pytest.approx(1 - target / constraints.reference)
