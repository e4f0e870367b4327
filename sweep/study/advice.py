"""Commands that messages advise, complete and quoted, and counts in sentences.

A job on a cluster's head speaks to whoever sits at a laptop: what it advises is what runs there.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

DEFAULT_STORAGE = "sweeps"  # below the folder that a command is given in
STORAGE = "SWEEP_STORAGE"
ADDRESS = "SWEEP_ADDRESS"
# Of a job on a cluster's head: the options by which who asked for it names the cluster, and a root
# there that is not the cluster's own.
ASKED_FROM = "SWEEP_ASKED_FROM"
# Set where whoever asks sees the storage as this process does: commands need no way to a head.
SEES_STORAGE = "SWEEP_ASKER_SEES_STORAGE"
BY_ADDRESS = (
    "best",
    "confirm",
    "doctor",
    "export",
    "list",
    "logs",
    "report",
    "resume",
    "status",
    "stop",
    "submit",
    "ui",
)


def command(*words: str, storage: str | None = None, address: str | None = None) -> str:
    """``sweep WORDS`` as it is to be pasted; without an address a default storage is left out.

    ``address`` is the cluster's, as the user named it; None: this machine, or, of a job on a
    cluster, whoever asked for it.
    """
    client_options = os.environ.get(ASKED_FROM, "")
    if address is not None:
        return f"{shlex.join([program(), *words])} {place(address, storage)}"
    if client_options and words[0] in BY_ADDRESS:
        return f"{shlex.join(['sweep', *words])} {client_options}"
    elsewhere = storage is not None and (
        bool(os.environ.get(STORAGE)) or storage != str(Path(DEFAULT_STORAGE).resolve())
    )
    line = shlex.join([program(), *words, *(["--storage", str(storage)] if elsewhere else [])])
    if client_options and not os.environ.get(SEES_STORAGE):
        cluster = shlex.split(client_options)[1]
        return line if "://" in cluster else shlex.join(["ray", "exec", cluster, line])
    # Another shell may have it; this one does, and would send the command elsewhere.
    sent_away = bool(os.environ.get(ADDRESS)) and words[0] in BY_ADDRESS
    return f"{ADDRESS}= {line}" if sent_away else line


def resume(sweep: str, storage: str, *, where: str = "local", more: Sequence[str] = ()) -> str:
    """The command that continues a sweep the way it was started here, with ``more`` options."""
    names_place = where != "local" and not os.environ.get(ASKED_FROM)
    how = ["--where", where] if names_place else []
    return command("resume", sweep, *more, *how, storage=storage)


def place(address: str, storage: str | None) -> str:
    """The options that name a cluster, and a root there that is not its own."""
    root = [] if storage is None else ["--storage", storage]
    return shlex.join(["--address", address, *root])


def program() -> str:
    """The command that starts this program: ``sweep``, or its path where that is another."""
    started = Path(sys.argv[0])
    if started.name != "sweep":  # as a module, or by a test
        return "sweep"
    on_path = shutil.which("sweep")
    if on_path is not None and started.exists() and Path(on_path).samefile(started):
        return "sweep"
    return str(started.absolute()) if started.exists() else "sweep"


def note(text: str) -> None:
    """Print a line for people on standard error, apart from what a program reads."""
    print(f"sweep: {text}", file=sys.stderr)


def counted(number: int, thing: str) -> str:
    """A number and what it counts, which ends in its noun.

    >>> counted(1, "setting"), counted(2000, "unconstrained arm"), counted(0, "family")
    ('1 setting', '2,000 unconstrained arms', '0 families')
    """
    if number == 1:
        return f"1 {thing}"
    return f"{number:,} {thing[:-1]}ies" if thing.endswith("y") else f"{number:,} {thing}s"
