"""Test conditions: which count as seen, and the grids of shifts.

Shifts are what comes beside Gaussian noise. Plain values.

*Seen* is what training used or selection looked at: Gaussian noise up to just above train_gamma.
All else is *unseen*: larger gammas, and the families below. Only what is unseen says anything about
robustness out of distribution (docs/decisions/0029). How frames are disturbed:
tasks/perturbations.py; how texts: tasks/text_shifts.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean

from trainables.config.arm import ArmConfig
from trainables.errors import UnknownName

_ROUNDING = 1e-9  # gammas have two decimals; their sums in binary do not


@dataclass(frozen=True)
class Family:
    """One kind of shift and the severities it is scored at."""

    severities: tuple[float, ...]  # mild, medium, strong; fixed before any run
    unit: str  # what a severity of 1 is, in words


# Of videos: chosen on clean frames, no model involved, so that the disturbance alone is about as
# large as that of gamma 0.1, 0.25 and 0.5, or less where the strongest does not reach it
# (figures: decision on severities of shifts). Whoever
# changes a grid raises TRAINING_VERSION: stored scores under two grids are not to be averaged.
VIDEO_FAMILIES: Mapping[str, Family] = {
    "blur": Family((0.5, 2.0, 5.0), "Gaussian blur, std in percent of the frame's side"),
    "salt_and_pepper": Family((0.001, 0.006, 0.025), "fraction of pixels that turn black or white"),
    "frame_drop": Family((0.2, 0.5, 0.8), "fraction of frames lost, each shown as the one before"),
    "brightness": Family((0.1, 0.25, 0.5), "added to every pixel, in std of the clean pixels"),
    "compression": Family((60.0, 90.0, 98.0), "100 less the JPEG quality"),
    "occlusion": Family((0.002, 0.01, 0.03), "fraction of the frame under a black square"),
}
# Of texts: round shares, fixed before any run (docs/decisions/0028).
TEXT_FAMILIES: Mapping[str, Family] = {
    "token_drop": Family((0.1, 0.25, 0.5), "fraction of tokens dropped"),
    "token_swap": Family((0.1, 0.25, 0.5), "fraction of neighbouring tokens that change places"),
    "typos": Family((0.02, 0.05, 0.1), "fraction of letters hit on a neighbouring key"),
}
FAMILIES: Mapping[str, Family] = {**VIDEO_FAMILIES, **TEXT_FAMILIES}


def family_of(shift: str) -> Family:
    """The family called ``shift``, or UnknownName."""
    if shift not in FAMILIES:
        raise UnknownName.among("shift", shift, FAMILIES)
    return FAMILIES[shift]


def gamma_key(gamma: float) -> str:
    """The text of a test gamma where it is a key."""
    return f"{gamma:.2f}"


def severity_key(severity: float) -> str:
    """The text of a severity where it is a key.

    >>> [severity_key(s) for s in (2, 0.025)]
    ['2.0', '0.025']
    """
    return str(float(severity))


def near_shift_gammas(config: ArmConfig) -> list[float]:
    """The test gammas that selection may look at: just above train_gamma, never the far shifts."""
    above = [g for g in config.test_gammas if g > config.train_gamma + _ROUNDING]
    near = [g for g in above if g <= config.train_gamma + config.facts.near_shift + _ROUNDING]
    return near or above[:1] or [config.test_gammas[-1]]


def seen_gammas(config: ArmConfig) -> list[float]:
    """The test gammas up to train_gamma, and those that selection looks at.

    >>> seen_gammas(ArmConfig(train_gamma=0.1, test_gammas=(0.0, 0.1, 0.2, 0.3)))
    [0.0, 0.1, 0.2]
    """
    last = max(config.train_gamma + _ROUNDING, *near_shift_gammas(config))
    return [g for g in config.test_gammas if g <= last]


def unseen_gammas(config: ArmConfig) -> list[float]:
    """The test gammas beyond everything that training or selection looked at; may be empty."""
    seen = seen_gammas(config)
    return [g for g in config.test_gammas if g not in seen]


def seen_and_unseen(
    config: ArmConfig, scores: Mapping[str, float]
) -> tuple[float | None, float | None]:
    """Mean metric over the seen and over the unseen test gammas; None where there are none."""
    gammas = set(seen_gammas(config))
    seen = [score for gamma, score in scores.items() if float(gamma) in gammas]
    unseen = [score for gamma, score in scores.items() if float(gamma) not in gammas]
    return fmean(seen) if seen else None, fmean(unseen) if unseen else None
