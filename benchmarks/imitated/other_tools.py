"""Tools for comparing results, each asked for its verdict on one setting of an imitated sweep.

None is a dependency: what is not installed is left out with a reason. deep-significance takes 100
bootstrap iterations and samples where its default is 1,000, in steps of .01, not .005, and rliable
200 where its default is 50,000: by default one table takes minutes, and rates are asked for here.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.imitated.null_sweeps import SETTINGS, Floats

_SEEDED = np.random.RandomState(0)
Verdict = Callable[[Floats, Floats], bool]  # scores by seed of both arms: is one marked


def verdicts() -> tuple[dict[str, Verdict], dict[str, str]]:
    """How each installed tool marks a pair of arms, and why others are left out."""
    found: dict[str, Verdict] = {}
    missing: dict[str, str] = {}
    for module, of in (
        ("autorank", _autorank), ("deepsig", _deepsig), ("rliable.library", _rliable),
    ):  # fmt: skip
        try:
            with quiet():
                found.update(of(importlib.import_module(module)))
        except ImportError as error:
            missing[module] = f"not installed: {error}"
    return found, missing


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Nothing printed, no warning shown."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


def _autorank(module: Any) -> dict[str, Verdict]:
    import pandas as pd

    def marks(first_K: Floats, second_K: Floats) -> bool:
        frame = pd.DataFrame({"constrained": first_K, "unconstrained": second_K})
        return bool(module.autorank(frame, alpha=0.05, verbose=False).pvalue < 0.05)

    return {"autorank": marks}


def _deepsig(module: Any) -> dict[str, Verdict]:
    def violation(first_K: Floats, second_K: Floats, comparisons: int) -> float:
        return float(
            module.aso(
                first_K, second_K, num_comparisons=comparisons, num_samples=100,
                num_bootstrap_iterations=100, dt=0.01, show_progress=False, seed=0,
            )
        )  # fmt: skip

    return {
        "deep-significance, ASO < .5, one way": lambda a, b: violation(a, b, 1) < 0.5,
        "deep-significance, ASO < .2, one way, Bonferroni": (
            lambda a, b: violation(a, b, SETTINGS) < 0.2
        ),
    }


def _rliable(module: Any) -> dict[str, Verdict]:
    metrics = importlib.import_module("rliable.metrics")
    base: Any = module.arch_bs.IndependentSamplesBootstrap
    original = base.__init__

    def renamed(self: Any, *args: Any, random_state: Any = None, **named: Any) -> None:
        # rliable 1.2 says `random_state`, arch 8 `seed`.
        original(self, *args, seed=random_state, **named)

    base.__init__ = renamed

    def marks(first_K: Floats, second_K: Floats) -> bool:
        pairs = {"pair": (first_K[:, None], second_K[:, None])}
        _, bounds = module.get_interval_estimates(
            pairs, metrics.probability_of_improvement, reps=200, random_state=_SEEDED
        )
        low, high = bounds["pair"][:, 0]
        return bool(low > 0.5 or high < 0.5)

    return {"rliable, probability of improvement, 95 %": marks}
