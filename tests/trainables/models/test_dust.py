"""DUST against the equations written sample by sample, and against lasso solved by scikit-learn."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from sklearn.linear_model import Lasso
from torch import Tensor

from trainables.errors import InvalidValue
from trainables.models.dust import DUST, overcomplete_dct

PATCH, SIDE = 4, 6  # 16 pixels, 36 atoms


def dust(layers: int = 3, shared: bool = False, threshold: float = 0.02) -> DUST:
    return DUST(
        layers=layers, patch_size=PATCH, atoms_per_side=SIDE, threshold=threshold, shared=shared
    )


def moved(model: DUST) -> DUST:
    """Away from the start, so that layers differ."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.05 * torch.randn(
                parameter.shape, generator=generator, dtype=parameter.dtype
            )
    return model


def tokens(frames: int = 5) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.rand(3, frames, PATCH**2, generator=generator, dtype=torch.float64)


# --- the start ------------------------------------------------------------------------------------


def test_the_dictionary_is_that_of_the_formula_atom_by_atom() -> None:
    def cosine(k: int) -> np.ndarray:
        column = np.array([math.cos(math.pi * i * k / SIDE) for i in range(PATCH)])
        column = column - (column.mean() if k > 0 else 0.0)
        return column / np.linalg.norm(column)

    found = overcomplete_dct(PATCH, SIDE).numpy()
    assert found.shape == (16, 36)
    for j in range(SIDE):
        for k in range(SIDE):
            np.testing.assert_allclose(
                found[:, SIDE * j + k].reshape(PATCH, PATCH),
                np.outer(cosine(j), cosine(k)),
                atol=1e-12,
            )


def test_the_paper_s_size_is_overcomplete_and_every_patch_can_be_written_in_it() -> None:
    atoms = overcomplete_dct(16, 24)
    assert atoms.shape == (256, 576)
    torch.testing.assert_close(atoms.norm(dim=0), torch.ones(576, dtype=torch.float64))
    assert torch.linalg.matrix_rank(atoms) == 256


def test_a_patch_of_one_pixel_is_refused() -> None:
    with pytest.raises(InvalidValue, match=r"patch_size must be at least 2 for dust, got 1"):
        overcomplete_dct(1, 6)


# --- the layer ------------------------------------------------------------------------------------


def naive_predictions(model: DUST, y_PT: Tensor) -> list[Tensor]:
    """Equations (74)-(76) of one sample, columns as tokens, with W and U as matrices."""
    dictionaries = list(model.dictionaries)
    dictionaries = dictionaries * (model.layers // len(dictionaries))
    start = overcomplete_dct(PATCH, SIDE)
    c = 1.05 * torch.linalg.eigvalsh(start.T @ start).max()
    atoms, frames = start.shape[1], y_PT.shape[1]
    code = torch.zeros(atoms, frames, dtype=torch.float64)
    found = [torch.zeros_like(y_PT)]
    for d_PK in dictionaries:
        w_KK = torch.eye(atoms, dtype=torch.float64) - d_PK.T @ d_PK / c
        u_KP = d_PK.T / c
        scores_TT = code.T @ d_PK.T @ d_PK @ code
        columns = []
        for t in range(frames):
            shares = torch.exp(scores_TT[t] - scores_TT[t].max())
            shares = shares / shares.sum()
            half = sum(shares[s] * code[:, s] for s in range(frames))
            z = w_KK @ half + u_KP @ y_PT[:, t]
            shrunk = torch.clamp(z.abs() - model.threshold, min=0.0)
            columns.append(torch.sign(z) * shrunk)
        code = torch.stack(columns, dim=1)
        found.append(d_PK @ code)
    return found


@pytest.mark.parametrize("shared", [True, False])
def test_layers_and_gradients_equal_the_equations_written_sample_by_sample(shared: bool) -> None:
    model, y_BTP = moved(dust(shared=shared)), tokens()
    # by the last layer's own weight in each prediction, so that no layer's gradient hides another's
    weights = torch.tensor([0.3, -0.2, 0.7, 1.0], dtype=torch.float64)
    ours = torch.stack(model(y_BTP))
    theirs = torch.stack(
        [torch.stack(naive_predictions(model, y.T)).transpose(1, 2) for y in y_BTP], dim=1
    )
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)
    gradients = [
        torch.autograd.grad(
            (weights * (p - 0.5).square().sum((1, 2, 3))).sum(), list(model.parameters())
        )
        for p in (ours, theirs)
    ]
    for mine, naive in zip(*gradients, strict=True):
        assert mine.abs().max() > 0
        torch.testing.assert_close(mine, naive, rtol=1e-8, atol=1e-10)


def test_one_frame_alone_is_solved_as_a_lasso() -> None:
    """With one token attention is the identity: a layer is a step of proximal gradient descent."""
    model = dust(layers=3000, shared=True, threshold=0.02)
    (dictionary,) = (p.detach() for p in model.dictionaries)
    penalty = model.threshold / model.step_size  # lambda_1 = threshold x c
    y = tokens(frames=1)[:1]
    predictions = [p[0, 0].detach().numpy() for p in model(y)]
    errors = [0.5 * np.square(y[0, 0].numpy() - p).sum() for p in predictions]
    # scikit-learn minimises |y - Da|^2 / (2 n) + alpha |a|_1
    solver = Lasso(alpha=penalty / 16, fit_intercept=False, tol=1e-12, max_iter=10**6)
    solver.fit(dictionary.numpy(), y[0, 0].numpy())
    fitted = dictionary.numpy() @ solver.coef_
    np.testing.assert_allclose(predictions[-1], fitted, atol=1e-4)  # the fit is unique, a is not
    assert errors[1] > errors[10] > errors[-1]


def test_equal_frames_stay_equal_and_are_not_mixed_away() -> None:
    y_BTP = tokens(frames=1).repeat(1, 4, 1)
    for one, four in zip(moved(dust())(y_BTP[:, :1]), moved(dust())(y_BTP), strict=True):
        torch.testing.assert_close(four, one.expand_as(four), rtol=1e-10, atol=1e-12)


# --- capacity -------------------------------------------------------------------------------------


def test_a_shared_dictionary_is_one_parameter_and_starts_like_the_others() -> None:
    shared, own = dust(shared=True), dust()
    assert [p.shape for p in shared.parameters()] == [(16, 36)]
    assert [p.shape for p in own.parameters()] == [(16, 36)] * 3
    assert torch.equal(torch.stack(shared(tokens())), torch.stack(own(tokens())))


def test_the_threshold_sets_small_coefficients_to_zero() -> None:
    assert not torch.stack(dust(threshold=1e6)(tokens())).any()
    free, sparse = (dust(threshold=t)(tokens())[1].norm() for t in (0.0, 0.05))
    assert sparse < free
