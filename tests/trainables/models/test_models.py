"""Variants of UT, and the attention scores that models share."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.fft import dctn
from torch import Tensor

from trainables.models.attention import inner_products, squared_norms
from trainables.models.ut import UT, VARIANTS, _transformed, dct_matrix

EVERY_UT = sorted(VARIANTS)


def ut(variant: str, layers: int = 3, dtype: torch.dtype = torch.float32) -> UT:
    return UT(layers=layers, patch_size=4, variant=variant, noise_energy=0.05).to(dtype)


def tokens(dtype: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.rand(5, 6, 16, generator=generator, dtype=dtype)


@pytest.mark.parametrize("variant", EVERY_UT)
@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_model_predicts_after_every_layer(variant: str, layers: int, dtype: torch.dtype) -> None:
    predictions = ut(variant, layers, dtype)(tokens(dtype))
    assert len(predictions) == layers + 1
    assert torch.equal(predictions[0], tokens(dtype))  # layer 0 is the input itself
    for prediction in predictions:
        assert prediction.shape == (5, 6, 16)
        assert prediction.dtype == dtype
        assert torch.isfinite(prediction).all()


def test_the_sharp_variant_starts_as_the_identity() -> None:
    for prediction in ut("sharp", dtype=torch.float64)(tokens(torch.float64)):
        torch.testing.assert_close(prediction, tokens(torch.float64), rtol=0, atol=1e-12)


def test_the_distance_variant_averages_near_tokens_and_spares_far_ones() -> None:
    near, far = torch.full((1, 2, 16), 0.2), torch.full((1, 2, 16), 0.9)
    near[0, 1] += 0.01
    model = ut("distance", layers=1)
    mixed = model(torch.cat([near, far], dim=1))[-1]
    torch.testing.assert_close(mixed[0, :2].mean(), torch.tensor(0.205), rtol=1e-3, atol=1e-3)
    assert (mixed[0, :2] < 0.21).all()
    torch.testing.assert_close(mixed[0, 2:], far[0], rtol=1e-3, atol=1e-3)


def naive_layer(
    x_TP: np.ndarray, v_PP: np.ndarray, w_PP: np.ndarray, variant: str, energy: float
) -> np.ndarray:
    """Equations (47) and (48) token by token, in the pixel basis."""
    kind = VARIANTS[variant]
    temperature = 1.0 if kind.sharpness is None else kind.sharpness / energy
    out = np.zeros_like(x_TP)
    for i in range(len(x_TP)):
        if kind.scores == "dot":
            scores = np.array([(v_PP @ x_TP[i]) @ (v_PP @ x_TP[j]) for j in range(len(x_TP))])
        else:
            scores = np.array(
                [-0.5 * np.sum((v_PP @ (x_TP[i] - x_TP[j])) ** 2) for j in range(len(x_TP))]
            )
        shares = np.exp(temperature * (scores - scores.max()))
        z_P = (shares / shares.sum()) @ x_TP
        residual_P = x_TP[i] if kind.residual == "input" else z_P
        out[i] = np.maximum(0.0, residual_P + 0.5 * (w_PP + w_PP.T) @ z_P)
    return out


@pytest.mark.parametrize("variant", EVERY_UT)
def test_a_layer_equals_the_equations_written_token_by_token(variant: str) -> None:
    model = ut(variant, layers=1, dtype=torch.float64)
    layer = model.layers[0]
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter += 0.1 * torch.randn(
                parameter.shape, generator=generator, dtype=torch.float64
            )
    change_PP = np.eye(16)
    if VARIANTS[variant].basis == "dct":
        change_PP = np.kron(dct_matrix(4).numpy(), dct_matrix(4).numpy())
    v_PP = layer.projection.detach().numpy() @ change_PP
    w_PP = change_PP.T @ layer.mixing.detach().numpy() @ change_PP
    x_BTP = tokens(torch.float64)
    expected = np.stack([naive_layer(x.numpy(), v_PP, w_PP, variant, 0.05) for x in x_BTP])
    np.testing.assert_allclose(model(x_BTP)[-1].detach().numpy(), expected, rtol=1e-9, atol=1e-12)


def test_the_dct_equals_scipys() -> None:
    image = tokens(torch.float64)[0, 0].reshape(4, 4)
    matrix = dct_matrix(4)
    np.testing.assert_allclose(
        (matrix @ image @ matrix.T).numpy(), dctn(image.numpy(), norm="ortho"), atol=1e-12
    )


def test_along_each_axis_a_transform_is_the_whole_one() -> None:
    matrix, x_BTP = dct_matrix(4), tokens(torch.float64)
    for one in (matrix, matrix.mT):  # both ways
        by_axis, whole = (_transformed(x_BTP, m) for m in (one, torch.kron(one, one)))
        torch.testing.assert_close(by_axis, whole, rtol=0, atol=1e-14)


# --- attention scores -----------------------------------------------------------------------------


def test_scores_are_in_single_precision_under_autocast() -> None:
    x_BTP = tokens()
    with torch.autocast("cpu", torch.bfloat16):
        assert (x_BTP @ x_BTP.mT).dtype == torch.bfloat16
        products, norms = inner_products(x_BTP), squared_norms(x_BTP)
        rounded = inner_products(x_BTP.bfloat16())
    assert torch.equal(products, x_BTP @ x_BTP.mT)
    torch.testing.assert_close(norms, products.diagonal(dim1=-2, dim2=-1))
    assert rounded.dtype == torch.float32
    double = tokens(torch.float64)
    assert inner_products(double).dtype == squared_norms(double).dtype == torch.float64


def test_bfloat16_keeps_near_tokens_apart_from_far_ones() -> None:
    """Patches of 256 pixels: |x|^2 is near 60, and noise moves it by what decides the softmax."""
    generator = torch.Generator().manual_seed(0)
    clean = 0.3 + 0.3 * torch.rand(4, 1, 256, generator=generator)
    frames = clean + 0.025 * torch.randn(4, 10, 256, generator=generator)
    frames[:, 5:] += 0.05 * torch.rand(4, 1, 256, generator=generator)  # another scene
    model = UT(layers=1, patch_size=16, variant="distance", noise_energy=256 * 0.025**2).float()
    exact = model(frames)[-1]
    with torch.autocast("cpu", torch.bfloat16):
        cast = model(frames)[-1].float()
    # one rounding of pixels near .5 is .002; scores in bfloat16 would move pixels by .025 and more
    assert (cast - exact).abs().max() < 0.01
