"""Numbers of a sweep as pandas frames: what figures are drawn from.

``pairs`` is the tidy table (sweep/results/tables/tidy.py), ``proposals`` the table of proposals.
The other frames have one row for each combination of their first columns.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from search_spaces.settings import names_within
from sweep.confirmation.plan import Plan, load_plan
from sweep.render.table import Row
from sweep.results.best import best_summaries
from sweep.results.names import model_text
from sweep.results.summary import SettingSummary
from sweep.results.sweep_view import SettingView, SweepView
from sweep.results.tables.columns import GAUSSIAN
from sweep.results.tables.proposals import Read, proposal_rows
from sweep.results.tables.tidy import COLUMNS, tidy_rows
from sweep.study.definition import load_definition, sweep_names
from trainables.config.arm import ArmConfig
from trainables.errors import SweepError
from trainables.plain import Json
from trainables.records.arm_record import ArmRecord, Evaluation, first_layer
from trainables.records.objects import ObjectStore
from trainables.registry.task_facts import Metric

if TYPE_CHECKING:
    import pandas as pd

LONGEST_TITLE = 28  # characters that a panel of three beside each other has room for
TRAJECTORIES = ("multipliers", "weights", "losses")
_STEPS = ("setting", "arm", "seed", "step", "series", "layer", "value")
_SCORES = ("setting", "proposal", "seed", "severity", "value")
_RATIOS = ("setting", "arm", "seed", "counts", "mean", "share")


@dataclass(frozen=True)
class Measured:
    """The numbers of a sweep, as far as it is."""

    sweep: str
    metric: Metric
    entries: Mapping[str, SettingSummary]  # by setting; drawn in order
    searched: Sequence[str]  # columns of ``proposals`` that hold searched numbers
    runs: Mapping[str, Mapping[str, Json]]  # by setting its run's fields, but those searched
    pairs: pd.DataFrame
    proposals: pd.DataFrame
    scores: pd.DataFrame  # of every finished constrained arm: the metric by test gamma
    failures: pd.DataFrame  # as ``pairs``: of each setting's infeasible proposal that misses most
    steps: pd.DataFrame  # trajectories of the pairs shown, at every report
    ratios: pd.DataFrame  # of the pairs shown, over all layers; arms that counted none are not here
    confirmed: Sequence[Mapping[str, Json]] = ()  # entries of its confirmations

    def title(self, setting: str) -> str:
        """What a panel is headed by: the setting, and whether its pair is a winner's."""
        entry = self.entries[setting]
        name = names_within(tuple(self.entries), LONGEST_TITLE)[setting]
        if entry.proposal is None:
            return f"{name}\nno pair yet"
        kind = "winner" if entry.winner else "no winner; closest"
        return f"{name}\n{kind}: proposal {entry.proposal}"

    @property
    def score_label(self) -> str:
        """What an axis of the metric is called; on two lines where one is higher than a panel."""
        label, unit = self.metric.label, self.metric.unit
        return f"{label},{chr(10) if len(label) + len(unit) > 20 else ' '}{unit}"

    @property
    def trained(self) -> str:
        """The data sets and networks of the settings, for the head of a figure."""
        found: dict[str, dict[str, None]] = {}
        for name, entry in self.entries.items():
            model = model_text(entry.model, entry.model_variant)
            found.setdefault(model, {})[str(self.runs[name]["data.name"])] = None
        return "; ".join(f"{', '.join(data)}: {model}" for model, data in found.items())

    def train_gamma(self, setting: str) -> float:
        """The noise that a setting trains with."""
        return float(self.runs[setting]["train_gamma"])


def measured(
    view: SweepView,
    read: Read,
    run_ids: Mapping[str, str],
    settings: Sequence[str],
    confirmations: Sequence[Mapping[str, Json]] = (),
) -> Measured:
    """Everything that figures of these settings need.

    Args:
        view: the sweep.
        read: how the record of a signature is read.
        run_ids: MLflow run by signature, as far as they are known.
        settings: names of those to draw.
        confirmations: what ``confirmations`` says.
    """
    import pandas as pd

    def read_and_keep(signature: str) -> ArmRecord | None:
        record = read(signature)
        if record is not None and record.status == "finished" and record.evaluation is not None:
            scores[signature] = record.evaluation.scores
        return record

    scores: dict[str, Mapping[str, float]] = {}
    space = view.definition.space
    kept = [s for s in space.settings if s.name in settings]
    rows = [row for row in proposal_rows(view, read_and_keep) if row["setting"] in settings]
    listed = {n for s in kept for point in s.points.values() for n in point}
    fields = sorted({*space.ranges, *listed})
    columns = [name.removeprefix("constraint.") for name in fields]
    seed = space.search_seeds[0]
    return Measured(
        sweep=view.definition.name,
        metric=space.base.facts.metric,
        entries={e.setting: e for e in best_summaries(view, run_ids) if e.setting in settings},
        searched=[c for c in columns if any(_is_number(row.get(c)) for row in rows)],
        runs={s.name: _fields(space.run(s, {}, seed=seed), but=fields) for s in kept},
        pairs=_frame((r for r in tidy_rows(view) if r["setting"] in settings), COLUMNS),
        proposals=pd.DataFrame(rows),
        scores=_frame(_scores(rows, scores), _SCORES),
        failures=_frame(_failures(view, rows, read), COLUMNS),
        steps=_frame(_trajectories(view, settings), _STEPS),
        ratios=_frame(_ratios(view, settings), _RATIOS),
        confirmed=confirmations,
    )


