"""CSV of a table: every column in full precision. Pure."""

from __future__ import annotations

from sweep.render.table import Table


def to_csv(table: Table) -> str:
    """The rows as text; an empty cell is a value that is not there."""
    import pandas

    frame = pandas.DataFrame(table.rows, dtype=object)  # of plain objects
    return frame.to_csv(index=False, lineterminator="\n")
