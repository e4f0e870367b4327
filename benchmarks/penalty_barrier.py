"""Penalty-barrier multipliers beside the augmented Lagrangian: in how many arms are they feasible.

    python -m benchmarks.penalty_barrier --store FOLDER [--checkpoint MINILM]

Settings, seeds and the number of tries are those of ``benchmarks.dual_optimizers``. The multipliers
are those of the class PBM of humancompatible-train (its version is in the results), put in the
place of ours; the augmented Lagrangian is trained again beside it. Two variants: the library's
defaults, and a penalty held at 1 from multipliers of .02. The factor gamma is tuned over four
values. JSON on standard output: ``penalty_barrier`` in results/dual_optimizers.json.

Source: Stochastic penalty-barrier methods, arXiv 2605.18618;
https://github.com/humancompatible/train.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from humancompatible.train.dual_optim import PBM
from torch import Tensor

from benchmarks.dual_optimizers import (
    FIRST_SEED,
    REACHES,
    TUNING_SEED,
    add_options,
    arm,
    entry,
    feasible_counts,
    rank,
)
from benchmarks.trained import record_of, trained
from trainables.config.arm import ArmConfig, ConstraintConfig
from trainables.plain import Json
from trainables.primal_dual import lagrangian
from trainables.primal_dual.dual_variables import Multipliers

Made = Callable[[str, float, int, str | None], ArmConfig]

GAMMAS = (0.1, 0.5, 0.9, 0.99)  # the library's default, and slower; as many as others have rates
VARIANTS: dict[str, dict[str, Any]] = {
    "defaults": {"epoch_length": 20},  # steps; what a run has of real epochs is one or two
    "held penalty": {
        "penalty_update": "const",
        "gamma_annealing": False,
        "penalty_annealing": False,
        "init_duals": 0.02,
    },
}


def slope(t: Tensor) -> Tensor:
    """phi'(t) of the quadratic-logarithmic penalty-barrier function, 1 at t = 0 and above 0.

    >>> slope(torch.tensor([0.5, 0.0, -0.5, -2.0])).tolist()
    [1.5, 1.0, 0.5, 0.125]
    """
    return torch.where(t >= -0.5, 1 + t, -0.25 / t.clamp(max=-0.5))


class PenaltyBarrier(Multipliers):
    """The library's multipliers lambda and penalties p; a loss is weighed by lambda phi'(s / p)."""

    def __init__(
        self, variant: str, count: int, config: ConstraintConfig, device: torch.device, dtype: Any
    ) -> None:
        """Start as the variant does; gamma is 1 - dual_lr."""
        super().__init__(count, config, device, dtype)
        self._pbm = PBM(count, gamma=1 - config.dual_lr, **VARIANTS[variant])
        self.values_L.copy_(self._pbm.duals)

    @torch.no_grad()
    def ascend(self, signal_L: Tensor, lr_factor: float) -> None:
        """One update of multipliers and penalties, which the library anneals, not ``lr_factor``."""
        self._pbm.update(signal_L)
        self.values_L.copy_(self._pbm.duals)

    @property
    def follow_the_batch(self) -> bool:
        """True: phi' is that of the batch's own signal."""
        return True

    @torch.no_grad()
    def effective(self, signal_L: Tensor) -> Tensor:
        """What weighs losses of this signal."""
        return self.values_L * slope(signal_L / self._pbm.penalties)


def record_by(variant: str, plain: Json) -> Json:
    """The final record of an arm whose multipliers are the library's."""
    lagrangian.Multipliers = partial(  # type: ignore[attr-defined,assignment]  # in this process
        PenaltyBarrier, variant
    )
    return record_of(plain)


def augmented_arm(setting: str, reach: float, seed: int, checkpoint: str | None) -> ArmConfig:
    """An arm of the augmented Lagrangian."""
    return arm(setting, "augmented", reach, seed, checkpoint)


def barrier_arm(setting: str, gamma: float, seed: int, checkpoint: str | None) -> ArmConfig:
    """An arm whose weights follow the batch, as an augmented Lagrangian's do, with 1 - gamma."""
    config = arm(setting, "augmented", REACHES[0], seed, checkpoint)
    return config.with_fields({"constraint.dual_lr": 1 - gamma})


def main() -> None:
    """Train what the store lacks, and print what became of every variant."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--store", type=Path, required=True)
    add_options(parser)
    options = parser.parse_args()
    options.store.mkdir(parents=True, exist_ok=True)
    at = options.checkpoint
    ways: dict[str, tuple[tuple[float, ...], Made, Callable[[Json], Json]]] = {
        "augmented": (REACHES, augmented_arm, record_of)
    }
    for variant in VARIANTS:
        name = f"penalty-barrier, {variant}"
        ways[name] = (GAMMAS, barrier_arm, partial(record_by, variant))
    rows = {}
    for number, (name, (tries, made, record)) in enumerate(ways.items()):
        kept = options.store / f"arms-{number}.jsonl"
        run = partial(trained, kept=kept, entry=entry, workers=options.workers, record=record)
        first = {(s, x): made(s, x, TUNING_SEED, at) for s in options.only for x in tries}
        tuned = run(first.values())
        came = {key: tuned[config.signature()] for key, config in first.items()}
        shares = {s: {x: rank(came[s, x]) for x in tries} for s in options.only}
        best = {s: min(of, key=of.__getitem__) for s, of in shares.items()}
        seeds = range(FIRST_SEED, FIRST_SEED + options.seeds)
        fresh = {(s, seed): made(s, best[s], seed, at) for s in options.only for seed in seeds}
        trained_at = run(fresh.values())
        rows[name] = row(
            {key: trained_at[config.signature()] for key, config in fresh.items()}, best, came
        )
    library = version("humancompatible-train")
    print(json.dumps({"benchmark": "penalty_barrier", "library": library, "rows": rows}, indent=1))


def row(
    arms: dict[tuple[str, int], dict[str, Json]],
    best: dict[str, float],
    tuning: dict[tuple[str, float], dict[str, Json]],
) -> dict[str, Json]:
    """What became of one way to move multipliers."""
    return {
        **feasible_counts(arms, best),
        "tries_feasible": sum(bool(one["feasible"]) for one in tuning.values()),
        "chosen": best,
        "each": [{"setting": s, "seed": seed, **one} for (s, seed), one in arms.items()],
    }


if __name__ == "__main__":
    main()
