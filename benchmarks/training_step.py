"""Cost of constraining: step time and peak memory, constrained over unconstrained.

    python benchmarks/training_step.py                     JSON on standard output, some minutes
    python benchmarks/training_step.py --case distilbert   one case alone

``ut``: UT, d = 256, L = 7. ``dust``: DUST, 576 atoms, L = 5, 16 sequences. ``distilbert``: an
encoder of DistilBERT's size with random weights on random words, 8 texts of 128 tokens. Processor
times of steps alternate in blocks inside one process; the figure is the median of the blocks'
ratios. ``by_hand`` is a third arm, which shows what the loop itself costs: plain training without
it; for ``distilbert`` it is transformers' own classifier, with its dropout off. Peak memory
is measured in a fresh process per arm, above what was resident before the model was built. Targets:
the case's own, below.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from benchmarks.imitated.text_models import write_encoder, write_reviews
from trainables.build import build_model, build_task, weighting_of
from trainables.config.arm import ArmConfig, ConstraintConfig, DataConfig, ModelConfig
from trainables.layer_losses import introduce
from trainables.memory import peak_memory_mb, reset_peak_memory
from trainables.models.base import LastPrediction
from trainables.tasks.base import Task, Tokens
from trainables.training import Training

CPU = torch.device("cpu")
ARMS = ("constrained", "unconstrained")
Steps = Callable[[int], None]  # takes so many steps


@dataclass(frozen=True)
class Case:
    """What is trained, and what constraining it may cost."""

    config: ArmConfig
    most_time: float
    most_memory: float
    blocks: int
    steps: int  # in a block

    def arm(self, name: str) -> ArmConfig:
        """Its constrained or its unconstrained arm."""
        return self.config if name == "constrained" else self.config.unconstrained()


def ut() -> Case:
    """Seven layers on the built-in photographs."""
    config = _on_photographs("ut", 7, batch=32)
    return Case(config, most_time=1.15, most_memory=1.10, blocks=15, steps=6)


def dust() -> Case:
    """Five layers as in search_spaces/ped2_dust.py, on the built-in photographs."""
    config = _on_photographs("dust", 5, batch=16)
    return Case(config, most_time=1.5, most_memory=1.10, blocks=15, steps=6)


def _on_photographs(model: str, layers: int, *, batch: int) -> ArmConfig:
    return ArmConfig(
        data=DataConfig(name="photographs"),
        model=ModelConfig(name=model, layers=layers),
        steps=100_000,
        batch_size=batch,
        constraint=ConstraintConfig(),
    )


def distilbert(folder: Path) -> Case:
    """An encoder of DistilBERT's size, in ``folder`` with texts of 128 tokens and more."""
    if not (folder / "model").exists():
        write_encoder(folder / "model")
        write_reviews(folder / "aclImdb")
    config = ArmConfig(
        task="text_classification",
        data=DataConfig(name="imdb", folder=str(folder / "aclImdb"), max_length=128),
        model=ModelConfig(name="encoder", layers=6, checkpoint=str(folder / "model")),
        train_gamma=0.4,
        steps=100_000,
        batch_size=8,
        constraint=ConstraintConfig(reference="virtual_layer0", reference_unit="constant"),
    )
    return Case(config, most_time=1.08, most_memory=1.05, blocks=12, steps=1)


def training_of(config: ArmConfig, task: Task) -> Training:
    """One arm at its start."""
    model = build_model(config, task).float()
    introduce(model, task)
    weighting = weighting_of(
        config, task.scales, CPU, torch.float32, steps_per_epoch=task.steps_per_epoch
    )
    return Training(config, task, model, weighting)


def by_hand(case: Case, task: Task) -> Steps:
    """A loop without layer losses: last prediction, its loss, Adam."""
    config = case.config
    model, predict = _plain_model(config, task)
    optimizer = torch.optim.Adam(model.parameters(), lr=config.primal_lr, fused=True)
    done = 0

    def run(steps: int) -> None:
        nonlocal done
        for step in range(done, done + steps):
            batch = task.train_batch(step)
            prediction = predict(batch.inputs)
            loss = task.loss(prediction, batch.targets).mean() / task.scales.constant_loss
            optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(model.parameters(), config.largest_gradient)
            optimizer.step()
        done += steps

    return run


