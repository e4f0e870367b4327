"""Glossary: terms, each explained once; names of models and values. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from trainables.plain import Json


class Term(NamedTuple):
    """The meaning of a term; ``brief`` is for a line below a table."""

    meaning: str
    brief: str
    unit: str = ""


DIRECTION = "above 0 the constrained network is better"  # of every gain


def _term(meaning: str, brief: str = "", unit: str = "") -> Term:
    return Term(meaning, brief or meaning, unit)


# In the words of docs/words.md, which a test holds them to.
TERMS: Mapping[str, Term] = {
    "setting": _term(
        "a data set, a network, a depth and a training noise: what is compared within"
    ),
    "UT": _term("the unrolled transformer, whose layers are derived as steps of an optimisation"),
    "DUST": _term(
        "the unrolled sparse-coding transformer, whose layers are steps of an optimisation as "
        "well, with a dictionary for each layer",
    ),
    "gamma": _term(
        "standard deviation of the added noise over that of the data; `train_gamma` in training, "
        "`test_gammas` in tests"
    ),
    "arm": _term(
        "one network trained once, with the constraints or without; one trial of Ray Tune"
    ),
    "pair": _term(
        "a constrained arm and its baseline: same seed, initial weights, batches and noise"
    ),
    "control": _term(
        "another training run on the same seed that could explain the gain without the "
        "constraint: fixed layer weights, the gradient cut, other noise or fewer steps; its "
        "losses are judged by the pair's constraint",
    ),
    "proposal": _term("one choice of the searched hyperparameters, trained once per search seed"),
    "gain": _term(
        "how much better the constrained network is than plain training, or than a control, in "
        "the measure's own unit: for RMSE plain minus constrained, for accuracy constrained minus "
        "plain; above 0 it is better, in every table, figure, JSON and MLflow",
        "how much better the constrained network is than plain training; above 0 it is better",
        "{unit}",
    ),
    "selection-biased": _term(
        "measured on the data that picked the pair, so no result before fresh seeds confirm it"
    ),
    "seen": _term("test conditions that training or selection looked at"),
    "unseen": _term(
        "test conditions that neither training nor selection looked at; only these are out of "
        "distribution (OOD)"
    ),
    "objective": _term(
        "the number that the search minimises: the metric just beyond the training noise"
    ),
    "alpha": _term("the fraction of its loss that each layer must remove"),
    "f0": _term("the fixed loss that bounds the first constrained layer"),
    "Lagrangian": _term(
        "the default form: the last loss plus each layer's multiplier times its violation is "
        "minimised, with its full gradient",
    ),
    "detached": _term(
        "no gradient flows into the loss before a layer, so that no layer can meet its constraint "
        "by making the one before it worse"
    ),
    "multiplier": _term(
        "the price of a layer's constraint, at least 0; it rises while the constraint is violated"
    ),
    "dual_lr": _term("how far a multiplier moves per unit of its dual signal in one dual step"),
    "reach": _term(
        "dual_lr times the dual steps of a run, less where the rate falls: how far a dual signal "
        "of 1 takes a multiplier",
    ),
    "resilience": _term(
        "the slack granted per unit of multiplier; slack is how far a layer may miss its "
        "constraint",
    ),
    "missing share": _term(
        "violation over the required reduction: at most 0 is met, 1 no descent, above 1 the "
        "loss rises",
        unit="fraction",
    ),
    "feasible": _term(
        "the missing share of every layer is within the tolerance, on held-out data and without "
        "slack",
        unit="yes or no",
    ),
    "beats trivial": _term(
        "better on held-out data than returning the input, where that is a prediction, and than "
        "the best constant",
        unit="yes or no",
    ),
    "not binding": _term(
        "plain training meets the constraint too, so the pair says nothing about constraining",
        "plain training meets the constraint too",
        "yes or no",
    ),
    "descent asked": _term(
        "the fraction of f0 that all layers together must remove",
        unit="fraction of f0",
    ),
    "winner": _term(
        "the setting's best feasible, binding proposal that beats the trivial predictors and asks "
        "for the least descent or more"
    ),
    "Pareto front": _term(
        "proposals that no other one beats in both objective and demanded descent"
    ),
    "held-out unit": _term("what held-out data are judged by: a window of a clip, or a text"),
    "units met": _term(
        "for the layer that the fewest held-out units meet, the fraction of units that meet it",
        unit="fraction",
    ),
    "certificate": _term(
        "the verdict of 95 % bounds over the held-out units: feasible, infeasible or undecided",
    ),
    "Wiener": _term(
        "a linear filter of each patch, fitted without gradient training: a reference for the "
        "networks",
    ),
    "unmatched capacity": _term(
        "in DUST's paper variant the unconstrained arm has one dictionary, the constrained one "
        "has one per layer: the gain is not that of constraining alone",
        "the unconstrained arm has one dictionary, the constrained one has one per layer: the "
        "gain is not that of constraining alone",
    ),
    "confirmation": _term(
        "winners and their controls on fresh seeds and the test split, compared by a plan"
    ),
    "family": _term("the settings of one data set and network: what a confirmation tests first"),
    "signature": _term("the name of an arm: equal configurations are trained once and stored once"),
}


def brief(*names: str) -> str:
    """Terms and their meanings, for a line below a table.

    >>> brief("seen", "alpha")
    'seen: test conditions that training or selection looked at; alpha: the fraction of its loss \
that each layer must remove'
    """
    return "; ".join(f"{name}: {TERMS[name].brief}" for name in names)


def column(name: str) -> tuple[str, str]:
    """Unit and meaning of a term, for a column of a frame."""
    return TERMS[name].unit, TERMS[name].brief


def explained(text: str) -> dict[str, str]:
    """Meanings of the terms that a text has.

    >>> list(explained("Two proposals at gamma 0.2; ut-L3, unseen."))
    ['UT', 'gamma', 'proposal', 'unseen']
    """
    return {name: term.meaning for name, term in TERMS.items() if _has(text, name)}


def two_codes(codes: str) -> str:
    """The warning that several codes, as a pair's tag names them, trained its arms.

    >>> two_codes("trainables 1a and by unknown code")
    'two codes: the arms of this pair were trained by trainables 1a and by unknown code, so that a \
difference between them may be that of the code'
    """
    return (
        f"two codes: the arms of this pair were trained by {codes}, so that a difference between "
        "them may be that of the code"
    )


def capitalised(text: str) -> str:
    """The text with a capital first letter."""
    return text[0].upper() + text[1:]


def sentence(text: str) -> str:
    """The text as a sentence, with a capital and a full stop."""
    return f"{capitalised(text)}."


def model_text(name: str, variant: str) -> str:
    """A model with the forward that its variant names.

    >>> model_text("ut", "distance")
    'ut (distance)'
    """
    return f"{name} ({variant})" if variant else name


def point_text(point: Mapping[str, Json]) -> str:
    """The searched values of a pair.

    >>> point_text({"constraint.alpha": 0.12345, "constraint.form": "ratio"})
    'alpha 0.1235, form ratio'
    """
    values = {n: f"{v:.4g}" if isinstance(v, float) else str(v) for n, v in point.items()}
    return ", ".join(f"{n.removeprefix('constraint.')} {v}" for n, v in values.items())


def _has(text: str, name: str) -> bool:
    return bool(re.search(rf"(?<![a-z]){re.escape(name)}s?(?![a-z])", text, flags=re.I))
