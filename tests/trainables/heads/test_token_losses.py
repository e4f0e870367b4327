"""Chunked cross entropy of a head against torch's own, on logits that are all there."""

from __future__ import annotations

import functools
import math
from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from trainables.errors import InvalidValue
from trainables.heads.token_losses import IGNORED, token_losses

WORDS, WIDTH, TOKENS = 97, 12, 23  # a chunk of 7 does not divide 23


def drawn(dtype: torch.dtype, tokens: int = TOKENS) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """States, weight, bias (all with gradients) and targets, two of them ignored."""
    draws = torch.Generator().manual_seed(0)
    shapes = ((tokens, WIDTH), (WORDS, WIDTH), (WORDS,))
    states, weight, bias = (
        torch.randn(shape, dtype=dtype, generator=draws).requires_grad_() for shape in shapes
    )
    targets = torch.randint(WORDS, (tokens,), generator=draws)
    targets[3:5] = IGNORED
    return states, weight, bias, targets


def naive_logits(
    states: Tensor, weight: Tensor, bias: Tensor | None = None, softcap: float | None = None
) -> Tensor:
    logits = functional.linear(states, weight, bias)
    return logits if softcap is None else softcap * torch.tanh(logits / softcap)


def naive_losses(logits: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(logits, targets, ignore_index=IGNORED, reduction="none")


def slopes(tokens: int, dtype: torch.dtype) -> Tensor:
    """A different weight for every token's loss, some of them negative."""
    return torch.linspace(-1, 2, tokens, dtype=dtype)


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(torch.float32, 2e-5), (torch.float64, 1e-12)],  # values and gradients are of order 10
)
@pytest.mark.parametrize("softcap", [None, 5.0])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("chunk", [1, 7, 1000])
def test_losses_and_gradients_are_those_of_cross_entropy(
    dtype: torch.dtype, tolerance: float, softcap: float | None, biased: bool, chunk: int
) -> None:
    states, weight, bias, targets = drawn(dtype)
    given = (states, weight, bias) if biased else (states, weight)
    logits = naive_logits(*given, softcap=softcap)
    expected = naive_losses(logits, targets)
    found = token_losses(
        states, weight, targets, bias=bias if biased else None, softcap=softcap, chunk=chunk
    )
    assert found.losses.dtype == dtype
    assert not found.right.requires_grad
    torch.testing.assert_close(found.losses, expected, rtol=0, atol=tolerance)
    assert torch.equal(found.right, (logits.argmax(1) == targets).to(dtype))
    by_token = slopes(TOKENS, dtype)
    for ours, theirs in zip(
        torch.autograd.grad(found.losses @ by_token, given),
        torch.autograd.grad(expected @ by_token, given),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=tolerance)


