"""A stored sweep in Python: frames, figures, and what a notebook shows of it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

from sweep.api import columns, frames, html
from sweep.confirmation.summary import ConfirmationSummary, ConfirmedSetting
from sweep.report.drawing import rendered
from sweep.report.figures import FIGURES, draw
from sweep.report.measured import Measured, measured
from sweep.report.numbers import Numbers
from sweep.report.report import OF_CONFIRMATION as REPORTED
from sweep.report.source import StoredSweep
from sweep.results.findings import findings
from sweep.results.status import State, state_of, status_of
from sweep.results.sweep_view import SweepView, load_sweep
from sweep.study.lock import driver_of
from sweep.study.opening import named_place, open_store, root_named
from trainables.errors import Misuse, UnknownName, require
from trainables.plain import Json
from trainables.records.arms import ArmStore
from trainables.records.unit_scores import UnitScores
from trainables.registry.task_facts import Metric

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

FRAMES = ("settings", "proposals", "arms", "pairs", "layers", "curves", "steps")
# Of a confirmation, which searches nothing: those of its report, and those that show single pairs.
OF_CONFIRMATION = (
    *REPORTED, "scores", "gain-by-gamma", "layers", "anytime", "ratios", "histogram",
    "trajectories", "cost",
)  # fmt: skip


def load(name: str, storage: str | os.PathLike[str] | None = None) -> Sweep:
    """A stored sweep or confirmation, also while it runs: what is final counts.

    Args:
        name: the sweep.
        storage: its storage root; default: $SWEEP_STORAGE, else ./sweeps.

    Raises:
        UnknownName: there is none of this name below that root.
    """
    require(isinstance(name, str), "name", name, "that of a sweep")
    objects = open_store(root_named(storage))
    with named_place(objects):
        view = load_sweep(objects, name, "pairs")
    return Sweep(objects, view, is_running=driver_of(objects, name) is not None)


@dataclass(frozen=True, repr=False)
class Sweep(StoredSweep):
    """A sweep as it was when it was loaded.

    A frame is made when it is first asked for; ``columns`` says what its columns mean.
    """

    is_running: bool

    def __repr__(self) -> str:
        """Its name and state; a notebook shows ``_repr_html_``."""
        return f"<sweep {self.name}: {self.state}>"

    def __str__(self) -> str:
        """Its name, state, and what was found, a sentence a line."""
        if self.confirmed is None:
            texts = findings(list(self.measured.entries.values()))
        else:
            from sweep.confirmation.words import sentences

            texts = sentences(self.confirmed)
        return "\n".join([f"{self.name} is {self.state}.", *texts])

    @property
    def state(self) -> State:
        """State when it was loaded: running, stopped, failed or finished."""
        return state_of(self.view, is_running=self.is_running)

    def reload(self) -> Sweep:
        """The same sweep as it is now."""
        return load(self.name, self.objects.root)

    # --- frames -----------------------------------------------------------------------------------

    @cached_property
    def settings(self) -> pd.DataFrame:
        """A row a setting: its winner, or the closest pair and why; of a confirmation its table."""
        if self.confirmed is None:
            space = self.view.definition.space
            return frames.framed(frames.setting_rows(space, self.measured.entries.values()))
        from sweep.confirmation.tables import confirmed_table

        return frames.framed(confirmed_table(self.confirmed).rows)

    @cached_property
    def proposals(self) -> pd.DataFrame:
        """A row a proposal and seed: proposals.csv, what both arms of every pair came to."""
        return frames.with_integers(self.measured.proposals)

    @cached_property
    def arms(self) -> pd.DataFrame:
        """A row an arm: how far it is, how it ended, what it scored and cost."""
        return frames.framed(frames.arm_rows(self.view, ArmStore(self.objects).record))

    @cached_property
    def pairs(self) -> pd.DataFrame:
        """A row a number: tidy.csv, both arms of the pair that each setting shows."""
        return frames.with_integers(self.measured.pairs.frame)

    @cached_property
    def layers(self) -> pd.DataFrame:
        """A row a layer of both arms of every judged proposal, held out, at train gamma."""
        return frames.layers_frame(self._every, self.metric).reset_index()

    @cached_property
    def curves(self) -> pd.DataFrame:
        """A row a test condition, of both arms of every judged proposal and of the references."""
        return frames.curves_frame(self._every, self.view, self.metric)

    @cached_property
    def steps(self) -> pd.DataFrame:
        """A row a report, series and layer, over training, of the pair that each setting shows."""
        return frames.with_integers(self.measured.steps.frame)

    def columns(self, frame: str) -> pd.DataFrame:
        """Unit and meaning of each column of a frame, and of each kind of value in a long one."""
        if frame not in FRAMES:
            raise UnknownName.among("frame", frame, FRAMES)
        return columns.described(getattr(self, frame), self.metric)

    def unit_scores(self, signature: str) -> UnitScores | None:
        """Scores of one arm by held-out unit, at every test condition; None: it has none yet."""
        if signature not in (known := self.view.arms):
            raise UnknownName.among("arm", signature, known)
        return ArmStore(self.objects).unit_scores(signature)

    # --- figures ----------------------------------------------------------------------------------

    @property
    def figures(self) -> tuple[str, ...]:
        """Names of what ``figure`` draws."""
        return OF_CONFIRMATION if self.is_confirmation else tuple(FIGURES)

    def figure(self, name: str, page: int = 1) -> Figure:
        """One figure of the report, which a notebook shows; of many settings one page of it.

        Raises:
            UnknownName: there is none of this name.
            Misuse: nothing is measured yet that it could show, or it has fewer pages.
        """
        if name not in self.figures:
            raise UnknownName.among("figure", name, self.figures)
        pages = list(draw(self.measured, [name]).values())
        if not pages:
            raise Misuse(f"{self.name} has nothing measured that the figure {name} could show.")
        if not 1 <= page <= len(pages):
            raise Misuse(f"page must be 1 to {len(pages)} of the figure {name}, got {page}.")
        drawn = pages[page - 1]
        drawn._repr_png_ = partial(rendered, drawn, "png")  # type: ignore[attr-defined]
        return drawn

    # --- settings ---------------------------------------------------------------------------------

    def __getitem__(self, setting: str) -> SettingOf:
        """One setting, by its name."""
        self.view.definition.space.setting(setting)  # UnknownName
        return SettingOf(self, setting)

    def __iter__(self) -> Iterator[SettingOf]:
        """Every setting."""
        return (SettingOf(self, one.setting.name) for one in self.view.settings)

    def _ipython_key_completions_(self) -> list[str]:
        return [one.setting.name for one in self.view.settings]

    def _repr_html_(self) -> str:
        status = status_of(self.view, is_running=self.is_running)
        what = self.view.definition.space.summary
        if self.confirmed is None:
            return html.of_search(status, what, list(self.measured.entries.values()))
        from sweep.confirmation.tables import confirmed_table
        from sweep.confirmation.words import sentences

        shown = confirmed_table(self.confirmed).shown
        return html.of_confirmation(status, what, sentences(self.confirmed), shown)

    # --- what all of it is read from --------------------------------------------------------------

    @property
    def metric(self) -> Metric:
        """The metric of its task: key, unit and direction."""
        return self.view.definition.space.base.facts.metric

    @cached_property
    def measured(self) -> Measured:
        """The numbers that figures are drawn from."""
        names = [one.setting.name for one in self.view.settings]
        read = ArmStore(self.objects).record
        return measured(self._shown, read, {}, names, self.confirmations)

    @property
    def confirmed(self) -> ConfirmationSummary | None:
        """The results of a confirmation; None of a search."""
        return self.confirmations[0] if self.is_confirmation else None

    @cached_property
    def _shown(self) -> SweepView:
        """The view; of a confirmation the pairs that it confirms, whatever their scores."""
        if not self.is_confirmation:
            return self.view
        from sweep.confirmation.arms import confirmed_view

        return confirmed_view(self.view, ArmStore(self.objects).record)

    @cached_property
    def _every(self) -> Numbers:
        kept = (*frames.OF_LAYER, f"probe_{self.metric.key}", self.metric.key)
        return frames.pair_numbers(self._shown, ArmStore(self.objects).record, kept)


@dataclass(frozen=True)
class SettingOf:
    """One setting of a loaded sweep: its pair, in numbers and words."""

    sweep: Sweep = field(repr=False)
    name: str

    @property
    def entry(self) -> Mapping[str, Json]:
        """All that is known of its pair, as `sweep best --json` has it."""
        if self.sweep.confirmed is None:
            return self.sweep.measured.entries[self.name].to_json()
        return self._confirmed(self.sweep.confirmed).to_json()

    def _confirmed(self, confirmed: ConfirmationSummary) -> ConfirmedSetting:
        return next(one for one in confirmed.settings if one.setting == self.name)

    def _repr_html_(self) -> str:
        confirmed = self.sweep.confirmed
        if confirmed is None:
            summary = self.sweep.measured.entries[self.name]
            return html.of_setting(self.sweep.view.definition.space, summary)
        from sweep.confirmation.tables import confirmed_table
        from sweep.confirmation.words import of_setting

        one = self._confirmed(confirmed)
        alone = replace(confirmed, families=[], settings=[one])
        sentence = of_setting(one, confirmed)
        return html.of_confirmed_setting(self.name, sentence, confirmed_table(alone).shown)
