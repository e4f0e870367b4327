"""Cost of a training step of decoders: exact and estimated inner losses beside plain training.

    python -m benchmarks.decoder_step > benchmarks/results/decoder_step.json

Real steps of ``trainables.training`` (forward, backward, clipping, Adam, dual step) on texts of one
token, all of which have a loss: a network of Llama's shape with random weights and a head of its
own. Cases alternate in blocks in one process, in rotated order; times are processor seconds of one
thread, figures medians over blocks, ratios to the plain step of the same block.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch
from transformers import LlamaConfig

from sweep.cost.noise_task import noise_task
from trainables.build import build_model, weighting_of
from trainables.config.arm import ArmConfig, ConstraintConfig, DataConfig, ModelConfig
from trainables.training import Training

CPU = torch.device("cpu")
PLAIN = "plain"
CASES = {
    PLAIN: None,
    "exact": {},
    "tokens_7": {"inner_tokens": 0.07},
    "tokens_3": {"inner_tokens": 0.03},
}  # by name, the constraint's fields


def run_of(options: argparse.Namespace, folder: Path) -> ArmConfig:
    """The constrained run with exact losses; its decoder is described in ``folder``."""
    LlamaConfig(
        vocab_size=options.vocabulary,
        hidden_size=options.width,
        intermediate_size=options.width * 8 // 3,
        num_hidden_layers=options.layers,
        num_attention_heads=max(options.width // 64, 1),
        num_key_value_heads=max(options.width // 256, 1),
        max_position_embeddings=options.length,
        tie_word_embeddings=False,
    ).save_pretrained(folder)
    return ArmConfig(
        task="instruction_tuning",
        data=DataConfig(name="alpaca", max_length=options.length),
        model=ModelConfig(
            name="decoder", variant="scratch", layers=options.layers, checkpoint=str(folder)
        ),
        train_gamma=0.25,
        steps=10**6,
        batch_size=options.batch,
        constraint=ConstraintConfig(reference="virtual_layer0", reference_unit="constant"),
    )


def training_of(run: ArmConfig) -> Training:
    """A run before its first step, on noise."""
    task = noise_task(run)
    weighting = weighting_of(
        run, task.scales, CPU, torch.float32, steps_per_epoch=task.steps_per_epoch
    )
    return Training(run, task, build_model(run, task), weighting)


def measured(options: argparse.Namespace) -> dict[str, list[float]]:
    """Seconds of every block's step, by case."""
    with tempfile.TemporaryDirectory() as folder:
        exact = run_of(options, Path(folder))
        trainings = {
            name: training_of(
                exact.unconstrained()
                if fields is None
                else exact.with_fields({f"constraint.{k}": v for k, v in fields.items()})
            )
            for name, fields in CASES.items()
        }
    for training in trainings.values():
        training.run_to(1)  # allocates Adam's moments
    names = list(trainings)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for block in range(options.blocks):
        first = block % len(names)
        for name in names[first:] + names[:first]:
            training = trainings[name]
            started = time.process_time()
            training.run_to(training.step + 1)
            seconds[name].append(time.process_time() - started)
        print(block, {n: round(s[-1], 2) for n, s in seconds.items()}, file=sys.stderr, flush=True)
    return seconds


def parsed(arguments: list[str]) -> argparse.Namespace:
    """The shape and the number of blocks."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for name, default in (
        ("layers", 8), ("width", 512), ("vocabulary", 32_000), ("batch", 2), ("length", 257),
        ("blocks", 12),
    ):  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=default)
    return parser.parse_args(arguments)


def main() -> None:
    """Measure and print."""
    options = parsed(sys.argv[1:])
    torch.set_num_threads(1)
    before = os.getloadavg()[0]
    seconds = measured(options)

    def ratios(name: str) -> dict[str, float]:
        each = [a / b for a, b in zip(seconds[name], seconds[PLAIN], strict=True)]
        places = {"least": min(each), "median": statistics.median(each), "most": max(each)}
        return {place: round(value, 3) for place, value in places.items()}

    cases = {
        name: {"ms_per_step": round(1e3 * statistics.median(of_case)), "time_ratio": ratios(name)}
        for name, of_case in seconds.items()
    }
    load = [round(before, 1), round(os.getloadavg()[0], 1)]
    found = {**vars(options), "torch": torch.__version__, "cases": cases, "load": load}
    print(json.dumps({"benchmark": "decoder_step", **found}, indent=1))


if __name__ == "__main__":
    main()
