"""Words of a report, explained on its page as in docs/words.md. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

# In the words of docs/words.md, which a test holds them to.
WORDS: Mapping[str, str] = {
    "setting": "a data set, a network, a depth and a training noise: what is compared within",
    "UT": "the unrolled transformer, whose layers are derived as steps of an optimisation",
    "DUST": "the unrolled sparse-coding transformer, derived likewise, with a dictionary a layer",
    "gamma": "standard deviation of the added noise over that of the data; `train_gamma` in "
    "training, `test_gammas` in tests",
    "arm": "one network trained once, with the constraints or without; one trial of Ray Tune",
    "pair": "a constrained arm and its baseline: same seed, initial weights, batches and noise",
    "control": "an arm beside a pair that could explain the gain without the constraint: "
    "fixed layer weights, the gradient cut, other noise or fewer steps; the constraint judges it",
    "proposal": "one choice of the searched hyperparameters, trained once per search seed",
    "gain": "how much better the constrained network is than plain training, or than a control, in "
    "the measure's own unit: of RMSE plain less constrained, of accuracy constrained less plain; "
    "above 0 it is better, in every table, figure, JSON and MLflow",
    "seen": "test conditions that training or selection looked at",
    "unseen": "test conditions that neither training nor selection looked at; only these are out "
    "of distribution (OOD)",
    "objective": "the number that the search minimises: the metric just beyond the training noise",
    "alpha": "the fraction of its loss that each layer must remove",
    "f0": "the fixed loss that bounds the first constrained layer",
    "Lagrangian": "the default form: the last loss plus each layer's multiplier times its "
    "violation is trained, with its whole gradient",
    "detached": "no gradient flows into the loss before a layer, so that no layer can meet its "
    "constraint by making the one before it worse",
    "multiplier": "the price of a layer's constraint, at least 0; it rises while the constraint is "
    "violated",
    "dual_lr": "how far a multiplier moves per unit of its dual signal in one dual step",
    "reach": "dual_lr times the dual steps of a run: how far a dual signal of 1 takes a multiplier",
    "resilience": "how far a layer may miss its constraint; resilience is the slack granted per "
    "unit of multiplier",
    "missing share": "violation over the reduction that was asked: 0 met, 1 no descent, above 1 "
    "the loss rises",
    "feasible": "the missing share of every layer is within the tolerance, on held-out data and "
    "without slack",
    "beats trivial": "better on held-out data than returning the input and than the best constant",
    "not binding": "the baseline meets the constraint too, so the pair says nothing about "
    "constraining",
    "descent asked": "the fraction of f0 that all layers together must remove; the least that a "
    "winner has to ask for",
    "winner": "the setting's best feasible, binding proposal that beats the trivial predictors and "
    "asks for the least descent or more",
    "Pareto front": "proposals that no other one beats in both objective and demanded descent",
    "held-out unit": "what held-out data are judged by: a window of a clip, or a text",
    "certificate": "whether 95 % bounds over the held-out units confirm a verdict, or leave it "
    "undecided",
    "Wiener": "the identity, the best constant, linear Wiener filters: what a network has to beat",
    "confirmation": "winners and their controls on fresh seeds and the test split, compared by a "
    "plan",
    "family": "the settings of one data set and network: what a confirmation tests first",
    "signature": "the name of an arm: equal configurations are trained once and stored once",
}


def explained(text: str) -> dict[str, str]:
    """Meanings of the words that stand in a text.

    >>> list(explained("Two proposals at gamma 0.2; ut-L3, unseen."))
    ['UT', 'gamma', 'proposal', 'unseen']
    """
    return {word: meaning for word, meaning in WORDS.items() if _stands(word, text)}


def _stands(word: str, text: str) -> bool:
    return bool(re.search(rf"(?<![a-z]){re.escape(word)}s?(?![a-z])", text, flags=re.I))
