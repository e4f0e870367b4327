"""Controls of a confirmation: what else could explain a difference, as arms.

A control trains beside the pair, on the same seeds, batches and noise, and differs in who sets the
layer weights or in one thing of plain training. If a constrained network is no better than its
controls, the constraint is not what works (docs/confirmation.md, Controls).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, cast

import numpy as np

from search_spaces.ranges import Choice, LogUniform, Range, Uniform
from trainables.config.arm import ArmConfig, ConstraintConfig
from trainables.config.constraint import SETTERS_KNOBS
from trainables.errors import InvalidValue, UnknownName
from trainables.plain import Json
from trainables.primal_dual.schedule import in_steps
from trainables.records.arm_record import ArmRecord

# matched: only who sets the layer weights differs; tuned: each side is the best of as many tries
# over a space of its own; other: something of plain training differs, too.
Question = Literal["matched", "tuned", "other"]
Fields = dict[str, Json]  # of ArmConfig, by dotted name


@dataclass(frozen=True)
class Searched:
    """The constrained arm that a control stands beside, as the search trained it on one seed."""

    config: ArmConfig
    record: ArmRecord


@dataclass(frozen=True)
class Control:
    """One control."""

    says: str  # what it is, below tables
    question: Question
    fields: Callable[[Searched], Fields | None]  # None: there is no such control of this network
    # Searched by as many proposals on the same seeds as the constrained side was; None: nothing is.
    ranges: Callable[[ArmConfig], dict[str, Range]] | None = None
    at_point: bool = False  # searched at the constraint of the chosen proposal, which it reads


def _weights_by(searched: Searched, setter: str) -> Fields:
    """The arm's point with other layer weights; what these do not read is left at its default."""
    assert searched.config.constraint is not None
    unread = {"warmup_steps", "warmup_epochs"} if setter == "last_layer" else set()
    unread |= {name for name, reader in SETTERS_KNOBS.items() if reader != setter}
    given, defaults = vars(searched.config.constraint), vars(ConstraintConfig())
    others = {f"constraint.{n}": defaults[n] for n in sorted(unread) if given[n] != defaults[n]}
    return {"constraint.weights_by": setter, **others}


def _detached(searched: Searched) -> Fields | None:
    constraint = searched.config.constraint
    assert constraint is not None
    if not constraint.grad_through_previous:
        return None  # the constrained arm is that itself
    return {"constraint.grad_through_previous": False}


def _replayed(searched: Searched) -> Fields | None:
    """The weights' mean over the steps of a constrained run, of another seed than any here.

    Without its warm-up, which is plain in this arm, too.
    """
    assert searched.config.constraint is not None
    reports = [report for report in searched.record.reports if "weights" in report.layers]
    steps = np.diff([report.step for report in reports], prepend=0)  # each is a mean over so many
    config = in_steps(searched.config, searched.record.steps_per_epoch)
    warm = cast(ConstraintConfig, config.constraint).warmup_steps
    if steps.sum() <= warm:
        return None
    sum_F = steps @ np.array([report.layers["weights"] for report in reports])
    sum_F[-1] -= warm  # a plain step's weights are (0, ..., 0, 1)
    mean_F = sum_F / (steps.sum() - warm)
    return {
        **_weights_by(searched, "replayed"),
        "constraint.replayed_weights": [float(w) for w in mean_F],
    }


def _penalty(searched: Searched) -> Fields | None:
    constraint = searched.config.constraint
    assert constraint is not None
    if searched.config.accumulate > 1 or constraint.inner_layers is not None:
        return None  # its weights follow whole losses
    return _weights_by(searched, "penalty")


def _one_dictionary(searched: Searched) -> Fields | None:
    model = searched.config.model
    if "shared" not in model.spec.variants or model.variant != model.spec.variants[0]:
        return None
    return {**_weights_by(searched, "last_layer"), "model.variant": "shared"}


def _times(config: ArmConfig, factor: float) -> float:
    """So many times the noise that the setting trains on."""
    return round(factor * config.train_gamma, 2)


def _mixed_gamma(searched: Searched) -> Fields | None:
    high = _times(searched.config, 3)
    if high <= searched.config.train_gamma:
        return None
    return {**_weights_by(searched, "last_layer"), "train_gamma_high": high}


