"""Noise of estimated inner losses on real texts: sampled tokens beside sampled layers.

    python -m benchmarks.estimator_noise --data ALPACA --checkpoint FOLDER

prints JSON (benchmarks/results/estimator_noise.json): standard deviations of the violations of
``alpaca_small`` at its decoder's start, by constraint, and the error of the inner losses' gradient
over its length, both over the draws of one batch. ``batches`` is what batches themselves vary by.
``cost`` is in heads: products with the head over all tokens of a batch, beside the last layer's.
Sampled layers have the best of three control variates that a run could have: the last layer's loss,
the layer's own mean, and the last layer's loss plus the mean gap to it, here over the batches.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from search_spaces.alpaca_small import SPACE
from trainables.heads.loss_estimators import estimated_losses, sample_places
from trainables.layer_losses import layer_losses
from trainables.primal_dual.constraints import descent_constraints, violations
from trainables.primal_dual.weighting import on_device
from trainables.random_keys import keyed_generator
from trainables.tasks.instruction_tuning import InstructionTuning
from trainables_testing.tiny_runs import model_of, task_of

CPU = torch.device("cpu")
BATCHES, DRAWS, GRADIENTS = 60, 60, 20
SHARES = (1 / 3, 0.07, 0.03)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", required=True, help="Alpaca's folder")
    parser.add_argument("--checkpoint", required=True, help="the small decoder's folder")
    given = parser.parse_args()
    torch.set_num_threads(1)
    setting = SPACE.settings[0]
    fields = {"data.folder": given.data, "model.checkpoint": given.checkpoint}
    config = SPACE.run(setting, SPACE.default_point(setting), seed=0).with_fields(fields)
    task = task_of(config)
    assert isinstance(task, InstructionTuning)
    assert config.constraint is not None
    model, unit = model_of(config, task), task.scales.constant_loss
    constraints = on_device(
        descent_constraints(config.constraint, config.model.layers, task.scales),
        CPU,
        torch.float32,
    )
    trained = [p for p in model.parameters() if p.requires_grad]
    inner = range(1, config.model.layers)  # layer 0 is bound by nothing

    def spread(losses_DF: Tensor) -> list[float]:
        found = torch.stack([violations(constraints, losses_F) for losses_F in losses_DF])
        return [round(float(x), 5) for x in found.std(0)]

    def gradient(value: Tensor) -> Tensor:
        found = torch.autograd.grad(value, trained, materialize_grads=True)
        return torch.cat([part.flatten() for part in found])

    def error(draws: Callable[[int], Tensor], exact: Tensor) -> float:
        squares = [float((draws(k) - exact).square().sum()) for k in range(GRADIENTS)]
        return round(math.sqrt(sum(squares) / GRADIENTS / float(exact.square().sum())), 3)

    with torch.no_grad():
        seen_DF = torch.stack(
            [layer_losses(model, task, task.train_batch(k)).mean(1) / unit for k in range(BATCHES)]
        )
    batch = task.train_batch(0)
    lengths = list(task._lengths)

    def exact_losses() -> Tensor:
        found: Tensor = layer_losses(model, task, batch).mean(1) / unit
        return found

    def of_tokens(share: float, draw: int) -> Tensor:
        keys = keyed_generator("cpu", 0, "estimator_noise", draw)
        drawn = sample_places(lengths, share, keys)
        places_BK = drawn.places_BK.masked_fill(~drawn.drawn_BK, -1)
        inputs = replace(batch.inputs, sampled=places_BK)  # type: ignore[type-var]
        found: Tensor = layer_losses(model, task, replace(batch, inputs=inputs)).mean(1) / unit
        return found

    def of_share(share: float, draw: int) -> Tensor:
        return gradient(of_tokens(share, draw)[1:-1].sum())

    exact = gradient(exact_losses()[1:-1].sum())
    found: dict[str, object] = {"batches": {"violations": spread(seen_DF)}}
    for share in SHARES:
        with torch.no_grad():
            drawn_DF = torch.stack([of_tokens(share, k) for k in range(DRAWS)])
        found[f"tokens_{share:.2f}"] = {
            "cost": round(share * len(inner), 2),
            "violations": spread(drawn_DF),
            "gradient": error(partial(of_share, share), exact),
        }
    with torch.no_grad():
        losses_F = exact_losses()
        last = losses_F[-1]
        controls = {
            "last_layer": last.expand(len(inner)),
            "mean": seen_DF.mean(0)[1:-1],
            "last_layer_and_mean_gap": last + (seen_DF - seen_DF[:, -1:]).mean(0)[1:-1],
        }
        for name, controls_M in controls.items():
            estimates = [
                torch.cat(
                    [losses_F[:1], estimated_losses({at: losses_F[1 + at]}, controls_M), last[None]]
                )
                for at in range(len(inner))
            ]
            drawn_DF = torch.stack(list(itertools.islice(itertools.cycle(estimates), DRAWS)))
            found[f"one_layer, {name}"] = {"cost": 1.0, "violations": spread(drawn_DF)}
    weight = len(inner)
    found["one_layer, any"] = {
        "cost": 1.0,
        "gradient": error(lambda k: gradient(weight * exact_losses()[1 + k % len(inner)]), exact),
    }
    counts = {"samples": len(lengths), "answer_tokens": sum(lengths), "inner_layers": len(inner)}
    print(json.dumps({"benchmark": "estimator_noise", **counts, "noise": found}, indent=1))


if __name__ == "__main__":
    main()
