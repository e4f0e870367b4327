"""Long frames, a number a row: selected, grouped and averaged by named columns.

mypy knows the names of these columns, which it does not within a frame of pandas.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict, Unpack

if TYPE_CHECKING:
    import pandas as pd
    from pandas.core.groupby import SeriesGroupBy

VALUE: Final = "value"
# Those of ``Fact``, of reports during training, and whether the pair of a fact is the one shown.
Column = Literal[
    "setting", "proposal", "shown", "arm", "seed", "metric", "series", "shift", "severity", "step",
    "layer", "value",
]  # fmt: skip


class Values(TypedDict, total=False):
    """Values that rows are selected by, each of the column of its name."""

    setting: str
    proposal: int | None
    arm: str
    metric: str
    series: str
    shift: str
    severity: float
    layer: int


@dataclass(frozen=True)
class Numbers:
    """Numbers in the column ``value``; the other columns say what each is of."""

    frame: pd.DataFrame

    @classmethod
    def from_rows(cls, rows: Iterable[tuple[object, ...]], columns: Sequence[str]) -> Numbers:
        """Rows as a frame of these columns."""
        import pandas as pd

        return cls(pd.DataFrame(list(rows), columns=list(columns)))

    def where(self, **values: Unpack[Values]) -> Numbers:
        """The rows that have all of these values."""
        frame = self.frame
        for column, value in values.items():
            frame = frame[frame[column] == value]
        return Numbers(frame)

    def among(self, column: Column, values: Collection[object]) -> Numbers:
        """The rows that have one of these values."""
        return Numbers(self.frame[self.frame[column].isin(list(values))])

    def having(self, column: Column) -> Numbers:
        """The rows that the column applies to."""
        return Numbers(self.frame.dropna(subset=column))

    @property
    def values(self) -> pd.Series[float]:
        """The numbers."""
        return self.frame[VALUE]

    @property
    def is_empty(self) -> bool:
        """True without any row."""
        return self.frame.empty

    def distinct(self, column: Column) -> list[Any]:
        """Values of a column, each once, in order."""
        return sorted(self.frame[column].dropna().unique())

    def indexed(self, *columns: Column) -> pd.Series[float]:
        """The numbers by other columns."""
        return self.frame.set_index(list(columns))[VALUE]

    def by(self, column: Column) -> SeriesGroupBy[float, Any]:
        """The numbers in groups, one for each value of a column, in order."""
        return self.frame.groupby(column)[VALUE]

    def mean_by(self, column: Column) -> pd.Series[float]:
        """The mean number for each value of a column, in order."""
        return self.by(column).mean()
