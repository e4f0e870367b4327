"""``sweep``, or ``python -m sweep.cli``: the command line as a process of its own."""

from __future__ import annotations

import atexit
import errno
import gc
import os
import sys

GONE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF, errno.EPIPE}


def program() -> None:
    """Run the command line with a garbage collector that runs seldom, and not at the end.

    Importing torch, Ray and MLflow creates a million objects that stay: collecting among them
    takes a third of the imports' time, and over a second once more as the process ends.
    """
    gc.set_threshold(50_000, 20, 100)
    atexit.register(gc.freeze)  # first, so that it comes last

    _replace_unprintable_letters()
    try:
        try:
            from sweep.cli.main import main

            main()
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except OSError as error:
        if error.errno not in GONE or not _stdout_is_gone():
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes it again
        if not isinstance(error, BrokenPipeError) and sys.stderr is not None:
            print(
                f"sweep: standard output cannot be written: {error.strerror}. The rest of it is "
                "lost: free some space on its disk, or redirect it elsewhere.",
                file=sys.stderr,
            )
        raise SystemExit(1) from None


def _replace_unprintable_letters() -> None:
    """Print ? for letters that the terminal's encoding lacks."""
    for stream in (sys.stdout, sys.stderr):
        if getattr(stream, "errors", "") == "strict":
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]


def _stdout_is_gone() -> bool:
    """True when standard output refuses a blank, too."""
    try:
        sys.stdout.write(" ")
        sys.stdout.flush()
    except (OSError, ValueError):
        return True
    return False


if __name__ == "__main__":
    program()
