"""Cases of the benchmark of heads after every layer: each is the training that it says it is."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from benchmarks.head_per_layer import Case, cases, network, parsed, sampled_layers
from trainables.random_keys import keyed_generator

TINY = ["--layers", "4", "--width", "64", "--vocabulary", "61", "--length", "10"]


def loss_and_gradient(case: Case) -> Tensor:
    llama = network(parsed(TINY))
    keys = keyed_generator("cpu", 0, "test_head_per_layer")
    ids, targets = torch.randint(61, (2, 2, 10), generator=keys)
    loss = case(llama, ids, targets, keys)
    loss.backward()  # type: ignore[no-untyped-call]
    gradients = [p.grad.flatten() for p in llama.parameters() if p.grad is not None]
    return torch.cat([loss.detach().view(1), *gradients])


@pytest.mark.parametrize(
    ("case", "same_as"),
    [
        (cases(1.0)["plain_chunked"], "plain"),
        (cases(1.0)["exact"], "naive"),
        (cases(1.0)["exact_apart"], "naive"),
        (cases(1.0)["tokens"], "naive"),  # all of the tokens
        (cases(1.0)["tokens_kept"], "naive"),
        (lambda *given: sampled_layers(3, *given), "naive"),  # all of the inner layers
    ],
)
def test_what_takes_everything_is_the_naive_loss(case: Case, same_as: str) -> None:
    expected = loss_and_gradient(cases(1.0)[same_as])
    torch.testing.assert_close(loss_and_gradient(case), expected, rtol=0, atol=1e-5)
