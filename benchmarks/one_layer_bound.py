r"""Best linear one-layer loss of each UT and DUST variant, beside two references.

The references are the identity and the Wiener filter.

    python benchmarks/one_layer_bound.py                               on the built-in photographs
    python benchmarks/one_layer_bound.py --data DIR [--data-set NAME]  on UCSD Ped2, or another

Before a model is searched: can one of its layers denoise at all? What the layer computes before its
trained linear map (attention's mean of the tokens, or the thresholded code) is held at the start;
the map is free and fitted by least squares to noisy training sequences; the loss is that of the
held-out clips. A variant whose best map stays near the identity's loss cannot descend from there in
one layer, whatever its constraint says (docs/decisions/0012).

    UT      X_1 = R + Z W        Z = softmax(scores) X,  R = X or Z,  W free: not even symmetric
    DUST    D_1 A_1 = A_1 W      A_1 = S(Y D / c), the code of layer 1, W free of D
            D_2 A_2 = A_2 W      the code of layer 2 on top of it, which attention has mixed

``at_start`` is the layer as it is initialised. The ReLU is left out of the fit, and both V and D
are trained in a run: a bound on the start, no bound on what training finds. With D free and no
threshold, layer 1 of DUST, D D' Y / c, reaches the spatial Wiener filter without its mean.
Losses: sum of squares over a patch, mean over tokens and eval_draws, as in training; the Wiener
filters see the clean statistics, and the temporal one all T frames. JSON on standard output; half a
minute on one core.

Shape suffixes: B batch, T tokens (frames), P pixels of a patch, K features.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from trainables.config.arm import ArmConfig, DataConfig, ModelConfig
from trainables.models.dust import DUST
from trainables.models.ut import VARIANTS, UTLayer
from trainables.plain import Json
from trainables.tasks.base import Tokens
from trainables.tasks.linear_references import linear_references
from trainables.tasks.video_denoising import VideoDenoising

RIDGE = 1e-9  # of the features' mean square: codes of more atoms than pixels are nearly dependent


@dataclass(frozen=True)
class Candidate:
    """One layer up to its linear map: X to (R, F), the prediction being R + F W."""

    split: Callable[[Tensor], tuple[Tensor, Tensor]]  # [B, T, P] to [B, T, P] and [B, T, K]
    at_start: Callable[[Tensor], Tensor]  # the layer as it is initialised, ReLU and all


def ut_candidate(variant: str, patch_size: int, noise_energy: float) -> Candidate:
    """The first layer of UT; its V is orthonormal at the start, so scores are those of pixels."""
    layer = UTLayer(patch_size, VARIANTS[variant], noise_energy)

    def split(x_BTP: Tensor) -> tuple[Tensor, Tensor]:
        scores_BTT = x_BTP @ x_BTP.mT
        if layer.variant.scores == "distance":
            scores_BTT = scores_BTT - 0.5 * x_BTP.square().sum(-1).unsqueeze(-2)
        attended_BTP = torch.softmax(layer.temperature * scores_BTT, dim=-1) @ x_BTP
        residual = x_BTP if layer.variant.residual == "input" else attended_BTP
        return residual, attended_BTP

    return Candidate(split, layer)


def dust_candidate(depth: int, patch_size: int, model: ModelConfig) -> Candidate:
    """Layer ``depth`` of DUST, 1 or 2, at the start, where all its variants are the same."""
    dust = DUST(
        layers=depth,
        patch_size=patch_size,
        atoms_per_side=model.atoms_per_side,
        threshold=model.threshold,
        shared=True,
    )
    dictionary_PK = dust.dictionaries[0]

    def split(x_BTP: Tensor) -> tuple[Tensor, Tensor]:
        code_BTK = torch.nn.functional.softshrink(
            x_BTP @ dictionary_PK * dust.step_size, dust.threshold
        )
        if depth == 2:
            seen_BTP = code_BTK @ dictionary_PK.mT
            attention_BTT = torch.softmax(seen_BTP @ seen_BTP.mT, dim=-1)
            rest_BTP = x_BTP - attention_BTT @ seen_BTP
            stepped_BTK = attention_BTT @ code_BTK + rest_BTP @ dictionary_PK * dust.step_size
            code_BTK = torch.nn.functional.softshrink(stepped_BTK, dust.threshold)
        return torch.zeros_like(x_BTP), code_BTK

    return Candidate(split, lambda x_BTP: dust(x_BTP)[-1])


def tensor_of(inputs: Tensor | Tokens) -> Tensor:
    """Inputs of a video's batch."""
    assert isinstance(inputs, Tensor)
    return inputs


