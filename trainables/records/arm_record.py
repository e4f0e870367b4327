"""Record of an arm: reports, final evaluation, outcome, and all metric names.

Plain values only: no torch, no MLflow, no Ray. A record is rewritten whole at every report, is the
only thing tracking and tables are fed from, and carries its own timestamps, so that feeding it
twice adds nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Self

from trainables.config.arm import ArmConfig
from trainables.plain import Json, StoredPlain, with_leaves
from trainables.records.evaluation import Evaluation

# How the training of one arm ended.
Status = Literal["running", "finished", "diverged", "stopped", "failed"]
# The same, where a finished arm is judged under its pair's constraint.
Outcome = Literal["feasible", "infeasible", "diverged", "stopped", "failed"]
UNKNOWN_CODE = "unknown code"
THEN = ", then "  # between codes that trained one arm in turn
OUTCOMES: tuple[Outcome, ...] = ("feasible", "infeasible", "diverged", "stopped", "failed")

# --- names of metrics: section/name; the MLflow UI makes a section of every prefix --------------

TRAIN_LOSS = "train/loss"  # last layer, mean since the last report, over f_c
TRAIN_GRAD_NORM = "train/grad_norm"  # mean since the last report, before clipping
LARGEST_MULTIPLIER = "train/largest_multiplier"  # over the layers; the others: trajectories.csv
TRAIN_STEPS_PER_S = "train/steps_per_s"
TRAIN_PEAK_MEMORY_MB = "train/peak_memory_mb"
TRAIN_SECONDS = "train/seconds"  # time in primal and dual steps so far
EVAL_SECONDS = "train/eval_seconds"  # time in evaluation so far
REPORTED_LOSS = "descent/reported_loss"  # last layer, dev, train_gamma, one draw, the task's unit
HELD_OUT_LOSS = "descent/held_out_loss"  # the same of final results, over every draw: the tables'
REPORTED_MISSING_SHARE = "feasibility/reported_missing_share"  # worst layer, dev, one draw
WORST_MISSING_SHARE = "feasibility/worst_missing_share"  # dev, unrelaxed; judged by the tolerance
WORST_MISSING_SHARE_TRAIN = "feasibility/worst_missing_share_train"  # training units, fresh draws
WORST_MISSING_SHARE_RELAXED = "feasibility/worst_missing_share_relaxed"  # dev, slack c lambda
WORST_MISSING_SHARE_UPPER = "feasibility/worst_missing_share_upper"  # 95 % bound over dev units
UNITS_MET = "feasibility/units_met"  # fraction of dev units that meet the least met layer
DEMANDED_DESCENT = "feasibility/demanded_descent"  # fraction of f0 that is asked
FEASIBLE = "feasibility/feasible"  # 1 or 0
BEATS_TRIVIAL = "feasibility/beats_trivial"  # 1 or 0
OOD_AUC = "ood/auc"  # trapezoid area under the metric over test_gammas
MEAN_OVER_GAMMAS = "test/mean_over_gammas"  # of the metric: the tables' mean
SEEN_MEAN = "ood/seen_mean"  # over the gammas that training or selection looked at
UNSEEN_MEAN = "ood/unseen_mean"  # over all others: out of distribution
OBJECTIVE = "ood/objective"  # what the search minimises, whichever way the metric is better

# Values of the steps of curves, for an axis that is called by what it has.
LAYER_AXIS, GAMMA_AXIS = "layer", "gamma"
# Curves: one metric each, logged once, at the end. Its step is the layer...
DESCENT_CURVE = "descent/curve"  # final held-out loss, over f_c
ACCURACY_CURVE = "descent/accuracy_curve"  # of texts, at train_gamma, by the shared readout
PROBE_CURVE = "descent/probe_curve"  # of texts: held-out loss of a probe per layer, over f_c
PROBE_ACCURACY_CURVE = "descent/probe_accuracy_curve"
MISSING_SHARE_CURVE = "feasibility/curve"  # missing share, as judged
PLAIN_MISSING_SHARE_CURVE = "feasibility/plain_curve"  # the baseline's, as asked here
MULTIPLIER_CURVE = "train/multiplier_curve"
WEIGHT_CURVE = "train/weight_curve"  # mean over the steps of the last report
# ... or 100 x gamma,
OOD_CURVE = "ood/curve"  # the metric
OOD_CURVE_GAIN = "ood/curve_gain"  # how much better than the baseline
# ... or 1000 x severity.
SHIFT_CURVE = "shift/{}"  # the metric under one family of shifts beside Gaussian noise

# What the UI shows as system metrics has this prefix there.
SYSTEM_METRICS = {
    TRAIN_STEPS_PER_S: "system/steps_per_s",
    TRAIN_PEAK_MEMORY_MB: "system/peak_memory_mb",
    TRAIN_SECONDS: "system/train_seconds",
    EVAL_SECONDS: "system/eval_seconds",
}

# What reports hold by layer.
LAYER_SERIES = {
    "losses": "dev at train_gamma, over f_c; layers 0..L",
    "hidden_norms": "RMS of what each loss is read off, dev; layers 0..L; not in older reports",
    "accuracies": "dev at train_gamma, of texts; layers 0..L",
    "missing_shares": "dev; constrained layers: 1..L or 0..L",
    "violations": "mean over the batches since the last report",
    "violation_noise": "their standard deviation from step to step; not in older reports",
    "multipliers": "",
    "slacks": "",
    "weights": "mean over the steps since the last report; layers 0..L",
}


def first_layer(n_losses: int, n_constraints: int) -> int:
    """The layer that the first constraint bounds, from how many losses and constraints there are.

    The last of both is layer L, and losses start at layer 0; so it is 1, or 0 with ``bound_zero``.

    >>> first_layer(4, 3), first_layer(4, 4)
    (1, 0)
    """
    return n_losses - n_constraints


@dataclass(frozen=True, kw_only=True)
class Report(StoredPlain):
    """One point of an arm's history. Written with a checkpoint of the same step."""

    step: int  # primal steps done
    timestamp_ms: int  # when it was measured; stored, so that every reader sends the same row
    scalars: dict[str, float] = field(default_factory=dict)  # by metric name
    layers: dict[str, list[float]] = field(default_factory=dict)  # by key of LAYER_SERIES

    def by_layer(self, series: str) -> dict[int, float]:
        """A series by layer: over 0..L, or over those that are constrained, 1..L or 0..L."""
        values = self.layers.get(series, [])
        n_losses = len(self.layers.get("losses") or self.layers.get("weights") or ())
        first = first_layer(n_losses, len(values)) if n_losses else 1
        return dict(enumerate(values, first))


