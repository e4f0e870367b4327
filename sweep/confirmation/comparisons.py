"""Comparisons of a confirmation: what its stored arms show, as JSON.

Pairs are joined by seed identity, every planned seed counts (intention to treat), and the numbers
of a table are those of the plan: families first, their settings after them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean, stdev

from sweep.confirmation import units
from sweep.confirmation.arms import SettingArms, read_arms
from sweep.confirmation.controls import CONTROLS
from sweep.confirmation.measures import Outcome
from sweep.confirmation.plan import (
    CONSTRAINED,
    MEASURES,
    UNCONSTRAINED,
    Plan,
    PlannedSetting,
)
from sweep.confirmation.readings import other_readings
from sweep.results.sweep_view import ReadRecord
from sweep.statistics.decisions import Row, table
from sweep.statistics.design import Design
from sweep.statistics.failures import clopper_pearson, failure_rates_p
from sweep.study.definition import Definition
from sweep.study.feasibility import judge
from trainables.plain import Json, finite
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore

CERTIFIED = 0.8  # share of seeds certified feasible from which a cell says feasible
Differences = Mapping[int, float]  # by seed, > 0 the constrained arm is better


def confirmed(
    objects: ObjectStore, definition: Definition, plan: Plan, *, record: ReadRecord | None = None
) -> dict[str, Json]:
    """Everything that a confirmation shows now, for tables, texts and programs.

    While it still trains the seeds that are whole count, and of its looks those that are reached.
    ``record``: as for ``load_sweep``.
    """
    read = record or ArmStore(objects).record
    arms = {one.name: one for one in read_arms(read, definition, plan)}
    facts = definition.space.base.facts
    tables = {UNCONSTRAINED: _table(plan.design, arms, UNCONSTRAINED, plan)}
    for control in plan.controls:
        design = control_design(plan, [n for n, of in arms.items() if control in of.signatures])
        if design is not None:
            tables[control] = _table(design, arms, control, plan)
    settings = [
        _setting(objects, plan, one, arms[one.name], tables, definition.space.tolerance)
        for one in plan.settings
    ]
    entry: dict[str, Json] = {
        "name": definition.name,
        "search": plan.search,
        "plan": plan.digest,
        "measure": plan.measure,
        "metric": facts.metric.label,
        "unit": facts.metric.unit,
        "design": plan.design.to_json(),
        "worst_score": plan.worst_score,
        "seeds": {"planned": list(plan.seeds), "asked": list(definition.space.search_seeds)},
        "families": [row.to_json() for row in tables[UNCONSTRAINED] if row.settings],
        "settings": settings,
        "controls": {name: CONTROLS[name].says for name in plan.controls},
        "deviations": list(deviations(objects, definition, plan, list(arms.values()))),
    }
    return finite(entry)  # type: ignore[no-any-return]


def control_design(plan: Plan, settings: Sequence[str]) -> Design | None:
    """The design of the contrast with one control: the plan's error over all controls.

    None where no setting has it.
    """
    families = {
        family: tuple(name for name in names if name in settings)
        for family, names in plan.design.families.items()
    }
    kept = {family: names for family, names in families.items() if names}
    if not kept:
        return None
    return replace(plan.design, families=kept, error=plan.design.error / len(plan.controls))


def is_decided(objects: ObjectStore, definition: Definition, plan: Plan) -> bool:
    """Whether every family has an outcome against plain training, whatever its settings have."""
    arms = {one.name: one for one in read_arms(ArmStore(objects).record, definition, plan)}
    rows = _table(plan.design, arms, UNCONSTRAINED, plan)
    return all(row.outcome != "undecided" for row in rows if row.settings)


def _table(
    design: Design, arms: Mapping[str, SettingArms], other: str, plan: Plan
) -> tuple[Row, ...]:
    """The constrained arms against one other kind, in the settings of the design."""
    found = {name: arms[name].differences(other, plan.measure) for name in design.settings}
    return table(design, found, plan.seeds)


def _setting(
    objects: ObjectStore,
    plan: Plan,
    planned: PlannedSetting,
    arms: SettingArms,
    tables: Mapping[str, Sequence[Row]],
    tolerance: float,
) -> dict[str, Json]:
    rows = {
        other: row
        for other, of in tables.items()
        for row in of
        if row.name == planned.name and not row.settings
    }
    ours = rows[UNCONSTRAINED]
    read = units.reader(objects, arms, plan.measure)
    crossed = {
        other: units.over_units(arms, other, plan.seeds[: row.counted], plan.measure, read)
        for other, row in rows.items()
    }
    gain = planned.search_gain.get(plan.measure)
    mean = None if math.isnan(ours.mean) else ours.mean
    kinds = {
        kind: _arm(kind, arms, plan.seeds[: rows.get(kind, ours).counted], tolerance)
        for kind in arms.outcomes
    }
    vacuous = kinds[UNCONSTRAINED]["feasible"]
    per_seed = {
        other: {str(seed): d for seed, d in arms.differences(other, plan.measure).items()}
        for other in rows
    }
    return {
        "setting": planned.name,
        "family": planned.family,
        "proposal": planned.proposal,
        "chosen": planned.chosen,
        "point": dict(planned.point),
        "arms": kinds,
        "contrasts": {
            other: {
                **row.to_json(),
                "marked": "vacuous"
                if vacuous and other == UNCONSTRAINED
                else mark(row, crossed[other]),
                "units": None if (found := crossed[other]) is None else found.to_json(),
                "question": "matched" if other == UNCONSTRAINED else CONTROLS[other].question,
                "per_seed": per_seed[other],
                "beside": {
                    measure: _mean_difference(arms.differences(other, measure))
                    for measure in MEASURES
                },
            }
            for other, row in rows.items()
        },
        "search_gain": gain,
        "confirmed_gain": mean,
        "shrinkage": _shrinkage(gain, mean),
        "paper_protocol": planned.best_of_search,
        "vacuous": vacuous,
    }


def _shrinkage(searched: float | None, confirmed: float | None) -> float | None:
    """The share of a search's gain that was lost; None where it saw no gain."""
    if searched is None or confirmed is None or searched <= 0:
        return None
    return 1 - confirmed / searched


