"""Other setters of layer weights: schedules, learnt ones, and those of a constrained run.

Schedules and learnt weights have w_L = 1 and w_0 = 0; a constrained run's have what its multipliers
gave. They follow the product's ``Weighting``, so that a network with them is trained as every other
one. Weights are of losses over f_c, the constant prediction's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from trainables.config.arm import ArmConfig
from trainables.layer_losses import layer_losses
from trainables.models.dust import DUST
from trainables.primal_dual.weighting import Weighting
from trainables.tasks.base import Task
from trainables.training import Training

Floats = NDArray[np.float64]
LEARNING_RATE = 0.03  # of learnt weights: at the networks' own they would not arrive within a run


class Given(Weighting):
    """Weights of every step that are known before the run."""

    watches_layers = True

    def __init__(self, weights_SF: Floats, like: Tensor) -> None:
        """[steps, L + 1], in the type and on the device of ``like``."""
        self._weights_SF = torch.as_tensor(weights_SF).to(like)

    def is_plain(self, step: int) -> bool:
        """False: the inner layers' losses are always taken."""
        return False

    def weights(self, step: int, losses_F: Tensor) -> Tensor:
        """Those of the step."""
        return self._weights_SF[step]


def scheduled(
    steps: int, layers: int, *, omega: float, decay: float, end: float, until: float
) -> Floats:
    """Deep supervision whose weights change linearly, [steps, L + 1].

    w_l = omega(t) decay^(L - l), where omega(t) goes from ``omega`` to ``end`` times that over the
    first ``until`` of the run, and stays there.

    >>> scheduled(4, 2, omega=0.4, decay=1.0, end=0.0, until=0.5)[:, 1].round(2).tolist()
    [0.4, 0.2, 0.0, 0.0]
    """
    share_S = np.minimum(np.arange(steps) / (until * steps), 1.0)
    omega_S = omega * (1.0 + (end - 1.0) * share_S)
    weights_SF = np.zeros((steps, layers + 1))
    inner = np.arange(1, layers)
    weights_SF[:, 1:layers] = omega_S[:, None] * decay ** (layers - inner)
    weights_SF[:, layers] = 1.0
    return weights_SF


class Uncertainty(Weighting):
    """Layers weighted by learnt variances (Kendall et al. 2018, arXiv 1705.07115).

    The objective sum_l exp(-s_l) f_l + s_l is stepped in s by Adam at a constant LEARNING_RATE from
    s = 0; here with w_l = ``omega`` exp(-s_l) / exp(-s_L), so that the last loss keeps its weight.
    """

    watches_layers = True

    def __init__(self, config: ArmConfig, like: Tensor, omega: float) -> None:
        """Start with all variances at 1."""
        self._log_variances_L = torch.zeros(config.model.layers).to(like).requires_grad_()
        self._adam = torch.optim.Adam([self._log_variances_L], lr=LEARNING_RATE)
        self._omega = omega

    def is_plain(self, step: int) -> bool:
        """False."""
        return False

    def weights(self, step: int, losses_F: Tensor) -> Tensor:
        """Inner weights follow the variances; the last one's is 1."""
        precision_L = torch.exp(-self._log_variances_L.detach())
        weights_F = torch.zeros_like(losses_F)
        weights_F[1:] = self._omega * precision_L / precision_L[-1]
        weights_F[-1] = 1.0
        return weights_F

    def observe(self, step: int, losses_F: Tensor, lr_factor: float) -> None:
        """A step of Adam: the gradient of exp(-s) f + s is 1 - exp(-s) f."""
        s_L = self._log_variances_L
        s_L.grad = 1.0 - torch.exp(-s_L.detach()) * losses_F[1:]
        self._adam.step()


class Recording(Weighting):
    """A constrained run's own weighting, which remembers the weights of every step."""

    watches_layers = True

    def __init__(self, inner: Weighting, like: Tensor) -> None:
        """Nothing of the run changes; ``like`` has the type and the device of its weights."""
        self._inner, self._like = inner, like
        self._seen: list[Tensor] = []

    def is_plain(self, step: int) -> bool:
        """As the run's own."""
        return self._inner.is_plain(step)

    def weights(self, step: int, losses_F: Tensor) -> Tensor:
        """As the run's own; a copy is kept."""
        weights_F = self._inner.weights(step, losses_F)
        self._seen.append(weights_F.detach().clone())
        return weights_F

    def observe(self, step: int, losses_F: Tensor, lr_factor: float) -> None:
        """As the run's own."""
        self._inner.observe(step, losses_F, lr_factor)

    @property
    def weights_SF(self) -> Floats:
        """[steps, L + 1]: what every step was taken with."""
        stacked: Floats = torch.stack(self._seen).double().cpu().numpy()
        return stacked


