"""Joint update of fused arms: clipping and the primal optimiser's step.

Parameters have K rows. Clipping needs one norm a row; Adam is elementwise, so that one step on K
rows is K steps. The bits are those of K steps, too: at the end of a tensor, where less than a
vector of numbers is left, the kernels of CPUs round in another way, so that rows of such sizes are
stepped as tensors of their own. An arm's moments are rows meanwhile, and its own again when they
are given back.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from trainables.primal_dual.clipping import clip_rows

# Of a stack on a GPU. A step of UT (7 layers, d = 256) with 4, 8, 16 and 32 rows takes 1.9, 2.5,
# 3.7 and 6.0 ms of an H100. With other rows numbers may be others, and signatures must say so
# (config/mended.py).
ROWS = 8

VECTOR = 16  # numbers that a CPU's kernels take at a time, at most: 512 bits of float32

Parameters = dict[str, Tensor]


class JointUpdate:
    """K arms' parameters and moments as rows of one tensor each, until they are given back."""

    def __init__(
        self, arms: Sequence[Parameters], optimizers: Sequence[Optimizer], count: int | None = None
    ) -> None:
        """Take copies of the parameters of arms of one shape, and of their optimisers' state.

        Rows beyond the first ``count`` are given back to nobody. Raises RuntimeError where the
        optimisers have not taken as many steps.
        """
        self._arms, self._optimizers = arms[:count], optimizers[:count]
        self.stack = stacked(arms)
        self._pieces = {name: _pieces(rows) for name, rows in self.stack.items()}
        self._joint = twin_of(
            optimizers[0], [(arms[0][name], pieces) for name, pieces in self._pieces.items()]
        )
        states = {
            name: [o.state.get(a[name]) for a, o in zip(arms, optimizers, strict=True)]
            for name in self._pieces
        }
        states = {name: of_arms for name, of_arms in states.items() if any(of_arms)}
        _require_as_many_steps(list(states.values()))
        for name, of_arms in states.items():
            joined, pieces = _joined(of_arms), self._pieces[name]
            for index, piece in enumerate(pieces):
                self._joint.state[piece] = joined if len(pieces) == 1 else _row(joined, index)

    def step(self, most: float, lrs: Sequence[float]) -> Tensor:
        """Clip every arm's gradient at the norm ``most`` and step; the norms before, [K]."""
        norms_K = clip_rows([p.grad for p in self.stack.values() if p.grad is not None], most)
        self.step_clipped(lrs)
        return norms_K

    def step_clipped(self, lrs: Sequence[float]) -> None:
        """Step by gradients that are clipped already."""
        for name, pieces in self._pieces.items():
            gradient = self.stack[name].grad
            for index, piece in enumerate(pieces):
                piece.grad = gradient if gradient is None or len(pieces) == 1 else gradient[index]
        for group, lr in zip(self._joint.param_groups, lrs, strict=True):
            group["lr"] = lr
        self._joint.step()
        for parameter in (*self.stack.values(), *itertools.chain(*self._pieces.values())):
            parameter.grad = None  # which would take as much memory until the next step

    @torch.no_grad()
    def give_weights(self) -> None:
        """Copy each row into its arm's parameters."""
        for row, arm in enumerate(self._arms):
            for name, rows in self.stack.items():
                arm[name].copy_(rows[row])

    def give_back(self) -> None:
        """Copy each row into its arm's parameters and moments, in memory of its own."""
        self.give_weights()
        for row, (arm, optimizer) in enumerate(zip(self._arms, self._optimizers, strict=True)):
            for own, joint in zip(optimizer.param_groups, self._joint.param_groups, strict=True):
                own["lr"] = joint["lr"]
            for name, pieces in self._pieces.items():
                is_joint = len(pieces) == 1
                state = self._joint.state.get(pieces[0 if is_joint else row])
                if state:
                    optimizer.state[arm[name]] = _row(state, row if is_joint else None)


def stacked(arms: Sequence[Parameters]) -> Parameters:
    """All arms' parameters, [K, ...] each: copies, with gradients of their own."""
    return {
        name: torch.stack([arm[name].detach() for arm in arms]).requires_grad_() for name in arms[0]
    }


def rows_of(models: Sequence[nn.Module]) -> Parameters:
    """Parameters of networks of one shape in a stack of ``ROWS`` rows, for passes alone.

    By their names in a module that has the network as ``model``.
    """
    repeated = [*models, *[models[0]] * (ROWS - len(models))]
    named = [dict(model.named_parameters()) for model in repeated]
    return {
        f"model.{name}": torch.stack([own[name].detach() for own in named]) for name in named[0]
    }


def twin_of(optimizer: Optimizer, pairs: Iterable[tuple[Tensor, Sequence[Tensor]]]) -> Optimizer:
    """An optimiser of the same settings before its first step, on what stands for its tensors."""
    others = {id(own): pieces for own, pieces in pairs}
    kind: Callable[[list[dict[str, Any]]], Optimizer] = type(optimizer)
    return kind(
        [
            {**group, "params": [piece for p in group["params"] for piece in others[id(p)]]}
            for group in optimizer.param_groups
        ]
    )


def _require_as_many_steps(states: Sequence[Sequence[Mapping[str, Tensor] | None]]) -> None:
    """RuntimeError unless all arms have taken as many; [parameters][arms]. The host waits once."""
    known = [[state["step"] for state in of_arms if state] for of_arms in states]
    same = all(len(steps) == len(of_arms) for steps, of_arms in zip(known, states, strict=True))
    if same and known:
        steps_PK = torch.stack([torch.stack(steps) for steps in known])
        same = bool((steps_PK == steps_PK[:, :1]).all())
    if not same:
        raise RuntimeError("arms of a group must have taken as many steps")


def _joined(states: Sequence[Mapping[str, Tensor] | None]) -> dict[str, Tensor]:
    """One state of all arms': the steps taken are the same, the moments are rows."""
    known = [state for state in states if state]
    return {
        key: value.clone() if key == "step" else torch.stack([state[key] for state in known])
        for key, value in known[0].items()
    }


def _row(state: Mapping[str, Tensor], row: int | None) -> dict[str, Tensor]:
    """A copy of one arm's state, or of one that is an arm's already."""
    return {
        # clones: a view would keep all rows in the arm's checkpoint
        key: value.clone() if key == "step" or row is None else value[row].clone()
        for key, value in state.items()
    }


def _pieces(rows: Tensor) -> list[Tensor]:
    """Tensors that are stepped as one each: all rows, or each row; in the same memory."""
    detached = rows.detach()
    is_one = len(detached) == 1 or detached[0].numel() % VECTOR == 0
    return [detached] if is_one else list(detached)
