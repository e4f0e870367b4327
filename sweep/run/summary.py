"""Summary of one driver's run, and its exit code."""

from __future__ import annotations

from dataclasses import dataclass

from sweep.cost.spent import Held, held_text
from trainables.records.arm_record import Outcome


@dataclass(frozen=True)
class RunSummary:
    """Result of one run of a driver."""

    sweep: str
    outcomes: dict[Outcome, int]  # the number of proposals of each
    arms_done: int
    arms_total: int
    retired: dict[str, str]  # setting -> why its search ended early
    problems: tuple[str, ...]  # what went wrong besides training; empty when nothing did
    stopped: str  # why it ended before it was done; empty when it was not stopped
    budget: str  # the option of its budget that was reached, with its value; empty: none
    spent: Held  # by the arms that are final
    was_asked_to_stop: bool  # by a person or a batch system, and not by trouble
    is_done: bool
    is_urgent: bool  # whoever stopped it kills it within seconds
    resume_command: str  # the command that continues it

    @property
    def exit_code(self) -> int:
        """0 when everything asked for is final, or a budget is spent, and nothing went wrong."""
        is_over = self.is_done or (self.budget and not self.stopped)
        return 0 if is_over and not self.retired and not self.problems else 1

    @property
    def advice(self) -> str:
        """Advice on what to do next; empty when all is well."""
        return "" if self.exit_code == 0 else f"Continue with `{self.resume_command}`."

    def budget_line(self, took: str = "") -> str:
        """Text on a budget that was reached, what arms ``took``, how to go on; empty: none was."""
        if self.is_done or self.stopped or not self.budget:
            return ""
        option, of_hours = self.budget.split()[0], self.budget.startswith("--max-hours")
        less = f"{self.budget} for as long again" if of_hours else f"a higher {option} some of them"
        return (
            f"{self.sweep} reached its budget ({self.budget}): {self.arms_done} of "
            f"{self.arms_total} arms are final, {self.arms_total - self.arms_done} still "
            f"to train; {took or f'its arms took {held_text(self.spent)}'}. "
            f"`{self.resume_command}` trains the rest, with {less}."
        )
