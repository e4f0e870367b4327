"""Numbers of a sweep as pandas frames: what figures are drawn from.

``pairs`` is the tidy table (sweep/results/tables/tidy.py), ``proposals`` the table of proposals,
``steps`` the trajectories of the pairs shown: one row per setting, arm, seed, step, series, layer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sweep.results.best import best_entries
from sweep.results.sweep_view import SweepView
from sweep.results.tables.formats import Row
from sweep.results.tables.proposals import Read, proposal_rows
from sweep.results.tables.tidy import tidy_rows
from trainables.plain import Json
from trainables.records.arm_record import first_layer
from trainables.registry.task_facts import Metric

if TYPE_CHECKING:
    import pandas as pd

TRAJECTORIES = ("multipliers", "weights", "losses")


@dataclass(frozen=True)
class Measured:
    """The numbers of a sweep, as far as it is."""

    sweep: str
    metric: Metric
    entries: Mapping[str, Mapping[str, Json]]  # of ``best_entries``, by setting; drawn in order
    searched: Sequence[str]  # columns of ``proposals`` that hold searched numbers
    pairs: pd.DataFrame
    proposals: pd.DataFrame
    steps: pd.DataFrame

    def title(self, setting: str) -> str:
        """What a panel is headed by: the setting, and whether its pair is a winner's."""
        entry = self.entries[setting]
        if entry["proposal"] is None:
            return f"{setting}\nno pair yet"
        kind = "winner" if entry["winner"] else "no winner; closest"
        return f"{setting}\n{kind}: proposal {entry['proposal']}"


def measured(
    view: SweepView, read: Read, run_ids: Mapping[str, str], settings: Sequence[str]
) -> Measured:
    """Everything that figures of these settings need.

    Args:
        view: the sweep.
        read: how the record of a signature is read.
        run_ids: MLflow run by signature, as far as they are known.
        settings: names of those to draw.
    """
    import pandas as pd

    space = view.definition.space
    rows = [row for row in proposal_rows(view, read) if row["setting"] in settings]
    ranges = {n for s in space.settings if s.name in settings for n in {**space.ranges, **s.ranges}}
    columns = [name.removeprefix("constraint.") for name in sorted(ranges)]
    of_pairs = [row for row in tidy_rows(view) if row["setting"] in settings]
    return Measured(
        sweep=view.definition.name,
        metric=space.base.facts.metric,
        entries={e["setting"]: e for e in best_entries(view, run_ids) if e["setting"] in settings},
        searched=[c for c in columns if any(_is_number(row.get(c)) for row in rows)],
        pairs=pd.DataFrame(of_pairs, columns=_PAIRS),
        proposals=pd.DataFrame(rows),
        steps=pd.DataFrame(_trajectories(view, settings), columns=_STEPS),
    )


_PAIRS = ["setting", "proposal", "arm", "seed", "metric", "shift", "severity", "layer", "value"]
_STEPS = ["setting", "arm", "seed", "step", "series", "layer", "value"]


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _trajectories(view: SweepView, settings: Sequence[str]) -> Iterator[Row]:
    """Both arms of the pairs shown, at every report."""
    for setting in view.settings:
        shown = setting.chosen.shown
        if shown is None or setting.setting.name not in settings:
            continue
        arms = [arm for p in shown.pairs for arm in (p.constrained, p.unconstrained) if arm]
        for record in arms:
            for report in record.reports:
                count = len(report.layers.get("losses") or report.layers.get("weights") or ())
                for series in TRAJECTORIES:
                    values = report.layers.get(series) or []
                    first = first_layer(count, len(values))
                    for layer, value in enumerate(values, first):
                        named = (setting.setting.name, record.config.arm, record.config.seed)
                        cells = (*named, report.step, series, layer, value)
                        yield dict(zip(_STEPS, cells, strict=True))
