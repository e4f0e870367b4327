"""Contract of tasks: keyed batches, sound losses, references, shifts."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace

import torch

from trainables.build import fingerprinted_data, parameter_dtype
from trainables.config.arm import ArmConfig
from trainables.config.test_conditions import family_of, gamma_key
from trainables.datasets.by_split import SPLITS
from trainables.errors import BadData
from trainables.evaluation.measuring import units_of
from trainables.layer_losses import layer_outcomes
from trainables.tasks.base import Batch, Tokens
from trainables_testing.models import a_pair_of_arms_runs
from trainables_testing.promises import BrokenContract, check, in_both_types, require_kept
from trainables_testing.tiny_runs import equal, global_seed, model_of, task_of


def check_task(config: ArmConfig) -> None:
    """Every promise of a task, in float32 and bfloat16, with the config's model.

    Args and raises as ``check_model``.
    """
    for one in in_both_types(config):
        check(f"task {one.task} ({one.dtype})", (*TASK, a_pair_of_arms_runs), one)


def its_data_are_known_by_their_content(config: ArmConfig) -> None:
    """They resolve to a fingerprint, again to the same, and are refused under another one."""
    resolved = fingerprinted_data(config)
    require_kept(resolved.fingerprint != "", "resolved data must carry a fingerprint")
    require_kept(
        replace(resolved, fingerprint=config.data.fingerprint) == config.data,
        "resolving data must fill in their fingerprint and change nothing else",
    )
    require_kept(
        fingerprinted_data(replace(config, data=resolved)) == resolved,
        "data must resolve to the same fingerprint every time",
    )
    try:
        fingerprinted_data(replace(config, data=replace(resolved, fingerprint="another")))
    except BadData:
        return
    raise BrokenContract("data under another fingerprint must be refused with BadData.")


def units_scales_and_types_are_sound(config: ArmConfig) -> None:
    """There is something to train on and to judge by, in the types that the run asks for."""
    task = task_of(config)
    scales = (task.scales.constant_loss, task.scales.identity_loss)
    require_kept(all(math.isfinite(s) and s > 0 for s in scales), "scales must be above 0", scales)
    require_kept(
        task.steps_per_epoch >= 1, "there must be a step in an epoch", task.steps_per_epoch
    )
    for split in SPLITS:
        units = units_of(task, split)
        unique = len(set(units)) == len(units) > 0
        require_kept(unique, f"the units of {split} must be there, each under its own name", units)
    require_kept(task.dtype == parameter_dtype(config), "dtype must be the run's", task.dtype)
    wanted = torch.bfloat16 if config.dtype == "bfloat16" else None
    require_kept(task.autocast == wanted, f"autocast must be {wanted}", task.autocast)


def a_training_batch_follows_from_seed_and_step(config: ArmConfig) -> None:
    """In whatever order, whoever asks; another seed or step has another batch."""
    first, second, other = (
        task_of(config),
        task_of(config),
        task_of(replace(config, seed=config.seed + 1)),
    )
    steps = (0, 1, first.steps_per_epoch)
    with global_seed(1):
        forwards = [first.train_batch(step) for step in steps]
    with global_seed(2):
        backwards = [second.train_batch(step) for step in reversed(steps)][::-1]
    same = all(equal(a, b) for a, b in zip(forwards, backwards, strict=True))
    require_kept(same, "a training batch must be a function of the seed and the step alone")
    require_kept(
        len(forwards[0].targets) == config.batch_size, "a batch must have batch_size samples"
    )
    differ = not equal(forwards[0], forwards[1]) and not equal(forwards[0], other.train_batch(0))
    require_kept(differ, "another seed and another step must have another training batch")


def both_arms_see_the_same_perturbations(config: ArmConfig) -> None:
    """In training and on held-out data; what is held out does not know the training seed either."""
    ours, theirs = task_of(config), task_of(config.unconstrained())
    for step in (0, ours.steps_per_epoch):
        same = equal(ours.train_batch(step), theirs.train_batch(step))
        require_kept(same, "both arms of a pair must be given the same training batches")
    others = (theirs, task_of(replace(config, seed=config.seed + 1)))
    gamma = config.test_gammas[-1]
    for other, split in itertools.product(others, ("train", "dev", "test")):
        batches = zip(ours.held_out(split, gamma, 1), other.held_out(split, gamma, 1), strict=True)
        same = all(equal(a, b) for a, b in batches)
        require_kept(same, f"both arms and every seed must be judged on the same draws of {split}")


def held_out_batches_cover_the_units(config: ArmConfig) -> None:
    """Each sample has a unit, each unit has samples; gamma and draw move the inputs alone."""
    task = task_of(config)
    for split in SPLITS:
        units = units_of(task, split)
        clean, noisy, again = (
            list(task.held_out(split, gamma, draw))
            for gamma, draw in ((0.0, 0), (config.test_gammas[-1], 0), (config.test_gammas[-1], 1))
        )
        seen = {unit for batch in clean for unit in batch.units}
        require_kept(
            seen == set(range(len(units))), f"batches of {split} must show every unit", seen
        )
        for batches in zip(clean, noisy, again, strict=True):
            counts = {(len(b.units), len(b.targets)) for b in batches}
            require_kept(
                counts == {(len(batches[0].targets),) * 2}, "every sample must have a unit", counts
            )
            require_kept(
                len({b.samples for b in batches}) == 1, "gamma and draw must leave the order alone"
            )
            same = all(torch.equal(batches[0].targets, b.targets) for b in batches)
            require_kept(same, "gamma and draw must leave the targets as they are")
        numbers = sorted(number for batch in clean for number in batch.samples)
        require_kept(
            numbers in ([], list(range(len(numbers)))),
            f"samples of {split} must have numbers of their own, or all of them none",
            numbers,
        )
        moved = not _all_equal(clean, noisy) and not _all_equal(noisy, again)
        require_kept(moved, "gamma and draw must disturb what a model is given")


def padding_is_never_perturbed(config: ArmConfig) -> None:
    """Of texts: the noise is 0 there."""
    task = task_of(config)
    for batch in (task.train_batch(0), *task.held_out("dev", config.test_gammas[-1], 0)):
        if isinstance(batch.inputs, Tokens) and batch.inputs.noise is not None:
            still = not batch.inputs.noise[~batch.inputs.attention_mask].any()
            require_kept(still, "the noise must be 0 at padding")


def losses_scores_and_metric_are_numbers(config: ArmConfig) -> None:
    """Losses [B], at least 0; scores [B]; a finite metric of their mean."""
    task = task_of(config)
    model = model_of(config, task).eval()
    for batch in task.held_out("dev", config.train_gamma, 0):
        with torch.no_grad():
            found = layer_outcomes(model, task, batch)
            unchanged = task.unchanged_losses(batch)
        for name, values in (("losses", found.losses), ("scores", found.scores)):
            shape = (config.model.layers + 1, len(batch.targets))
            fits = tuple(values.shape) == shape and values.dtype == task.dtype
            require_kept(
                fits, f"{name} must be one number of {task.dtype} per sample", values.shape
            )
            require_kept(bool(torch.isfinite(values).all()), f"{name} must be finite")
        require_kept(bool((found.losses >= 0).all()), "losses must be at least 0")
        metric = task.metric(float(found.scores[-1].mean()))
        require_kept(math.isfinite(metric), "the metric must be finite", metric)
        there = unchanged is not None
        require_kept(
            there is config.facts.has_identity,
            "unchanged_losses must be there exactly where facts.has_identity says so",
        )


def references_are_measured(config: ArmConfig) -> None:
    """The constant prediction, and the unchanged input where it is one, at every test gamma."""
    found = task_of(config).references()
    wanted = {"constant", "identity"} if config.facts.has_identity else {"constant"}
    gammas = {gamma_key(gamma) for gamma in config.test_gammas}
    require_kept(wanted <= set(found.metrics), f"references must have {wanted}", set(found.metrics))
    require_kept(
        set(found.metrics) == set(found.losses) <= set(config.facts.metric.references),
        f"references must be among {config.facts.metric.references}, in metrics and in losses",
        (set(found.metrics), set(found.losses)),
    )
    for name, by_gamma in found.metrics.items():
        require_kept(set(by_gamma) == gammas, f"{name} must be known at {gammas}", set(by_gamma))
        numbers = (*by_gamma.values(), found.losses[name])
        require_kept(all(map(math.isfinite, numbers)), f"{name} must be finite", numbers)


def shifts_disturb_the_inputs_alone(config: ArmConfig) -> None:
    """Each family that the task takes gives the same draw again, and leaves units and targets."""
    task = task_of(config)
    targets = _targets_by_unit(task.held_out("dev", config.train_gamma, 0))
    for shift in config.facts.shifts:
        severity = family_of(shift).severities[-1]
        first, again = (list(task.shifted("dev", shift, severity, 0)) for _ in range(2))
        require_kept(_all_equal(first, again), f"{shift} must draw the same for whoever asks")
        same = _targets_by_unit(first) == targets
        require_kept(same, f"{shift} must leave units and targets as they are")


def _all_equal(some: list[Batch], others: list[Batch]) -> bool:
    return len(some) == len(others) and all(map(equal, some, others))


def _targets_by_unit(batches: Iterable[Batch]) -> Counter[tuple[int, bytes]]:
    """How often each target is asked for in each unit; batches may be cut in another way."""
    return Counter(
        (unit, target.float().numpy().tobytes())
        for batch in batches
        for unit, target in zip(batch.units, batch.targets, strict=True)
    )


TASK: tuple[Callable[[ArmConfig], None], ...] = (
    its_data_are_known_by_their_content,
    units_scales_and_types_are_sound,
    a_training_batch_follows_from_seed_and_step,
    both_arms_see_the_same_perturbations,
    held_out_batches_cover_the_units,
    padding_is_never_perturbed,
    losses_scores_and_metric_are_numbers,
    references_are_measured,
    shifts_disturb_the_inputs_alone,
)
