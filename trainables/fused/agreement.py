"""Agreement of rows of one network with the arms that they stand for.

On a CPU a row must have the bits of its arm alone: products of a stack may run in other kernels,
which round in another order (those of very small matrices do). On a GPU the stack *is* how such a
network is trained, alone or in company, so that its rows need only be the arms: their losses
and outcomes are compared with those of each network by itself, within rounding.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import cast

import torch
from torch import Tensor

from trainables.config.arm import ArmConfig
from trainables.evaluation.stacked import StackedNetworks
from trainables.fused.stack import row_losses, trained_parameters
from trainables.fused.update import ROWS, JointUpdate, Parameters, stacked, twin_of
from trainables.layer_losses import layer_outcomes
from trainables.memory import exhausted, gpu_is_lost
from trainables.primal_dual.clipping import clip
from trainables.tasks.base import Batch, Task
from trainables.training import Kind, StepLosses, Training

MOST_NUMBERS = 2**22  # of a network that is stacked on a GPU; larger ones fill it by themselves
MOST_GIVEN = 2**19  # numbers of a batch that it is given, likewise
ROUNDING = 1e-3  # relative: rows that are other networks differ by more


def is_small(config: ArmConfig, numbers: int) -> bool:
    """True if a GPU trains a network of so many numbers in a stack, where it can be a row.

    A fact of the configuration: both arms of a pair, and every resume, find the same.
    """
    if config.facts.reads_texts or config.dtype == "bfloat16":
        return False
    samples = config.batch_size // config.accumulate
    given = samples * math.prod(config.facts.sample_shape(config.data))
    return numbers <= MOST_NUMBERS and given <= MOST_GIVEN


def may_fuse(trainings: Sequence[Training]) -> bool:
    """True if these arms, at one step, may be rows of one network.

    Tried with parameters and weights in general position: a start at zero hides what rounding does.
    False, too, where the model has operations that ``torch.vmap`` must loop over, where a step
    changes its buffers, of which a stack has one set, and in bfloat16, whose sums over the uses of
    a parameter depend on what else is summed.
    """
    first = trainings[0]
    on_gpu = first.parameters[0].is_cuda
    if first.task.autocast is not None or (on_gpu and not _may_be_stacked(first)):
        return False
    for training in trainings:
        training.model.train()
    buffers = [buffer for t in trainings for buffer in t.model.buffers()]
    before = [buffer.clone() for buffer in buffers]
    # Not turned into errors: raised inside torch.vmap, they would keep its tensors alive.
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always", UserWarning)  # torch.vmap's, of what it loops over
        try:
            same = (_are_rows if on_gpu else _have_same_bits)(trainings)
        except Exception as error:  # whatever the code of another package does under torch.vmap
            if exhausted(error) or gpu_is_lost():
                raise
            same = False
    changed = [p for p in zip(buffers, before, strict=True) if not torch.equal(*p)]
    for buffer, value in changed:
        buffer.copy_(value)
    loops = any(issubclass(warning.category, UserWarning) for warning in shown)
    return same and not loops and not changed


def _may_be_stacked(training: Training) -> bool:
    numbers = sum(p.numel() for p in training.model.parameters())
    # a loop of another class takes steps of its own
    return type(training) is Training and training.is_whole and is_small(training.config, numbers)


def _disturbed(trainings: Sequence[Training]) -> tuple[list[Parameters], Tensor]:
    """Parameters of every arm, and layer weights, in general position."""
    generator = torch.Generator().manual_seed(0)
    arms = [
        {
            name: p.detach() + 0.02 * torch.randn(p.shape, generator=generator).to(p)
            for name, p in trained_parameters(training).items()
        }
        for training in trainings
    ]
    weights_F = 1.0 + torch.rand(trainings[0].config.model.layers + 1, generator=generator)
    return arms, weights_F.to(trainings[0].parameters[0])


def _next_part(training: Training) -> Batch:
    return training.task.train_batch(training.step).parts(training.config.accumulate)[0]


def _fused_losses(training: Training, stack: Parameters, part: Batch) -> Tensor:
    """Mean losses over f_c of every arm and layer, [K, L + 1]."""
    losses = StepLosses(training.model, training.task)
    return row_losses(losses, stack, part, _constant_loss(training))


@contextmanager
def _holding(training: Training, arm: Parameters) -> Iterator[None]:
    """Have an arm's network itself hold these parameters in the block, without gradients.

    What it computes by references of its own to its parameters counts, too.
    """
    own = trained_parameters(training)
    before = {name: p.detach().clone() for name, p in own.items()}
    _put(own, arm)
    try:
        yield
    finally:
        with suppress(RuntimeError):  # of a lost GPU, whose first error says more
            _put(own, before)


@torch.no_grad()
def _put(parameters: Parameters, values: Parameters) -> None:
    for name, parameter in parameters.items():
        parameter.copy_(values[name])
        parameter.grad = None


def _own_losses(training: Training, part: Batch, kind: Kind) -> Tensor:
    """Mean losses over f_c of an arm's network as it is, [L + 1] or [1]."""
    losses_FB: Tensor = StepLosses(training.model, training.task)(part, kind)
    return losses_FB.mean(dim=1) / _constant_loss(training)


def _constant_loss(training: Training) -> float:
    return training.task.scales.constant_loss


# --- on a GPU -------------------------------------------------------------------------------------


