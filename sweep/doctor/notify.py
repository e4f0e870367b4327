"""Check of notifications (`sweep doctor --notify`): one is sent."""

from __future__ import annotations

from sweep.doctor.check import Check
from sweep.run.events import Event
from sweep.run.notifications import Undelivered, deliver, shown


def try_out(target: str) -> Check:
    """Deliver a piece of test news, once; the line of `sweep doctor` about it."""
    try:
        deliver(target, Event("test", "none", "`sweep doctor` tries whether news arrives here."))
    except Undelivered as error:
        return Check("notify", False, str(error), "Is the address, or the command, still right?")
    return Check("notify", True, f"{shown(target)} took a piece of test news")
