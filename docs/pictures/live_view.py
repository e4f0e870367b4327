"""Picture of the live view: a real `sweep run` on a terminal, one frame of it as SVG.

    python docs/pictures/live_view.py docs/pictures/live_view.svg      two minutes on 2 cores

The quickstart sweep runs on a pseudo-terminal with a storage root of its own; of what it draws, one
frame with arms in training beside winners becomes the picture.
"""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path

from rich.console import Console
from rich.text import Text

COLUMNS, LINES = 88, 30
REDRAW = re.compile(r"\r?(?:\x1b\[1A)?\x1b\[2K(?:\x1b\[1A\x1b\[2K)*")
FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)  # nothing is loaded from elsewhere


def output_of_a_run(storage: str) -> str:
    """All that `sweep run quickstart` writes to a terminal of this size."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    sweep = Path(sys.executable).with_name("sweep")
    words = [str(sweep), "run", "quickstart", "--storage", storage]
    env = os.environ | {"TERM": "xterm-256color"}
    run = subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs, env=env)
    os.close(theirs)
    written = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # the other end is closed
            part = b""
        if not part:
            break
        written += part
    if run.wait() != 0:
        raise SystemExit(written.decode())
    return written.decode()


def frame(written: str) -> str:
    """The last of the longest frames with arms in training beside winners so far."""
    frames = [part for part in REDRAW.split(written) if "1 draw" in part and "objective -" in part]
    if not frames:
        raise SystemExit("no frame of the live view shows arms in training beside winners so far")
    longest = max(frame.count("\n") for frame in frames)
    last = [frame for frame in frames if frame.count("\n") == longest][-1]
    return last.replace("\r\n", "\n").strip("\n")


def picture_of(shown: str) -> str:
    """A frame as SVG, as rich draws a terminal."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(shown))
    return FONTS.sub("", console.export_svg(title="sweep run quickstart"))


def main() -> None:
    """Make the picture."""
    with tempfile.TemporaryDirectory() as storage:
        written = output_of_a_run(storage)
    Path(sys.argv[1]).write_text(picture_of(frame(written)), encoding="utf-8")


if __name__ == "__main__":
    main()
