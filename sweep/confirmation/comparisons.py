"""Comparisons of a confirmation: what its stored arms show, as JSON.

Pairs are joined by seed identity, every planned seed counts (intention to treat), and the numbers
of a table are those of the plan: families first, their settings after them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean, stdev

import numpy as np

from sweep.confirmation.controls import CONTROLS
from sweep.confirmation.measures import Measures, Outcome, constant_of, outcomes
from sweep.confirmation.plan import (
    CONSTRAINED,
    MEASURES,
    UNCONSTRAINED,
    Measure,
    Plan,
    PlannedSetting,
    confirmations_of,
)
from sweep.statistics.decisions import Row, table
from sweep.statistics.design import Design
from sweep.statistics.failures import clopper_pearson, failure_rates_p
from sweep.statistics.paired import Floats, paired_differences
from sweep.statistics.two_sources import CrossedInterval, crossed_bootstrap
from sweep.study.arms import arms_of_proposal, baselines
from sweep.study.definition import Definition
from sweep.study.feasibility import judge
from trainables.config.arm import ArmConfig
from trainables.config.test_conditions import unseen_gammas
from trainables.plain import Json, finite
from trainables.records.arm_record import ArmRecord
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore
from trainables.records.parallel_reads import at_once
from trainables.records.unit_scores import UnitScores, at_gamma

CERTIFIED = 0.8  # share of seeds certified feasible from which a cell says feasible
Differences = Mapping[int, float]  # by seed, > 0 the constrained arm is better


@dataclass(frozen=True)
class SettingArms:
    """The arms of one setting of a confirmation that are final, by kind and seed."""

    name: str
    seeds: tuple[int, ...]  # planned ones that are asked for so far
    signatures: Mapping[str, Mapping[int, str]]  # every arm asked for
    outcomes: Mapping[str, Mapping[int, Outcome]]
    config: ArmConfig  # a constrained arm's

    def differences(self, other: str, measure: Measure) -> dict[int, float]:
        """Constrained minus ``other`` on every seed that both have, > 0 better."""
        ours, theirs = (
            {s: o.measures[measure] for s, o in of.items() if measure in o.measures}
            for of in (self.outcomes[CONSTRAINED], self.outcomes.get(other, {}))
        )
        higher = self.config.facts.metric.higher_is_better
        return paired_differences(ours, theirs, higher_is_better=higher)


def read_arms(objects: ObjectStore, definition: Definition, plan: Plan) -> list[SettingArms]:
    """Every setting of a confirmation with its final arms on planned seeds, read at once."""
    store = ArmStore(objects)
    asked: dict[str, dict[str, dict[int, str]]] = {}
    for setting in definition.space.settings:
        of = {UNCONSTRAINED: baselines(definition, setting.name)}
        for number, (kind, point) in enumerate(setting.points.items()):
            of[kind] = arms_of_proposal(definition, setting.name, number, point)
        asked[setting.name] = {
            kind: {a.config.seed: a.signature for a in arms if a.config.seed in plan.seeds}
            for kind, arms in of.items()
        }
    every = list(
        dict.fromkeys(s for of in asked.values() for by in of.values() for s in by.values())
    )
    records = dict(zip(every, at_once(store.record, every), strict=True))
    found = []
    for setting_name, kinds in asked.items():
        final = {
            kind: [r for r in map(records.get, by.values()) if r is not None and r.is_final]
            for kind, by in kinds.items()
        }
        worst = _worst([r for of in final.values() for r in of])
        found.append(
            SettingArms(
                setting_name,
                definition.space.search_seeds,
                kinds,
                {kind: outcomes(of, worst) for kind, of in final.items()},
                _constrained(definition, setting_name),
            )
        )
    return found


def _constrained(definition: Definition, setting: str) -> ArmConfig:
    space = definition.space
    found = space.setting(setting)
    return space.run(found, found.points[CONSTRAINED], seed=space.search_seeds[0])


def _worst(records: Sequence[ArmRecord]) -> Measures:
    """What an arm without a result counts for: the best constant prediction, on the same data."""
    measured = (r for r in records if r.status == "finished" and r.evaluation is not None)
    first = next(measured, None)
    if first is None or first.evaluation is None:
        return {}
    return constant_of(first.config, first.evaluation)


def confirmed(objects: ObjectStore, definition: Definition, plan: Plan) -> dict[str, Json]:
    """Everything that a confirmation shows now, for tables, texts and programs.

    While it still trains the seeds that are whole count, and of its looks those that are reached.
    """
    arms = {one.name: one for one in read_arms(objects, definition, plan)}
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
    arms = {one.name: one for one in read_arms(objects, definition, plan)}
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
    crossed = crossed_interval(objects, arms, plan, ours.counted)
    gain = planned.search_gain.get(plan.measure)
    mean = None if math.isnan(ours.mean) else ours.mean
    kinds = {kind: _arm(of, arms, tolerance) for kind, of in arms.outcomes.items()}
    vacuous = bool(arms.outcomes[CONSTRAINED]) and kinds[UNCONSTRAINED]["feasible"]
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
                "question": "matched" if other == UNCONSTRAINED else CONTROLS[other].question,
                "per_seed": per_seed[other],
                "beside": {
                    measure: _mean_difference(arms.differences(other, measure))
                    for measure in MEASURES
                },
            }
            for other, row in rows.items()
        },
        "units": None if crossed is None else vars(crossed),
        "marked": "vacuous" if vacuous else mark(ours, crossed),
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


def mark(row: Row, crossed: CrossedInterval | None) -> str:
    """The outcome that a table may print of a setting.

    A difference is claimed only where the interval over seeds and test units, too, lies on its side
    of 0; without unit scores the claim holds for these test units alone.
    """
    if row.outcome not in ("better", "worse") or crossed is None:
        return row.outcome
    agrees = crossed.low > 0 if row.outcome == "better" else crossed.high < 0
    return row.outcome if agrees else "undecided"


def _arm(of: Mapping[int, Outcome], arms: SettingArms, tolerance: float) -> dict[str, Json]:
    """One kind of arm over its seeds."""
    values: dict[str, list[float]] = {}
    for outcome in of.values():
        for name, value in outcome.measures.items():
            values.setdefault(name, []).append(value)
    ended = [outcome.status for outcome in of.values()]
    verdicts = [verdict(outcome, arms, tolerance) for outcome in of.values()]
    certified = verdicts.count("feasible")
    return {
        "seeds": len(of),
        "wanted": len(arms.seeds),
        "mean": {name: fmean(v) for name, v in values.items() if len(v) == len(of)},
        "sd": {name: stdev(v) for name, v in values.items() if len(v) == len(of) > 1},
        "ended": {status: ended.count(status) for status in dict.fromkeys(ended)},
        "counted_as_constant": sum(outcome.counted_as_constant for outcome in of.values()),
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


def crossed_interval(
    objects: ObjectStore, arms: SettingArms, plan: Plan, seeds: int
) -> CrossedInterval | None:
    """The interval over seeds and test units of the first ``seeds`` seeds' differences.

    None with fewer than two, where one of them ended without a result (to leave it out would not be
    intention to treat), a unit's scores are not stored, or the metric does not follow from them.
    """
    both = [(arms.outcomes[kind], arms.signatures[kind]) for kind in (CONSTRAINED, UNCONSTRAINED)]
    kept = plan.seeds[:seeds]
    measured = all(s in of and not of[s].counted_as_constant for of, _ in both for s in kept)
    if len(kept) < 2 or not measured or plan.measure not in ("unseen_mean", "ood_mean"):
        return None
    store = ArmStore(objects)
    stored = [[store.unit_scores(by[seed]) for seed in kept] for _, by in both]
    scores = [[one for one in of if one is not None] for of in stored]
    if min(map(len, scores)) < len(kept) or len(scores[0][0].units) < 2:
        return None
    config = arms.config
    gammas = unseen_gammas(config) if plan.measure == "unseen_mean" else config.test_gammas
    conditions = [at_gamma(g) for g in gammas]
    first, factor = scores[0][0], None
    if first.scores_N:
        arrays, sizes_U = [_right(of, conditions) for of in scores], np.array(first.samples)
    else:
        arrays, factor = [_losses(of, conditions) for of in scores], _root_factor(arms)
        sizes_U = np.ones(len(first.units))  # the mean of a split is that of its units
        if factor is None:
            return None
    return crossed_bootstrap(
        arrays[0], arrays[1], sizes_U, partial(_score, factor=factor), key=len(kept)
    )


def _score(means: Floats, factor: float | None) -> Floats:
    """Higher is better: mean losses by their root, as RMSE is; mean scores (None) as they are."""
    return means if factor is None else -factor * np.sqrt(means)


def _losses(scores: Sequence[UnitScores], conditions: Sequence[str]) -> Floats:
    """Last layer's mean loss of every unit, [C, K, U]."""
    rows = [[one.losses_UF[c][:, -1] for one in scores] for c in conditions]
    return np.array(rows, dtype=np.float64)


