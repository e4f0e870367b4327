"""Estimate of a sweep's device hours and memory, from shapes, without its data.

On this machine's CPU a few real steps of every distinct shape are timed where they are small enough
to be; else the floating-point operations of a step are counted and divided by a rate: that of a
matrix product timed here, or for a GPU the vendor's peak times the share that training reaches.
Expect a factor of 2 either way. Of GPUs an H100 was compared (benchmarks/RECORDS.md).

Of texts a batch is as long as its longest, and a unit has as many samples as its group, so both are
guessed by data set.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from search_spaces import catalog
from search_spaces.space import SearchSpace
from sweep.cost.counted_work import ForwardPass, NotCounted, Work, counted_pass, counted_work
from sweep.cost.gpus import GPUS
from sweep.cost.timed_steps import matrix_rate, slow_bfloat16, step_times
from sweep.study import advice
from trainables.config.arm import ArmConfig, DataConfig
from trainables.config.constraint import default_constraint
from trainables.config.test_conditions import family_of
from trainables.errors import SweepError, UnknownName
from trainables.evaluation.answers import LONGEST_ANSWER, PROMPTS
from trainables.fused.agreement import is_small
from trainables.fused.graph import is_worth_capturing
from trainables.fused.update import ROWS
from trainables.machine.cores import usable_cores
from trainables.memory import KEPT_MB
from trainables.plain import Json
from trainables.tasks.denoising import UNITS_PER_CUDA_BATCH

BACKWARD = 2.0  # a backward pass costs about twice its forward pass
START_S = 2.0  # of an arm: its task, its references from the cache, its records
MEASURED_S = 1.0  # at most about this long is spent on timing the steps of one shape
LARGEST_TIMED = 3e10  # operations of a step; more are not timed but counted
LARGEST_BUILT = 2**24  # parameters; a larger network is not built to be timed
PROCESS_GB = 0.6  # a Python process with torch, and the pixels that its batches touch
GPU_GB = 0.8  # what CUDA and its libraries take
SHARE_OF_PEAK = 0.4  # what training reaches of a GPU's peak
WORKSPACES_GB = 0.067  # what cuBLAS takes from torch's allocator: 64 MiB, measured on an H100
KERNEL_S = 3e-5  # of the host, to start a kernel: measured beside an H100 (benchmarks/RECORDS.md)
CAPTURED_S = 2.3e-6  # of a GPU, to start a captured one: likewise
KERNELS_OF_ADAM = 60  # and of all else in a step that is neither forward nor backward
DRAWN_S = 4e-8  # of the host, for a number of held-out noise: likewise


@dataclass(frozen=True)
class TextShape:
    """Size of the texts of one data set."""

    tokens: int  # of a sample, cut at 256; of instructions with their answer
    examples: float  # of the data set's own training split, of which dev is a share
    tests: float  # of its test split


TEXTS: Mapping[str, TextShape] = {
    "imdb": TextShape(230, 25_000, 25_000),
    "mnli": TextShape(45, 392_702, 9_815),
    "alpaca": TextShape(117, 46_800, 5_200),
}
TEST_FRAMES = {
    "ucsd_ped1": 7_200,
    "ucsd_ped2": 2_010,
    "cuhk_avenue": 15_324,
    "shanghaitech": 40_791,
}


@dataclass(frozen=True)
class Estimate:
    """Estimated cost of a sweep on one kind of device."""

    device: str
    assumption: str  # where the times come from
    arms: int
    device_hours: float
    wall_hours: float  # with as many arms at a time as ``workers``
    workers: int
    memory_gb: float  # of the largest arm
    device_gb: float  # what the GPU has; of this machine: not asked, infinite
    seconds_per_arm: Mapping[str, tuple[float, float]]  # by setting: unconstrained, constrained

    def confirmation_hours(self, seeds: int) -> float:
        """Wall time of one pair in every setting on so many seeds."""
        at_once = min(self.workers, 2 * seeds * len(self.seconds_per_arm))
        return seeds * sum(map(sum, self.seconds_per_arm.values())) / 3600 / at_once

    def to_json(self) -> dict[str, Json]:
        """Plain values."""
        return {
            **{name: value for name, value in vars(self).items() if name != "device_gb"},
            "within_a_factor_of": 2,
            "seconds_per_arm": {
                name: {"unconstrained": plain, "constrained": constrained}
                for name, (plain, constrained) in self.seconds_per_arm.items()
            },
        }


def estimate(space: SearchSpace, gpu: str | None = None) -> Estimate:
    """Estimate the cost of a sweep: on this machine's CPU, or on the GPU of this name.

    A shared unconstrained arm counts once. Steps of a GPU space are estimated for the CPU as well,
    when none is named: that is what they would cost here. Raises UnknownName for an unknown GPU,
    NotCounted where a network cannot be built without its data.
    """
    if gpu is not None and gpu not in GPUS:
        raise UnknownName.among("GPU", gpu, GPUS)
    seconds: dict[str, tuple[float, float]] = {}
    total, memory, counted = 0.0, 0.0, False
    guesses: dict[str, None] = {}
    for setting in space.settings:
        config = space.run(setting, space.default_point(setting), seed=space.search_seeds[0])
        both = arm_seconds(config.unconstrained(), gpu), arm_seconds(config, gpu)
        seconds[setting.name] = both
        listed = [space.listed(setting, number) or {} for number in range(len(setting.points))]
        runs = [space.run(setting, point, seed=space.search_seeds[0]) for point in listed]
        searched = catalog.constrained_count(space, setting) - len(runs) * len(space.search_seeds)
        total += both[1] * searched
        total += sum(arm_seconds(run, gpu) for run in runs) * len(space.search_seeds)
        memory = max(memory, *(arm_memory_gb(run, gpu) for run in (config, *runs)))
        counted |= not all(map(is_timed, (config, *runs)))
        guesses |= dict.fromkeys(work_of(run).guess for run in (config, *runs))
        if gpu is None:
            guesses |= dict.fromkeys(map(slow_bfloat16, (config, *runs)))
    plain = catalog.unconstrained_arms(space)
    total += sum(arm_seconds(arm, gpu) for arm in plain.values())
    workers = 1 if gpu else max(usable_cores() // space.base.threads, 1)
    arms = catalog.arm_count(space)
    return Estimate(
        device=gpu or f"CPU ({advice.counted(space.base.threads, 'thread')} an arm)",
        assumption="; ".join([_assumption(gpu, counted), *filter(None, guesses)]),
        arms=arms,
        device_hours=total / 3600,
        wall_hours=total / 3600 / min(workers, arms),
        workers=workers,
        memory_gb=memory,
        device_gb=GPUS[gpu].memory_gb if gpu else math.inf,
        seconds_per_arm=seconds,
    )


def _assumption(gpu: str | None, counted: bool) -> str:
    if gpu is not None:
        peak = GPUS[gpu]
        return (
            f"operations counted; {peak.tflops:g} TFLOPS in float32 and "
            f"{peak.tflops_bfloat16:g} in bfloat16 by the data sheet, {SHARE_OF_PEAK:.0%} of it "
            f"reached, a kernel every {1e6 * KERNEL_S:g} us, in stacks every "
            f"{1e6 * CAPTURED_S:g}, as with an H100"
        )
    if counted:
        return "operations counted where a step is large; rate of a matrix product timed here"
    return "a few real steps of every shape timed here, on noise, just now"


def estimate_entry(space: SearchSpace, gpu: str | None) -> dict[str, Json]:
    """``estimate`` as plain values; ``not_counted``: why there is none. Never raises."""
    try:
        return estimate(space, gpu).to_json()
    except NotCounted as error:
        return {"not_counted": str(error)}
    except Exception as error:  # in a step of a plug-in, say: its arms tell more
        return {"not_counted": f"{type(error).__name__}: {error}"}


# --- one arm --------------------------------------------------------------------------------------


def arm_seconds(config: ArmConfig, gpu: str | None = None) -> float:
    """Seconds that one arm trains and is evaluated."""
    evaluated = _as_evaluated(config)
    if gpu is None:
        sample_s = _step_seconds(evaluated, None) / _passes_a_step(config)
    else:
        sample_s = _evaluated_seconds(evaluated, gpu)
    passes = evaluated_samples(config) * sample_s
    if gpu is not None and config.facts.answers:
        tokens = PROMPTS * len({0.0, config.train_gamma}) * LONGEST_ANSWER
        passes += tokens * KERNEL_S * pass_of(config.unconstrained()).launches
    return START_S + config.steps * _step_seconds(config, gpu) + passes


def _evaluated_seconds(config: ArmConfig, gpu: str) -> float:
    """Seconds of a GPU and its host for one sample of an evaluation."""
    started = pass_of(config).launches / _evaluated_at_once(config)
    computed = work_of(config).forward_flops / _rate(config, gpu)
    if is_stacked(config):  # draws are kept for all arms of a process
        return CAPTURED_S * started + ROWS * computed
    numbers = math.prod(config.facts.sample_shape(config.data))
    return max(computed, KERNEL_S * started) + DRAWN_S * numbers


def _evaluated_at_once(config: ArmConfig) -> int:
    """Samples that pass a GPU together in an evaluation; of texts about as many as in training."""
    if config.facts.reads_texts:
        return config.batch_size
    units = min(UNITS_PER_CUDA_BATCH, config.eval_windows)
    return int(units * config.facts.samples_per_unit(config.data))


def _as_evaluated(config: ArmConfig) -> ArmConfig:
    """The run whose step reads what an evaluation does: a decoder's head after every layer."""
    if not config.facts.answers:
        return config
    return replace(config, constraint=default_constraint(config.task))


