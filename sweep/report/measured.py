"""Numbers of a sweep: what figures are drawn from.

``pairs`` and ``facts`` are facts (sweep/results/facts.py), ``proposals`` the table of proposals.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

from search_spaces.settings import names_within
from sweep.confirmation.plan import Plan, load_plan
from sweep.confirmation.summary import ConfirmationSummary
from sweep.glossary import model_text
from sweep.report.numbers import Numbers
from sweep.results.best import best_summaries
from sweep.results.facts import Fact, read_facts, shown_facts
from sweep.results.summary import SettingSummary
from sweep.results.sweep_view import SettingView, SweepView
from sweep.study.definition import load_definition, sweep_names
from sweep.study.pairs import ReadRecord
from trainables.config.arm import ArmConfig
from trainables.errors import SweepError
from trainables.plain import Json
from trainables.records.arm_record import ArmRecord, first_layer
from trainables.records.objects import ObjectStore
from trainables.registry.task_facts import Metric

if TYPE_CHECKING:
    import pandas as pd

LONGEST_TITLE = 28  # characters that a panel of three beside each other has room for
TRAJECTORIES = ("multipliers", "weights", "losses")
STEPS = ("setting", "arm", "seed", "step", "series", "layer", "value")


class Ratios(NamedTuple):
    """Losses of an arm's samples after a layer over those before it, over all layers and seeds."""

    setting: str
    arm: str
    counts: list[int]  # by bin
    mean: float
    share_below_1: float


@dataclass(frozen=True)
class Measured:
    """The numbers of a sweep, as far as it is."""

    sweep: str
    metric: Metric
    entries: Mapping[str, SettingSummary]  # by setting; drawn in order
    searched: Sequence[str]  # columns of ``proposals`` that hold searched numbers
    fields: Sequence[str]  # of a run, that proposals set
    runs: Mapping[str, ArmConfig]  # by setting, without what proposals set
    pairs: Numbers
    proposals: pd.DataFrame
    facts: Numbers  # of all pairs: their metric and losses by layer
    steps: Numbers  # trajectories of the pairs shown, at every report
    ratios: Sequence[Ratios]  # of the pairs shown, on each seed; arms that counted none have none
    confirmed: Sequence[ConfirmationSummary] = ()

    def title(self, setting: str) -> str:
        """Heading of a panel: the setting, and whether its pair is a winner's."""
        entry = self.entries[setting]
        name = names_within(tuple(self.entries), LONGEST_TITLE)[setting]
        if entry.proposal is None:
            return f"{name}\nno pair yet"
        kind = "winner" if entry.winner else "no winner; closest"
        return f"{name}\n{kind}: proposal {entry.proposal}"

    @property
    def score_label(self) -> str:
        """Label of an axis of the metric; on two lines where one is higher than a panel."""
        label, unit = self.metric.label, self.metric.unit
        return f"{label},{chr(10) if len(label) + len(unit) > 20 else ' '}{unit}"

    @property
    def trained(self) -> str:
        """The data sets and networks of the settings, for the head of a figure."""
        data_by_model: dict[str, dict[str, None]] = {}
        for name, entry in self.entries.items():
            model = model_text(entry.model, entry.model_variant)
            data_by_model.setdefault(model, {})[self.runs[name].data.name] = None
        return "; ".join(f"{', '.join(data)}: {model}" for model, data in data_by_model.items())


def measured(
    view: SweepView,
    read: ReadRecord,
    run_ids: Mapping[str, str],
    settings: Sequence[str],
    confirmations: Sequence[ConfirmationSummary] = (),
) -> Measured:
    """Everything that figures of these settings need."""
    import pandas as pd

    space = view.definition.space
    metric = space.base.facts.metric
    drawn = tuple(one for one in view.settings if one.setting.name in settings)
    view = replace(view, settings=drawn)
    facts = read_facts(view, read, (metric.key, "held_out_loss"))
    rows = facts.proposals
    kept = [one.setting for one in drawn]
    listed = {n for s in kept for point in s.points.values() for n in point}
    fields = sorted({*space.ranges, *listed})
    columns = [name.removeprefix("constraint.") for name in fields]
    seed = space.search_seeds[0]
    return Measured(
        sweep=view.definition.name,
        metric=metric,
        entries={entry.setting: entry for entry in best_summaries(view, run_ids)},
        searched=[c for c in columns if any(_is_number(row.get(c)) for row in rows)],
        fields=fields,
        runs={s.name: space.run(s, {}, seed=seed) for s in kept},
        pairs=Numbers.from_rows((f for one in drawn for f in shown_facts(one)), Fact._fields),
        proposals=pd.DataFrame(rows),
        facts=Numbers.from_rows(facts.numbers, Fact._fields),
        steps=Numbers.from_rows(_trajectories(drawn), STEPS),
        ratios=list(_ratios(drawn)),
        confirmed=confirmations,
    )


def confirmations(objects: ObjectStore, search: str) -> list[ConfirmationSummary]:
    """The present results of every confirmation of a search."""
    plans = (_plan(objects, name, search) for name in sweep_names(objects))
    of_search = [plan for plan in plans if plan is not None and plan.search == search]
    if not of_search:
        return []
    from sweep.confirmation.comparisons import summarize_confirmation  # scipy

    return [summarize_confirmation(objects, load_definition(objects, p.name), p) for p in of_search]


def _plan(objects: ObjectStore, name: str, search: str) -> Plan | None:
    """The plan of a confirmation; a damaged one of another search is not this one's trouble."""
    try:
        return load_plan(objects, name)
    except SweepError:
        if name.startswith(f"{search}."):
            raise
        return None


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _arms(settings: Iterable[SettingView]) -> Iterator[tuple[str, ArmRecord]]:
    """Both arms of the pairs shown, on every seed, each with its setting."""
    for one in settings:
        for pair in one.chosen.shown.pairs if one.chosen.shown else ():
            yield from ((one.setting.name, arm) for arm in pair.arms)


def _trajectories(settings: Iterable[SettingView]) -> Iterator[tuple[object, ...]]:
    for setting, record in _arms(settings):
        arm, seed = record.config.arm, record.config.seed
        for report in record.reports:
            count = len(report.layers.get("losses") or report.layers.get("weights") or ())
            for series in TRAJECTORIES:
                values = report.layers.get(series) or []
                for layer, value in enumerate(values, first_layer(count, len(values))):
                    yield setting, arm, seed, report.step, series, layer, value


def _ratios(settings: Iterable[SettingView]) -> Iterator[Ratios]:
    for setting, record in _arms(settings):
        result = record.evaluation
        if result is not None and result.descent_ratio_counts:
            counts = [sum(layers) for layers in zip(*result.descent_ratio_counts, strict=True)]
            mean, share = fmean(result.descent_ratio_mean), fmean(result.descent_fraction)
            yield Ratios(setting, record.config.arm, counts, mean, share)
