"""Decoder of Llama 3.1 8B's shape, tuned by LoRA on one device: step time and peak memory.

    python -m benchmarks.gpu.decoder_8b > build/gpu/decoder_8b.json

Weights are drawn where they are trained: those that LoRA adapts in bfloat16, as a run keeps them,
all others in float32. Texts are noise of one length, all of whose tokens have a loss. Cases are
plain training, exact inner losses and those of sampled tokens (``inner_tokens``), with blocks run
again in the backward pass (``model.recompute``) and without. A case that the device cannot hold, by
its estimate, is told in words.
"""

from __future__ import annotations

import gc
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.gpu.printed import NO_MEANING, parser, printed, waited
from benchmarks.gpu.shapes import OF_TEXTS, TINY_DECODER
from benchmarks.imitated.text_models import llama
from sweep.cost.counted_work import counted_work
from sweep.cost.noise_task import noise_task
from trainables.build import weighting_of
from trainables.config.arm import ArmConfig, DataConfig, ModelConfig
from trainables.memory import peak_memory_mb, reset_peak_memory
from trainables.models.decoder import Decoder
from trainables.models.pretrained import narrow_frozen, prepare
from trainables.training import Training

DECODER_8B = {  # Llama 3.1 8B
    "vocab_size": 128_256,
    "hidden_size": 4096,
    "intermediate_size": 14_336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": False,
}
CASES: dict[str, dict[str, Any]] = {
    "plain, recomputed": {"plain": True, "model.recompute": True},
    "exact, recomputed": {"model.recompute": True},
    "7 % of tokens, recomputed": {"model.recompute": True, "constraint.inner_tokens": 0.07},
    "exact": {},
    "7 % of tokens": {"constraint.inner_tokens": 0.07},
}
STEPS = 3  # that are timed, after one that is not
MOST = 0.92  # of the device's memory that an estimate may come to


def run_of(folder: Path, options: Any) -> ArmConfig:
    """The constrained run with exact losses; its decoder is described in ``folder``."""
    described = TINY_DECODER if options.small else DECODER_8B
    llama(**described).save_pretrained(folder)
    return ArmConfig(
        task="instruction_tuning",
        data=DataConfig(name="alpaca", max_length=32 if options.small else options.length),
        model=ModelConfig(
            name="decoder",
            layers=described["num_hidden_layers"],
            checkpoint=str(folder),
            lora_rank=4 if options.small else 16,
        ),
        train_gamma=0.25,
        steps=10**6,
        batch_size=2 if options.small else options.batch,
        dtype="bfloat16",
        device=options.device,
        constraint=OF_TEXTS,
    )


def network_of(folder: Path) -> Any:
    """A causal network drawn on torch's default device, its blocks' matrices in bfloat16."""
    from transformers import AutoConfig, LlamaForCausalLM

    described = AutoConfig.from_pretrained(folder)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)  # never there in float32, which is twice as large
    try:
        network = LlamaForCausalLM(described)
        network.eval()  # type: ignore[no-untyped-call]
    finally:
        torch.set_default_dtype(before)
    adapted = {m for m in network.model.layers.modules() if isinstance(m, nn.Linear)}
    for module in network.modules():
        if module not in adapted and any(True for _ in module.parameters(recurse=False)):
            module.float()
    return network


def training_of(config: ArmConfig, network: Any) -> Training:
    """A run before its first step, on a network that it takes over."""
    from peft.tuners.lora import LoraLayer

    made = Decoder(network, network.model.norm)
    prepare(network, network.base_model, config.model)
    for module in network.modules():
        if isinstance(module, LoraLayer):  # which makes updates of its weights' type
            module.lora_A.float()
            module.lora_B.float()
    narrow_frozen(network)
    task = noise_task(config)
    weighting = weighting_of(
        config,
        task.scales,
        torch.device(config.device),
        torch.float32,
        steps_per_epoch=task.steps_per_epoch,
    )
    return Training(config, task, made, weighting)


def measured(config: ArmConfig, folder: Path) -> dict[str, Any]:
    """Seconds of a step, and MiB at the peak."""
    device, found = torch.device(config.device), dict[str, Any]()
    reset_peak_memory(device)
    with torch.device(device):  # of what is drawn, and of the texts
        training = training_of(config, network_of(folder))
        seconds = []
        for step in range(1, STEPS + 2):
            waited(device)
            started = time.perf_counter()
            training.run_to(step)
            waited(device)
            seconds.append(time.perf_counter() - started)
    found["step_s"] = round(statistics.median(seconds[1:]), 4)
    found["peak_mb"] = NO_MEANING
    if device.type == "cuda":
        found["peak_mb"] = round(peak_memory_mb(device), 1)
    return found


def estimated(config: ArmConfig, found: dict[str, Any]) -> dict[str, Any]:
    """A case beside its estimate, whose counting takes longer than the steps of a fast GPU."""
    work = counted_work(config)
    estimate_mb = (work.state_bytes + work.kept_bytes) / 2**20
    beside: dict[str, Any] = {"estimated_mb": round(estimate_mb, 1)}
    if "step_s" in found:
        peak = found["peak_mb"]
        ratio = NO_MEANING if peak == NO_MEANING else round(peak / estimate_mb, 3)
        return found | beside | {"peak_over_estimate": ratio}
    total_mb = torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory / 2**20
    if estimate_mb > MOST * total_mb:
        return beside | {"left_out": f"needs more than the {total_mb / 2**10:.0f} GiB of this GPU"}
    return found | beside


def line_of(name: str, found: dict[str, Any]) -> str:
    """What the table says of one case."""
    if "step_s" not in found:
        return f"{name}: {found.get('left_out') or found['failed']}"
    peak = found["peak_mb"]
    if peak != NO_MEANING and "estimated_mb" in found:
        peak = f"{peak:,.0f} MiB of {found['estimated_mb']:,.0f} estimated"
        peak += f" ({found['peak_over_estimate']:.2f})"
    return f"{name}: {found['step_s']:.3g} s a step; peak: {peak}"


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    made = parser(__doc__)
    made.add_argument("--batch", type=int, default=16)
    made.add_argument("--length", type=int, default=112)
    options = made.parse_args(arguments)
    with printed("decoder_8b", options) as found, tempfile.TemporaryDirectory() as folder:
        exact = run_of(Path(folder), options)
        found["cases"] = {}
        configs: dict[str, ArmConfig] = {}
        for name, changes in CASES.items():
            fields = {field: value for field, value in changes.items() if field != "plain"}
            config = exact.with_fields(fields)
            config = config.unconstrained() if "plain" in changes else config
            configs[name] = config
            try:
                of_case = measured(config, Path(folder))
            except torch.cuda.OutOfMemoryError as error:
                of_case = {"failed": str(error).partition("\n")[0]}
            found["cases"][name] = of_case
            found["lines"].append(line_of(name, of_case))
            gc.collect()
        for name, config in configs.items():
            found["cases"][name] = estimated(config, found["cases"][name])
            found["lines"] = [line_of(*case) for case in found["cases"].items()]
        failed = [name for name, of_case in found["cases"].items() if "failed" in of_case]
        if failed:
            raise RuntimeError(f"out of memory in {', '.join(failed)}, which their estimates deny")


if __name__ == "__main__":
    main()
