"""``sweep``, or ``python -m sweep.cli``: the command line as a process of its own."""

from __future__ import annotations

import atexit
import gc


def program() -> None:
    """Run the command line with a garbage collector that looks seldom, and not at the end.

    Importing torch, Ray and MLflow makes a million objects that stay: looking through them again
    and again takes a third of the imports' time, and once more, over a second, as the process ends.
    """
    gc.set_threshold(50_000, 20, 100)
    atexit.register(gc.freeze)  # first, so that it comes last

    from sweep.cli.main import main

    main()


if __name__ == "__main__":
    program()
