"""Anytime networks: setters of weights against closed forms and the product, and the judging."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from benchmarks.anytime import measured
from benchmarks.anytime.declared import ALWAYS, SETTINGS, Network, constrained, supervised
from benchmarks.anytime.judged import ALLOWANCES, LARGEST, Point, judged, reach, reductions
from benchmarks.anytime.measured import THRESHOLDS, Seed, exits, measured_seed, recorded, train
from benchmarks.anytime.rivals import Uncertainty, WithExits, scheduled
from tests.support.oracles import TINY
from trainables.training import Training

BASE = TINY.with_fields(
    {"steps": 6, "report_every": 6, "dtype": "float64", "early_stop": False, "shifts": ["blur"]}
)
LAYERS = BASE.model.layers
ONE = torch.zeros((), dtype=torch.float64)


def ends_alike(one: Training, other: Training) -> bool:
    pairs = zip(one.parameters, other.parameters, strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def trained(seed: Seed, *networks: Network, weights: dict[str, measured.Floats]) -> list[Training]:
    found = [seed.training(network, weights) for network in networks]
    train(found)
    return found


# --- setters --------------------------------------------------------------------------------------


def test_fixed_weights_train_as_the_products_deep_supervision_bit_for_bit() -> None:
    (ours,) = supervised((0.3,), (0.5,))
    theirs = Network(
        "theirs",
        "",
        fields={
            "constraint.alpha": 0.1,
            "constraint.weights_by": "deep_supervision",
            "constraint.supervision": 0.3,
            "constraint.supervision_decay": 0.5,
        },
    )
    seed = Seed(BASE, 3, "dev")
    assert ends_alike(*trained(seed, ours, theirs, weights={}))


def test_weights_replayed_on_their_own_seed_train_the_same_network(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(measured, "SOURCE_SEED", 3)
    (network,) = constrained(detached=True, alphas=(0.3,), dual_lr=0.5)
    again = Network("again", "", "replayed", fields=network.fields)
    weights = recorded(BASE, [again])
    assert weights["again"].shape == (BASE.steps, LAYERS + 1)
    assert (weights["again"][-1, 1:-1] > 0).any()
    seed = Seed(BASE, 3, "dev")
    assert ends_alike(*trained(seed, network, again, weights=weights))


def test_a_schedule_goes_from_its_start_to_its_end_and_stays() -> None:
    weights_SF = scheduled(8, 3, omega=0.4, decay=0.5, end=0.25, until=0.5)
    for step in range(8):
        omega = 0.4 * (1 - 0.75 * min(step / 4, 1))
        expected = [0.0, omega * 0.25, omega * 0.5, 1.0]
        assert weights_SF[step].tolist() == pytest.approx(expected)


def test_learnt_variances_come_to_the_losses() -> None:
    setter = Uncertainty(BASE.with_fields({"primal_lr": 0.05}), ONE, omega=0.5)
    losses_F = torch.tensor([1.0, *np.linspace(0.8, 0.2, LAYERS)], dtype=torch.float64)
    for step in range(2000):
        setter.observe(step, losses_F, 1.0)
    weights_F = setter.weights(0, losses_F)
    expected = 0.5 * losses_F[-1] / losses_F[1:-1]
    torch.testing.assert_close(weights_F[1:-1], expected, rtol=1e-3, atol=0)
    assert weights_F[-1] == 1.0
    assert weights_F[0] == 0.0


def test_gradnorm_without_weight_is_plain_training_and_its_weights_keep_their_sum() -> None:
    seed = Seed(BASE, 3, "dev")
    none = Network("none", "", "gradnorm", knobs={"omega": 0.0})
    ours, plain = trained(seed, none, ALWAYS[0], weights={})
    for a, b in zip(ours.parameters, plain.parameters, strict=True):
        # sums of products with 0, in another order
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)
    raw_L = ours._raw_L  # type: ignore[attr-defined]
    assert raw_L.sum().item() == pytest.approx(LAYERS)
    assert raw_L.max() > raw_L.min()


def test_exits_begin_as_the_layers_and_leave_the_network_as_it_is() -> None:
    seed = Seed(BASE, 3, "dev")
    (plain,) = trained(seed, ALWAYS[0], weights={})
    before = [p.detach().clone() for p in plain.model.parameters()]
    width = BASE.data.patch_size**2
    start = WithExits(plain.evaluated, LAYERS, width).double()
    batch = seed.task.train_batch(0)
    assert isinstance(batch.inputs, Tensor)
    for a, b in zip(plain.evaluated(batch.inputs), start(batch.inputs), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-15)
    model = measured._with_exits(seed, plain.evaluated)
    with_exits, without = (
        measured.scores(seed, m)["by_gamma"]["0.15"] for m in (model, plain.evaluated)
    )
    assert with_exits[-1] == without[-1]
    assert with_exits[1:-1] != without[1:-1]
    for was, now in zip(before, plain.model.parameters(), strict=True):
        assert torch.equal(was, now)


# --- stopping early -------------------------------------------------------------------------------


def test_samples_stop_at_the_first_layer_that_agrees() -> None:
    rng = np.random.default_rng(0)
    changes_LN, losses_LN = rng.uniform(0, 1, (3, 50)) ** 4, rng.uniform(0, 1, (3, 50))
    task = Seed(BASE, 3, "dev").task
    found = exits(changes_LN, losses_LN, task)
    for i in (0, 20, 40, 60):
        stops, picked = [], []
        for n in range(50):
            at = next((k for k in range(3) if changes_LN[k, n] < THRESHOLDS[i]), 2)
            stops.append(at + 1)
            picked.append(losses_LN[at, n])
        assert found["depth"][i] == pytest.approx(np.mean(stops))
        assert found["score"][i] == pytest.approx(task.metric(float(np.mean(picked))))
    assert sorted(found["depth"], reverse=True) == found["depth"]


# --- judging --------------------------------------------------------------------------------------


def test_reach_is_the_dominated_area_over_the_width_of_the_box() -> None:
    rng = np.random.default_rng(1)
    for count in (1, 3, 12):
        points = [
            Point(float(end), float(other))
            for end, other in zip(
                rng.uniform(0.98, 1.08, count), rng.uniform(0.3, 1.1, count), strict=True
            )
        ]
        fine = np.linspace(0, LARGEST, 20001)
        best = [
            1 - min([1.0, *(p.other for p in points if p.end <= 1 + allowance)])
            for allowance in fine
        ]
        # a step of the grid of allowances, at most the whole height
        assert reach(points) == pytest.approx(np.mean(best), abs=1 / len(ALLOWANCES))


def test_more_networks_never_reach_less_and_plain_is_always_there() -> None:
    points = [Point(1.02, 0.6), Point(1.2, 0.1)]
    assert reductions([], (0.0, 0.05)) == [0.0, 0.0]
    assert reductions(points, (0.0, 0.02, 0.05)) == [0.0, 0.4, 0.4]
    assert reach([*points, Point(0.9, 0.95)]) > reach(points)


@pytest.mark.long("every kind of network is trained")
def test_a_setting_is_trained_scored_and_judged() -> None:
    networks = [
        *ALWAYS,
        *supervised((0.01,), (1.0,)),
        *supervised((0.1,), (1.0,), end=0.0),
        *constrained(detached=True, alphas=(0.1,)),
        *constrained(detached=False, alphas=(0.1,)),
    ]
    setting = SETTINGS["photographs_ut"]
    setting = type(setting)(setting.says, BASE, networks, ())
    of_one = measured_seed(BASE, networks, {}, 1, "test", {"photographs": ""})
    by_seed = {1: of_one, 2: of_one}
    found = judged(setting, by_seed)
    plain = found["networks"]["plain"]
    layers = by_seed[1]["plain"]["by_gamma"]["0.15"]
    assert plain["end"][0] == layers[-1]
    assert plain["area"][0] == pytest.approx(np.mean(layers[1:]))
    cut = found["networks"]["a plain network for each depth"]
    assert cut["end"] == plain["end"]  # its last is the plain network
    assert found["networks"]["exits on the frozen plain network"]["end"] == plain["end"]
    area = found["frontiers"]["area"]
    assert set(area["against"]) == {"constrained", "Lagrangian", "detached"}
    both, ours = (area["reach"][f]["by_seed"] for f in ("constrained", "detached"))
    assert all(np.array(both) >= np.array(ours))
    assert set(found["shifts"]) == {"blur 2", "blur 5", "photographs"}
    for budgets in found["adaptive"].values():
        assert all(depth <= LAYERS for of in budgets for depth in of["depth"])


@pytest.mark.parametrize("name", SETTINGS)
def test_declared_networks_have_names_of_their_own_and_families_of_one_size(name: str) -> None:
    networks = SETTINGS[name].networks
    assert len({network.name for network in networks}) == len(networks)
    sizes = {
        family: sum(network.family == family for network in networks)
        for family in ("Lagrangian", "detached", "deep supervision", "deep supervision, scheduled")
    }
    assert len(set(sizes.values())) == 1
    assert min(sizes.values()) >= 12
