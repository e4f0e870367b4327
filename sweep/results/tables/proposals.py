"""Table of proposals: every proposal on every search seed, one a row. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from search_spaces.space import Setting
from sweep.render.table import Row
from sweep.results.aggregates import ARMS, compared_entry
from sweep.results.provenance import codes_of
from sweep.results.sweep_view import SweepView
from sweep.study.pairs import join
from trainables.config.arm import ArmConfig
from trainables.plain import finite
from trainables.records.arm_record import ArmRecord
from trainables.records.parallel_reads import at_once

Read = Callable[[str], ArmRecord | None]  # the record of a signature
OF_VERDICT = ("worst_missing_share", "worst_layer", "certificate", "useful")
OF_ARM = ("objective", "ood_auc", "seen_mean", "unseen_mean", "held_out_loss")


def proposal_rows(view: SweepView, read: Read) -> Iterator[Row]:
    """Points, how each arm ended, and what both arms of each pair came to.

    Args:
        view: the sweep.
        read: how the record of a signature is read. Many at a time, of one setting and seed.
    """
    space = view.definition.space
    for setting in view.settings:
        outcomes = {result.number: result.outcome for result in setting.results}
        winner = setting.chosen.winner
        for seed in space.search_seeds:
            configs = [space.run(setting.setting, p.point, seed=seed) for p in setting.proposals]
            baseline, *records = at_once(
                read,
                [
                    space.run(setting.setting, {}, seed=seed).unconstrained().signature(),
                    *(config.signature() for config in configs),
                ],
            )
            for proposal, config, record in zip(setting.proposals, configs, records, strict=True):
                yield {
                    "setting": setting.setting.name,
                    "proposal": proposal.number,
                    **_name(setting.setting, proposal.number),
                    "seed": seed,
                    **{name.removeprefix("constraint."): v for name, v in proposal.point.items()},
                    "outcome": outcomes.get(proposal.number),
                    "winner": winner is not None and winner.number == proposal.number,
                    **_of_seed(config, record, baseline, space.tolerance, proposal.point),
                }


def _name(setting: Setting, number: int) -> Row:
    """What a listed point is called, in a setting that lists any."""
    return {"point": setting.point_name(number)} if setting.points else {}


def _of_seed(
    config: ArmConfig,
    record: ArmRecord | None,
    baseline: ArmRecord | None,
    tolerance: float,
    sets: Iterable[str],
) -> Row:
    row: Row = {"signature": config.signature(), "status": record.status if record else None}
    row["codes"] = "; ".join(codes_of(r for r in (record, baseline) if r is not None)) or None
    if record is None or not record.is_final:
        return row
    pair = join(record, baseline, tolerance, sets)
    entry = compared_entry([pair], pair, {}, selected=False)
    row |= {
        "reason": record.reason or None,
        "outcome_of_seed": pair.outcome,
        "vacuous": pair.is_vacuous,
        **{name: entry["constrained"][name] for name in OF_VERDICT},
    }
    mean = f"mean_{config.facts.metric.key}"
    for arm in ARMS:
        values = entry[arm] or {}
        row[f"{arm}_{mean}"] = values.get("ood_mean")
        row |= {f"{arm}_{name}": values.get(name) for name in OF_ARM}
    row[f"gain_{mean}"] = entry["gain"].get("ood_mean")
    plain: Row = finite(row)
    return plain
