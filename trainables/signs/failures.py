"""Text of an error that ended an arm, with advice where there is some."""

from __future__ import annotations

import traceback

from trainables.errors import SweepError
from trainables.memory import exhausted

TOO_LITTLE = {
    "GPU": "Raise accumulate, set model.recompute=true (decoders and encoders; docs/text.md), "
    "lower batch_size, or give the arm a larger GPU.",
    "CPU": "Train fewer arms at a time with --workers, raise accumulate, set model.recompute=true "
    "(decoders and encoders; docs/text.md), lower batch_size, or give the machine more memory.",
}


def failure_text(error: Exception) -> str:
    """An error of training in one line, with advice where there is some."""
    if isinstance(error, SweepError):
        return str(error)
    if (memory := exhausted(error)) is not None:
        return f"out of {memory} memory ({error}). {TOO_LITTLE[memory]}"
    last = traceback.extract_tb(error.__traceback__)[-1]
    what = str(error).rstrip(".")
    return f"{type(error).__name__}: {what} (in {last.name}, line {last.lineno})."
