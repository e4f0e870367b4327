"""The paper's training in its own words: does it train, is it feasible, which departure matters.

    python -m benchmarks.paper_words --kept FILE --set data.folder=/data/ped2 --only ut_tables

Arms are runs of the spaces ``paper_video_*`` and ``paper_text_*`` on the data at hand, each with
some fields replaced, unconstrained and constrained, on the same fresh seeds. Departures change one
thing of the paper's, towards what the other built-in spaces do. An arm is trained once and kept in
the file ``--kept``, so that a run that is ended goes on; the results are written after every part.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.trained import put, trained
from search_spaces.paper.published import published
from search_spaces.paper.spaces import PAPER_SPACES
from search_spaces.start_points import parse_point
from sweep.study.feasibility import judge
from trainables.config.arm import ArmConfig
from trainables.plain import Json
from trainables.records.arm_record import ArmRecord
from trainables.records.evaluation import Evaluation

RESULTS = Path(__file__).parent / "results" / "paper_words.json"
FRESH = (3000, 3001)  # no search and no pilot has used these
Fields = Mapping[str, Json]
SAME: Fields = {}


@dataclass(frozen=True)
class Part:
    """Some rows of a space: their fields in both arms, and the constrained arm's alone."""

    asks: str
    space: str
    base: Fields  # of every row: the size that two cores can
    rows: Mapping[str, Fields]
    seeds: Sequence[int] = FRESH
    split: str = "test"
    is_paired: bool = False  # the k-th row on the k-th seed alone: five searches, five seeds

    def seeds_of(self, row: str) -> Sequence[int]:
        """The seeds that a row is trained on."""
        return (self.seeds[list(self.rows).index(row)],) if self.is_paired else self.seeds

    def config(self, row: str, seed: int, places: Fields) -> ArmConfig:
        """The constrained arm of a row."""
        space = PAPER_SPACES[self.space]
        fields = {**self.base, **places, **self.rows[row]}
        return space.base.with_fields({**fields, "seed": seed, "measured_on": self.split})


# An epoch of the shared part of UCSD Ped2 has 337 batches of 32 sequences.
_FIVE: Fields = {"steps": 5 * 337, "report_every": 337}
_WINDOWS: Fields = {"steps": 5 * 108, "report_every": 108, "batch_size": 100}  # one's patches
_FOUND: Fields = {"constraint.dual_lr": 0.1}  # by ut_search: feasible, of the least loss


def _rows(layers: Sequence[int], gammas: Sequence[float]) -> dict[str, Fields]:
    return {
        f"L{depth} g{gamma:g}": {"model.layers": depth, "train_gamma": gamma}
        for depth in layers
        for gamma in gammas
    }


PARTS: Mapping[str, Part] = {
    "ut_search": Part(
        asks="Which dual learning rate? One search, as in the paper, for all of UT's rows.",
        space="paper_video_ut",
        base={**_FIVE, "model.layers": 3},
        rows={f"dual_lr {lr:g}": {"constraint.dual_lr": lr} for lr in (1e-4, 1e-3, 1e-2, 1e-1)},
        seeds=(0,),
        split="dev",
    ),
    "ut_tables": Part(
        asks="Does the paper's UT train, is it feasible, what does it score?",
        space="paper_video_ut",
        base={**_FIVE, **_FOUND},
        rows=_rows((3,), (0.15,)) | _rows((5, 7), (0.09,)),
    ),
    "ut_departures": Part(
        asks="Which single departure from the paper's UT matters?",
        space="paper_video_ut",
        base={**_FIVE, **_FOUND, "model.layers": 3, "train_gamma": 0.09},
        rows={
            "the paper's": SAME,
            "scores by distance, DCT basis, W = 0": {"model.variant": "distance"},
            "learning rates fall over the last fifth": {"decay_fraction": 0.2},
            "gradients clipped at 1": {"grad_clip": 1.0},
            "sequences of 10 frames": {"data.frames": 10},
            "batches of 100 sequences": _WINDOWS,
            "batches of one window's 100 patches": {**_WINDOWS, "data.shuffle_by": "window"},
            "multipliers by projected SGD": {
                "constraint.dual_optimizer": "sgd",
                "constraint.dual_lr": 0.05,
            },
            "dual steps by the relative violation, clipped": {
                "constraint.dual_signal": "relative",
                "constraint.signal_clip": 1.0,
            },
            "constraints over a schedule": {"constraint.scale": "schedule"},
            "slack that is kept": {"constraint.resilience_form": "slack"},
            "decay in the place of slack": {"constraint.resilience_form": "decay"},
            "no resilience": {
                "constraint.resilience_form": "decay",
                "constraint.resilience": 0.0,
            },
            "no warm-up": {"constraint.warmup_epochs": 0},
            "f0 of the unchanged input's loss": {
                "constraint.reference_unit": "identity",
                "constraint.reference_loss": 1.0,
            },
            "detached": {"constraint.grad_through_previous": False},
        },
    ),
    "text_ut": Part(
        asks="Does the paper's UT of texts train? The best of five searches, and of five seeds.",
        space="paper_text_ut",
        base={
            "device": "cpu",
            "data.max_length": 64,
            "train_gamma": 0.8,
            "primal_lr": 1e-3,
            "steps": 800,
            "report_every": 400,
            "batch_size": 16,
            "eval_windows": 300,
            "constraint.alpha": 0.1,
            "constraint.reference_loss": 0.9,
        },
        rows={
            f"dual_lr {lr:g}": {"constraint.dual_lr": lr} for lr in (1e-3, 5e-3, 2e-2, 1e-1, 5e-1)
        },
        seeds=(3000, 3001, 3002, 3003, 3004),
        is_paired=True,
    ),
    "dust": Part(
        asks="Does the paper's DUST train, is it feasible, what does it score?",
        space="paper_video_dust",
        base={"steps": 3375, "report_every": 675, "model.layers": 5},
        rows={
            "L5 g0.09": {"train_gamma": 0.09},
            "L5 g0.09, a dictionary per layer in both": {
                "train_gamma": 0.09,
                "model.variant": "per_layer",
            },
        },
    ),
}


