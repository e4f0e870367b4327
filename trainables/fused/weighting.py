"""Joint weighting of fused arms: their layer weights and dual steps, all at once.

Arms whose constraints differ in numbers alone (alpha, dual_lr, resilience, or whether they are
detached) are one weighting whose tensors have K rows; that takes as many launches as one arm. The
others keep their own. All that it computes is elementwise, or sums of a few numbers in a fixed
order, so that every row has the bits of its arm alone; ``has_same_bits`` tries that.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Hashable, Sequence
from typing import Any

import torch
from torch import Tensor

from trainables.primal_dual.constraints import DescentConstraints
from trainables.primal_dual.dual_variables import Multipliers
from trainables.primal_dual.lagrangian import PrimalDual
from trainables.primal_dual.weighting import LastLayer, Watched, Weighting

_PARTS = (DescentConstraints, LastLayer, Multipliers)  # of a weighting, with tensors of their own
TRIED = 6  # steps in which arms together are compared with each alone
# May differ: what is read of them is the same or in a tensor, or the next step overwrites them.
_OWN = ("config", "is_detached", "_last_step")


class JointWeighting:
    """The weightings of K arms at one step, until they are given back."""

    def __init__(self, weightings: Sequence[Weighting], *, is_joint: bool = True) -> None:
        """Stack what can be; with ``is_joint=False`` nothing."""
        rows_of: dict[Hashable, list[int]] = {}
        for row, weighting in enumerate(weightings):
            kind = _kind(weighting) if is_joint else None
            rows_of.setdefault(row if kind is None else kind, []).append(row)
        self._weightings = weightings
        self._parts: list[tuple[list[int], Any, Weighting]] = []
        for rows in rows_of.values():
            index, own = rows[0], [weightings[row] for row in rows]
            if len(rows) == 1:
                self._parts.append((rows, index, own[0]))
            else:
                self._parts.append((rows, _index(rows, _tensor_of(own[0]).device), _stacked(own)))

    def weights(self, step: int, losses_KF: Tensor) -> Tensor:
        """w [K, L + 1] for primal step ``step``, whose losses over f_c these are, detached."""
        weights_KF = torch.empty_like(losses_KF)
        for _, index, weighting in self._parts:
            weights_KF[index] = weighting.weights(step, losses_KF[index])
        return weights_KF

    def observe(self, step: int, losses_KF: Tensor, lr_factor: float) -> None:
        """Show every arm its losses of primal step ``step``."""
        for _, index, weighting in self._parts:
            weighting.observe(step, losses_KF[index], lr_factor)

    def disturb(self, drawn_KF: Tensor) -> None:
        """Multipliers as drawn, and a dual step after every primal one."""
        for _, index, weighting in self._parts:
            if isinstance(weighting, PrimalDual):
                values_L = weighting.multipliers.values_L
                values_L.copy_(drawn_KF[index][..., : values_L.shape[-1]])
                config = weighting.config
                weighting.config = dataclasses.replace(config, dual_every=1, dual_every_unit="step")

    def give_back(self) -> None:
        """Copy each row into its arm's weighting."""
        for rows, _, joint in self._parts:
            if len(rows) > 1:
                _give_back(joint, [self._weightings[row] for row in rows])


def has_same_bits(weightings: Sequence[Weighting], layers: int) -> bool:
    """True if weights and dual steps of the arms together are those of each alone, to the bit.

    Tried on copies with multipliers and losses drawn at random, of ``layers`` layers, and with a
    dual step after each.
    """
    joined, alone = (JointWeighting(copy.deepcopy(weightings), is_joint=j) for j in (True, False))
    generator = torch.Generator().manual_seed(0)

    def drawn_KF() -> Tensor:
        drawn = torch.rand(len(weightings), layers + 1, generator=generator)
        return drawn.to(_tensor_of(weightings[0]))

    multipliers_KF = drawn_KF()
    for joint in (joined, alone):
        joint.disturb(multipliers_KF)
    first = max((w.config.warmup_steps for w in weightings if isinstance(w, Watched)), default=0)
    for step in range(first, first + TRIED):
        losses_KF = 2 * drawn_KF()
        if not torch.equal(*(joint.weights(step, losses_KF) for joint in (joined, alone))):
            return False
        for joint in (joined, alone):
            joint.observe(step, losses_KF, 0.7)
    return True


def _tensor_of(part: object) -> Tensor:
    """A tensor of ``part``, of the device and type that all of its tensors have."""
    return next(value for value in vars(part).values() if isinstance(value, Tensor))


def _kind(weighting: Weighting) -> Hashable:
    """Key in which arms must agree to be one weighting; None where they must stay alone.

    Adam keeps moments of its own, and slacks are stepped by it.
    """
    if isinstance(weighting, LastLayer):
        return "plain"
    if not isinstance(weighting, PrimalDual):
        return None
    config = weighting.config
    if config.is_adam or config.resilience_form != "decay":
        return None
    numbers: dict[str, Any] = {"alpha": 0.5, "dual_lr": 0.1, "resilience": 0.1}
    if config.form == "difference":  # the gradient's matrix says it all
        numbers["grad_through_previous"] = True
    counts = tuple(v for n, v in vars(weighting).items() if isinstance(v, int) and n not in _OWN)
    return dataclasses.replace(config, **numbers), counts


def _index(rows: list[int], device: torch.device) -> slice | Tensor:
    """Rows of a tensor: a view where they lie side by side."""
    first, last = rows[0], rows[-1]
    if rows == list(range(first, last + 1)):
        return slice(first, last + 1)
    return torch.tensor(rows, device=device)


def _stacked(parts: Sequence[Any]) -> Any:
    """One object in the place of several: tensors have rows, numbers that differ are [K, 1].

    Those numbers stay in float64, as numbers are, and on the device, which no step waits for.
    """
    joint = copy.copy(parts[0])
    for name, value in vars(joint).items():
        values = [vars(part)[name] for part in parts]
        new = value
        if isinstance(value, Tensor):
            new = torch.stack(values)
        elif isinstance(value, _PARTS):
            new = _stacked(values)
        elif isinstance(value, float) and len(set(values)) > 1:
            device = _tensor_of(joint).device
            new = torch.tensor(values, dtype=torch.float64, device=device)[:, None]
        elif name not in _OWN and any(other != value for other in values):
            raise RuntimeError(f"arms of a group must agree in {name}: {values}")
        object.__setattr__(joint, name, new)  # also of a frozen one
    return joint


def _give_back(joint: Any, parts: Sequence[Any]) -> None:
    """Copy tensors and counts, which steps have changed, back into each part."""
    for name, value in vars(joint).items():
        if isinstance(value, Multipliers):
            _give_back(value, [vars(part)[name] for part in parts])
        elif isinstance(value, Tensor):
            for part, row in zip(parts, value, strict=True):
                setattr(part, name, row.clone())  # of a view a checkpoint would keep all rows
        elif isinstance(value, int):
            for part in parts:
                setattr(part, name, value)