def evaluated_samples(config: ArmConfig) -> float:
    """Samples that pass forward in an arm's reports and its final evaluation."""
    reports = math.ceil(config.steps / config.report_every)
    severities = sum(len(family_of(shift).severities) for shift in config.shifts)
    scored = config.score_draws * (len(config.test_gammas) + severities)
    final = scored + config.eval_draws  # passes
    on_test = config.measured_on == "test"
    per_unit = config.facts.samples_per_unit(config.data)
    if config.facts.reads_texts:
        most = min(config.eval_windows * per_unit, config.data.max_items or math.inf)
        shape, share = _text_shape(config), config.data.dev_fraction
        dev, train = min(most, share * shape.examples), min(most, (1 - share) * shape.examples)
        measured = min(shape.tests, config.data.max_items or math.inf) if on_test else dev
        return reports * dev + final * measured + config.eval_draws * train
    windows = measured = config.eval_windows
    if on_test and config.data.name in TEST_FRAMES:
        measured = TEST_FRAMES[config.data.name] // config.data.frames
    return float(((reports + config.eval_draws) * windows + final * measured) * per_unit)


def arm_memory_gb(config: ArmConfig, gpu: str | None = None) -> float:
    """Peak memory of one arm: weights, gradients and Adam's moments, and what backward needs."""
    work = work_of(config)
    if gpu is None:
        return PROCESS_GB + (work.state_bytes + work.kept_bytes) / 1e9
    evaluated, held_out = 0, 0.0
    if not config.facts.reads_texts:
        at_once = _evaluated_at_once(config)
        evaluated = pass_of(replace(config, batch_size=at_once, accumulate=1)).peak_bytes
        held_out = min(_held_out_bytes(config), KEPT_MB * 2**20)
    tensors = work.state_bytes + held_out
    if not is_stacked(config):
        return GPU_GB + WORKSPACES_GB + (tensors + max(work.kept_bytes, evaluated)) / 1e9
    # Rows and their moments stay. A step has gradients, copies to be clipped and their squares; an
    # evaluation has the rows twice more. Two streams that graphs are captured on have workspaces.
    row = 4 * work.parameters
    tensors += ROWS * (3 * row + max(3 * row + work.kept_bytes, 2 * row + evaluated))
    tensors += 2 * 1e9 * WORKSPACES_GB
    return GPU_GB + WORKSPACES_GB + tensors / 1e9