@dataclass(kw_only=True)
class ArmRecord(StoredPlain):
    """Everything known about one arm; ``evaluation`` is there exactly when it is 'finished'."""

    signature: str
    config: ArmConfig
    status: Status = "running"
    reason: str = ""  # why it diverged, stopped or failed; advice included
    warnings: list[str] = field(default_factory=list)  # early signs, in the user's words
    started_ms: int = 0
    ended_ms: int = 0
    idle_ms: int = 0  # in all, between a checkpoint and the start that went on from it
    shared_ms: int = 0
    # ^ of the rest, what arms that trained together with it held of its place; below 0 where
    #   several processes trained it, each in a place of its own
    reports: list[Report] = field(default_factory=list)
    evaluation: Evaluation | None = None
    environment: dict[str, Json] = field(default_factory=dict)  # recorded, not hashed
    parameters: int = 0  # numbers that are trained; 0 in records of before they were counted
    steps_per_epoch: int = 0  # of its training data; likewise

    @property
    def is_final(self) -> bool:
        """True once the arm has ended, whether it finished or not."""
        return self.status != "running"

    @property
    def code(self) -> str:
        """The code that trained it, in words; of one that was resumed by other code, each in turn.

        UNKNOWN_CODE in records of before it was recorded; empty where no process came so far.
        """
        codes: list[str] = []
        here: Json = self.environment
        while here:
            code = here.get("training_code")
            codes.append(code_text(code) if code else UNKNOWN_CODE)
            here = here.get("before")
        return THEN.join(dict.fromkeys(reversed(codes)))

    @property
    def trained_for(self) -> str:
        """The sweep that trained it; empty in records of before it was recorded."""
        return str(self.environment.get("sweep", ""))

    @property
    def held_s(self) -> float:
        """Seconds that it held a place, from its start to its end or last report.

        Those of a group of arms add up to what the group's one place was held; an arm of several
        processes holds as many places.
        """
        last_ms = self.reports[-1].timestamp_ms if self.reports else self.started_ms
        until_ms = self.ended_ms if self.is_final else last_ms
        return max(until_ms - self.started_ms - self.idle_ms - self.shared_ms, 0) / 1000

    @property
    def reported_missing_share(self) -> float:
        """The worst missing share of the last report; NaN where there is none."""
        scalars = self.reports[-1].scalars if self.reports else {}
        return scalars.get(REPORTED_MISSING_SHARE, math.nan)

    def to_json(self) -> dict[str, Json]:
        """Plain values; non-finite numbers become 'nan', 'inf', '-inf' (JSON has none)."""
        plain = super().to_json()
        return dict(with_leaves(plain, float, lambda n: n if math.isfinite(n) else str(n)))

    @classmethod
    def from_json(cls, plain: Mapping[str, Json]) -> Self:
        """The record that ``to_json`` wrote."""
        values = with_leaves(plain, str, lambda text: _NON_FINITE.get(text, text))
        for name in ("config", "reason", "warnings", "environment"):  # words, whatever they say
            if name in plain:
                values[name] = plain[name]
        if (measured := values["evaluation"]) is not None:
            if "descent_share" in measured:  # its first name
                measured["descent_fraction"] = measured.pop("descent_share")
            words = plain["evaluation"]
            for name in ("answers", "dev_units", "train_units"):
                if name in words:
                    measured[name] = words[name]
        return super().from_json(values)


def code_text(code: Mapping[str, str]) -> str:
    """``training_code`` in words.

    >>> code_text({"trainables": "0a1b2c3d", "model tiny": "4e5f6a7b"})
    'model tiny 4e5f6a7b, trainables 0a1b2c3d'
    """
    return ", ".join(f"{part} {digest}" for part, digest in sorted(code.items()))


_NON_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
