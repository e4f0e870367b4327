"""Shifts of texts: tokens dropped or swapped, letters mistyped.

They come beside noise on the embeddings. Each draw is made once for all severities: the same
generator at a higher severity disturbs what the lower one did, and more. A severity of 0 changes
nothing. Pure.

Shape suffix: T tokens of one text, special ones included.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from trainables.tasks.perturbations import require_fraction

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

# The letters beside each on a QWERTY keyboard, in its own row and the ones above and below.
_ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
_OFFSETS = (0.0, 0.25, 0.75)  # of a row's first key, in keys, from the left


def _neighbours() -> dict[str, str]:
    places = {
        letter: (row, _OFFSETS[row] + column)
        for row, letters in enumerate(_ROWS)
        for column, letter in enumerate(letters)
    }
    return {
        letter: "".join(
            sorted(
                other
                for other, (row, x) in places.items()
                if other != letter and abs(row - place[0]) <= 1 and abs(x - place[1]) <= 1
            )
        )
        for letter, place in places.items()
    }


NEIGHBOURS = _neighbours()


def kept_tokens(is_special_T: Bools, fraction: float, generator: torch.Generator) -> Ints:
    """Tokens left when each but the special ones is dropped with probability ``fraction``.

    Returns:
        Their indices, rising.
    """
    require_fraction(fraction)
    draw_T = torch.rand(len(is_special_T), generator=generator).numpy()
    return np.flatnonzero(is_special_T | (draw_T >= fraction))


def swapped_tokens(is_special_T: Bools, fraction: float, generator: torch.Generator) -> Ints:
    """The order of the tokens when neighbours change places.

    The tokens are paired off, from the first or the second on by a draw; each pair changes places
    with probability ``fraction``, but for those with a special token.

    Returns:
        Indices of the tokens, in their new order.
    """
    require_fraction(fraction)
    count = len(is_special_T)
    first = int(torch.randint(2, (1,), generator=generator))
    draw_T = torch.rand(count, generator=generator).numpy()
    order = np.arange(count)
    left = np.arange(first, count - 1, 2)
    left = left[(draw_T[left] < fraction) & ~is_special_T[left] & ~is_special_T[left + 1]]
    order[left], order[left + 1] = left + 1, left
    return order


def mistyped(text: str, fraction: float, generator: torch.Generator) -> str:
    """``text`` with each of a-z and A-Z hit on a neighbouring key with probability ``fraction``.

    Capitals stay capitals; other characters stay as they are.
    """
    require_fraction(fraction)
    draws = torch.rand(2, len(text), generator=generator).tolist()
    typed = []
    for letter, hit, which in zip(text, *draws, strict=True):
        beside = NEIGHBOURS.get(letter.lower()) if letter.isascii() and hit < fraction else None
        if beside is None:
            typed.append(letter)
            continue
        other = beside[int(which * len(beside))]
        typed.append(other.upper() if letter.isupper() else other)
    return "".join(typed)
