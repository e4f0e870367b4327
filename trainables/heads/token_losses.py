"""Exact cross entropy of a language-model head without the logits of all tokens.

A head of V words turns N states of width H into N x V logits: at V = 128,256 two thousand tokens
are 1 GB in float32, times two with their gradient, times the layers that are read off. Here tokens
go through the head in chunks; of each only the log-sum-exp stays, and the backward pass makes the
logits anew, as Cut Cross Entropy does (arXiv 2411.09009) without its kernels: four products of
N x V x H where the plain way has three.

Shape suffixes: N tokens, C tokens of a chunk, H width of the states, V words.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from trainables.errors import InvalidValue

IGNORED = -100  # the target of a place that has none, as in torch's cross_entropy
# Tokens. The head alone, on one CPU core, V = 32,000, H = 512: 1156, 922, 856 and 921 ms with 64,
# 128, 256 and 512. More than 128 would hold more than plain training does.
CHUNK = 128


class TokenOutcomes(NamedTuple):
    """Losses and hits of a head's predictions, by token; 0 at ignored places."""

    losses: Tensor
    """Cross entropy in nats; float64 where states or head are, else float32."""
    right: Tensor
    """1 where the target's logit is the first of the largest, else 0; NaN where the loss is not
    finite. Without gradient."""


def token_losses(
    states: Tensor,
    weight: Tensor,
    targets: Tensor,
    *,
    bias: Tensor | None = None,
    softcap: float | None = None,
    chunk: int = CHUNK,
) -> TokenOutcomes:
    """Cross entropy -log softmax(W x + b)[target] of every state, in chunks of tokens.

    The gradients of states, weight and bias are exact; those that nobody needs are not computed,
    and there are no second ones. Nothing waits for the device. Products run in autocast's type
    where it is on, softmax and sums in at least float32. Neither states nor targets at ignored
    places have an effect.

    Layers that share the head can be one call, with their states stacked to [L, ..., H] and the
    targets of one layer: the head's gradient is then summed in one tensor instead of L.

    Args:
        states: [..., H], normed as the head expects.
        weight: [V, H].
        targets: int64, of shape [...] or one that broadcasts to it; in [0, V), or ``IGNORED``.
        bias: [V].
        softcap: c of Gemma's c tanh(logits / c), above 0.
        chunk: tokens whose logits [chunk, V] are held at once.

    Raises:
        InvalidValue: ``chunk`` below 1, or ``softcap`` not above 0.
        NotImplementedError: in the backward pass, where second derivatives are asked for.
    """
    if chunk < 1:
        raise InvalidValue(f"chunk must be 1 token or more, got {chunk}: {CHUNK} is the default.")
    if softcap is not None and not softcap > 0:
        raise InvalidValue(f"softcap must be above 0, got {softcap}: leave it out for none.")
    shape = states.shape[:-1]
    losses, right = _ChunkedHead.apply(  # type: ignore[no-untyped-call]
        states.reshape(-1, states.shape[-1]),
        weight,
        bias,
        targets.expand(shape).reshape(-1),
        softcap,
        chunk,
        _product_type(states, weight),
    )
    return TokenOutcomes(losses.view(shape), right.view(shape))


def _product_type(states: Tensor, weight: Tensor) -> torch.dtype:
    """The type of a linear map here: autocast's, which leaves float64 alone, or the tensors'."""
    own, device = torch.promote_types(states.dtype, weight.dtype), states.device.type
    if own != torch.float64 and torch.is_autocast_enabled(device):
        return torch.get_autocast_dtype(device)
    return own