@torch.no_grad()
def best_map(candidate: Candidate, task: VideoDenoising, batches: int) -> Tensor:
    """W [K, P] that minimises |R + F W - X_clean|^2 over the first training batches."""
    gram = moment = torch.zeros(())
    for step in range(batches):
        batch = task.train_batch(step)
        residual_BTP, features_BTK = candidate.split(tensor_of(batch.inputs))
        features_NK = features_BTK.flatten(0, 1)
        missing_NP = (batch.targets - residual_BTP).flatten(0, 1)
        gram = gram + features_NK.mT @ features_NK
        moment = moment + features_NK.mT @ missing_NP
    ridge = RIDGE * gram.diagonal().mean() * torch.eye(len(gram), dtype=gram.dtype)
    weights: Tensor = torch.linalg.solve(gram + ridge, moment)
    return weights


@torch.no_grad()
def held_out_loss(
    predict: Callable[[Tensor], Tensor], task: VideoDenoising, config: ArmConfig
) -> float:
    """Mean loss at train_gamma over the dev clips and eval_draws, in the task's unit."""
    losses = [
        task.loss(predict(tensor_of(batch.inputs)), batch.targets)
        for draw in range(config.eval_draws)
        for batch in task.held_out("dev", config.train_gamma, draw)
    ]
    return float(torch.cat(losses).mean())


def bounds(config: ArmConfig, batches: int) -> dict[str, Json]:
    """Every variant's losses, and those of the references, on the data of ``config``."""
    task = VideoDenoising(config, torch.device("cpu"), torch.float64)
    patch = config.data.patch_size
    candidates = {
        f"ut {name}": ut_candidate(name, patch, task.scales.identity_loss) for name in VARIANTS
    }
    model = ModelConfig(name="dust")
    for depth in (1, 2):
        candidates[f"dust layer {depth}"] = dust_candidate(depth, patch, model)
    references = linear_references(config, task).losses
    rows = {}
    for name, candidate in candidates.items():
        weights = best_map(candidate, task, batches)

        def fitted(x_BTP: Tensor, candidate: Candidate = candidate, w: Tensor = weights) -> Tensor:
            residual_BTP, features_BTK = candidate.split(x_BTP)
            return residual_BTP + features_BTK @ w

        best = held_out_loss(fitted, task, config)
        rows[name] = {
            "at_start": held_out_loss(candidate.at_start, task, config),
            "best_linear": best,
            "best_over_identity": best / references["identity"],
            "best_over_wiener": best / references["wiener"],
        }
    return {"references": references, "variants": rows}


def main() -> None:
    """Fit, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", metavar="DIR", help="folder of the data set")
    parser.add_argument("--data-set", default="ucsd_ped2", help="its name, with --data")
    parser.add_argument("--gamma", type=float, default=0.15)
    parser.add_argument("--frames", type=int, default=10)
    parser.add_argument("--batches", type=int, default=150, help="of 64 sequences, to fit to")
    options = parser.parse_args()
    if not options.gamma > 0:
        parser.error(f"--gamma must be above 0, got {options.gamma}: there is nothing to remove.")
    torch.set_num_threads(1)
    data = (
        DataConfig(name="photographs", frames=options.frames)
        if options.data is None
        else DataConfig(name=options.data_set, folder=options.data, frames=options.frames)
    )
    config = ArmConfig(data=data, train_gamma=options.gamma, batch_size=64, eval_windows=12)
    result = {
        "benchmark": "one_layer_bound",
        "data": data.name,
        "train_gamma": options.gamma,
        "frames": options.frames,
        "batches": options.batches,
        **bounds(config, options.batches),
    }
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
