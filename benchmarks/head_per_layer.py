"""Cost of a language-model head after every layer: step time and peak memory.

    python -m benchmarks.head_per_layer > benchmarks/results/head_per_layer.json

Larger, on a GPU: --device cuda --layers 32 --width 4096 --vocabulary 128256 --dtype bfloat16

A network of Llama's shape with random weights and a head of its own (not tied to its embeddings) is
trained by AdamW on random tokens, all of which have a loss. ``plain`` reads the head after the last
layer, by torch's cross entropy; ``naive`` and ``exact`` read it after every layer, with the final
norm before it; ``tokens`` and ``layers_m`` estimate the inner losses and have the last one exact.
``exact_apart`` calls the chunked head once per layer, the others once per step; ``plain``,
``naive`` and ``tokens_kept`` make and keep all logits that they need. Every repeat runs each case
in a process of its own, in rotated order; figures are medians over repeats, ratios are to ``plain``
of the same repeat. Times are processor seconds of one thread on a CPU, wall seconds on a GPU; a
peak is that above what was resident before the network was built.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import LlamaConfig, LlamaForCausalLM

from trainables.heads.loss_estimators import (
    draw_layers,
    estimated_losses,
    sample_places,
)
from trainables.heads.token_losses import token_losses
from trainables.memory import peak_memory_mb, reset_peak_memory
from trainables.random_keys import keyed_generator

INNER_WEIGHT = 0.1  # of every inner loss, beside 1 for the last
Case = Callable[[LlamaForCausalLM, Tensor, Tensor, torch.Generator], Tensor]


def network(options: argparse.Namespace) -> LlamaForCausalLM:
    """Random weights in Llama's proportions: heads of 64, 8/3 of the width between the gates."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=options.vocabulary,
        hidden_size=options.width,
        intermediate_size=options.width * 8 // 3,
        num_hidden_layers=options.layers,
        num_attention_heads=max(options.width // 64, 1),
        num_key_value_heads=max(options.width // 256, 1),
        tie_word_embeddings=False,
        use_cache=False,
    )
    with torch.device(options.device):
        network: LlamaForCausalLM = LlamaForCausalLM(config)
        return network.to(getattr(torch, options.dtype))  # type: ignore[no-any-return]


def naive(llama: LlamaForCausalLM, states_NH: Tensor, targets_N: Tensor) -> Tensor:
    """Losses [N] by logits that are all there and kept; in float32."""
    return cross_entropy(llama.lm_head(states_NH).float(), targets_N, reduction="none")


def chunked(llama: LlamaForCausalLM, states_NH: Tensor, targets_N: Tensor) -> Tensor:
    """The same by chunks."""
    return token_losses(states_NH, llama.lm_head.weight, targets_N).losses


def states_of(llama: LlamaForCausalLM, ids: Tensor) -> tuple[list[Tensor], Tensor]:
    """States [B, T, H] after the inner layers, and after the last one; that alone is normed."""
    hidden = llama.model(ids, output_hidden_states=True).hidden_states
    return list(hidden[1:-1]), hidden[-1]


Head = Callable[[LlamaForCausalLM, Tensor, Tensor], Tensor]


def last_alone(
    head: Head, llama: LlamaForCausalLM, ids: Tensor, targets: Tensor, _draws: torch.Generator
) -> Tensor:
    """The last layer's loss."""
    return head(llama, llama.model(ids).last_hidden_state.flatten(0, 1), targets.flatten()).mean()


def every_layer(
    head: Head, llama: LlamaForCausalLM, ids: Tensor, targets: Tensor, _draws: torch.Generator
) -> Tensor:
    """All of them, with fixed weights, by a call of the head each."""
    inner, last = states_of(llama, ids)
    losses = [
        head(llama, state.flatten(0, 1), targets.flatten()).mean()
        for state in (*map(llama.model.norm, inner), last)
    ]
    return losses[-1] + INNER_WEIGHT * torch.stack(losses[:-1]).sum()


def at_once(
    llama: LlamaForCausalLM, ids: Tensor, targets: Tensor, _draws: torch.Generator
) -> Tensor:
    """All of them by one call of the chunked head."""
    inner, last = states_of(llama, ids)
    states = torch.stack([*map(llama.model.norm, inner), last])
    means = token_losses(states, llama.lm_head.weight, targets).losses.mean((1, 2))
    return means[-1] + INNER_WEIGHT * means[:-1].sum()


def sampled_tokens(
    share: float,
    head: Head,
    llama: LlamaForCausalLM,
    ids: Tensor,
    targets: Tensor,
    draws: torch.Generator,
) -> Tensor:
    """The inner ones of the same few tokens and the last one of all, in one call of the head."""
    inner, last = states_of(llama, ids)
    batch, length = ids.shape
    places_BK, drawn_BK = (t.to(ids.device) for t in sample_places([length] * batch, share, draws))
    rows = torch.arange(batch, device=ids.device).unsqueeze(1)
    few = torch.cat([llama.model.norm(state[rows, places_BK]).flatten(0, 1) for state in inner])
    few_targets = targets[rows, places_BK].flatten().repeat(len(inner))
    found = head(
        llama, torch.cat([few, last.flatten(0, 1)]), torch.cat([few_targets, targets.flatten()])
    )
    means_M = [
        (found_BK.where(drawn_BK, 0).sum(1) / drawn_BK.sum(1)).mean()
        for found_BK in found[: len(few)].view(len(inner), *places_BK.shape)
    ]
    return found[len(few) :].mean() + INNER_WEIGHT * torch.stack(means_M).sum()


def sampled_layers(
    drawn: int, llama: LlamaForCausalLM, ids: Tensor, targets: Tensor, draws: torch.Generator
) -> Tensor:
    """A few of the inner ones and the last one, with all of their tokens, in one call."""
    inner, last = states_of(llama, ids)
    layers = draw_layers(len(inner), drawn, draws)
    states = torch.stack([*(llama.model.norm(inner[at]) for at in layers), last])
    means = token_losses(states, llama.lm_head.weight, targets).losses.mean((1, 2))
    controls_M = torch.zeros(len(inner), device=ids.device)
    estimates_M = estimated_losses(dict(zip(layers, means[:-1], strict=True)), controls_M)
    return means[-1] + INNER_WEIGHT * estimates_M.sum()


def cases(share: float) -> dict[str, Case]:
    """What is measured, by name; ``plain`` is what the others are compared with."""
    return {
        "plain": partial(last_alone, naive),
        "plain_chunked": partial(last_alone, chunked),
        "naive": partial(every_layer, naive),
        "exact": at_once,
        "exact_apart": partial(every_layer, chunked),
        "tokens": partial(sampled_tokens, share, chunked),
        "tokens_kept": partial(sampled_tokens, share, naive),
        "layers_1": partial(sampled_layers, 1),
        "layers_2": partial(sampled_layers, 2),
    }


def measured(options: argparse.Namespace) -> dict[str, float]:
    """Seconds of a step, the median of ``--steps`` after a first one, and MiB at the peak."""
    device = torch.device(options.device)
    clock = time.process_time if device.type == "cpu" else time.perf_counter
    reset_peak_memory(device)
    before = peak_memory_mb(device)
    llama = network(options)
    optimizer = torch.optim.AdamW(llama.parameters(), lr=1e-4, fused=True)
    draw = partial(torch.randint, options.vocabulary, (options.batch, options.length))
    seconds = []
    for step in range(options.steps + 1):
        keys = keyed_generator("cpu", 0, "head_per_layer", step)
        ids, targets = (draw(generator=keys).to(device) for _ in range(2))
        started = clock()
        optimizer.zero_grad(set_to_none=True)
        loss = cases(options.share)[options.case](llama, ids, targets, keys)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds.append(clock() - started)
    return {"seconds": statistics.median(seconds[1:]), "mib": peak_memory_mb(device) - before}


def repeated(options: argparse.Namespace, arguments: list[str]) -> dict[str, object]:
    """All cases, alternated."""
    names = list(cases(options.share))
    found: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    load = []
    for repeat in range(options.repeats):
        load.append(round(os.getloadavg()[0], 1))
        for name in names[repeat:] + names[:repeat]:
            command = [sys.executable, "-m", "benchmarks.head_per_layer", *arguments]
            done = subprocess.run([*command, "--case", name], stdout=subprocess.PIPE, check=True)
            found[name].append(json.loads(done.stdout))
            print(repeat, name, found[name][-1], file=sys.stderr, flush=True)
    load.append(round(os.getloadavg()[0], 1))

    def ratios(name: str, of: str) -> dict[str, float]:
        each = [a[of] / b[of] for a, b in zip(found[name], found["plain"], strict=True)]
        places = {"least": min(each), "median": statistics.median(each), "most": max(each)}
        return {place: round(value, 3) for place, value in places.items()}

    return {
        "cases": {
            name: {
                "ms_per_step": round(1e3 * statistics.median(run["seconds"] for run in runs)),
                "peak_mib": round(statistics.median(run["mib"] for run in runs)),
                "time_ratio": ratios(name, "seconds"),
                "memory_ratio": ratios(name, "mib"),
            }
            for name, runs in found.items()
        },
        "load": load,
    }


def parsed(arguments: list[str]) -> argparse.Namespace:
    """The shape and what else can be chosen."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for name, default in (
        ("layers", 8), ("width", 512), ("vocabulary", 32_000), ("batch", 2), ("length", 256),
        ("steps", 2), ("repeats", 2),
    ):  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--share", type=float, default=0.07, help="of the tokens, for `tokens`")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--case", choices=tuple(cases(1.0)), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.layers < 3:
        parser.error(f"--layers must be 3 or more, two of them inner ones, got {options.layers}")
    return options


def main() -> None:
    """Measure and print."""
    arguments = sys.argv[1:]
    options = parsed(arguments)
    torch.set_num_threads(1)
    if options.case:
        print(json.dumps(measured(options)))
        return
    shape = {name: value for name, value in vars(options).items() if name != "case"}
    found = repeated(options, arguments)
    versions = {"torch": torch.__version__}
    print(json.dumps({"benchmark": "head_per_layer", **shape, **versions, **found}, indent=1))


if __name__ == "__main__":
    main()