def is_stacked(config: ArmConfig) -> bool:
    """True if a GPU trains the run's network as a row of a stack; False where it is not counted."""
    try:
        return is_small(config, work_of(config).numbers)
    except NotCounted:
        return False


def _held_out_bytes(config: ArmConfig) -> float:
    """Bytes of all held-out batches of a run, targets once."""
    numbers = math.prod(config.facts.sample_shape(config.data))
    samples = config.eval_windows * config.facts.samples_per_unit(config.data)
    severities = sum(len(family_of(shift).severities) for shift in config.shifts)
    draws = config.score_draws * (len(config.test_gammas) + severities) + 2 * config.eval_draws
    return 4.0 * numbers * samples * (draws + 2)


def backward(config: ArmConfig) -> float:
    """Cost of a backward pass, in forward passes.

    Frozen weights have no gradient of their own (LoRA), and blocks may run once more.
    """
    return BACKWARD - (config.model.lora_rank > 0) + config.model.recompute


def work_of(config: ArmConfig) -> Work:
    """Operations and bytes of a run's steps; raises as ``counted_work``."""
    return counted_work(_counted_shape(config))


def pass_of(config: ArmConfig) -> ForwardPass:
    """Kernels and memory of a forward pass of a run's batch; raises as ``counted_work``."""
    return counted_pass(_counted_shape(config))


