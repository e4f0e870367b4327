"""Shifts of texts: what they may touch, how much of it, and that more is the same and more."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from trainables.errors import InvalidValue
from trainables.random_keys import keyed_generator
from trainables.tasks.text_shifts import NEIGHBOURS, kept_tokens, mistyped, swapped_tokens

# [CLS] and 3,000 tokens, [SEP] and 1,000 more, [SEP]
SPECIAL = np.zeros(4003, dtype=bool)
SPECIAL[[0, 3001, 4002]] = True
TEXT = "The quick Brown fox, 27 times; JUMPS over the lazy dog: caf\u00e9 \u0130.\n" * 60


def generator(*key: str | int) -> torch.Generator:
    return keyed_generator("cpu", "test_text_shifts", *key)


def test_a_severity_of_0_changes_nothing() -> None:
    everything = list(range(len(SPECIAL)))
    assert kept_tokens(SPECIAL, 0.0, generator()).tolist() == everything
    assert swapped_tokens(SPECIAL, 0.0, generator()).tolist() == everything
    assert mistyped(TEXT, 0.0, generator()) == TEXT


@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
def test_the_share_that_is_asked_for_is_disturbed(share: float) -> None:
    tokens = (~SPECIAL).sum()
    dropped = len(SPECIAL) - len(kept_tokens(SPECIAL, share, generator()))
    assert dropped / tokens == pytest.approx(share, abs=0.03)  # 4,000 draws: 3 std are 0.024
    moved = (swapped_tokens(SPECIAL, share, generator()) != np.arange(len(SPECIAL))).sum()
    assert moved / tokens == pytest.approx(share, abs=0.04)
    letters = [(a, b) for a, b in zip(TEXT, mistyped(TEXT, share, generator()), strict=True)
               if a.isascii() and a.isalpha()]  # fmt: skip
    wrong = sum(a != b for a, b in letters)
    assert wrong / len(letters) == pytest.approx(share, abs=0.04)


def test_special_tokens_are_neither_dropped_nor_moved() -> None:
    assert set(np.flatnonzero(SPECIAL)) <= set(kept_tokens(SPECIAL, 1.0, generator()).tolist())
    order = swapped_tokens(SPECIAL, 1.0, generator())
    assert sorted(order.tolist()) == list(range(len(SPECIAL)))
    assert (order[SPECIAL] == np.flatnonzero(SPECIAL)).all()
    assert np.abs(order - np.arange(len(SPECIAL))).max() == 1  # a token moves by one place
    assert (order[order] == np.arange(len(SPECIAL))).all()  # in pairs
    assert ((order < 3001) == (np.arange(len(SPECIAL)) < 3001)).all()  # and stays in its text


@pytest.mark.parametrize("first", range(8))
def test_more_is_the_same_and_more(first: int) -> None:
    """What the lower severity disturbed is disturbed alike by the higher one."""
    few, many = (set(kept_tokens(SPECIAL, s, generator(first)).tolist()) for s in (0.2, 0.6))
    assert many < few
    few_T, many_T = (swapped_tokens(SPECIAL, s, generator(first)) for s in (0.2, 0.6))
    moved_T = few_T != np.arange(len(SPECIAL))
    assert (few_T[moved_T] == many_T[moved_T]).all()
    a, b = (mistyped(TEXT, s, generator(first)) for s in (0.2, 0.6))
    assert all(y == x for before, x, y in zip(TEXT, a, b, strict=True) if x != before)


def test_letters_become_their_neighbours_and_nothing_else_changes() -> None:
    typed = mistyped(TEXT, 1.0, generator())
    for before, after in zip(TEXT, typed, strict=True):
        if before.isascii() and before.isalpha():
            assert after.lower() in NEIGHBOURS[before.lower()]
            assert after.isupper() == before.isupper()
        else:
            assert after == before
    # every neighbour is hit
    assert {b.lower() for a, b in zip(TEXT, typed, strict=True) if a == "e"} == set("wrsd")


def test_the_keyboard_is_a_keyboard() -> None:
    assert set(NEIGHBOURS) == set("abcdefghijklmnopqrstuvwxyz")
    for letter, beside in NEIGHBOURS.items():
        assert letter not in beside
        assert all(letter in NEIGHBOURS[other] for other in beside)
    # read off a keyboard
    assert {k: NEIGHBOURS[k] for k in "qsgpm"} == {
        "q": "aw", "s": "adewxz", "g": "bfhtvy", "p": "lo", "m": "jkn"
    }  # fmt: skip


def test_short_texts_are_no_special_case() -> None:
    nothing = np.zeros(0, dtype=bool)
    assert kept_tokens(nothing, 0.5, generator()).tolist() == []
    for length in (0, 1, 2):
        order = swapped_tokens(np.zeros(length, dtype=bool), 1.0, generator())
        assert sorted(order.tolist()) == list(range(length))
    assert mistyped("", 1.0, generator()) == ""


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_a_share_lies_between_0_and_1(share: float) -> None:
    for call in (
        lambda: kept_tokens(SPECIAL, share, generator()),
        lambda: swapped_tokens(SPECIAL, share, generator()),
        lambda: mistyped(TEXT, share, generator()),
    ):
        with pytest.raises(InvalidValue, match=r"a fraction must be in \[0, 1\]"):
            call()
