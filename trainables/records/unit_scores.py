"""Scores of one arm by held-out unit and sample, at every test condition.

What a record holds are means; tests need what they are means of: the bootstrap over units the
losses of each unit, McNemar's test which samples each arm has right. It is a file of its own beside
the record (``ArmStore.unit_scores``), so that nobody who reads records pays for it. All are means
over the first ``ArmConfig.score_draws`` draws, one unless more are asked for: the same noise for
both arms of a pair, every proposal and every seed.

Shape suffixes: U units, F predictions of layers 0..L, N samples.
"""

from __future__ import annotations

import io
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from trainables.config.test_conditions import gamma_key, severity_key

Singles = NDArray[np.float32]
_LOSSES, _SCORES = "losses ", "scores "  # before a condition, in the names of stored arrays


def at_gamma(gamma: float) -> str:
    """The condition of Gaussian noise alone.

    >>> at_gamma(0.15)
    'gamma 0.15'
    """
    return f"gamma {gamma_key(gamma)}"


def under_shift(shift: str, severity: float) -> str:
    """The condition of a shift on top of the noise at train_gamma.

    >>> under_shift("blur", 2)
    'blur 2.0'
    """
    return f"{shift} {severity_key(severity)}"


@dataclass(frozen=True)
class UnitScores:
    """Losses of units and scores of samples of a split, by condition, in single precision."""

    split: str
    units: list[str]  # U names, in the order of ``Evaluation.dev_losses``
    samples: list[int]  # how many samples each unit has; N in all
    losses_UF: dict[str, Singles] = field(default_factory=dict)
    # ^ mean loss over the samples of a unit and over the draws, in the task's unit
    scores_N: dict[str, Singles] = field(default_factory=dict)
    # ^ of the last layer, unit by unit: what the metric is the mean of, in text 1 where it is right
    #   and 0 elsewhere, over several draws the fraction of them; empty where the metric follows
    #   from the losses

    def to_bytes(self) -> bytes:
        """A compressed .npz without pickles, the same bytes for the same numbers."""
        arrays = {
            "split": np.array(self.split),
            "units": np.array(self.units),
            "samples": np.array(self.samples, dtype=np.int64),
            **{_LOSSES + name: values for name, values in self.losses_UF.items()},
            **{_SCORES + name: values for name, values in self.scores_N.items()},
        }
        stream = io.BytesIO()
        np.savez_compressed(stream, allow_pickle=False, **arrays)
        return stream.getvalue()

    @classmethod
    def from_bytes(cls, content: bytes) -> UnitScores:
        """Scores that ``to_bytes`` wrote."""
        with np.load(io.BytesIO(content), allow_pickle=False) as stored:

            def arrays(kind: str) -> dict[str, Singles]:
                return {n.removeprefix(kind): stored[n] for n in stored if n.startswith(kind)}

            return cls(
                split=str(stored["split"]),
                units=stored["units"].tolist(),
                samples=stored["samples"].tolist(),
                losses_UF=arrays(_LOSSES),
                scores_N=arrays(_SCORES),
            )