def _counted_shape(config: ArmConfig) -> ArmConfig:
    shape = _of_its_shape(config)
    # A decoder's constrained arm has losses that its unconstrained one leaves out.
    costs_alike = config.matched_capacity and not config.facts.answers
    return shape.unconstrained() if costs_alike else shape


def is_timed(config: ArmConfig) -> bool:
    """True if a step is small enough to be timed here, on noise; no checkpoint is fetched."""
    work = work_of(config)
    small = _passes_a_step(config) * work.forward_flops < LARGEST_TIMED
    return config.model.checkpoint is None and small and work.parameters < LARGEST_BUILT


@lru_cache(maxsize=4096)
def _of_its_shape(config: ArmConfig) -> ArmConfig:
    """The run with defaults in all fields that the cost of a step does not depend on."""
    data, constraint = config.data, config.constraint
    if constraint is not None:
        constraint = replace(
            default_constraint(config.task),
            reference=constraint.reference,  # which layers are drawn
            dual_signal=constraint.dual_signal,
            inner_tokens=constraint.inner_tokens,
            inner_layers=constraint.inner_layers,
        )
    return ArmConfig(
        task=config.task,
        data=DataConfig(
            frame_size=data.frame_size,
            patch_size=data.patch_size,
            frames=data.frames,
            max_length=_text_shape(config).tokens if config.facts.reads_texts else data.max_length,
        ),
        model=replace(config.model, checkpoint_fingerprint=""),
        batch_size=config.batch_size,
        accumulate=config.accumulate,
        dtype=config.dtype,
        threads=config.threads,
        constraint=constraint,
    )


def _text_shape(config: ArmConfig) -> TextShape:
    unknown = TextShape(config.data.max_length, math.inf, config.eval_windows)
    known = TEXTS.get(config.data.name, unknown)
    return replace(known, tokens=min(known.tokens, config.data.max_length))


# --- one step -------------------------------------------------------------------------------------


def _passes_a_step(config: ArmConfig) -> float:
    """Cost of one step, in forward passes of a sample."""
    return config.batch_size * (1 + backward(config))


def _rate(config: ArmConfig, gpu: str) -> float:
    """Floating-point operations a second that training reaches on a GPU."""
    peak = GPUS[gpu].tflops_bfloat16 if config.dtype == "bfloat16" else GPUS[gpu].tflops
    return peak * 1e12 * SHARE_OF_PEAK


def _step_seconds(config: ArmConfig, gpu: str | None) -> float:
    work = work_of(config)
    flops = _passes_a_step(config) * work.forward_flops
    if gpu is not None:
        passes = 3 + config.model.recompute  # a backward pass starts twice a forward pass's kernels
        started, computed = passes * pass_of(config).launches, flops / _rate(config, gpu)
        if is_stacked(config):
            passes_s = (CAPTURED_S if is_worth_capturing(config) else KERNEL_S) * started
            return max(passes_s + ROWS * computed, KERNEL_S * KERNELS_OF_ADAM)
        return max(computed, KERNEL_S * (started + KERNELS_OF_ADAM))
    if is_timed(config):
        return _timed_step(_of_its_shape(config))
    return flops / matrix_rate(config.threads, config.dtype == "bfloat16")


@lru_cache(maxsize=256)
def _timed_step(config: ArmConfig) -> float:
    """Seconds of one step of this shape, the fastest of a few: others share this machine."""
    try:
        return min(step_times(config, MEASURED_S))
    except SweepError as error:
        raise NotCounted(str(error)) from error
    except Exception as error:  # in the code of another package
        raise NotCounted(
            f"a step of model {config.model.name!r} fails: {type(error).__name__}: {error}"
        ) from error
