"""Training and scores of all networks of one seed, in one process.

Networks that differ in who sets the layer weights alone are rows of one where their bits allow it;
the numbers are those of each alone. Nothing is stored but scores.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from functools import partial
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.anytime.declared import LONGER, NOISE, SOURCE_SEED, Network, Setting
from benchmarks.anytime.judged import CONDITIONED_AT, errors_of, under_conditions
from benchmarks.anytime.rivals import (
    Floats,
    Given,
    GradNorm,
    Recording,
    Uncertainty,
    WithExits,
    scheduled,
)
from trainables.build import build_model, build_task, parameter_dtype, weighting_of
from trainables.config.arm import ArmConfig
from trainables.config.test_conditions import family_of, gamma_key, unseen_gammas
from trainables.evaluation.measuring import measure, measure_shifted
from trainables.fused.agreement import may_fuse
from trainables.fused.training import FusedTraining
from trainables.layer_losses import layer_predictions
from trainables.plain import Json
from trainables.primal_dual.weighting import Weighting
from trainables.tasks.base import Task
from trainables.tasks.denoising import Denoising
from trainables.training import Training

CPU = torch.device("cpu")
TOGETHER = 40  # networks that are rows of one: more take memory, and are not faster
THRESHOLDS = np.geomspace(1e-5, 1.0, 61)  # of the change from one layer's output to the next's


def scored(
    setting: Setting,
    places: Mapping[str, Json],
    others: Mapping[str, str],
    seed: int,
    *,
    is_pilot: bool,
) -> Json:
    """Scores of all networks of one seed, also on the clips of other data sets."""
    base = setting.base.with_fields(dict(places))
    networks = setting.pilots if is_pilot else setting.networks
    weights = recorded(base, [n for n in networks if n.kind == "replayed"])
    return measured_seed(
        base, networks, weights, seed, "dev" if is_pilot else "test", {} if is_pilot else others
    )


class Seed:
    """The networks of one seed: their task, and what trains them."""

    def __init__(self, base: ArmConfig, seed: int, split: str, others: Mapping[str, str]) -> None:
        """Open the data, and those of ``others``: data sets, each with its folder."""
        self.config = base.with_fields({"seed": seed, "measured_on": split})
        self.split = split
        self.splits = tuple(dict.fromkeys(("dev", split)))
        self.dtype = parameter_dtype(self.config)
        torch.set_num_threads(self.config.threads)
        self.task = self._task(self.config)
        self.others = {
            name: self._task(
                self.config.with_fields({"data.name": name, "data.folder": folder or None})
            )
            for name, folder in others.items()
        }
        for other in self.others.values():  # the noise of training, not a share of their own pixels
            cast(Denoising, other).std = cast(Denoising, self.task).std

    def _task(self, config: ArmConfig) -> Task:
        return build_task(config, CPU, self.dtype)

    def run(self, network: Network) -> ArmConfig:
        """The run of a network of this seed; plain ones have no constraint."""
        is_constrained = network.kind == "replayed" or "constraint.alpha" in network.fields
        config = self.config if is_constrained else self.config.unconstrained()
        return config.with_fields(dict(network.fields))

    def training(
        self, network: Network, weights: Mapping[str, Floats], *, task: Task | None = None
    ) -> Training:
        """The training of a network, at its start."""
        config, task = self.run(network), task or self.task
        model = build_model(config, task).to(self.dtype)
        if network.kind == "gradnorm":
            return GradNorm(config, task, model, self.own(config.unconstrained()), **network.knobs)
        return Training(config, task, model, self._weighting(config, network, weights))

    def own(self, config: ArmConfig) -> Weighting:
        """The weighting that the product gives a run."""
        epoch = self.task.steps_per_epoch
        return weighting_of(config, self.task.scales, CPU, self.dtype, steps_per_epoch=epoch)

    def _weighting(
        self, config: ArmConfig, network: Network, weights: Mapping[str, Floats]
    ) -> Weighting:
        like = torch.zeros((), dtype=self.dtype)
        if network.kind == "scheduled":
            layers = config.model.layers
            return Given(scheduled(config.steps, layers, **network.knobs), like)
        if network.kind == "replayed":
            return Given(weights[network.name], like)
        if network.kind == "uncertainty":
            return Uncertainty(config, like, network.knobs["omega"])
        return self.own(config)


def units(base: ArmConfig, others: Mapping[str, str]) -> dict[str, dict[str, int]]:
    """How many windows and clips the test split of the run's data and of each other has."""
    seed = Seed(base, SOURCE_SEED, "test", others)
    names = {base.data.name: seed.task.test_units} | {
        name: task.test_units for name, task in seed.others.items()
    }
    return {
        name: {"windows": len(of), "clips": len({unit.rsplit(":", 1)[0] for unit in of})}
        for name, of in names.items()
    }


