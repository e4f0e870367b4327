"""Estimates of inner losses: unbiased, and as variable as their closed forms say."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor
from torch.autograd.functional import jacobian

from trainables.errors import InvalidValue
from trainables.heads.loss_estimators import (
    draw_layers,
    estimated_losses,
    sample_places,
    updated_controls,
)
from trainables.random_keys import keyed_generator

DRAWS = 2_000
ALPHA = 0.1
LENGTHS = [30, 12, 21]
LAYERS, PARAMETERS = 5, 3  # four inner layers and the last
START = torch.tensor([0.5, -1.0, 0.3], dtype=torch.float64)
CONTROLS = torch.tensor([0.9, 1.0, 0.4, 0.8], dtype=torch.float64)
WEIGHTS = torch.tensor([0.8, -0.3, 0.5, 1.1, 1.6], dtype=torch.float64)  # of violations


def sampled_means(losses_BK: Tensor, drawn_BK: Tensor) -> Tensor:
    """[B]: every sample's mean over its drawn places, unbiased for that over all of its places."""
    return losses_BK.where(drawn_BK, 0).sum(1) / drawn_BK.sum(1)


def sampled_mean_variances(losses_BK: Tensor, drawn_BK: Tensor, lengths_B: Tensor) -> Tensor:
    """[B]: unbiased estimates (1 - k / n) s^2 / k of the variances of ``sampled_means``.

    s^2 is that of the drawn losses. 0 where all places were drawn; NaN where one of several was,
    which says nothing of the others. The mean over B samples has the sum of these over B^2.
    """
    counts_B = drawn_BK.sum(1)
    distances_BK = losses_BK - sampled_means(losses_BK, drawn_BK).unsqueeze(1)
    spread_B = distances_BK.square().where(drawn_BK, 0).sum(1) / (counts_B - 1)
    variances_B = (1 - counts_B / lengths_B) * spread_B / counts_B
    return variances_B.masked_fill(counts_B == lengths_B, 0)


def estimate_covariances(deviations_M: Tensor, drawn: int) -> Tensor:
    """Cov(F) [M, M] over the draws of ``drawn`` layers, of the deviations d = f - c."""
    inner = len(deviations_M)
    products_MM = (inner / drawn - 1) * torch.outer(deviations_M, deviations_M)
    own_MM = torch.eye(inner, dtype=torch.bool, device=deviations_M.device)
    return products_MM.where(own_MM, products_MM / -max(inner - 1, 1))


def violations(losses_DL: Tensor) -> Tensor:
    """f_l - (1 - alpha) f_(l-1), with 3 in the place of layer 0."""
    before_DL = torch.cat([torch.full_like(losses_DL[:, :1], 3.0), losses_DL[:, :-1]], dim=1)
    return losses_DL - (1 - ALPHA) * before_DL


def token_losses_of(parameters: Tensor) -> Tensor:
    """Losses [L, B, T] of a small network of three parameters, not linear in them."""
    draws = torch.Generator().manual_seed(7)
    shape = (LAYERS, len(LENGTHS), max(LENGTHS), PARAMETERS)
    features = torch.randn(shape, dtype=torch.float64, generator=draws)
    features += torch.randn(shape[1:], dtype=torch.float64, generator=draws)  # hard tokens
    return torch.nn.functional.softplus(features @ parameters)


def exact(losses_DLBT: Tensor) -> Tensor:
    """Losses [D, L]: means over samples of the means over their places."""
    means = [losses_DLBT[:, :, row, :n].mean(2) for row, n in enumerate(LENGTHS)]
    return torch.stack(means).mean(0)


# Estimates of one batch, D times: [D, L] of the losses [D, L, B, T], which are D times the same.


def from_tokens(losses_DLBT: Tensor) -> Tensor:
    """Every draw is of samples of its own, so all of them are one call."""
    generator = keyed_generator("cpu", 0, "test_unbiased", "tokens")
    places, drawn = sample_places(LENGTHS * DRAWS, 0.2, generator)
    shape = (DRAWS, 1, len(LENGTHS), -1)
    places_DLBK = places.view(shape).expand(-1, LAYERS - 1, -1, -1)
    inner_DLBK = losses_DLBT[:, :-1].gather(3, places_DLBK)
    drawn_DLBK = drawn.view(shape).expand(-1, LAYERS - 1, -1, -1)
    means = sampled_means(inner_DLBK.flatten(0, 2), drawn_DLBK.flatten(0, 2))
    inner_DL = means.view(DRAWS, LAYERS - 1, len(LENGTHS)).mean(2)
    return torch.cat([inner_DL, exact(losses_DLBT[:, -1:])], dim=1)


