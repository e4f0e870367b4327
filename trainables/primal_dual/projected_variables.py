"""Variables that stay >= 0, one per constraint: their values, their Adam where they have one.

What multipliers and slacks share: they start at zero, never synchronise with the host, and a
resumed run continues them bit for bit.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class ProjectedVariables:
    """Values [L], projected onto >= 0 after every step of their optimiser."""

    def __init__(self, count: int, device: torch.device, dtype: torch.dtype, **adam: Any) -> None:
        """Zeros for ``count`` constraints, on the run's device.

        Args:
            count: how many constraints.
            device: the run's.
            dtype: of the values.
            adam: options of torch.optim.Adam where it moves them; none: they move themselves.
        """
        self.values_L = torch.zeros(count, device=device, dtype=dtype)
        self._adam: torch.optim.Adam | None = None
        if adam:
            # capturable keeps Adam's step count on the device
            self._adam = torch.optim.Adam([self.values_L], capturable=device.type == "cuda", **adam)

    def _adam_step(self, adam: torch.optim.Adam, gradient_L: Tensor, lr: float) -> None:
        adam.param_groups[0]["lr"] = lr
        self.values_L.grad = gradient_L
        adam.step()
        self.values_L.clamp_(min=0)

    def state_dict(self) -> dict[str, Any]:
        """Everything a resumed run needs to continue bit for bit."""
        return {
            "values": self.values_L,
            "adam": None if self._adam is None else self._adam.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from ``state_dict``."""
        self.values_L.copy_(state["values"])
        if self._adam is not None:
            self._adam.load_state_dict(state["adam"])
