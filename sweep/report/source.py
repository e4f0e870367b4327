"""A stored sweep, what a report of it shows, and the commands that pages name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from search_spaces import catalog
from sweep.confirmation.plan import load_replications, replications_name
from sweep.confirmation.summary import ConfirmationSummary
from sweep.report.measured import Measured, confirmations, measured
from sweep.report.pages.markup import Commands
from sweep.results.findings import next_step
from sweep.results.status import SweepStatus
from sweep.results.summary import SettingSummary
from sweep.results.sweep_view import SweepView
from sweep.study import advice
from sweep.study.pairs import ReadRecord
from trainables.records.objects import ObjectStore


@dataclass(frozen=True)
class StoredSweep:
    """A search or a confirmation in a store, as it was when it was read."""

    objects: ObjectStore
    view: SweepView

    @property
    def name(self) -> str:
        """Name of the sweep."""
        return self.view.definition.name

    @property
    def is_confirmation(self) -> bool:
        """True for a confirmation, which trains winners on fresh seeds and the test split."""
        return self.view.definition.space.phase == "confirmation"

    @cached_property
    def confirmations(self) -> list[ConfirmationSummary]:
        """Results of the search's confirmations; of a confirmation its own."""
        if not self.is_confirmation:
            return confirmations(self.objects, self.name)
        from sweep.confirmation.stages import summarize_stored  # scipy: two seconds

        return [summarize_stored(self.objects, self.view.definition)]


@dataclass(frozen=True)
class Reported(StoredSweep):
    """A stored sweep that a report is of."""

    run_ids: Mapping[str, str]  # MLflow run by signature, as far as they are known
    read: ReadRecord  # the record of a signature
    patterns: Sequence[str] = ()  # of settings; all, without any
    is_running: bool = False  # whether a driver works on it

    @cached_property
    def data(self) -> Measured:
        """Data of its figures, of the requested settings."""
        names = [setting.setting.name for setting in self.view.settings]
        kept = catalog.matching(names, self.patterns, self.name)
        shown = [name for name in names if name in kept]
        return measured(self.view, self.read, self.run_ids, shown, self.confirmations)

    def say(self, *words: str) -> str:
        """A command about it, to be pasted."""
        return advice.command(*words, storage=self.objects.root)


def search_commands(
    source: Reported, status: SweepStatus, summaries: Sequence[SettingSummary]
) -> Commands:
    """Commands: the next one, one that shows all again, one that trains a pair again."""
    say, name = source.say, source.name
    following: dict[str, str] = {}
    if status.state == "stopped":
        following["Train what is missing."] = say("resume", name)
    elif status.state == "running":
        following["See how far it is."] = say("status", name, "--watch")
    elif any(summary.winner for summary in summaries) and not source.confirmations:
        what = "Test the winners on fresh seeds and the test split: what counts as a result."
        following[what] = say("confirm", name)
    elif step := next_step(summaries):
        verb, *options = step.words or ("",)
        following[step.text] = say(verb, name, *options) if verb else ""
    for one in source.confirmations:
        following[f"The report of {one.name}."] = say("report", one.name)
    replications = load_replications(source.objects, replications_name(name))
    if replications is not None:
        words = ("confirm", name, "--replications", str(replications.count))
        following["Results of its replications."] = say(*words)
    export = say("export", name, "--out", "results")
    again = "Train both arms again, and see old and new numbers side by side."
    paired = [summary.setting for summary in summaries if summary.proposal is not None]
    return Commands(
        following or {"Every number.": export},
        {
            "Every table as CSV, Markdown and LaTeX; a configuration of every winner.": export,
            "One figure alone, for a paper.": say("report", name, "--figure", "scores"),
            "Each arm's curves.": say("ui", name),
        },
        {setting: {again: say("reproduce", name, setting)} for setting in paired},
    )


def confirmation_commands(
    source: Reported, status: SweepStatus, search: str, settings: Iterable[str]
) -> Commands:
    """The same for the confirmation of a search."""
    say, name = source.say, source.name
    following = {"Train what is missing.": say("confirm", search, "--name", name)}
    if status.state in ("finished", "failed"):
        following = {"The search that it confirms.": say("report", search)}
    again = {
        "The table as CSV, Markdown and LaTeX; the plan.": say("export", name, "--out", "results"),
        "Each arm's curves.": say("ui", name),
    }
    for one in settings:
        text = f"Both arms of {one} again, old and new numbers side by side."
        again[text] = say("reproduce", name, one)
    return Commands(following, again)
