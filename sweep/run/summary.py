"""Summary of one driver's run, and its exit code."""

from __future__ import annotations

from dataclasses import dataclass

from trainables.records.arm_record import Outcome


@dataclass(frozen=True)
class RunSummary:
    """What one run of a driver came to."""

    sweep: str
    outcomes: dict[Outcome, int]  # of proposals
    arms_done: int
    arms_total: int
    retired: dict[str, str]  # setting -> why its search ended early
    problems: tuple[str, ...]  # what went wrong besides training; empty when nothing did
    stopped: str  # why it ended before it was done; empty when it was not stopped
    was_asked_to_stop: bool  # by somebody, and not by trouble
    is_done: bool
    is_urgent: bool  # whoever stopped it kills it within seconds
    again: str  # the command that continues it

    @property
    def exit_code(self) -> int:
        """0 when everything asked for is final and nothing went wrong, else 1."""
        return 0 if self.is_done and not self.retired and not self.problems else 1

    @property
    def advice(self) -> str:
        """What to do next; empty when all is well."""
        return "" if self.exit_code == 0 else f"Continue with `{self.again}`."