def _right(scores: Sequence[UnitScores], conditions: Sequence[str]) -> Floats:
    """Mean score of every unit's samples, [C, K, U]."""

    def by_unit(one: UnitScores, condition: str) -> list[float]:
        ends = np.cumsum(one.samples)[:-1]
        return [float(part.mean()) for part in np.split(one.scores_N[condition], ends)]

    return np.array([[by_unit(one, c) for one in scores] for c in conditions], dtype=np.float64)


def _root_factor(arms: SettingArms) -> float | None:
    """c where the metric is c times the root of the mean loss at every gamma (RMSE); else None."""
    for outcome in arms.outcomes[CONSTRAINED].values():
        found = outcome.record.evaluation
        if found is not None:
            factors = [
                score / math.sqrt(found.layer_losses_by_gamma[gamma][-1])
                for gamma, score in found.scores.items()
                if found.layer_losses_by_gamma[gamma][-1] > 0
            ]
            return factors[0] if factors and np.ptp(factors) < 1e-6 * factors[0] else None
    return None


def deviations(
    objects: ObjectStore, definition: Definition, plan: Plan, arms: Sequence[SettingArms]
) -> Iterator[str]:
    """What departs from the plan, a sentence each."""
    others = [name for name in confirmations_of(objects, plan.search) if name != plan.name]
    if others:
        yield (
            f"{plan.search} was confirmed {len(others) + 1} times, also as {', '.join(others)}: "
            "whoever reports one of them reports all."
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
        both_arms = [of.outcomes[kind] for kind in (CONSTRAINED, UNCONSTRAINED)]
        seeds = sorted(both_arms[0].keys() & both_arms[1].keys())
        ours, theirs = ([by[seed].counted_as_constant for seed in seeds] for by in both_arms)
        if sum(ours) or sum(theirs):
            both = f"{sum(ours)} constrained and {sum(theirs)} unconstrained"
            p = failure_rates_p(ours, theirs)
            yield (
                f"{of.name}: {both} arms ended without a result and count as the best constant "
                f"prediction, as planned (exact McNemar p = {p:.2g})."
            )