def train(trainings: Sequence[Training]) -> None:
    """Take all steps of trainings of one task: as rows of one network where the bits allow it."""
    joint = [t for t in trainings if type(t) is Training]
    for start in range(0, len(joint), TOGETHER):
        part = joint[start : start + TOGETHER]
        if len(part) > 1 and may_fuse(part):
            FusedTraining(part).run_to(part[0].config.steps)
    for training in trainings:
        training.run_to(training.config.steps)  # nothing, where it is at its end


def recorded(base: ArmConfig, networks: Sequence[Network]) -> dict[str, Floats]:
    """The weights of each constrained run of SOURCE_SEED, by the name of the replayed network."""
    seed = Seed(base, SOURCE_SEED, "dev", {})
    runs = {network.name: seed.run(network) for network in networks}
    trainings = {}
    for config in runs.values():
        weighting = Recording(seed.own(config), torch.zeros((), dtype=seed.dtype))
        model = build_model(config, seed.task).to(seed.dtype)
        trainings[config.signature()] = Training(config, seed.task, model, weighting)
    train(list(trainings.values()))
    found = {}
    for network in networks:
        weighting = cast(Recording, trainings[runs[network.name].signature()].weighting)
        weights_SF = weighting.weights_SF
        if network.knobs:
            weights_SF = np.broadcast_to(weights_SF.mean(axis=0), weights_SF.shape)
        found[network.name] = weights_SF
    return found


def measured_seed(
    base: ArmConfig,
    networks: Sequence[Network],
    weights: Mapping[str, Floats],
    seed: int,
    split: str,
    others: Mapping[str, str],
) -> dict[str, Json]:
    """Scores of every network by name."""
    this = Seed(base, seed, split, others)
    joint = [n for n in networks if n.kind not in ("exits", "cut") and not _stands_alone(n)]
    trainings = {network.name: this.training(network, weights) for network in joint}
    train(list(trainings.values()))
    models = {name: training.evaluated for name, training in trainings.items()}
    found: dict[str, dict[str, Json]] = {}
    for network in networks:
        if network.kind == "cut":
            found[network.name] = _cut(this)
            continue
        if network.kind == "exits":
            models[network.name] = _with_exits(this, models[network.of])
        elif network.name not in models:
            config = this.run(network)
            alone = this.training(network, {}, task=this._task(config))
            train([alone])
            models[network.name] = alone.evaluated
        found[network.name] = scores(this, models[network.name])
    dev = {name: errors_of(this.config, one, "dev") for name, one in found.items()}
    standing = (under_conditions(networks, dev, at) for at in CONDITIONED_AT.values())
    for name in {name for of in standing for name in of.values()}:
        found[name] |= conditions(this, models[name])
    return dict(found)


def _stands_alone(network: Network) -> bool:
    """True where noise or steps are its own, so that it shares no batches with the others."""
    return network.method in (NOISE, LONGER)


def _with_exits(seed: Seed, body: nn.Module) -> nn.Module:
    """A trained network with exits, trained as long as it was on all inner layers' losses."""
    config = seed.config.unconstrained()
    layers, width = config.model.layers, config.data.patch_size**2
    torch.manual_seed(seed.config.seed)
    model = WithExits(body, layers, width).to(seed.dtype)
    equal = Given(
        scheduled(config.steps, layers, omega=1.0, decay=1.0, end=1.0, until=1.0),
        torch.zeros((), dtype=seed.dtype),
    )
    train([training := Training(config, seed.task, model, equal)])
    return training.evaluated


