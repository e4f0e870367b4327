"""One JSON object of a measurement, printed whatever ends it; and lines of a table from it."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from benchmarks.imitated.drawn_clips import stand_in
from trainables.environment import environment

NO_MEANING = "not measured on a CPU"


def parser(doc: str | None) -> argparse.ArgumentParser:
    """The options that every measurement has."""
    made = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
    made.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    made.add_argument("--small", action="store_true", help="at a size that a CPU takes seconds for")
    return made


@contextmanager
def printed(name: str, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """What is put into the object, and ``lines`` for people, is printed at the end.

    At SIGTERM, too: what was measured until then, with ``ended_by`` beside it.
    """
    found: dict[str, Any] = {"benchmark": name, **vars(options), "lines": []}
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    stand_in()
    try:
        found["environment"] = environment(options.device)
        yield found
    except BaseException as error:
        found["ended_by"] = f"{type(error).__name__}: {error}"
        raise
    finally:
        signal.signal(signal.SIGTERM, before)
        print(json.dumps(found, indent=1, default=str), flush=True)


def waited(device: torch.device) -> None:
    """Until the device has done all that it was told to."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