def mark(row: Row, crossed: units.OverUnits | None) -> str:
    """The outcome that a table may print of a contrast in a setting.

    A difference is claimed only where the interval over seeds and test units, too, lies on its side
    of 0; without unit scores the claim holds for these test units alone.
    """
    if row.outcome not in ("better", "worse") or crossed is None:
        return row.outcome
    interval = crossed.interval
    agrees = interval.low > 0 if row.outcome == "better" else interval.high < 0
    return row.outcome if agrees else "undecided"


def _arm(kind: str, arms: SettingArms, seeds: Sequence[int], tolerance: float) -> dict[str, Json]:
    """One kind of arm over the seeds that its contrast counts; how all of them ended beside it."""
    every = arms.outcomes[kind]
    of = [every[seed] for seed in seeds if seed in every]
    values: dict[str, list[float]] = {}
    for outcome in of:
        for name, value in outcome.measures.items():
            values.setdefault(name, []).append(value)
    ended = [outcome.status for outcome in every.values()]
    verdicts = [verdict(outcome, arms, tolerance) for outcome in of]
    certified = verdicts.count("feasible")
    return {
        "seeds": len(of),
        "wanted": len(arms.seeds),
        "mean": {name: fmean(v) for name, v in values.items() if len(v) == len(of)},
        "sd": {name: stdev(v) for name, v in values.items() if len(v) == len(of) > 1},
        "ended": {status: ended.count(status) for status in dict.fromkeys(ended)},
        "counted_as_constant": sum(outcome.counted_as_constant for outcome in of),
        "certified": {v: verdicts.count(v) for v in ("feasible", "infeasible", "undecided")},
        "certified_interval": list(clopper_pearson(certified, len(of))) if of else None,
        "feasible": bool(of) and certified / len(of) >= CERTIFIED,
    }


def verdict(outcome: Outcome, arms: SettingArms, tolerance: float) -> str:
    """What the test units say of one arm under the constraint of its setting's constrained arms."""
    constraint = arms.config.constraint
    assert constraint is not None
    judged = judge([outcome.record], constraint, tolerance)
    return "infeasible" if judged is None else judged.certificate.verdict


def _mean_difference(differences: Differences) -> dict[str, float] | None:
    if not differences:
        return None
    values = list(differences.values())
    return {"mean": fmean(values), "sd": stdev(values) if len(values) > 1 else math.nan}


def deviations(
    objects: ObjectStore,
    definition: Definition,
    plan: Plan,
    arms: Sequence[SettingArms],
    other: str = UNCONSTRAINED,
) -> Iterator[str]:
    """What departs from the plan, a sentence each; failed arms are told beside ``other``'s."""
    others = other_readings(objects, definition)
    if others:
        yield (
            f"test data of it are read {len(others) + 1} times for the same network, also by "
            f"{', '.join(map(str, others))}: whoever reports one of them reports all."
        )
    extra = [s for s in definition.space.search_seeds if s not in plan.seeds]
    if extra:
        yield f"trained on {len(extra)} seeds that were not planned ({extra}); they do not count."
    records = [o.record for of in arms for by in of.outcomes.values() for o in by.values()]
    versions = {str(record.environment.get("code", plan.code)) for record in records}
    if versions - {plan.code}:
        others_text = ", ".join(sorted(versions - {plan.code}))
        yield f"planned with version {plan.code} of the code, trained by {others_text}, too."
    for of in arms:
        both_arms = [of.outcomes[kind] for kind in (CONSTRAINED, other)]
        seeds = sorted(both_arms[0].keys() & both_arms[1].keys())
        ours, theirs = ([by[seed].counted_as_constant for seed in seeds] for by in both_arms)
        if sum(ours) or sum(theirs):
            both = f"{sum(ours)} constrained and {sum(theirs)} {other.replace('_', ' ')}"
            p = failure_rates_p(ours, theirs)
            yield (
                f"{of.name}: {both} arms ended without a result and count as the best constant "
                f"prediction, as planned (exact McNemar p = {p:.2g})."
            )