def test_gradients_are_those_of_finite_differences() -> None:
    states, weight, bias, _ = drawn(torch.float64, tokens=5)
    targets = torch.tensor([0, 5, IGNORED, 3, 3])

    def losses(states: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return token_losses(states, weight, targets, bias=bias, softcap=3.0, chunk=2).losses

    six = [leaf[:6].detach().requires_grad_() for leaf in (states, weight, bias)]
    assert torch.autograd.gradcheck(losses, six)


@functools.cache
def llama(dtype: torch.dtype) -> tuple[PreTrainedModel, Tensor, Tensor]:
    """A Llama of three layers with a head of its own, token ids, and the states of its layers."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=211,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=False,
    )
    network = LlamaForCausalLM(config).to(dtype)
    ids = torch.randint(211, (2, 17))
    targets = ids.roll(-1, dims=1)
    targets[:, -1] = IGNORED
    targets[0, :6] = IGNORED  # its prompt
    return network, ids, targets


def normed_states(network: PreTrainedModel, ids: Tensor) -> list[Tensor]:
    """[B, T, H] after every layer, as the head takes them: transformers norms the last alone."""
    hidden = network.model(ids, output_hidden_states=True).hidden_states
    return [*(network.model.norm(state) for state in hidden[1:-1]), hidden[-1]]


@pytest.mark.parametrize(
    ("dtype", "of_losses", "of_gradients"),
    [(torch.float32, 1e-5, 1e-4), (torch.float64, 1e-12, 1e-12)],  # demanded of the module
)
@pytest.mark.parametrize("at_once", [False, True])
def test_a_head_on_every_layer_of_a_llama(
    dtype: torch.dtype, of_losses: float, of_gradients: float, at_once: bool
) -> None:
    network, ids, targets = llama(dtype)
    weight = network.lm_head.weight
    layer_weights = torch.tensor([-0.4, 0.7, 1.3], dtype=dtype)

    def naive() -> Tensor:
        states = normed_states(network, ids)
        flat = [naive_losses(network.lm_head(s).flatten(0, 1), targets.flatten()) for s in states]
        return torch.stack(flat).view(3, *targets.shape)

    def chunked() -> Tensor:
        states = normed_states(network, ids)
        if at_once:
            return token_losses(torch.stack(states), weight, targets, chunk=8).losses
        return torch.stack([token_losses(s, weight, targets, chunk=8).losses for s in states])

    expected, found = naive(), chunked()
    torch.testing.assert_close(found, expected, rtol=0, atol=of_losses)
    every = list(network.parameters())
    for ours, theirs in zip(
        torch.autograd.grad((found.sum((1, 2)) * layer_weights).sum(), every),
        torch.autograd.grad((expected.sum((1, 2)) * layer_weights).sum(), every),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=of_gradients)


def test_the_last_loss_of_a_llama_is_the_one_transformers_gives() -> None:
    network, ids, targets = llama(torch.float32)
    last = normed_states(network, ids)[-1]
    losses = token_losses(last, network.lm_head.weight, targets).losses
    mean = losses.sum() / (targets != IGNORED).sum()
    theirs = network(ids, labels=targets, shift_labels=targets).loss
    torch.testing.assert_close(mean, theirs, rtol=0, atol=1e-5)


def test_what_stands_at_ignored_places_has_no_effect() -> None:
    states, weight, bias, targets = drawn(torch.float64)
    spoilt = states.detach().clone()
    spoilt[targets == IGNORED] = math.nan
    spoilt.requires_grad_()
    clean = token_losses(states, weight, targets, bias=bias, chunk=4)
    found = token_losses(spoilt, weight, targets, bias=bias, chunk=4)
    assert torch.equal(found.losses, clean.losses)
    assert torch.equal(found.right, clean.right)
    assert found.losses[3:5].tolist() == found.right[3:5].tolist() == [0, 0]
    for ours, theirs in zip(
        torch.autograd.grad(found.losses.sum(), (spoilt, weight, bias)),
        torch.autograd.grad(clean.losses.sum(), (states, weight, bias)),
        strict=True,
    ):
        assert torch.equal(ours, theirs)
    assert not torch.autograd.grad(token_losses(spoilt, weight, targets).losses.sum(), spoilt)[0][
        3:5
    ].any()


def test_right_is_nan_where_logits_are_not_finite_and_ties_go_to_the_first_word() -> None:
    states = torch.tensor([[0.0], [1.0], [math.nan], [math.inf], [0.0]])
    weight = torch.tensor([[1.0], [3.0], [2.0]])
    found = token_losses(states, weight, torch.tensor([0, 1, 1, 1, 1]))
    assert found.right.tolist()[:2] == [1, 1]
    assert found.right.tolist()[4] == 0
    assert found.right[2:4].isnan().all()
    assert found.losses[2:4].isnan().all()
    assert found.losses[0] == pytest.approx(math.log(3))


def test_no_tokens_have_no_losses_and_gradients_of_zero() -> None:
    states, weight, _, _ = drawn(torch.float32)
    none = states[:0].detach().requires_grad_()
    found = token_losses(none, weight, torch.empty(0, dtype=torch.int64))
    assert found.losses.shape == found.right.shape == (0,)
    of_states, of_weight = torch.autograd.grad(found.losses.sum(), (none, weight))
    assert of_states.shape == (0, WIDTH)
    assert of_weight.shape == weight.shape
    assert not of_weight.any()


@pytest.mark.parametrize("as_weights", [torch.float32, torch.bfloat16])
def test_bfloat16_is_near_float32(as_weights: torch.dtype) -> None:
    """Under autocast, and with weights of that type: losses in float32, gradients of their own."""
    states, weight, bias, targets = drawn(torch.float32)
    exact = token_losses(states, weight, targets, bias=bias).losses
    mean = exact.abs().mean()
    narrow = [t.detach().to(as_weights).requires_grad_() for t in (states, weight, bias)]
    with torch.autocast("cpu", torch.bfloat16):
        found = token_losses(narrow[0], narrow[1], targets, bias=narrow[2], chunk=7).losses
    assert found.dtype == torch.float32
    assert 0 < (found - exact).abs().mean() < 0.01 * mean  # 2^-9 of sums of 12 products
    for ours, theirs in zip(
        torch.autograd.grad(found.sum(), narrow),
        torch.autograd.grad(exact.sum(), (states, weight, bias)),
        strict=True,
    ):
        assert ours.dtype == as_weights
        assert (ours.float() - theirs).norm() < 0.02 * theirs.norm()


class Made(TorchDispatchMode):
    """Every tensor that an operation makes, and how often each operation runs."""

    def __init__(self) -> None:
        super().__init__()
        self.tensors: list[Tensor] = []  # kept, so that none takes the place of another
        self.names: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        made = found if isinstance(found, tuple | list) else (found,)
        self.tensors += [t for t in made if isinstance(t, Tensor)]
        self.names[func.overloadpacket._qualified_op_name] += 1
        return found


WAITING = {"aten::_local_scalar_dense", "aten::nonzero", "aten::masked_select", "aten::unique"}


@pytest.mark.parametrize("softcap", [None, 5.0])
@pytest.mark.parametrize("narrow", [False, True])
def test_no_more_logits_than_a_chunks_are_ever_made(softcap: float | None, narrow: bool) -> None:
    """And nothing that would make a CUDA device's host wait: no number is read back."""
    states, weight, bias, targets = drawn(torch.float32, tokens=80)
    with Made() as made, torch.autocast("cpu", torch.bfloat16, enabled=narrow):
        found = token_losses(states, weight, targets, bias=bias, softcap=softcap, chunk=16).losses
        found.sum().backward()
    # [80, 12] states and [97, 12] weights are smaller than [16, 97] logits
    assert max(tensor.numel() for tensor in made.tensors) == 16 * WORDS
    assert not WAITING & set(made.names)
    logits = [tensor for tensor in made.tensors if tensor.numel() == 16 * WORDS]
    if softcap is None and not narrow:  # one buffer forwards, one backwards, for five chunks
        assert len({tensor.untyped_storage().data_ptr() for tensor in logits}) == 2
    with Made() as plain:
        naive_losses(naive_logits(states, weight), targets).sum().backward()
    assert max(tensor.numel() for tensor in plain.tensors) == 80 * WORDS  # the count can fail


def products(*, of_states: bool, of_weight: bool) -> int:
    """Matrix products of three chunks, forwards and backwards."""
    states, weight, _, targets = drawn(torch.float32, tokens=21)
    states.requires_grad_(of_states)
    weight.requires_grad_(of_weight)
    with Made() as made:
        losses = token_losses(states, weight, targets, chunk=7).losses
        if of_states or of_weight:
            losses.sum().backward()
    return made.names["aten::mm"] + made.names["aten::addmm_"]


def test_work_is_four_products_and_none_for_a_gradient_that_nobody_needs() -> None:
    assert products(of_states=True, of_weight=True) == 4 * 3
    assert products(of_states=True, of_weight=False) == 3 * 3
    assert products(of_states=False, of_weight=True) == 3 * 3
    assert products(of_states=False, of_weight=False) == 3


def test_the_same_numbers_come_out_twice() -> None:
    states, weight, bias, targets = drawn(torch.float32)
    found = []
    for _ in range(2):
        losses = token_losses(states, weight, targets, bias=bias, chunk=7).losses
        found.append((losses, *torch.autograd.grad(losses.sum(), (states, weight, bias))))
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_gradients_of_gradients_are_refused() -> None:
    states, weight, _, targets = drawn(torch.float64)
    losses = token_losses(states, weight, targets).losses
    with pytest.raises(NotImplementedError, match="first derivatives only"):
        torch.autograd.grad(losses.sum(), states, create_graph=True)


@pytest.mark.parametrize("wrong", [{"chunk": 0}, {"softcap": 0.0}, {"softcap": math.nan}])
def test_settings_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    states, weight, _, targets = drawn(torch.float32)
    with pytest.raises(InvalidValue, match=f"{next(iter(wrong))} must be"):
        token_losses(states, weight, targets, **wrong)
