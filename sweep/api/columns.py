"""Meaning and unit of every column of a loaded sweep's frames. Pure.

``{metric}``, ``{unit}`` and ``{direction}`` are those of the sweep's task.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sweep.confirmation.plan import MEASURES
from sweep.glossary import DIRECTION, TERMS, column
from trainables.config.arm import field_names
from trainables.registry.task_facts import Metric

if TYPE_CHECKING:
    import pandas as pd

LOSS = "loss of the task"  # docs/results.md, In Python
_CODES = ("", "the code that trained both arms: one digest, or several where they differ")
_MEAN = ("{unit}", "mean {metric} over all test gammas; {direction}")

# What a row is of, and what became of it.
COLUMNS: dict[str, tuple[str, str]] = {  # unit, meaning
    "setting": ("", "data set, network, depth and training noise: pairs are compared within it"),
    "data": ("", "data set"),
    "model": ("", "network"),
    "layers": ("layers", "depth of the network"),
    "train_gamma": ("std of the data", "noise in training"),
    "proposal": ("", "number of the proposal; missing: the arm is of none"),
    "point": ("", "name of a listed proposal, one that was not searched"),
    "arm": ("", "constrained, unconstrained, or a reference that needs no training"),
    "seed": ("", "search seed, alike for both arms of a pair; missing: a reference"),
    "signature": ("", "name of the arm in the store; in proposals, of the constrained one"),
    "status": ("", "how the arm stands: running, finished, diverged, stopped, failed; missing: it "
               "has not reported"),
    "reason": ("", "why it ended early"),
    "codes": _CODES,
    "step": ("steps", "primal steps at the report, or at the last one"),
    "steps": ("steps", "primal steps of the complete training"),
    "outcome": ("", "of the proposal over its seeds: feasible, infeasible, or how it ended"),
    "outcome_of_seed": ("", "the same of this seed alone"),
    "winner": ("yes or no", "the pair is the winner of its setting"),
    "shown": ("yes or no", "the pair is its setting's winner, or the closest where there is none"),
    "why": ("", "why the setting has no winner"),
    "n_proposals_finished": ("proposals", "those whose arms are final on every seed"),
    "n_seeds": ("seeds", "search seeds; numbers of a setting are means over them"),
    "not_binding": column("not binding"),
    "selection_biased": ("yes or no", f"the gain is {TERMS['selection-biased'].brief}"),
    "demanded_descent": column("descent asked"),
    "tolerance": ("fraction", "missing share that is still feasible"),
    "layer": ("", "layer; 0 is the input of the first; missing: of the model's output"),
    "shift": ("", "kind of disturbance; gaussian is noise alone"),
    "severity": ("as docs/results.md says", "how strong it is; of gaussian the test gamma"),
    "seen": ("yes or no", "training or selection looked at this condition"),
    "metric": ("", "what `value` is"),
    "series": ("", "what `value` is, at reports during training"),
    "value": ("by metric or series", "the number"),
}  # fmt: skip

# What is measured: columns, with an arm's name before them too, and kinds of value.
QUANTITIES: dict[str, tuple[str, str]] = {
    "objective": ("", "what the search minimises (docs/results.md, Scores); lower is better"),
    "mean_over_gammas": _MEAN,
    "ood_auc": ("{unit} x gamma", "area under {metric} over test gamma; {direction}"),
    "seen_mean": ("{unit}", "mean {metric} over the seen test gammas; {direction}"),
    "unseen_mean": ("{unit}", "mean {metric} over the unseen test gammas, out of distribution; "
                    "{direction}"),
    "held_out_loss": (LOSS, "held out, at train gamma; of an arm that of the last layer; lower is "
                      "better"),
    "training_loss": (LOSS, "on training data, at train gamma; lower is better"),
    "loss": (LOSS, "held out, at a test condition, by layer; lower is better"),
    "feasible": column("feasible"),
    "beats_trivial": column("beats trivial"),
    "certificate": column("certificate"),
    "worst_missing_share": ("fraction", f"of the worst layer: {TERMS['missing share'].brief}"),
    "worst_layer": ("", "the layer of the largest missing share"),
    "missing_share": column("missing share"),
    "missing_share_training": ("fraction", "missing share on training data"),
    "missing_share_relaxed": ("fraction", "missing share less the slack that resilience grants"),
    "violation_noise": ("as the violation", "standard deviation of the layer's "
                        "violation from step to step, in the last report of training"),
    "multiplier": ("", "final multiplier of the layer's constraint, at least 0"),
    "descent_fraction": ("fraction", "of held-out samples, those whose loss falls in this layer"),
    "descent_ratio_qNN": ("ratio", "loss after the layer over the loss before it, of held-out "
                          "samples: the quantile of NN %"),
    "hidden_norm": ("features, or the prediction's unit", "RMS of what the layer's loss is read "
                    "off: of texts the readout's features, else the prediction"),
    "probe_loss": (LOSS, "held out, of a readout fitted to this layer alone; lower is better"),
    "train_seconds": ("seconds", "time in training steps"),
    "eval_seconds": ("seconds", "time in evaluation"),
    "wall_seconds": ("seconds", "from the arm's start to its end"),
    "peak_memory_mb": ("MB", "peak memory of the worker's process"),
    "multipliers": ("", "multiplier of the layer's constraint"),
    "weights": ("", "weight of the layer in the training loss, mean since the last report"),
    "losses": ("loss of the best constant prediction", "held out, of one noise draw"),
}  # fmt: skip

# The table of a confirmation: above 0 the constrained network is better.
CONTRASTS: dict[str, tuple[str, str]] = {
    "level": ("", "family (data set and network) or setting"),
    "setting": ("", "name of the family or setting"),
    "against": ("", "what the constrained network is compared with"),
    "codes": _CODES,
    "question": ("", "matched: the layer weights alone differ; tuned: both sides are tuned; other: "
                 "one thing more differs"),
    "family": ("", "data set and network"),
    "seeds": ("seeds", "fresh seeds that count"),
    "seeds_ended": ("seeds", "fresh seeds that ended"),
    "gain": ("{unit}", f"mean over paired seeds; {DIRECTION}"),
    "low": ("{unit}", "lower end of its interval over seeds"),
    "high": ("{unit}", "upper end of its interval over seeds"),
    "interval": ("", "name and level of that interval"),
    "ended_gain": ("{unit}", "the gain over all fresh seeds that ended, which decides "
                   f"nothing; {DIRECTION}"),
    "ended_low": ("{unit}", "lower end of its interval; empty between two looks"),
    "ended_high": ("{unit}", "upper end of its interval"),
    "ended_interval": ("", "name and level of that interval"),
    "p": ("", "p of the test: of paired t (where t finds something, of sign flips if larger, "
          "unless the plan is of before); with any_time 1 over e_value"),
    "p_adjusted": ("", "the same, adjusted for families and settings"),
    "p_equivalent": ("", "p of two one-sided tests for equivalence"),
    "e_value": ("", "evidence of a test that may look at any time: 1 over it is p, at most 1"),
    "d_z": ("sd of the gains", "mean gain over their standard deviation"),
    "outcome": ("", "better, worse, equivalent, undecided, not binding: what may be claimed"),
    "decided_at": ("seeds", "at how many seeds it was decided"),
    "sign_flip_p": ("", "p of the sign-flip test"),
    "sign_flip_least_p": ("", "the least p that so many seeds can give there"),
    "constrained_mean": ("{unit}", "the tested measure of the constrained networks, mean over the "
                         "seeds that count; {direction}"),
    "other_mean": ("{unit}", "the same of what they are compared with, over the same seeds; "
                   "{direction}"),
    "certified": ("seeds", "constrained networks that the test units certify as feasible"),
    "units_low": ("{unit}", "lower end of the interval over seeds and test units"),
    "units_high": ("{unit}", "upper end of the interval over seeds and test units"),
    "units": ("units", "test units that interval is over"),
    "unit_groups": ("groups", "groups that they are drawn in: clips, of windows; else the units"),
    "variance_seed": ("{unit} squared", "variance of the gain over seeds"),
    "variance_unit": ("{unit} squared", "variance of the gain over groups of test units"),
    "variance_rest": ("{unit} squared", "variance that is of neither alone"),
    "search_gain": ("{unit}", "the gain on the data that selected the pair"),
    "shrinkage": ("fraction", "of that gain, what was lost on fresh seeds and on other data, test"),
    "equal_tries_gain": ("{unit}", "in the search, the best of some tries less the best of as many "
                         "plain seeds, of the tested measure; above 0 is better"),
    "equal_tries": ("tries", "how many of each side that is, the mean over all ways to draw them"),
    **{
        f"{measure}_gain": ("{unit} x gamma" if measure == "ood_auc" else "{unit}",
                                  f"gain in the {what}, over the seeds that count; {DIRECTION}")
        for measure, what in MEASURES.items()
    },
}  # fmt: skip

_PREFIXES = {
    "constrained": "constrained arm: {}",
    "unconstrained": "unconstrained arm: {}",
    "gain": f"{TERMS['gain'].brief}: {{}}",
}
_PREFIX = re.compile(rf"({'|'.join(_PREFIXES)})_(.+)")


def described(frame: pd.DataFrame, metric: Metric) -> pd.DataFrame:
    """Unit and meaning of each column, and of each kind of value that a long frame holds."""
    import pandas as pd

    texts_of = {str(name): _column(str(name), frame, metric) for name in frame}
    for kinds in {"metric", "series"} & {*frame}:
        for kind in sorted({re.sub(r"_q\d+$", "_qNN", kind) for kind in frame[kinds]}):
            texts_of[f"value: {kind}"] = _quantity(kind, metric)
    rows = {name: [_filled(text, metric) for text in texts] for name, texts in texts_of.items()}
    return pd.DataFrame.from_dict(rows, orient="index", columns=["unit", "meaning"])


def _column(name: str, frame: pd.DataFrame, metric: Metric) -> tuple[str, str]:
    if "level" in frame:  # of a confirmation
        return CONTRASTS[name]
    if name in COLUMNS:
        return COLUMNS[name]
    known = {field.removeprefix("constraint."): field for field in field_names()}
    if name in known:
        return "", f"searched value of the field {known[name]}"
    if prefixed := _PREFIX.fullmatch(name):
        unit, meaning = _quantity(prefixed[2], metric)
        return unit, _PREFIXES[prefixed[1]].format(meaning)
    return _quantity(name, metric)


def _quantity(name: str, metric: Metric) -> tuple[str, str]:
    """A quantity; KeyError where nobody said what it is."""
    key = metric.key
    named = {
        f"mean_{key}": _MEAN,
        key: ("{unit}", "{metric} at a test condition; {direction}"),
        f"layer_{key}": ("{unit}", "{metric} read off a layer at a test gamma; {direction}"),
        f"probe_{key}": ("{unit}", "{metric} of a readout fitted to this layer alone; {direction}"),
    }
    return named.get(name) or QUANTITIES[name]


def _filled(text: str, metric: Metric) -> str:
    return text.format(metric=metric.label, unit=metric.unit, direction=metric.direction)