def _cut(seed: Seed) -> dict[str, Json]:
    """Plain networks of 1..L layers, each read at its end."""
    ends = []
    for layers in range(1, seed.config.model.layers + 1):
        config = seed.config.unconstrained().with_fields({"model.layers": layers})
        model = build_model(config, seed.task).to(seed.dtype)
        train([training := Training(config, seed.task, model, seed.own(config))])
        ends.append(by_layer(seed, training.evaluated))
    return {split: [of[0], *(e[split][-1] for e in ends)] for split, of in ends[-1].items()}


def scores(seed: Seed, model: nn.Module) -> dict[str, Json]:
    """The metric of a network by layer, and what stopping early by sample gives."""
    config, task = seed.config, seed.task
    adaptive = {
        split: exits(*per_sample(model, task, split, config.train_gamma), task)
        for split in seed.splits
    }
    return {**by_layer(seed, model), "adaptive": adaptive}


def by_layer(seed: Seed, model: nn.Module) -> dict[str, Json]:
    """The metric of layers 0..L at the train gamma, on dev and on what is scored."""
    config, task = seed.config, seed.task
    draws = config.eval_draws
    return {
        split: measure(model, task, split, config.train_gamma, draws, score_draws=draws).metrics(
            task
        )
        for split in seed.splits
    }


def conditions(seed: Seed, model: nn.Module) -> dict[str, Json]:
    """The metric of all layers on unseen noise, and of the last one elsewhere.

    Elsewhere is under the run's shifts, and on other data sets with the noise of training.
    """
    config, task = seed.config, seed.task
    by_gamma = {
        gamma_key(gamma): measure(model, task, seed.split, gamma, 1).metrics(task)
        for gamma in unseen_gammas(config)
    }
    shifts = {
        f"{shift} {severity:g}": measure_shifted(model, task, shift, severity, seed.split).metrics(
            task
        )[-1]
        for shift in config.shifts
        for severity in family_of(shift).severities[1:]  # medium and strong
    }
    for name, other in seed.others.items():
        found = measure(model, other, seed.split, config.train_gamma, 1)
        shifts[name] = found.metrics(other)[-1]
    return {"by_gamma": by_gamma, "shifts": shifts}


@torch.no_grad()
def per_sample(model: nn.Module, task: Task, split: str, gamma: float) -> tuple[Floats, Floats]:
    """Of layers 1..L: the relative change of a sample's output, and its loss, [L, samples]."""
    model.eval()
    changes, losses = [], []
    for batch in task.held_out(split, gamma, 0):
        predictions = [p for p in layer_predictions(model, task, batch) if isinstance(p, Tensor)]
        flat = [p.flatten(1).double() for p in predictions]
        pairs = itertools.pairwise(flat)
        norm = partial(torch.linalg.vector_norm, dim=1)
        changes.append(torch.stack([(norm(b - a) / norm(b)) ** 2 for a, b in pairs]))
        losses.append(torch.stack([task.loss(p, batch.targets) for p in predictions[1:]]))
    return torch.cat(changes, 1).numpy(), torch.cat(losses, 1).double().numpy()


def exits(changes_LN: Floats, losses_LN: Floats, task: Task) -> Json:
    """For each threshold: mean layers used, and the metric, of a sample stopping once it agrees.

    It stops at the first layer whose output changed by less than the threshold, or at the last.
    """
    layers = len(changes_LN)
    depths, metrics = [], []
    for threshold in THRESHOLDS:
        agrees_LN = changes_LN < threshold
        agrees_LN[-1] = True
        stops_N = agrees_LN.argmax(axis=0)
        picked_N = losses_LN[stops_N, np.arange(losses_LN.shape[1])]
        depths.append(float(stops_N.mean() + 1))
        metrics.append(task.metric(float(picked_N.mean())))
    fixed = [task.metric(float(losses_LN[layer].mean())) for layer in range(layers)]
    return {"depth": depths, "score": metrics, "fixed": fixed}