def confirmations(objects: ObjectStore, search: str) -> list[dict[str, Json]]:
    """What every confirmation of a search shows now."""
    plans = (_plan(objects, name, search) for name in sweep_names(objects))
    of_search = [plan for plan in plans if plan is not None and plan.search == search]
    if not of_search:
        return []
    from sweep.confirmation.comparisons import confirmed  # scipy, statsmodels: two seconds

    return [confirmed(objects, load_definition(objects, p.name), p) for p in of_search]


def _plan(objects: ObjectStore, name: str, search: str) -> Plan | None:
    """The plan of a confirmation; a damaged one of another search is not this one's trouble."""
    try:
        return load_plan(objects, name)
    except SweepError:
        if name.startswith(f"{search}."):
            raise
        return None


def _frame(rows: Iterable[Row], columns: Sequence[str]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(list(rows), columns=list(columns))


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _fields(config: ArmConfig, but: Sequence[str]) -> dict[str, Json]:
    """A run as one flat mapping of fields."""
    flat: dict[str, Json] = {}
    for name, value in config.to_json().items():
        of = {f"{name}.{n}": v for n, v in value.items()} if isinstance(value, Mapping) else None
        flat |= {name: value} if of is None else of
    return {name: value for name, value in flat.items() if name not in but}


def _scores(rows: Sequence[Row], scores: Mapping[str, Mapping[str, float]]) -> Iterator[Row]:
    for row in rows:
        for gamma, value in scores.get(row["signature"], {}).items():
            cells = (row["setting"], row["proposal"], row["seed"], float(gamma), value)
            yield dict(zip(_SCORES, cells, strict=True))


def _failures(view: SweepView, rows: Sequence[Row], read: Read) -> Iterator[Row]:
    """Held-out loss by layer and score by gamma of one infeasible proposal a setting."""
    shown = {s.setting.name: s.chosen.shown for s in view.settings}
    worst: dict[str, dict[int, list[Row]]] = {}
    for row in rows:
        pair = shown[row["setting"]]
        if row["outcome"] == "infeasible" and pair and pair.number != row["proposal"]:
            worst.setdefault(row["setting"], {}).setdefault(row["proposal"], []).append(row)
    for setting, proposals in worst.items():
        _, of = max(proposals.items(), key=lambda item: fmean(map(_missed, item[1])))
        for row in of:
            record = read(row["signature"])
            if record is None or record.evaluation is None:
                continue
            named = (setting, row["proposal"], "constrained", row["seed"])
            for cells in _cells(record.config, record.evaluation):
                yield dict(zip(COLUMNS, (*named, *cells), strict=True))


def _missed(row: Row) -> float:
    """The worst missing share; tables have none where it is infinite."""
    share = row["worst_missing_share"]
    return math.inf if share is None else share


def _cells(config: ArmConfig, found: Evaluation) -> Iterator[tuple[Json, ...]]:
    for gamma, score in found.scores.items():
        yield config.facts.metric.key, GAUSSIAN, float(gamma), None, score
    for layer, loss in enumerate(found.held_out_losses()):
        yield "held_out_loss", GAUSSIAN, config.train_gamma, layer, loss


def _arms(view: SweepView, settings: Sequence[str]) -> Iterator[tuple[SettingView, ArmRecord]]:
    """Both arms of the pairs shown, on every seed."""
    for setting in view.settings:
        shown = setting.chosen.shown
        if shown is not None and setting.setting.name in settings:
            for pair in shown.pairs:
                yield from ((setting, arm) for arm in (pair.constrained, pair.unconstrained) if arm)


def _trajectories(view: SweepView, settings: Sequence[str]) -> Iterator[Row]:
    for setting, record in _arms(view, settings):
        for report in record.reports:
            count = len(report.layers.get("losses") or report.layers.get("weights") or ())
            for series in TRAJECTORIES:
                values = report.layers.get(series) or []
                for layer, value in enumerate(values, first_layer(count, len(values))):
                    named = (setting.setting.name, record.config.arm, record.config.seed)
                    cells = (*named, report.step, series, layer, value)
                    yield dict(zip(_STEPS, cells, strict=True))


def _ratios(view: SweepView, settings: Sequence[str]) -> Iterator[Row]:
    for setting, record in _arms(view, settings):
        found = record.evaluation
        if found is not None and found.descent_ratio_counts:
            cells = (
                setting.setting.name,
                record.config.arm,
                record.config.seed,
                [sum(of) for of in zip(*found.descent_ratio_counts, strict=True)],
                fmean(found.descent_ratio_mean),
                fmean(found.descent_share),
            )
            yield dict(zip(_RATIOS, cells, strict=True))
