"""Rows of results tables as settings: single ones, and the paper's video tables."""

from __future__ import annotations

import re
from collections.abc import Mapping

from search_spaces.paper.video import DATA_SETS, TRAIN_GAMMAS
from search_spaces.ranges import Range
from search_spaces.settings import Setting
from trainables.plain import Json
from trainables.registry.find_plugins import facts_of, model_spec


def setting(
    data: str,
    model: str,
    layers: int | None,
    gamma: float,
    *,
    called: str = "",
    variant: str = "",
    detached: bool = False,
    alpha: float | None = None,
    n_proposals: int | None = None,
    least_descent: float = 0.0,
    fields: Mapping[str, Json] | None = None,
    ranges: Mapping[str, Range] | None = None,
) -> Setting:
    """One row of a results table, named after what distinguishes it.

    Without training noise nothing beats the trivial predictors where the input is its own answer,
    in denoising (docs/method.md): such a setting is trained and reported, and gets one proposal,
    because no search could find a winner there.

    Args:
        data: name of the data set.
        model: name of the model.
        layers: L; None: the base's, and no part of the name: a checkpoint says how deep it is.
        gamma: train_gamma.
        called: what the model is called in the name; '': by the name of the model.
        variant: a forward of the model other than its default one; part of the name.
        detached: without the gradient through the layer before; part of the name.
        alpha: the first proposal's.
        n_proposals: at most so many; None: as many as the space's.
        least_descent: the fraction of f0 that a winner must be asked to remove over all layers.
        fields: more that this row sets; not part of the name.
        ranges: what it searches in the place of the space's ranges.

    >>> setting("ucsd_ped2", "ut", 3, 0.15, detached=True).name
    'ucsd_ped2-ut-L3-g0.15-detached'
    >>> setting("imdb", "encoder", None, 0.2, called="distilbert").name
    'imdb-distilbert-g0.2'
    >>> setting("ucsd_ped2", "dust", 5, 0.0, variant="paper").n_proposals
    1
    """
    sets: dict[str, Json] = {"data.name": data, "model.name": model}
    if layers is not None:
        sets["model.layers"] = layers
    sets["train_gamma"] = gamma
    if variant:
        sets["model.variant"] = variant
    if detached:
        sets["constraint.grad_through_previous"] = False
    if alpha is not None:
        sets["constraint.alpha"] = alpha
    form = f"-{variant}" * bool(variant) + "-detached" * detached
    depth = "" if layers is None else f"-L{layers}"
    name = re.sub(r"[^\w.-]", "-", f"{data}-{called or model}{depth}-g{gamma:g}{form}", flags=re.A)
    is_answered = gamma == 0 and facts_of(model_spec(model).task).has_identity
    most = 1 if is_answered else n_proposals
    least = 0.0 if is_answered else least_descent
    return Setting(name, {**sets, **(fields or {})}, most, ranges or {}, least)


def video_settings(
    model: str,
    alphas: Mapping[int, float | None],
    ranges: Mapping[int, Range] | None = None,
    least_descents: Mapping[int, float] | None = None,
) -> tuple[Setting, ...]:
    """The paper's video comparisons of a model: every data set, depth and training noise.

    Args:
        model: as in ModelConfig.name.
        alphas: the first proposal's alpha by depth; None: the base's.
        ranges: of alpha by depth; None: the space's.
        least_descents: what a winner must ask for, by depth; None: nothing.
    """
    own = {layers: {"constraint.alpha": values} for layers, values in (ranges or {}).items()}
    return tuple(
        setting(
            data,
            model,
            layers,
            gamma,
            alpha=alpha,
            ranges=own.get(layers),
            least_descent=(least_descents or {}).get(layers, 0.0),
        )
        for data in DATA_SETS
        for layers, alpha in alphas.items()
        for gamma in TRAIN_GAMMAS
    )