class _ChunkedHead(torch.autograd.Function):
    """``token_losses`` of states [N, H]; gradients once, not of gradients."""

    @staticmethod
    def forward(
        ctx: Any,
        states_NH: Tensor,
        weight_VH: Tensor,
        bias_V: Tensor | None,
        targets_N: Tensor,
        softcap: float | None,
        chunk: int,
        narrow: torch.dtype,
    ) -> tuple[Tensor, Tensor]:
        wide = torch.promote_types(narrow, torch.float32)
        head = _Head(weight_VH, bias_V, softcap, narrow, wide)
        ignored_N = targets_N == IGNORED
        sums_N, hits_N, right_N = states_NH.new_empty((3, len(states_NH)), dtype=wide)
        buffer_CV = head.buffer(min(chunk, len(states_NH)))
        # Types are chosen by hand: autocast would narrow the sums, too.
        with torch.autocast(states_NH.device.type, enabled=False):
            for part in _parts(len(states_NH), chunk):
                inputs_CH = head.inputs(states_NH[part], ignored_N[part])
                logits_CV = head.logits(inputs_CH, buffer_CV)
                target_C = targets_N[part].masked_fill(ignored_N[part], 0)
                hits_N[part] = logits_CV.gather(1, target_C.unsqueeze(1)).squeeze(1)
                largest_C, word_C = logits_CV.max(1)
                right_N[part] = (word_C == target_C).to(wide)
                # Less the largest, whose exp could overflow; this ends the logits in the buffer.
                exponentials_CV = logits_CV.sub_(largest_C.unsqueeze(1)).exp_()
                sums_N[part] = exponentials_CV.sum(1).log_().add_(largest_C)
        losses_N = sums_N - hits_N
        right_N = right_N.masked_fill(~losses_N.isfinite(), torch.nan).masked_fill_(ignored_N, 0)
        ctx.save_for_backward(states_NH, weight_VH, bias_V, targets_N, sums_N)
        ctx.options = softcap, chunk, narrow, wide
        ctx.mark_non_differentiable(right_N)
        return losses_N.masked_fill(ignored_N, 0), right_N

    @staticmethod
    def backward(ctx: Any, slopes_N: Tensor, _right: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # a graph of this pass was asked for
            raise NotImplementedError("token_losses has first derivatives only.")
        states_NH, weight_VH, bias_V, targets_N, sums_N = ctx.saved_tensors
        softcap, chunk, narrow, wide = ctx.options
        head = _Head(weight_VH, bias_V, softcap, narrow, wide)
        ignored_N = targets_N == IGNORED
        slopes_N = slopes_N.masked_fill(ignored_N, 0)
        of_states, of_weight, of_bias = ctx.needs_input_grad[:3]
        states_grad = torch.empty_like(states_NH) if of_states else None
        # In wide: a sum over chunks in bfloat16 would lose what each adds.
        weight_grad = torch.zeros_like(weight_VH, dtype=wide) if of_weight else None
        bias_grad = torch.zeros_like(bias_V, dtype=wide) if of_bias else None
        buffer_CV = head.buffer(min(chunk, len(states_NH)))
        with torch.autocast(states_NH.device.type, enabled=False):
            for part in _parts(len(states_NH), chunk):
                inputs_CH = head.inputs(states_NH[part], ignored_N[part])
                logits_CV = head.logits(inputs_CH, buffer_CV)
                curbs_CV = head.curbs(logits_CV)  # before the logits are overwritten
                target_CK = targets_N[part].masked_fill(ignored_N[part], 0).unsqueeze(1)
                # softmax less the one-hot target: K = 1
                errors_CV = logits_CV.sub_(sums_N[part].unsqueeze(1)).exp_()
                errors_CV.scatter_(1, target_CK, errors_CV.gather(1, target_CK) - 1)
                errors_CV.mul_(slopes_N[part].unsqueeze(1))
                if curbs_CV is not None:
                    errors_CV.mul_(curbs_CV)
                if bias_grad is not None:
                    bias_grad += errors_CV.sum(0)
                errors_CV = errors_CV.to(narrow)
                if states_grad is not None:
                    states_grad[part] = errors_CV @ head.weight_VH
                if weight_grad is not None and narrow == wide:
                    weight_grad.addmm_(errors_CV.mT, inputs_CH)
                elif weight_grad is not None:
                    weight_grad += errors_CV.mT @ inputs_CH
        return (
            states_grad,
            None if weight_grad is None else weight_grad.to(weight_VH.dtype),
            None if bias_grad is None else bias_grad.to(bias_V.dtype),
            *(None,) * 4,
        )


class _Head:
    """The linear map and its cap: products in ``narrow``, everything after them in ``wide``."""

    def __init__(
        self,
        weight_VH: Tensor,
        bias_V: Tensor | None,
        softcap: float | None,
        narrow: torch.dtype,
        wide: torch.dtype,
    ) -> None:
        self.weight_VH = weight_VH.to(narrow)
        self.bias_V = None if bias_V is None else bias_V.to(wide)
        self.softcap, self.narrow, self.wide = softcap, narrow, wide

    def inputs(self, states_CH: Tensor, ignored_C: Tensor) -> Tensor:
        """States as the product takes them; zeros at ignored places, whatever stands there."""
        return states_CH.to(self.narrow).masked_fill(ignored_C.unsqueeze(1), 0)

    def buffer(self, chunk: int) -> Tensor:
        """Room for the logits of a chunk, the only one of a pass."""
        return self.weight_VH.new_empty((chunk, len(self.weight_VH)), dtype=self.wide)

    def logits(self, inputs_CH: Tensor, buffer_CV: Tensor) -> Tensor:
        """[C, V], written into the buffer; they may be overwritten."""
        logits_CV = buffer_CV[: len(inputs_CH)]
        if self.narrow == self.wide:
            torch.mm(inputs_CH, self.weight_VH.mT, out=logits_CV)
        else:
            logits_CV.copy_(inputs_CH @ self.weight_VH.mT)
        if self.bias_V is not None:
            logits_CV.add_(self.bias_V)
        if self.softcap is not None:
            logits_CV.div_(self.softcap).tanh_().mul_(self.softcap)
        return logits_CV

    def curbs(self, logits_CV: Tensor) -> Tensor | None:
        """The cap's slope 1 - (logit / c)^2 at every logit; None without a cap."""
        if self.softcap is None:
            return None
        return logits_CV.div(self.softcap).square_().neg_().add_(1)


def _parts(tokens: int, chunk: int) -> Iterator[slice]:
    return (slice(start, start + chunk) for start in range(0, tokens, chunk))