def from_tokens_beside_the_last(losses_DLBT: Tensor) -> Tensor:
    """The last layer's losses as a control variate."""
    last_DLBT = losses_DLBT[:, -1:]
    return from_tokens(losses_DLBT - last_DLBT) + exact(last_DLBT)


def from_layers(losses_DLBT: Tensor) -> Tensor:
    generator = keyed_generator("cpu", 0, "test_unbiased", "layers")
    losses_DL = exact(losses_DLBT)
    found = []
    for losses_L in losses_DL.unbind():
        each = losses_L.unbind()
        drawn = {at: each[at] for at in draw_layers(LAYERS - 1, 2, generator)}
        found.append(estimated_losses(drawn, CONTROLS))
    return torch.cat([torch.stack(found), losses_DL[:, -1:]], dim=1)


@pytest.mark.parametrize("estimate", [from_tokens, from_tokens_beside_the_last, from_layers])
def test_violations_and_gradients_are_unbiased(estimate: Callable[[Tensor], Tensor]) -> None:
    """Means of 2,000 draws, with a fixed seed, within three standard errors of the exact ones."""
    losses_DLBT = token_losses_of(START).repeat(DRAWS, 1, 1, 1).requires_grad_()
    found_DL = violations(estimate(losses_DLBT))
    (by_token,) = torch.autograd.grad((found_DL @ WEIGHTS).sum(), losses_DLBT)
    slopes_P = jacobian(token_losses_of, START).flatten(0, -2)  # type: ignore[no-untyped-call]
    gradients_DP = by_token.flatten(1) @ slopes_P  # of every draw, by the chain rule
    parameters = START.clone().requires_grad_()
    expected_L = violations(exact(token_losses_of(parameters).unsqueeze(0)))[0]
    (gradient_P,) = torch.autograd.grad(expected_L @ WEIGHTS, parameters)
    for draws, truth in ((found_DL, expected_L), (gradients_DP, gradient_P)):
        errors = draws.std(0) / math.sqrt(DRAWS)
        assert (errors > 1e-4).all()  # every one varies, so that none is met for nothing
        assert ((draws.mean(0) - truth).abs() < 3 * errors).all()


def within_sampling_error(draws: Tensor, variances: Tensor) -> None:
    """Variances of the draws equal closed ones within three of their own standard errors."""
    squares = (draws - draws.mean(0)).square()
    error = squares.std(0) / math.sqrt(len(draws))
    assert ((squares.mean(0) - variances).abs() < 3 * error + 1e-15).all()


def test_means_of_sampled_tokens_vary_as_the_closed_form_says() -> None:
    losses_BT = token_losses_of(START)[2]
    generator = keyed_generator("cpu", 0, "test_token_variance")
    places, drawn = sample_places(LENGTHS * DRAWS, 0.2, generator)
    losses = losses_BT.repeat(DRAWS, 1).gather(1, places)
    counts = (6, 3, 5)  # ceil of 6, 2.4 and 4.2
    closed = [
        (1 - k / n) * float(losses_BT[row, :n].var()) / k
        for row, (n, k) in enumerate(zip(LENGTHS, counts, strict=True))
    ]
    closed_B = torch.tensor(closed, dtype=torch.float64)
    within_sampling_error(sampled_means(losses, drawn).view(DRAWS, -1), closed_B)
    lengths = torch.tensor(LENGTHS * DRAWS)
    estimates_DB = sampled_mean_variances(losses, drawn, lengths).view(DRAWS, -1)
    errors = estimates_DB.std(0) / math.sqrt(DRAWS)
    assert ((estimates_DB.mean(0) - closed_B).abs() < 3 * errors).all()


def test_estimates_of_sampled_layers_vary_as_the_closed_form_says() -> None:
    """To rounding over every set that can be drawn, and violations over 2,000 draws."""
    losses_DLBT = token_losses_of(START).unsqueeze(0)
    losses_L = exact(losses_DLBT)[0]
    deviations = losses_L[:-1] - CONTROLS
    for drawn in (1, 2, 3, 4):
        every = torch.stack(
            [
                estimated_losses({at: losses_L[at] for at in chosen}, CONTROLS)
                for chosen in itertools.combinations(range(LAYERS - 1), drawn)
            ]
        )
        distances = every - every.mean(0)
        covariances = distances.mT @ distances / len(every)
        torch.testing.assert_close(every.mean(0), losses_L[:-1])
        torch.testing.assert_close(estimate_covariances(deviations, drawn), covariances)
    signs_LM = torch.zeros(LAYERS, LAYERS - 1, dtype=torch.float64)
    signs_LM.diagonal().fill_(1)
    signs_LM.diagonal(-1).fill_(ALPHA - 1)
    closed_L = (signs_LM @ estimate_covariances(deviations, 2) @ signs_LM.mT).diagonal()
    within_sampling_error(violations(from_layers(losses_DLBT.expand(DRAWS, -1, -1, -1))), closed_L)


