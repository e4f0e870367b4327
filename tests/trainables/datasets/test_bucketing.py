"""Batches of like length: every example once, little padding, a function of its generator."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainables.datasets.text.bucketing import POOL_BATCHES, bucketed_order
from trainables.errors import InvalidValue
from trainables.random_keys import keyed_generator

LENGTHS = st.lists(st.integers(1, 512), max_size=600).map(lambda x: np.array(x, dtype=np.int64))


def order(lengths: np.ndarray, batch_size: int, *key: int) -> list[list[int]]:
    generator = keyed_generator("cpu", "order", *key)
    return [batch.tolist() for batch in bucketed_order(lengths, batch_size, generator)]


def padded_tokens(lengths: np.ndarray, batches: list[np.ndarray]) -> int:
    """How many places of the batches are padding when each is as wide as its longest example."""
    return int(sum((lengths[batch].max() - lengths[batch]).sum() for batch in batches))


@given(LENGTHS, st.integers(1, 40), st.integers(0, 99))
def test_every_example_comes_once_in_full_batches(
    lengths: np.ndarray, batch_size: int, seed: int
) -> None:
    batches = order(lengths, batch_size, seed)
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    rest = len(lengths) % batch_size
    sizes = sorted(map(len, batches))
    assert sizes == [rest] * bool(rest) + [batch_size] * (len(lengths) // batch_size)


@given(LENGTHS, st.integers(1, 8), st.integers(0, 99))
def test_padding_is_at_most_a_batch_times_the_spread_of_lengths_per_pool(
    lengths: np.ndarray, batch_size: int, seed: int
) -> None:
    batches = bucketed_order(lengths, batch_size, keyed_generator("cpu", seed))
    naive = sum(max(lengths[i] for i in b) * len(b) - sum(lengths[i] for i in b) for b in batches)
    assert padded_tokens(lengths, batches) == naive
    in_full, rest = divmod(len(lengths), batch_size)
    pools = -(-in_full // POOL_BATCHES)
    assert naive <= (pools + bool(rest)) * batch_size * (np.ptp(lengths) if len(lengths) else 0)


def test_one_pool_has_the_least_padding_that_batches_can_have() -> None:
    """Of six examples in batches of two, tried by hand: sorted neighbours."""
    lengths = np.array([5, 100, 7, 90, 50, 45])
    batches = order(lengths, 2, 0)
    assert sorted(map(sorted, batches)) == [[0, 2], [1, 3], [4, 5]]
    assert padded_tokens(lengths, [np.array(b) for b in batches]) == 2 + 10 + 5


def test_texts_like_reviews_pad_a_few_percent_instead_of_half() -> None:
    lengths = np.minimum(np.random.default_rng(0).lognormal(5.2, 0.6, 5000).astype(int) + 2, 512)
    batches = bucketed_order(lengths, 16, keyed_generator("cpu", 0))
    shuffled = np.array_split(torch.randperm(5000).numpy(), 5000 // 16)
    assert padded_tokens(lengths, batches) < 0.05 * lengths.sum()
    assert padded_tokens(lengths, shuffled) > 0.5 * lengths.sum()


def test_it_is_a_function_of_its_generator() -> None:
    lengths = np.arange(1000) % 37
    torch.manual_seed(1)
    first = order(lengths, 8, 0, 1)
    torch.manual_seed(2)
    assert order(lengths, 8, 0, 1) == first
    assert order(lengths, 8, 0, 2) != first


def test_equal_lengths_are_plainly_shuffled() -> None:
    """Over many epochs every example is as often in the first batch as any other."""
    lengths = np.full(20, 9)
    counts = np.zeros(20)
    for epoch in range(2000):
        counts[order(lengths, 5, epoch)[0]] += 1
    assert np.abs(counts - 500).max() < 5 * np.sqrt(2000 * 0.25 * 0.75)  # five sd


def test_the_incomplete_batch_is_of_any_length() -> None:
    """Left out of every epoch, it would keep the longest texts from ever being trained on."""
    lengths = np.arange(1, 23)
    counts = np.zeros(22)
    for epoch in range(2000):
        (rest,) = (batch for batch in order(lengths, 5, epoch) if len(batch) < 5)
        counts[rest] += 1
    share = 2 / 22
    assert np.abs(counts - 2000 * share).max() < 5 * np.sqrt(2000 * share * (1 - share))


def test_short_and_long_batches_come_in_random_order() -> None:
    lengths = np.arange(400)
    means = [np.mean(batch) for batch in order(lengths, 8, 0)]
    assert means != sorted(means)
    assert abs(np.corrcoef(means, range(50))[0, 1]) < 0.5


def test_nothing_gives_no_batches_and_no_size_is_refused() -> None:
    assert order(np.zeros(0, dtype=np.int64), 4, 0) == []
    with pytest.raises(InvalidValue, match="batch_size must be positive, got 0"):
        order(np.ones(3, dtype=np.int64), 0, 0)