def _larger_gamma(searched: Searched) -> Fields | None:
    gamma = _times(searched.config, 2)
    if gamma <= searched.config.train_gamma:
        return None  # there is no noise to have more of
    noise = {"train_gamma_low": gamma, "train_gamma_high": gamma}
    return {**_weights_by(searched, "last_layer"), **noise}


def _plain_ranges(config: ArmConfig) -> dict[str, Range]:
    """Ranges of plain training's step size, decay, length and noise."""
    lr = config.primal_lr
    steps = tuple(max(config.steps // part, 1) for part in (8, 4, 2, 1))
    return {
        "primal_lr": LogUniform(lr / 4, lr * 4),
        "weight_decay": LogUniform(1e-6, 1e-1),
        "steps": Choice(steps),
        "train_gamma_high": Choice(_gammas(config)),
    }


def _gammas(config: ArmConfig) -> tuple[float, ...]:
    """The setting's own noise, and more; where it has none, a little."""
    gamma = config.train_gamma
    more = [_times(config, factor) for factor in (1.5, 2, 3)] if gamma else [0.05, 0.1]
    return tuple(dict.fromkeys([gamma, *(g for g in more if g > gamma)]))


CONTROLS: Mapping[str, Control] = {
    "deep_supervision": Control(
        "fixed weights omega q^(L - l) on the inner layers' losses; omega and q tuned as the "
        "constraint was",
        "matched",
        lambda searched: _weights_by(searched, "deep_supervision"),
        lambda config: {
            "constraint.supervision": LogUniform(1e-3, 1.0),
            "constraint.supervision_decay": Uniform(0.2, 1.0),
        },
    ),
    "replayed_weights": Control(
        "the mean of the layer weights over the steps of the constrained run on a search seed, "
        "held fixed",
        "matched",
        _replayed,
    ),
    "penalty": Control(
        "the squared violations at a fixed weight mu, tuned as the constraint was",
        "matched",
        _penalty,
        lambda config: {"constraint.penalty": LogUniform(1e-2, 1e2)},
        at_point=True,
    ),
    "detached": Control(
        "the same multipliers without the gradient that rewards a worse layer before",
        "matched",
        _detached,
    ),
    "mixed_gamma": Control(
        "plain training on noise of train_gamma to three times as much",
        "other",
        _mixed_gamma,
    ),
    "larger_gamma": Control(
        "plain training on twice the noise",
        "other",
        _larger_gamma,
    ),
    "early_stopped": Control(
        "plain training for a quarter of the steps",
        "other",
        lambda searched: {
            **_weights_by(searched, "last_layer"),
            "steps": max(searched.config.steps // 4, 1),
            "report_every": max(searched.config.report_every // 4, 1),
        },
    ),
    "one_dictionary": Control(
        "plain training of DUST with one dictionary for all layers: fewer parameters",
        "other",
        _one_dictionary,
    ),
    "tuned_plain": Control(
        "plain training at its best of as many tries over its own step size, decay, length and "
        "noise: best against best",
        "tuned",
        lambda searched: _weights_by(searched, "last_layer"),
        _plain_ranges,
    ),
}
DECISIVE = ("deep_supervision", "replayed_weights", "penalty", "detached", "mixed_gamma")


def control_of(name: str) -> Control:
    """The control called ``name``, or UnknownName."""
    if name not in CONTROLS:
        raise UnknownName.among("control", name, CONTROLS)
    return CONTROLS[name]


def parse_controls(text: str) -> tuple[str, ...]:
    """``--controls``: names with commas, ``all``, ``decisive`` or ``none``.

    >>> parse_controls("none"), parse_controls("penalty, detached")
    ((), ('penalty', 'detached'))
    """
    groups = {"none": (), "all": tuple(CONTROLS), "decisive": DECISIVE}
    if text.strip() in groups:
        return groups[text.strip()]
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    for name in names:
        if name in groups:
            raise InvalidValue(f"--controls takes {name!r} alone or names, got {text!r}.")
        if name not in CONTROLS:
            raise UnknownName.among("control", name, [*CONTROLS, *groups])
    return names