def test_places_are_distinct_in_order_and_equally_likely() -> None:
    generator = keyed_generator("cpu", 0, "test_places")
    places, drawn = sample_places([10, 3] * DRAWS, 0.3, generator)
    assert drawn.view(DRAWS, 2, 3)[:, 0].all()
    assert (drawn.view(DRAWS, 2, 3)[:, 1] == torch.tensor([True, False, False])).all()
    long, short = places.view(DRAWS, 2, 3).unbind(1)
    assert (long.diff(dim=1) > 0).all()
    assert (short[:, 1:] == 0).all()
    for found, share, n in ((long.flatten(), 0.3, 10), (short[:, 0], 1 / 3, 3)):
        times = found.bincount()
        assert len(times) == n
        error = math.sqrt(DRAWS * share * (1 - share))
        assert ((times - share * DRAWS).abs() < 3.5 * error).all()


def test_layers_are_drawn_in_every_set_equally_often() -> None:
    generator = keyed_generator("cpu", 0, "test_layers")
    often = Counter(draw_layers(4, 2, generator) for _ in range(DRAWS))
    assert set(often) == set(itertools.combinations(range(4), 2))
    error = math.sqrt(DRAWS / 6 * 5 / 6)
    assert all(abs(count - DRAWS / 6) < 3 * error for count in often.values())


def test_all_places_and_all_layers_are_the_exact_losses() -> None:
    lengths = torch.tensor(LENGTHS)
    losses_BT = token_losses_of(START)[0]
    places_BK, drawn_BK = sample_places(LENGTHS, 1.0, torch.Generator())
    drawn = losses_BT.gather(1, places_BK)
    expected_B = torch.stack([losses_BT[row, :n].mean() for row, n in enumerate(LENGTHS)])
    torch.testing.assert_close(sampled_means(drawn, drawn_BK), expected_B)
    assert sampled_mean_variances(drawn, drawn_BK, lengths).tolist() == [0, 0, 0]
    losses_M = exact(token_losses_of(START).unsqueeze(0))[0, :-1]
    every = {at: losses_M[at] for at in draw_layers(4, 4, torch.Generator())}
    torch.testing.assert_close(estimated_losses(every, CONTROLS), losses_M)
    assert not estimate_covariances(losses_M - CONTROLS, 4).any()


def test_one_place_of_several_tells_no_variance() -> None:
    places_BK, drawn_BK = sample_places([14, 1], 0.07, torch.Generator())
    assert places_BK.shape == (2, 1)  # of 14 x 0.07 = 0.98 and of 0.07
    found = sampled_mean_variances(torch.ones(2, 1), drawn_BK, torch.tensor([14, 1]))
    assert found[0].isnan()
    assert found[1] == 0


def test_a_share_that_is_a_whole_number_of_places_takes_no_more() -> None:
    _, drawn_BK = sample_places([100, 101], 0.07, torch.Generator())  # 100 * 0.07 > 7 in floats
    assert drawn_BK.sum(1).tolist() == [7, 8]


def test_controls_follow_the_drawn_layers_and_pass_no_gradient() -> None:
    losses = {1: torch.tensor(4.0, requires_grad=True)}
    controls = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    found = updated_controls(controls, losses, 0.25)
    assert found.tolist() == [1.0, 2.5, 3.0]
    assert not found.requires_grad
    estimated_losses(losses, controls).sum().backward()  # type: ignore[no-untyped-call]
    assert controls.grad is None
    assert losses[1].grad == 3


@pytest.mark.parametrize("drawn", [0, 5])
def test_as_many_layers_as_there_are_can_be_drawn(drawn: int) -> None:
    with pytest.raises(InvalidValue, match="must be 1 to 4"):
        draw_layers(4, drawn, torch.Generator())


@pytest.mark.parametrize(
    ("lengths", "share", "message"),
    [
        ([4, 0], 0.5, "1 answer token or more"),
        ([], 0.5, "1 answer token or more"),
        ([4], 0.0, "fraction must be"),
        ([4], 1.5, "fraction must be"),
        ([4], math.nan, "fraction must be"),
    ],
)
def test_what_cannot_be_drawn_from_is_refused(
    lengths: Sequence[int], share: float, message: str
) -> None:
    with pytest.raises(InvalidValue, match=message):
        sample_places(lengths, share, torch.Generator())
