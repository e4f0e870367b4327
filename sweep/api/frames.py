"""Frames of a sweep: settings, arms, layers and curves, a row each. Pure.

Their columns are described in ``columns.py``. Where results.csv or proposals.csv has a quantity,
its column is called the same here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from search_spaces.space import SearchSpace
from sweep.render.table import Row
from sweep.results.aggregates import ARMS, COSTS, arms_entry
from sweep.results.summary import SettingSummary
from sweep.results.sweep_view import SettingView, SweepView
from sweep.results.tables.columns import GAUSSIAN, config_of
from sweep.results.tables.proposals import OF_ARM, OF_VERDICT, Read
from sweep.results.tables.tidy import tidy_rows
from sweep.study.arms import Arm, arms_of_proposal, baselines
from sweep.study.pairs import ProposalResult, join
from sweep.study.proposals import StoredProposal
from sweep.study.selection import SettingResult
from trainables.config.test_conditions import seen_gammas
from trainables.records.parallel_reads import at_once
from trainables.registry.task_facts import Metric

if TYPE_CHECKING:
    import pandas as pd

WHOLE = ("proposal", "seed", "layer", "layers", "step", "steps")  # numbers that may be missing
PAIR = ["setting", "proposal", "shown", "arm", "seed"]
OF_LAYER = (
    "held_out_loss", "training_loss", "probe_loss", "missing_share", "missing_share_training",
    "missing_share_relaxed", "multiplier", "descent_share", "hidden_norm",
)  # fmt: skip


def framed(rows: Iterable[Row], columns: list[str] | None = None) -> pd.DataFrame:
    """Rows as a frame."""
    import pandas as pd

    return whole(pd.DataFrame(list(rows), columns=columns))


def whole(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with whole numbers whole, also where some are missing."""
    return frame.astype({name: "Int64" for name in WHOLE if name in frame})


def setting_rows(space: SearchSpace, summaries: Iterable[SettingSummary]) -> Iterator[Row]:
    """The pair shown of every setting, means over its seeds, from their summaries."""
    mean = f"mean_{space.base.facts.metric.key}"
    for summary in summaries:
        config, entry = config_of(space, summary), summary.to_json()
        row: Row = {
            "setting": entry["setting"],
            "data": config.data.name,
            "model": config.model.name,
            "layers": config.model.layers,
            "train_gamma": config.train_gamma,
            **{n: entry[n] for n in ("winner", "why", "proposal")},
            **{n.removeprefix("constraint."): v for n, v in (entry["point"] or {}).items()},
            "n_proposals_finished": entry["proposals"]["finished"],
            "n_seeds": len(entry["search_seeds"]),
            **{n: entry[n] for n in ("vacuous", "demanded_descent", "tolerance")},
            "selection_biased": entry["gain"]["selection_biased"],
        }
        for arm in (*ARMS, "gain"):
            values = entry[arm] or {}
            verdict = () if arm == "gain" else ("feasible", *OF_VERDICT, *COSTS)
            row[f"{arm}_{mean}"] = values.get("ood_mean")
            row |= {f"{arm}_{name}": values.get(name) for name in (*OF_ARM, *verdict)}
        yield row


def arm_rows(view: SweepView, read: Read) -> Iterator[Row]:
    """Every arm that is asked for so far; one that settings share has a row in each.

    Args:
        view: the sweep.
        read: how the record of a signature is read. Many at a time; none is kept.
    """
    definition = view.definition
    for one in view.settings:
        name = one.setting.name
        arms = list(baselines(definition, name))
        for proposal in one.proposals:
            arms += arms_of_proposal(definition, name, proposal.number, proposal.point)
        yield from at_once(partial(_arm_row, one, read), arms)


def _arm_row(one: SettingView, read: Read, arm: Arm) -> Row:
    config, record = arm.config, read(arm.signature)
    mean = f"mean_{config.facts.metric.key}"
    entry = {} if record is None else arms_entry([record], None, {}) or {}
    last = record.reports[-1].step if record is not None and record.reports else 0
    ended = record is not None and record.is_final
    return {
        "setting": one.setting.name,
        "proposal": arm.proposal,
        "point": None if arm.proposal is None else one.setting.point_name(arm.proposal),
        "arm": config.arm,
        "seed": config.seed,
        "signature": arm.signature,
        "status": None if record is None else record.status,
        "reason": entry.get("reason"),
        "step": last,
        "steps": config.steps,
        mean: entry.get("ood_mean"),
        **{name: entry.get(name) for name in (*OF_ARM, *COSTS)},
        "wall_seconds": (record.ended_ms - record.started_ms) / 1000 if record and ended else None,
    }


# --- every pair, one by one -----------------------------------------------------------------------


def every_pair(view: SweepView, read: Read) -> Iterator[Row]:
    """The rows of tidy.csv of every judged proposal, and whether its pair is the one shown."""
    for one in view.settings:
        at = None if one.chosen.shown is None else one.chosen.shown.number
        judged = {result.number for result in one.results}
        proposals = [p for p in one.proposals if p.number in judged]
        for shown in map(partial(showing, view, one, read), proposals) if proposals else (one,):
            for row in tidy_rows(replace(view, settings=(shown,))):
                yield {**row, "shown": row["proposal"] == at}


def showing(
    view: SweepView, one: SettingView, read: Read, proposal: StoredProposal | None
) -> SettingView:
    """A setting that shows this proposal as its winner, on the seeds that ended."""
    definition, name = view.definition, one.setting.name
    found = None
    if proposal is not None:
        number, point = proposal.number, proposal.point
        ours = [arm.signature for arm in arms_of_proposal(definition, name, number, point)]
        theirs = [arm.signature for arm in baselines(definition, name)]
        records = at_once(read, (*ours, *theirs))
        pairs = tuple(
            join(record, beside, definition.space.tolerance, point)
            for record, beside in zip(records[: len(ours)], records[len(ours) :], strict=True)
            if record is not None and record.is_final
        )
        if pairs:
            found = ProposalResult(number, point, pairs, one.setting.least_descent)
    why = "" if found else "no arm has ended"
    return replace(one, shown=SettingResult(name, one.chosen.outcomes, found, found, why))


def layers_frame(every: pd.DataFrame, metric: Metric) -> pd.DataFrame:
    """A row a layer of both arms of every pair, from the rows of ``every_pair``."""
    names = [*OF_LAYER, f"probe_{metric.key}"]
    rows = every[every["metric"].isin(names) & every["layer"].notna()]
    wide = rows.set_index([*PAIR, "layer", "metric"])["value"].unstack("metric")
    return wide.reindex(columns=[n for n in names if n in wide]).rename_axis(columns=None)


def curves_frame(every: pd.DataFrame, view: SweepView, metric: Metric) -> pd.DataFrame:
    """A row a test condition of both arms and the references of every pair, from the same rows."""
    space = view.definition.space
    seen = {
        one.setting.name: set(seen_gammas(space.run(one.setting, {}, seed=space.search_seeds[0])))
        for one in view.settings
    }
    rows = every[(every["metric"] == metric.key) & every["severity"].notna()]
    rows = rows[[*PAIR, "shift", "severity", "value"]].rename(columns={"value": metric.key})
    rows["seen"] = [
        shift == GAUSSIAN and severity in seen[setting]
        for setting, shift, severity in zip(
            rows["setting"], rows["shift"], rows["severity"], strict=True
        )
    ]
    return rows.reset_index(drop=True)
