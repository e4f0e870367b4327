"""Fused training: arms that differ in their constraint, in one forward pass.

Arms of one configuration and seed see the same batches, and their networks have the same shape: K
of them are one network whose parameters have K rows (horizontal fusion; Wang et al. 2021, arXiv
2102.02344). ``torch.vmap`` makes that network of any model as it is. Forward pass, backward pass
and primal update are the stack's (update.py), and so are layer weights and dual steps of arms whose
constraints differ in numbers alone (weighting.py). An arm's own ``Training`` is complete again at
every report: there it may leave, be stored, and go on alone.

The numbers are those of training alone, bit for bit, or there is no fusion: products of a stack may
run in other kernels, which round in another order (on a CPU those of very small matrices do).
``same_bits`` tries that on the group itself.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.func import functional_call

from trainables.fused.update import JointUpdate, Parameters, stacked, twin_of
from trainables.fused.weighting import JointWeighting, has_same_bits
from trainables.primal_dual.clipping import clip
from trainables.tasks.base import Batch
from trainables.training import Kind, StepLosses, Training


class FusedTraining:
    """Trainings of one task at one step that advance together; each stays complete by itself."""

    def __init__(self, trainings: Sequence[Training]) -> None:
        """Take trainings whose configurations differ in ``constraint`` alone, at the same step."""
        self.trainings = list(trainings)
        self._first = trainings[0]
        self._losses = StepLosses(self._first.model, self._first.task)
        self._parameters: list[Parameters] = [
            {f"model.{name}": p for name, p in t.model.named_parameters() if p.requires_grad}
            for t in trainings
        ]
        self._weightings = [training.weighting for training in trainings]
        self._weighs_jointly = has_same_bits(self._weightings, self._first.config.model.layers)

    def run_to(self, step: int) -> None:
        """Take primal steps until ``step`` are done; each arm counts its share of the time."""
        started = time.perf_counter()
        first = self._first.step
        for training in self.trainings:
            training.model.train()  # evaluation left all of them in eval mode
        update = JointUpdate(self._parameters, [t.optimizer for t in self.trainings])
        weighting = JointWeighting(self._weightings, is_joint=self._weighs_jointly)
        sums_KS = torch.stack([training.sums for training in self.trainings])
        for current in range(first, step):
            seen_KF, norms_K = self._one_step(current, update, weighting)
            sums_KS += torch.stack([seen_KF[:, -1], norms_K], dim=1)
        update.give_back()
        weighting.give_back()
        for sums_S, training in zip(sums_KS, self.trainings, strict=True):
            training.count(sums_S, max(step - first, 0))
        if self._first.parameters[0].is_cuda:
            torch.cuda.synchronize()
        seconds = (time.perf_counter() - started) / len(self.trainings)
        for training in self.trainings:
            training.took(max(step - first, 0), seconds)

    def _one_step(
        self, step: int, update: JointUpdate, weighting: JointWeighting
    ) -> tuple[Tensor, Tensor]:
        """The losses (over f_c) [K, L + 1] and norms of gradients [K] of primal step ``step``."""
        config = self._first.config
        seen_KF = self._backward(step, update.stack, weighting)
        norms_K = update.step(config.grad_clip, self._first.lrs(step))
        if config.weight_ema > 0:  # which is of an arm's own parameters
            update.give_weights()
            for training in self.trainings:
                training.average_weights(step)
        weighting.observe(step, seen_KF, self._first.lr_factor(step))
        return seen_KF, norms_K

    def _backward(self, step: int, stack: Parameters, weighting: JointWeighting) -> Tensor:
        """The gradients of all arms' weighted losses; the losses (over f_c) [K, L + 1], detached.

        Each row of the sum's gradient is that of its arm alone.
        """
        parts = self._parts(step)
        seen = []
        for part in parts:
            losses_KF = self._fused_losses(stack, part)
            seen.append(losses_KF.detach().contiguous())  # rows as alone
            objective = (weighting.weights(step, seen[-1]) * losses_KF).sum()
            (objective / len(parts) if len(parts) > 1 else objective).backward()  # type: ignore[no-untyped-call]
        return seen[0] if len(parts) == 1 else torch.stack(seen).mean(dim=0)

    def _parts(self, step: int) -> list[Batch]:
        return self._first.task.train_batch(step).parts(self._first.config.accumulate)

    def _fused_losses(self, stack: Parameters, part: Batch) -> Tensor:
        """Mean losses over f_c of every arm and layer, [K, L + 1]."""
        losses_KF: Tensor = torch.vmap(
            lambda arm: self._mean_losses(self._losses, arm, part, "all layers")
        )(stack)
        return losses_KF

    def _mean_losses(self, losses: StepLosses, arm: Parameters, part: Batch, kind: Kind) -> Tensor:
        """Mean losses over f_c with these parameters, [L + 1] or [1]."""
        losses_FB: Tensor = functional_call(losses, arm, (part, kind))
        return losses_FB.mean(dim=1) / self._first.task.scales.constant_loss

    # --- trying it out ---------------------------------------------------------------------------

    def same_bits(self) -> bool:
        """True if losses and gradients of a step are those of every arm alone, bit for bit.

        Tried with parameters and weights in general position: a start at zero hides what rounding
        does. False, too, where the model has operations that ``torch.vmap`` must loop over, where a
        step changes its buffers, of which a stack has one set, and in bfloat16, whose sums over the
        uses of a parameter depend on what else is summed.
        """
        if self._first.task.autocast is not None:
            return False
        for training in self.trainings:
            training.model.train()
        generator = torch.Generator().manual_seed(0)
        arms = [
            {
                name: p.detach() + 0.02 * torch.randn(p.shape, generator=generator).to(p)
                for name, p in of_arm.items()
            }
            for of_arm in self._parameters
        ]
        weights_F = 1.0 + torch.rand(self._first.config.model.layers + 1, generator=generator)
        weights_F = weights_F.to(self._first.parameters[0])
        last_F = torch.zeros_like(weights_F)
        last_F[-1] = 1.0
        part = self._parts(self._first.step)[0]
        buffers = [buffer for t in self.trainings for buffer in t.model.buffers()]
        before = [buffer.clone() for buffer in buffers]
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)  # torch.vmap's, of what it loops over
            try:
                same = all(
                    self._is_alone(arms, kind, weights_F if kind == "all layers" else last_F, part)
                    for kind in self._kinds()
                )
            except (RuntimeError, UserWarning):
                same = False
        changed = [p for p in zip(buffers, before, strict=True) if not torch.equal(*p)]
        for buffer, value in changed:
            buffer.copy_(value)
        return same and not changed

    def _kinds(self) -> set[Kind]:
        steps = (self._first.step, self._first.config.steps - 1)
        return {training.kind(step) for training in self.trainings for step in steps}

    def _is_alone(self, arms: list[Parameters], kind: Kind, weights_F: Tensor, part: Batch) -> bool:
        """True if every row of a fused step equals that arm's own step of this kind."""
        stack = stacked(arms)
        losses_KF = self._fused_losses(stack, part)
        (weights_F * losses_KF).sum().backward()  # type: ignore[no-untyped-call]
        alones = []
        for row, (arm, training) in enumerate(zip(arms, self.trainings, strict=True)):
            alone = {name: value.clone().requires_grad_() for name, value in arm.items()}
            own = StepLosses(training.model, training.task)
            losses_F = self._mean_losses(own, alone, part, kind)
            (weights_F[-len(losses_F) :] * losses_F).sum().backward()  # type: ignore[no-untyped-call]
            same = torch.equal(losses_F, losses_KF[row, -len(losses_F) :]) and all(
                _equal(alone[name].grad, _row(stack[name].grad, row)) for name in alone
            )
            if not same:
                return False
            alones.append(alone)
        return self._is_updated_alone(alones, stack)

    def _is_updated_alone(self, alones: list[Parameters], stack: Parameters) -> bool:
        """True if clipping and the primal step with these gradients are every arm's own, too."""
        twins = [
            twin_of(training.optimizer, [(own[name], [alone[name]]) for name in alone])
            for training, own, alone in zip(self.trainings, self._parameters, alones, strict=True)
        ]
        most, lrs = self._first.config.grad_clip, [g["lr"] for g in twins[0].param_groups]
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