def entry(record: ArmRecord) -> dict[str, Json]:
    """What is kept of an arm."""
    found: dict[str, Json] = {
        "status": record.status,
        "reason": record.reason,
        "seconds": round(record.reports[-1].scalars["train/seconds"], 1) if record.reports else 0.0,
    }
    if record.evaluation is None:
        return found
    kept = {
        "mean": record.evaluation.mean_over_gammas,
        "losses": record.evaluation.held_out_losses(),
        "scores": record.evaluation.scores,
        "identity": _mean(record.evaluation, "identity"),
        "wiener": _mean(record.evaluation, "wiener"),
        "multipliers": record.evaluation.multipliers,
    }
    constraint = record.config.constraint
    judgement = None if constraint is None else judge([record], constraint)
    if judgement is not None:
        kept |= {"missing_shares": list(judgement.held_out), "feasible": judgement.feasible}
    return {**found, **kept}


def _mean(evaluation: Evaluation, reference: str) -> float | None:
    scores = evaluation.references.get(reference)
    return None if scores is None else sum(scores.values()) / len(scores)


def results_of(part: Part, places: Fields, kept: Mapping[str, Json]) -> Json:
    """Rows of a part by name: the published cell, and both arms seed by seed."""
    rows = {}
    for name in part.rows:
        pairs = []
        for seed in part.seeds_of(name):
            config = part.config(name, seed, places)
            arms = (config, config.unconstrained())
            pair = [kept[arm.signature()] for arm in arms]
            pairs.append({"seed": seed, "constrained": pair[0], "unconstrained": pair[1]})
        cell = published(config)
        rows[name] = {
            "fields": dict(part.rows[name]),
            "published": None if cell is None else [cell.constrained, cell.unconstrained],
            "pairs": pairs,
        }
    return {
        "asks": part.asks,
        "space": part.space,
        "base": dict(part.base),
        "is_paired": part.is_paired,
        "rows": rows,
    }


def main() -> None:
    """Train what the file of kept arms lacks, part by part."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=PARTS, nargs="+", required=True)
    parser.add_argument("--kept", type=Path, required=True, help="arms, a JSON line each")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE")
    options = parser.parse_args()
    places = {name: value for one in options.set for name, value in parse_point(one).items()}
    for name in options.only:
        part = PARTS[name]
        configs = [
            arm
            for seed in part.seeds
            for row in part.rows
            if seed in part.seeds_of(row)
            for config in (part.config(row, seed, places),)
            for arm in (config.unconstrained(), config)
        ]
        found = trained(configs, options.kept, entry, workers=options.workers)
        put(options.out, name, results_of(part, places, found))
        print(f"{name}: {len(configs)} arms", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
