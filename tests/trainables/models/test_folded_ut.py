"""UT's layers as one operation: values and gradients of the layers that autograd differentiates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from tests.support.oracles import TINY
from trainables.models.ut import UT, build

VARIANTS = ("distance", "sharp")
# of three layers' outputs, the slopes that a loss asks for
ASKED = {"all": (0, 1, 2), "the last": (2,), "inner ones": (0, 1), "the first": (0,)}


def ut(variant: str, *, patch: int = 3, dtype: torch.dtype = torch.float64) -> UT:
    """Three layers in general position."""
    model = UT(layers=3, patch_size=patch, variant=variant, noise_energy=0.4).to(dtype)
    draws = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        parameter.data += 0.2 * torch.randn(parameter.shape, generator=draws, dtype=dtype)
    return model


def frames(patch: int = 3, dtype: torch.dtype = torch.float64) -> Tensor:
    draws = torch.Generator().manual_seed(1)
    return torch.rand(4, 5, patch**2, generator=draws, dtype=dtype)


def one_by_one(model: UT, x_BTP: Tensor) -> list[Tensor]:
    """What autograd differentiates."""
    predictions = [x_BTP]
    for layer in model.layers:
        predictions.append(layer(predictions[-1]))
    return predictions


def slopes(
    forward: Callable[[Tensor], Sequence[Tensor]], model: UT, asked: Sequence[int]
) -> list[Tensor]:
    x_BTP = frames().requires_grad_()
    draws = torch.Generator().manual_seed(2)
    sums = [
        (torch.randn(p.shape, generator=draws, dtype=p.dtype) * p).sum() for p in forward(x_BTP)[1:]
    ]
    total = torch.stack([sums[layer] for layer in asked]).sum()
    given = [x_BTP, *model.parameters()]
    found = torch.autograd.grad(total, given, allow_unused=True, materialize_grads=True)
    return list(found)


@pytest.mark.parametrize("variant", VARIANTS)
def test_values_are_those_of_the_layers_one_by_one(variant: str) -> None:
    model, x_BTP = ut(variant), frames()
    for folded, expected in zip(model(x_BTP), one_by_one(model, x_BTP), strict=True):
        torch.testing.assert_close(folded, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
def test_gradients_are_those_of_autograd(variant: str, asked: tuple[int, ...]) -> None:
    model = ut(variant)
    expected = slopes(lambda x: one_by_one(model, x), model, asked)
    assert sum(float(slope.abs().max()) > 1e-3 for slope in expected) >= 1 + 2 * (asked[-1] + 1)
    for found, slope in zip(slopes(model, model, asked), expected, strict=True):
        torch.testing.assert_close(found, slope, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("variant", VARIANTS)
def test_gradients_are_finite_differences(variant: str) -> None:
    model = ut(variant, patch=2)
    own = dict(model.named_parameters())

    def outputs(x_BTP: Tensor, *parameters: Tensor) -> tuple[Tensor, ...]:
        given = dict(zip(own, parameters, strict=True))
        predictions: list[Tensor] = torch.func.functional_call(model, given, (x_BTP,))
        return tuple(predictions[1:])

    x_BTP = frames(patch=2)[:2].requires_grad_()
    assert torch.autograd.gradcheck(outputs, (x_BTP, *own.values()))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("shared", ["nothing", "frames", "the first W"])
def test_networks_under_vmap_are_each_by_itself(variant: str, shared: str) -> None:
    """Values and gradients, whatever has no axis of networks; the axis may be any."""
    model, draws = ut(variant), torch.Generator().manual_seed(3)
    own = {name: p.detach() for name, p in model.named_parameters()}
    rows = {
        name: (p + 0.1 * torch.randn(3, *p.shape, generator=draws, dtype=p.dtype)).requires_grad_()
        for name, p in own.items()
    }
    x_KBTP = torch.rand(4, 3, *frames().shape[1:], generator=draws, dtype=torch.float64)
    x_KBTP = x_KBTP.transpose(0, 1).requires_grad_()  # [K, B, T, P], K not the first in memory
    if shared == "the first W":
        rows["layers.0.mixing"] = own["layers.0.mixing"].clone().requires_grad_()
    dims = {name: 0 if rows[name].ndim == 3 else None for name in rows}
    x, of_x = (x_KBTP[0], None) if shared == "frames" else (x_KBTP.transpose(0, 1), 1)

    def total(outputs: Sequence[Tensor]) -> Tensor:
        return torch.stack([(k + 1) * p.square().sum() for k, p in enumerate(outputs[1:])]).sum()

    def of_row(arm: dict[str, Tensor], x_BTP: Tensor) -> Tensor:
        return total(torch.func.functional_call(model, arm, (x_BTP,)))

    given = [x_KBTP, *rows.values()]
    totals = torch.vmap(of_row, in_dims=(dims, of_x))(rows, x)
    found = torch.autograd.grad(totals.sum(), given, allow_unused=True, materialize_grads=True)
    expected = torch.stack([
        of_row(
            {name: p if dims[name] is None else p[k] for name, p in rows.items()},
            x_KBTP[0 if shared == "frames" else k],
        )
        for k in range(3)
    ])  # fmt: skip
    torch.testing.assert_close(totals, expected, rtol=1e-12, atol=1e-12)
    slopes_alone = torch.autograd.grad(
        expected.sum(), given, allow_unused=True, materialize_grads=True
    )
    for one, other in zip(found, slopes_alone, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


def test_a_gradient_that_is_to_have_a_gradient_is_refused() -> None:
    model = ut("distance")
    given, last = model.layers[0].mixing, model(frames())[-1].sum()
    with pytest.raises(NotImplementedError, match="folds=False"):
        torch.autograd.grad(last + given.square().sum(), [given], create_graph=True)

    def loss(weight: Tensor) -> Tensor:
        given = {"layers.0.mixing": weight}
        total: Tensor = torch.func.functional_call(model, given, (frames(),))[-1].sum()
        return total

    with pytest.raises(NotImplementedError, match="folds=False"):
        torch.func.grad(loss)(given.detach())


def test_one_axis_of_networks_is_all() -> None:
    model = ut("distance")
    rows = {n: torch.stack([p.detach()] * 3) for n, p in model.named_parameters()}

    def last(arm: dict[str, Tensor], x_BTP: Tensor) -> Tensor:
        total: Tensor = torch.func.functional_call(model, arm, (x_BTP,))[-1]
        return total

    of_rows = torch.vmap(last, in_dims=(0, None))
    with pytest.raises(NotImplementedError, match="one axis of networks"):
        torch.vmap(of_rows, in_dims=(None, 0))(rows, torch.stack([frames()] * 3))


@pytest.mark.parametrize(
    ("fields", "folds"),
    [
        ({}, True),
        ({"model.variant": "sharp", "dtype": "float64"}, True),
        ({"model.variant": "literal"}, False),
        ({"data.patch_size": 16}, False),
        ({"dtype": "bfloat16"}, False),
        ({"device": "cuda"}, False),  # built here for its estimate
    ],
)
def test_a_signature_names_the_operation_where_it_is_used(
    fields: dict[str, object], folds: bool
) -> None:
    config = TINY.with_fields(fields)
    size = config.data.patch_size
    dtype = getattr(torch, config.dtype)
    scales = SimpleNamespace(identity_loss=0.3)
    model = build(config, SimpleNamespace(scales=scales)).to(dtype)  # type: ignore[arg-type]
    found = model(frames(size, dtype))[-1]
    assert found.grad_fn is not None
    assert (found.grad_fn.name() == "FoldedUTBackward") == folds
    assert ("folded_ut" in config.mended()) == folds


@pytest.mark.parametrize("variant", VARIANTS)
def test_evaluation_has_the_bits_of_training(variant: str) -> None:
    model, x_BTP = ut(variant, dtype=torch.float32), frames(dtype=torch.float32)
    with torch.no_grad():
        evaluated = model(x_BTP)
    assert all(map(torch.equal, evaluated, model(x_BTP)))


@pytest.mark.parametrize(
    ("variant", "patch", "dtype", "folds"),
    [
        ("distance", 8, torch.float32, True),
        ("sharp", 8, torch.float64, True),
        ("distance", 9, torch.float32, False),  # the transform is one along each axis
        ("literal", 8, torch.float32, False),  # no transform
        ("distance", 8, torch.bfloat16, False),  # scores need more digits
    ],
)
def test_folding_is_where_it_pays(
    variant: str, patch: int, dtype: torch.dtype, folds: bool
) -> None:
    model, x_BTP = ut(variant, patch=patch, dtype=dtype), frames(patch, dtype)
    found = model(x_BTP)[-1]
    assert found.grad_fn is not None
    assert (found.grad_fn.name() == "FoldedUTBackward") == folds
    if not folds:
        assert torch.equal(found, one_by_one(model, x_BTP)[-1])


def test_lower_precision_is_for_layers_one_by_one() -> None:
    model, x_BTP = ut("distance", dtype=torch.float32), frames(dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(model(x_BTP)[-1], one_by_one(model, x_BTP)[-1])
