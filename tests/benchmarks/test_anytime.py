"""Anytime networks: setters of weights against closed forms and the product, and the judging."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch
from torch import Tensor

from benchmarks.anytime import measured
from benchmarks.anytime.declared import (
    ALWAYS,
    SETTINGS,
    Network,
    constrained,
    held,
    longer,
    replayed,
    supervised,
)
from benchmarks.anytime.judged import (
    ALLOWANCES,
    CHOSEN_AT,
    CONDITIONED_AT,
    LARGEST,
    PRIMARY,
    REPLAYS,
    SHOWN,
    SOURCES,
    TESTED_BUDGETS,
    _shown_at,
    chosen,
    decided,
    errors_of,
    judged,
    mean_reduction,
    methods_of,
    reduction,
    stopped,
    under_conditions,
)
from benchmarks.anytime.measured import THRESHOLDS, Seed, exits, measured_seed, recorded, train
from benchmarks.anytime.rivals import Floats, Uncertainty, WithExits, scheduled
from tests.support.oracles import TINY
from trainables.build import build_task
from trainables.config.arm import ArmConfig
from trainables.plain import Json
from trainables.tasks.denoising import Denoising
from trainables.training import Training

BASE = TINY.with_fields(
    {"steps": 6, "report_every": 6, "dtype": "float64", "early_stop": False, "shifts": ["blur"]}
)
DUST = BASE.with_fields({"model.name": "dust", "model.variant": "per_layer"})
LAYERS = BASE.model.layers
ONE = torch.zeros((), dtype=torch.float64)


def ends_alike(one: Training, other: Training) -> bool:
    pairs = zip(one.parameters, other.parameters, strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def trained(seed: Seed, *networks: Network, weights: dict[str, Floats]) -> list[Training]:
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
    seed = Seed(BASE, 3, "dev", {})
    assert ends_alike(*trained(seed, ours, theirs, weights={}))


def test_weights_replayed_on_their_own_seed_train_the_same_network(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(measured, "SOURCE_SEED", 3)
    (network,) = constrained(detached=True, alphas=(0.3,), dual_lr=0.5)
    again = Network("again", "", "replayed", fields=network.fields)
    (mean,) = held([network])
    weights = recorded(BASE, [again, mean])
    assert weights["again"].shape == (BASE.steps, LAYERS + 1)
    for row in weights[mean.name]:
        assert row == pytest.approx(weights["again"].mean(axis=0))
    assert (weights["again"][-1, 1:-1] > 0).any()
    seed = Seed(BASE, 3, "dev", {})
    assert ends_alike(*trained(seed, network, again, weights=weights))


def test_a_schedule_goes_from_its_start_to_its_end_and_stays() -> None:
    weights_SF = scheduled(8, 3, omega=0.4, decay=0.5, end=0.25, until=0.5)
    for step in range(8):
        omega = 0.4 * (1 - 0.75 * min(step / 4, 1))
        expected = [0.0, omega * 0.25, omega * 0.5, 1.0]
        assert weights_SF[step].tolist() == pytest.approx(expected)


def test_learnt_variances_come_to_the_losses() -> None:
    setter = Uncertainty(BASE, ONE, omega=0.5)
    losses_F = torch.tensor([1.0, *np.geomspace(0.5, 0.03, LAYERS)], dtype=torch.float64)
    for step in range(SETTINGS["ped2_ut"].base.steps // 2):
        setter.observe(step, losses_F, 1.0)
    weights_F = setter.weights(0, losses_F)
    expected = 0.5 * losses_F[-1] / losses_F[1:-1]
    torch.testing.assert_close(weights_F[1:-1], expected, rtol=0.02, atol=0)
    assert weights_F[-1] == 1.0
    assert weights_F[0] == 0.0


@pytest.mark.parametrize("base", [BASE, DUST], ids=["ut", "dust"])
def test_gradnorm_without_weight_is_plain_training_and_its_weights_keep_their_sum(
    base: ArmConfig,
) -> None:
    seed = Seed(base, 3, "dev", {})
    none = Network("none", "", "gradnorm", knobs={"omega": 0.0})
    ours, plain = trained(seed, none, ALWAYS[0], weights={})
    for a, b in zip(ours.parameters, plain.parameters, strict=True):
        # sums of products with 0, in another order
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)
    raw_L = ours._raw_L  # type: ignore[attr-defined]
    assert raw_L.sum().item() == pytest.approx(LAYERS)
    assert raw_L.max() > raw_L.min()


def test_exits_begin_as_the_layers_and_leave_the_network_as_it_is() -> None:
    seed = Seed(BASE, 3, "dev", {})
    (plain,) = trained(seed, ALWAYS[0], weights={})
    before = [p.detach().clone() for p in plain.model.parameters()]
    width = BASE.data.patch_size**2
    start = WithExits(plain.evaluated, LAYERS, width).double()
    batch = seed.task.train_batch(0)
    assert isinstance(batch.inputs, Tensor)
    for a, b in zip(plain.evaluated(batch.inputs), start(batch.inputs), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-15)
    model = measured._with_exits(seed, plain.evaluated)
    with_exits, without = (measured.scores(seed, m)["dev"] for m in (model, plain.evaluated))
    assert with_exits[-1] == without[-1]
    assert with_exits[1:-1] != without[1:-1]
    for was, now in zip(before, plain.model.parameters(), strict=True):
        assert torch.equal(was, now)


# --- stopping early -------------------------------------------------------------------------------


def test_other_data_have_the_noise_of_training(real_data: Path) -> None:
    seed = Seed(BASE, 3, "dev", {"ucsd_ped2": str(real_data / "ped2")})
    other = seed.others["ucsd_ped2"]
    gamma = 0.3  # of which little is cut at black and white
    (noisy, *_), (clean, *_) = (other.held_out("dev", g, 0) for g in (gamma, 0.0))
    assert isinstance(noisy.inputs, Tensor)
    assert isinstance(clean.inputs, Tensor)
    own = cast(Denoising, build_task(BASE, measured.CPU, torch.float64))
    assert (noisy.inputs - clean.inputs).std().item() == pytest.approx(gamma * own.std, rel=0.1)
    again = build_task(
        BASE.with_fields({"data.name": "ucsd_ped2", "data.folder": str(real_data / "ped2")}),
        measured.CPU,
        torch.float64,
    )
    assert cast(Denoising, again).std != pytest.approx(own.std, rel=0.2)


def test_dev_chooses_how_samples_stop_and_all_may_stop_at_one_depth() -> None:
    def curve(fixed: list[float], depth: list[float], score: list[float], test: float) -> Json:
        dev = {"fixed": fixed, "depth": depth, "score": score}
        return {"dev": dev, "test": {k: [x + test for x in v] for k, v in dev.items()}}

    curves = {
        "a": curve([5.0, 4.0, 3.0], [2.5, 1.5], [3.2, 4.5], 0.25),
        "b": curve([5.5, 3.8, 3.1], [3.0, 1.8], [3.1, 3.9], 0.5),
    }
    assert stopped(curves, 2.0) == (2.0, 4.3, 4.3)  # b, all at its second layer
    assert stopped(curves, 2.5) == (2.75, 3.45, 4.3)  # a, by its first threshold
    assert stopped(curves, 1.0) == (1.0, 5.25, 5.25)


def test_samples_stop_at_the_first_layer_that_agrees() -> None:
    rng = np.random.default_rng(0)
    changes_LN, losses_LN = rng.uniform(0, 1, (3, 50)) ** 4, rng.uniform(0, 1, (3, 50))
    task = Seed(BASE, 3, "dev", {}).task
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


def drawn(rng: np.random.Generator, count: int) -> dict[str, dict[str, float]]:
    """Plain training and so many networks."""
    plain = {"plain": {"end": 1.0, "area": 1.0}}
    ends, areas = rng.normal(1.0, 0.02, count), rng.normal(0.9, 0.1, count)
    return plain | {
        str(i): {"end": float(end), "area": float(area)}
        for i, (end, area) in enumerate(zip(ends, areas, strict=True))
    }


def test_the_mean_reduction_is_the_hypervolume_where_dev_is_test() -> None:
    rng = np.random.default_rng(1)
    for count in (1, 3, 12):
        both = drawn(rng, count)
        fine = np.linspace(0, LARGEST, 20001)
        best = [
            1 - min(one["area"] for one in both.values() if one["end"] <= 1 + allowance)
            for allowance in fine
        ]
        found = mean_reduction([name for name in both if name != "plain"], both, both)
        # a step of the grid of allowances, at most the whole height
        assert found == pytest.approx(np.mean(best), abs=1 / len(ALLOWANCES))


def test_the_mean_reduction_gains_nothing_by_the_number_of_networks_that_are_alike() -> None:
    rng = np.random.default_rng(2)
    means = {}
    for count in (1, 24):
        found = []
        for _ in range(400):
            dev, test = (
                {n: {k: rng.normal(1, 0.01) for k in ("end", "area")} for n in drawn(rng, count)}
                for _ in range(2)
            )
            found.append(mean_reduction([n for n in dev if n != "plain"], dev, test))
        means[count] = np.mean(found), np.std(found) / 20
    for mean, error in means.values():
        assert abs(mean) < 4 * error


def test_what_no_dev_score_allows_is_plain_training() -> None:
    dev = {"plain": {"end": 1.0, "area": 1.0}, "a": {"end": 1.03, "area": 0.5}}
    test = {"plain": {"end": 1.0, "area": 1.0}, "a": {"end": 1.5, "area": 0.7}}
    assert chosen(["a"], dev, 0.02) == "plain"
    assert chosen(["a"], dev, 0.04) == "a"
    assert reduction(test, "a") == pytest.approx(0.3)
    assert reduction(test, "a", "end") == pytest.approx(-0.5)


def test_outcomes_are_corrected_for_their_number() -> None:
    rng = np.random.default_rng(3)
    clear, faint = rng.normal(0.2, 0.02, 10), rng.normal(0.02, 0.03, 10)
    alone = decided({("a", "b"): faint.tolist()})["a", "b"]
    many = {("a", str(i)): faint.tolist() for i in range(20)} | {("c", "d"): clear.tolist()}
    among = decided(many)
    assert among["a", "0"]["p"] == pytest.approx(min(1, 20 * alone["p"]))
    assert among["c", "d"]["outcome"] == "better"
    assert decided({("a", "b"): [0.001, -0.001] * 5})["a", "b"]["outcome"] == "equivalent"
    assert decided({("a", "b"): [0.1, -0.1] * 5})["a", "b"]["outcome"] == "undecided"
    same = decided({("a", "b"): [0.0] * 10})["a", "b"]
    assert (same["outcome"], same["interval"], same["p"]) == ("equivalent", [0.0, 0.0], 1.0)
    small = decided({("a", "b"): [0.002, 0.003] * 5})["a", "b"]
    assert small["p"] < 0.01
    assert small["outcome"] == "equivalent"


@pytest.mark.long("every kind of network is trained")
def test_a_setting_is_trained_scored_and_judged() -> None:
    networks = [
        *ALWAYS,
        *supervised((0.01,), (1.0,)),
        *supervised((0.1,), (1.0,), end=0.0),
        *longer(BASE.steps, (2,)),
        *constrained(detached=True, alphas=(0.1,)),
        *constrained(detached=False, alphas=(0.1,)),
    ]
    networks += replayed(networks[-2:-1])
    setting = SETTINGS["photographs_ut"]
    setting = type(setting)(setting.says, BASE, networks, ())
    weights = recorded(BASE, networks[-1:])
    of_one = measured_seed(BASE, networks, weights, 1, "test", {"photographs": ""})
    by_seed = {1: of_one, 2: of_one}
    found = judged(setting, BASE, by_seed)
    plain = found["networks"]["plain"]
    layers = of_one["plain"]["test"]
    assert plain["test end"][0] == layers[-1]
    assert plain["test area"][0] == pytest.approx(np.mean(layers[1:]))
    cut = found["networks"]["a plain network for each depth"]
    assert cut["test end"] == plain["test end"]  # its last is the plain network
    assert cut["dev end"] == plain["dev end"]
    exit_ends = found["networks"]["exits on the frozen plain network"]["test end"]
    assert exit_ends == plain["test end"]
    ends = found["ends"]["reduction"]
    by_name = {name: scores["test"][-1] for name, scores in of_one.items()}
    twice = 1 - by_name["steps x 2"] / by_name["plain"]
    assert ends["plain"]["by_seed"] == [0.0, 0.0]
    assert ends["plain, longer"]["by_seed"] == pytest.approx([twice] * 2)
    assert twice > 0
    best = min(("detached 0.1", "Lagrangian 0.1"), key=lambda name: of_one[name]["dev"][-1])
    gain = 1 - by_name[best] / by_name["plain"]
    assert ends["constrained"]["by_seed"] == pytest.approx([gain] * 2)
    dev, test = (
        {name: errors_of(BASE, scores, split) for name, scores in of_one.items()}
        for split in ("dev", "test")
    )
    methods = methods_of(networks)
    first, *others = found["frontiers"]["against"]
    for of in (first, *others):
        ours, theirs = (mean_reduction(methods[of[who]], dev, test) for who in ("side", "rival"))
        assert of["by_seed"] == pytest.approx([ours - theirs] * 2)
    assert first["mean"]
    assert (first["side"], first["rival"]) == ("constrained", "supervised")
    assert {(of["side"], of["rival"]) for of in others} == {
        ("constrained", "plain, longer"),
        ("constrained", "exits on frozen plain"),
        ("constrained", "a network for each depth"),
        ("Lagrangian", "supervised"),
        ("detached", "supervised"),
        (SOURCES, REPLAYS[0]),
    }
    assert {of["rival"] for of in found["ends"]["against"]} == {
        "plain",
        "plain, longer",
        "supervised",
    }
    for key, allowance in CONDITIONED_AT.items():
        tested = found[key]
        assert set(tested) == {"blur 2", "blur 5", "photographs", "unseen noise"}
        standing = under_conditions(networks, dev, allowance)
        errors = {of: of_one[name]["shifts"]["blur 5"] for of, name in standing.items()}
        assert set(tested["blur 5"]) == set(errors) - {PRIMARY[0]}
        for rival, of in tested["blur 5"].items():
            expected = (errors[rival] - errors[PRIMARY[0]]) / errors["plain"]
            assert of["by_seed"] == pytest.approx([expected] * 2)
            assert expected
    is_plain = chosen(methods[PRIMARY[0]], dev, CHOSEN_AT) == "plain"
    assert found["shown_at"] == (LARGEST if is_plain else CHOSEN_AT)
    for method, names in methods.items():
        ours = of_one[chosen(names, dev, found["shown_at"])]["test"]
        assert found["layers"][method] == pytest.approx(ours)
    for side in PRIMARY:
        on_plain = [of["plain_on"] for of in found["frontiers"]["shown"][side]]
        are_plain = [chosen(methods[side], dev, at) == "plain" for at in SHOWN]
        assert on_plain == [2 * is_plain for is_plain in are_plain]
    for budgets in found["adaptive"].values():
        assert all(depth <= LAYERS for of in budgets for depth in of["depth"])
    stopping = {(of["budget"], of["rival"]): of["by_seed"][0] for of in found["stopping"]}
    (two,) = (of for of in found["adaptive"]["constrained"] if of["budget"] == 2.0)
    assert two["budget"] in TESTED_BUDGETS
    cut_at_two = of_one["a plain network for each depth"]["test"][2]
    expected = (cut_at_two - two["score"][0]) / layers[-1]
    assert stopping[2.0, "a plain network for each depth"] == pytest.approx(expected)


@pytest.mark.parametrize("name", SETTINGS)
def test_declared_networks_have_names_of_their_own_and_both_sides_as_many(name: str) -> None:
    networks = SETTINGS[name].networks
    assert len({network.name for network in networks}) == len(networks)
    methods = methods_of(networks)
    sizes = [len(methods[side]) for side in PRIMARY]
    assert sizes[0] == sizes[1] >= 12
    assert {network.of for network in networks} <= {network.name for network in networks}


@pytest.mark.parametrize(("ends", "allowance"), [((1.005, 1.02, 1.02), LARGEST), ((1.005,), 0.01)])
def test_tables_are_of_the_larger_allowance_where_plain_training_stands_in_on_most_seeds(
    ends: tuple[float, ...], allowance: float
) -> None:
    dev = [{"plain": {"end": 1.0, "area": 2.0}, "ours": {"end": end, "area": 1.0}} for end in ends]
    assert _shown_at(["ours"], dev) == allowance
