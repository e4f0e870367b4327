"""One contract for every model, and what tells the variants of UT apart."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.fft import dctn
from torch import Tensor

from trainables.models.ut import UT, VARIANTS, dct_matrix

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


@pytest.mark.parametrize("variant", EVERY_UT)
def test_a_model_is_deterministic_whatever_the_global_seed(variant: str) -> None:
    outputs = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        outputs.append(torch.stack(ut(variant)(tokens())))
    assert torch.equal(*outputs)


@pytest.mark.parametrize("variant", EVERY_UT)
def test_the_last_loss_reaches_every_layer(variant: str) -> None:
    model = ut(variant)
    with torch.no_grad():  # off the start, where W = 0 hides the scores
        for parameter in model.parameters():
            parameter += 0.01 * torch.randn(
                parameter.shape, generator=torch.Generator().manual_seed(0)
            )
    (model(tokens())[-1] - 0.5).square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


@pytest.mark.parametrize("variant", EVERY_UT)
def test_saving_and_loading_is_exact(variant: str) -> None:
    model, other = ut(variant), ut(variant)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1
    other.load_state_dict(model.state_dict())
    assert torch.equal(torch.stack(model(tokens())), torch.stack(other(tokens())))


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