def _plain_model(
    config: ArmConfig, task: Task
) -> tuple[nn.Module, Callable[[Tensor | Tokens], Tensor]]:
    """A model, and how its last layer's prediction is had of a batch's inputs."""
    if config.model.checkpoint is None:
        model = build_model(config, task).float()
        if isinstance(model, LastPrediction):
            return model, model.last  # type: ignore[return-value]
        return model, lambda inputs: model(inputs)[-1]
    from transformers import AutoModelForSequenceClassification

    classifier = AutoModelForSequenceClassification.from_pretrained(config.model.checkpoint).eval()
    words = classifier.get_input_embeddings().requires_grad_(False)

    def predict(inputs: Tensor | Tokens) -> Tensor:
        assert isinstance(inputs, Tokens)
        embeddings = words(inputs.ids)
        if inputs.noise is not None:
            embeddings = embeddings + inputs.noise
        mask = inputs.attention_mask
        logits: Tensor = classifier(inputs_embeds=embeddings, attention_mask=mask).logits
        return logits

    return classifier, predict


def _advance(training: Training, steps: int) -> None:
    training.run_to(training.step + steps)


def step_times(case: Case) -> dict[str, list[float]]:
    """Processor seconds per step of every block, by arm; the arms take turns, in rotated order."""
    task = build_task(case.config, CPU, torch.float32)
    trainings = {name: training_of(case.arm(name), task) for name in ARMS}
    runs: dict[str, Steps] = {
        name: partial(_advance, training) for name, training in trainings.items()
    }
    runs["by_hand"] = by_hand(case, task)
    names = list(runs)
    for run in runs.values():
        run(3)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for block in range(case.blocks):
        for name in names[block % 3 :] + names[: block % 3]:
            started = time.process_time()  # one thread: what others do here does not count
            runs[name](case.steps)
            seconds[name].append((time.process_time() - started) / case.steps)
    return seconds


def peak_above_start(case: Case, arm: str) -> float:
    """MiB that training of one arm needs above what is resident before, in this process."""
    task = build_task(case.config, CPU, torch.float32)
    reset_peak_memory(CPU)
    before = peak_memory_mb(CPU)
    training_of(case.arm(arm), task).run_to(4 * case.steps)
    return peak_memory_mb(CPU) - before


def peaks(name: str) -> dict[str, list[float]]:
    """``peak_above_start`` of three processes each."""
    found: dict[str, list[float]] = {arm: [] for arm in ARMS}
    for _ in range(3):
        for arm in ARMS:
            own = ["-m", "benchmarks.training_step", "--case", name, "--peak-of", arm]
            done = subprocess.run(
                [sys.executable, *own],
                cwd=Path(__file__).parents[1],
                capture_output=True,
                text=True,
                check=True,
            )
            found[arm].append(float(done.stdout))
    return found


def result(case: Case, seconds: dict[str, list[float]], memory: dict[str, list[float]]) -> object:
    """What is printed of a case."""

    def ratio(ours: list[float], theirs: list[float]) -> float:
        return round(statistics.median(a / b for a, b in zip(ours, theirs, strict=True)), 3)

    return {
        "config": replace(case.config, steps=case.steps).to_json(),
        "ms_per_step": {n: round(1e3 * statistics.median(s), 2) for n, s in seconds.items()},
        "time_ratio": ratio(seconds["constrained"], seconds["unconstrained"]),
        "time_ratio_to_by_hand": ratio(seconds["constrained"], seconds["by_hand"]),
        "unconstrained_to_by_hand": ratio(seconds["unconstrained"], seconds["by_hand"]),
        "time_ratio_target": case.most_time,
        "peak_mib": {n: round(statistics.median(p), 1) for n, p in memory.items()},
        "memory_ratio": ratio(memory["constrained"], memory["unconstrained"]),
        "memory_ratio_target": case.most_memory,
        "blocks": case.blocks,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", choices=("ut", "dust", "distilbert"))
    parser.add_argument("--blocks", type=int, help="default: 12 or 15")
    parser.add_argument("--peak-of", choices=ARMS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as made:
        # processes of one case share what was written for it
        folder = Path(os.environ.setdefault("STEP_BENCHMARK_FOLDER", made))
        makers: dict[str, Callable[[], Case]] = {
            "ut": ut,
            "dust": dust,
            "distilbert": partial(distilbert, folder),
        }
        cases = {
            name: made_by() for name, made_by in makers.items() if options.case in (None, name)
        }
        if options.blocks is not None:
            cases = {name: replace(case, blocks=options.blocks) for name, case in cases.items()}
        if options.peak_of:
            print(peak_above_start(cases[options.case], options.peak_of))
            return
        found = {name: result(case, step_times(case), peaks(name)) for name, case in cases.items()}
    print(json.dumps({"benchmark": "training_step", **found}, indent=1))


if __name__ == "__main__":
    main()