class GradNorm(Training):
    """Layers weighted so that their gradients of the shared first layer have like norms.

    Chen et al. 2018, arXiv 1711.02257: weights v_l of layers 1..L follow the L1 distance of
    v_l |grad f_l| from its mean over layers times (relative inverse rate)^asymmetry, by Adam at
    a constant LEARNING_RATE, and are scaled to sum to L. Here the objective is
    f_L + ``omega`` sum_(l < L) v_l / v_L f_l: the last loss keeps its weight. The shared
    parameters are those of the first layer, the only ones that every loss depends on.
    """

    def __init__(
        self,
        config: ArmConfig,
        task: Task,
        model: nn.Module,
        weighting: Weighting,
        *,
        omega: float,
        asymmetry: float = 1.5,
    ) -> None:
        """``weighting`` is shown the losses and sets nothing."""
        super().__init__(config, task, model, weighting)
        if isinstance(model, DUST):
            self._shared = [model.dictionaries[0]]
        else:
            self._shared = list(cast(nn.ModuleList, model.layers)[0].parameters())
        self._raw_L = torch.ones(config.model.layers).to(self.parameters[0]).requires_grad_()
        self._adam = torch.optim.Adam([self._raw_L], lr=LEARNING_RATE)
        self._first_L: Tensor | None = None
        self._omega, self._asymmetry = omega, asymmetry

    def _backward(self, step: int) -> Tensor:
        """The gradient of the weighted losses; a step of the weights; the losses, detached."""
        unit = self.task.scales.constant_loss
        losses_F = layer_losses(self.model, self.task, self.task.train_batch(step)).mean(1) / unit
        norms = [self._norm_of(loss) for loss in losses_F[1:]]
        norms_L, seen_L = torch.stack(norms), losses_F[1:].detach()
        first_L = self._first_L = seen_L if self._first_L is None else self._first_L
        weights_F = torch.zeros_like(losses_F.detach())
        weights_F[1:] = self._omega * (self._raw_L / self._raw_L[-1]).detach()
        weights_F[-1] = 1.0
        (weights_F @ losses_F).backward()  # type: ignore[no-untyped-call]
        rates_L = seen_L / first_L
        weighted_L = self._raw_L.detach() * norms_L
        target_L = weighted_L.mean() * (rates_L / rates_L.mean()) ** self._asymmetry
        self._raw_L.grad = torch.sign(weighted_L - target_L) * norms_L
        self._adam.step()
        with torch.no_grad():
            self._raw_L.clamp_(min=1e-4)
            self._raw_L.mul_(len(self._raw_L) / self._raw_L.sum())
        return losses_F.detach()

    def _norm_of(self, loss: Tensor) -> Tensor:
        grads = torch.autograd.grad(loss, self._shared, retain_graph=True)
        return torch.sqrt(torch.stack([g.square().sum() for g in grads]).sum())


class WithExits(nn.Module):
    """A trained network, frozen, with an exit of its own after every inner layer.

    An exit adds to a layer's output a function of each token of it: a linear map and one of a
    hidden layer as wide as the token, both zero at the start. Input and last layer stay as
    they are.
    """

    def __init__(self, body: nn.Module, layers: int, width: int) -> None:
        """``width`` numbers a token."""
        super().__init__()
        self.body = body.requires_grad_(False)
        self.exits = nn.ModuleList(_Exit(width) for _ in range(1, layers))

    def forward(self, x_BTP: Tensor) -> Sequence[Tensor]:
        """The predictions of layers 0..L."""
        with torch.no_grad():
            first, *inner, last = self.body(x_BTP)
        read = [own(x) for own, x in zip(self.exits, inner, strict=True)]
        return [first, *read, last]


class _Exit(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.hidden = nn.Linear(width, width)
        self.out = nn.Linear(width, width)
        for zero in (self.linear, self.out):
            nn.init.zeros_(zero.weight)
            nn.init.zeros_(zero.bias)

    def forward(self, x_BTP: Tensor) -> Tensor:
        hidden = torch.nn.functional.gelu(self.hidden(x_BTP))
        out: Tensor = x_BTP + self.linear(x_BTP) + self.out(hidden)
        return out
