"""One published comparison: two numbers, and the setting that trains it here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeVar


@dataclass(frozen=True)
class Comparison:
    """The constrained and the unconstrained model of one setting."""

    source: ClassVar[str]  # where it is printed
    measure: ClassVar[str]  # what the two numbers are
    key: ClassVar[str]  # the same, for programs
    task: ClassVar[str]  # the first part of its space's name

    data: str
    model: str
    layers: int  # as printed
    train_gamma: float
    constrained: float
    unconstrained: float

    @property
    def setting(self) -> str:
        """The setting of ``space`` that trains this comparison."""
        return f"{self.data}-{self.model}-L{self.layers}-g{self.train_gamma:g}"

    @property
    def space(self) -> str:
        """The search space that trains this comparison."""
        return f"{self.task}_{self.model}"

    @property
    def asks_too_much(self) -> Literal["", "probably", "surely"]:
        """A mark where the paper's alpha and f0 ask for more descent than can exist, else ''."""
        return ""

    @property
    def doubts(self) -> tuple[str, ...]:
        """Caveats for whoever quotes the numbers; empty when none are known."""
        return ()


C = TypeVar("C", bound=Comparison)


def comparisons(
    kind: type[C], data_sets: Sequence[str], table: Iterable[tuple[str | float, ...]]
) -> tuple[C, ...]:
    """The comparisons of a printed table, whose rows begin with model, layers and train gamma.

    Behind them stand a constrained and an unconstrained number for each of ``data_sets``.
    """
    return tuple(
        kind(data, str(model), int(layers), float(gamma), float(constrained), float(plain))
        for model, layers, gamma, *values in table
        for data, constrained, plain in zip(data_sets, values[::2], values[1::2], strict=True)
    )
