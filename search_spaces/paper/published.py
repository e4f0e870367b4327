"""The published comparison of a configuration, and what is not alike in the two."""

from __future__ import annotations

from pathlib import PurePosixPath

from search_spaces.paper import text, video
from search_spaces.paper.comparison import Comparison
from search_spaces.paper.departures import departures
from search_spaces.paper.spaces import model_of
from trainables.config.arm import ArmConfig

COMPARISONS: tuple[Comparison, ...] = (*video.COMPARISONS, *text.COMPARISONS)


def published(config: ArmConfig) -> Comparison | None:
    """The comparison of this data set, model, depth and train gamma; None where none is printed.

    An encoder is known by its checkpoint, whatever depth is printed.
    """
    model, layers = model_of(config), config.model.layers
    return next(
        (
            c
            for c in COMPARISONS
            if (c.data, c.model, c.train_gamma) == (config.data.name, model, config.train_gamma)
            and (c.layers == layers or config.model.name == "encoder")
        ),
        None,
    )


def protocol(config: ArmConfig) -> str:
    """How pairs are chosen and compared here, and how in the paper."""
    paper = (
        "compares the best of five seeds with the best of five searches"
        if config.facts.reads_texts
        else "searches once for a model, and says of no seeds"
    )
    return f"pairs share their seeds, and dev selects; the paper {paper}"


def not_alike(config: ArmConfig, comparison: Comparison) -> tuple[str, ...]:
    """Caveats of a comparison of the two, a phrase each; doubts come last."""
    name, variant, words = config.model.name, config.model.variant, text.CHECKPOINTS["ut"]
    phrases = []
    if (name, variant) in video.DEPARTURES:
        phrases.append(video.DEPARTURES[name, variant])
    if name == "text_ut" and _short(config.model.checkpoint) != words:
        phrases.append(f"words of {_short(config.model.checkpoint)}; the paper's {words}'s")
    largest = max(config.test_gammas)
    if comparison.key == text.TextComparison.key and largest != text.LARGEST_GAMMA:
        phrases.append(f"our test gammas end at {largest:g}, the paper's at {text.LARGEST_GAMMA:g}")
    return (*phrases, *departures(config), protocol(config), *comparison.doubts)


def _short(checkpoint: str | None) -> str:
    return PurePosixPath(checkpoint or "").name
