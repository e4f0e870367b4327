"""Splits of a data set, each opened when it is first asked for."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from functools import cached_property
from typing import Generic, Literal, TypeVar, cast

from trainables.errors import UnknownName

SplitName = Literal["train", "dev", "test"]
SPLITS: tuple[SplitName, ...] = ("train", "dev", "test")
S = TypeVar("S")


def split_named(name: str) -> SplitName:
    """The split called ``name``; UnknownName where there is none."""
    if name not in SPLITS:
        raise UnknownName.among("split", name, SPLITS)
    return name


def rounded_up(items: float) -> int:
    """Items that a share takes, rounded up; 100 x 0.07 is a little more than 7 in binary.

    >>> rounded_up(100 * 0.07), rounded_up(2.5)
    (7, 3)
    """
    return math.ceil(round(items, 9))


class BySplit(ABC, Generic[S]):
    """A data set by its splits, each of which is opened at its first use."""

    @abstractmethod
    def _opened(self, split: SplitName) -> S:
        """Open a split; called at most once for each."""

    @cached_property
    def train(self) -> S:
        """The training split, without dev."""
        return self._opened("train")

    @cached_property
    def dev(self) -> S:
        """Whole clips or groups held out of the training split: what selection looks at."""
        return self._opened("dev")

    @cached_property
    def test(self) -> S:
        """The data set's own test split: for confirmation only."""
        return self._opened("test")

    def split(self, name: str) -> S:
        """The split called ``name``; raises as ``split_named``."""
        return cast(S, getattr(self, split_named(name)))