def _are_rows(trainings: Sequence[Training]) -> bool:
    """True if every arm's step and outcomes are those of its row; as many at once as train so."""
    blocks = [trainings[start : start + ROWS] for start in range(0, len(trainings), ROWS)]
    return all(_step_as_rows(block) and _are_evaluated_as_rows(block) for block in blocks)


def _step_as_rows(trainings: Sequence[Training]) -> bool:
    arms, weights_F = _disturbed(trainings)
    part, stack = _next_part(trainings[0]), stacked(arms)
    losses_KF = _fused_losses(trainings[0], stack, part)
    (weights_F * losses_KF).sum().backward()  # type: ignore[no-untyped-call]
    for row, (training, arm) in enumerate(zip(trainings, arms, strict=True)):
        with _holding(training, arm), torch.set_grad_enabled(row == 0):
            losses_F = _own_losses(training, part, "all layers")
            if not _is_close(losses_KF[row].detach(), losses_F.detach()):
                return False
            if row > 0:
                continue
            (weights_F * losses_F).sum().backward()  # type: ignore[no-untyped-call]
            # Their numbers are not compared: what is a sum of cancelling terms is rounding alone.
            own = trained_parameters(training)
            if any((p.grad is None) != (stack[name].grad is None) for name, p in own.items()):
                return False
    return True


@torch.no_grad()
def _are_evaluated_as_rows(trainings: Sequence[Training]) -> bool:
    task, part = cast(Task, trainings[0].task), _next_part(trainings[0])
    if not hasattr(task, "scores"):
        return True  # a task for training alone
    networks = StackedNetworks([training.evaluated for training in trainings], task)
    networks.eval()
    rows = networks.outcomes(part)
    network = trainings[0].evaluated
    network.eval()
    own = layer_outcomes(network, task, part)
    pairs = (rows.losses, own.losses), (rows.scores, own.scores), (rows.norms, own.norms)
    return all(_is_close(of_rows[0], by_itself) for of_rows, by_itself in pairs)


def _is_close(one: Tensor, other: Tensor) -> bool:
    """True if numbers differ by no more than rounding does, over the largest of them."""
    largest = other.abs().max() if other.numel() else other.new_zeros(())
    return bool(((one - other).abs() <= ROUNDING * largest).all())


# --- on a CPU -------------------------------------------------------------------------------------


def _have_same_bits(trainings: Sequence[Training]) -> bool:
    """True if losses, gradients and update of a step are those of every arm alone."""
    first = trainings[0]
    arms, weights_F = _disturbed(trainings)
    last_F = torch.zeros_like(weights_F)
    last_F[-1] = 1.0
    part = _next_part(first)
    steps = (first.step, first.config.steps - 1)
    kinds: set[Kind] = {training.kind(step) for training in trainings for step in steps}
    return all(
        _is_alone(trainings, arms, kind, weights_F if kind == "all layers" else last_F, part)
        for kind in kinds
    )


def _is_alone(
    trainings: Sequence[Training],
    arms: list[Parameters],
    kind: Kind,
    weights_F: Tensor,
    part: Batch,
) -> bool:
    """True if every row of a fused step equals that arm's own step of this kind."""
    stack = stacked(arms)
    losses_KF = _fused_losses(trainings[0], stack, part)
    (weights_F * losses_KF).sum().backward()  # type: ignore[no-untyped-call]
    alones = []
    for row, (arm, training) in enumerate(zip(arms, trainings, strict=True)):
        with _holding(training, arm):
            losses_F = _own_losses(training, part, kind)
            (weights_F[-len(losses_F) :] * losses_F).sum().backward()  # type: ignore[no-untyped-call]
            gradients = {name: p.grad for name, p in trained_parameters(training).items()}
        same = torch.equal(losses_F, losses_KF[row, -len(losses_F) :]) and all(
            _equal(gradients[name], _row(stack[name].grad, row)) for name in arm
        )
        if not same:
            return False
        alone = {name: value.clone().requires_grad_() for name, value in arm.items()}
        for name, value in alone.items():
            value.grad = gradients[name]
        alones.append(alone)
    return _is_updated_alone(trainings, alones, stack)


def _is_updated_alone(
    trainings: Sequence[Training], alones: list[Parameters], stack: Parameters
) -> bool:
    """True if clipping and the primal step with these gradients are every arm's own, too."""
    twins = [
        twin_of(
            training.optimizer,
            [(own, [alone[name]]) for name, own in trained_parameters(training).items()],
        )
        for training, alone in zip(trainings, alones, strict=True)
    ]
    most, lrs = trainings[0].config.largest_gradient, [g["lr"] for g in twins[0].param_groups]
    joint = JointUpdate(alones, twins)
    for name, rows in joint.stack.items():
        rows.grad = stack[name].grad
    norms_K = joint.step(most, lrs)
    for row, (alone, twin) in enumerate(zip(alones, twins, strict=True)):
        norm = clip(alone.values(), most)
        twin.step()
        same = torch.equal(norm, norms_K[row]) and all(
            torch.equal(alone[name], joint.stack[name][row]) for name in alone
        )
        if not same:
            return False
    return True


def _row(stacked: Tensor | None, row: int) -> Tensor | None:
    return None if stacked is None else stacked[row]


def _equal(one: Tensor | None, other: Tensor | None) -> bool:
    return one is other if one is None or other is None else torch.equal(one, other)
