"""Comparisons of a confirmation: what its stored arms show.

Pairs are joined by seed identity, every planned seed counts (intention to treat), and the numbers
of a table are those of the plan: families first, their settings after them. All numbers of a
comparison are of the seeds that it counts, but those called ``ended``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from statistics import fmean, stdev
from typing import TypeVar

from sweep.confirmation import units
from sweep.confirmation.arms import SettingArms, read_arms
from sweep.confirmation.controls import CONTROLS
from sweep.confirmation.measures import Outcome
from sweep.confirmation.plan import (
    CONSTRAINED,
    MEASURES,
    UNCONSTRAINED,
    Measure,
    Plan,
    PlannedSetting,
)
from sweep.confirmation.readings import other_readings
from sweep.confirmation.summary import (
    ArmsSummary,
    ConfirmationSummary,
    ConfirmedSetting,
    Contrast,
    Family,
    Marked,
    OverUnits,
    Seeds,
    Spread,
    Verdicts,
)
from sweep.results.provenance import codes_of
from sweep.statistics.decisions import table
from sweep.statistics.design import Design
from sweep.statistics.failures import clopper_pearson, failure_rates_p
from sweep.statistics.row import Row
from sweep.study.definition import Definition
from sweep.study.feasibility import Judgement, judge
from sweep.study.pairs import ReadRecord
from trainables.plain import finite
from trainables.primal_dual.certificate import LEAST_UNITS
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore

CERTIFIED = 0.8  # fraction of seeds certified feasible from which a cell says feasible
Gains = Mapping[int, float]  # by seed


def summarize_confirmation(
    objects: ObjectStore, definition: Definition, plan: Plan, *, record: ReadRecord | None = None
) -> ConfirmationSummary:
    """Everything that a confirmation shows now, for tables, texts and programs.

    While it still trains, complete seeds count, and those of its looks that are reached.
    ``record``: as for ``load_sweep``.
    """
    read = record or ArmStore(objects).record
    arms = {one.name: one for one in read_arms(read, definition, plan)}
    readers = {name: units.reader(objects, one, plan.measure) for name, one in arms.items()}
    facts = definition.space.base.facts
    tables = {UNCONSTRAINED: _table(plan.design, arms, readers, UNCONSTRAINED, plan)}
    for control in plan.controls:
        design = control_design(plan, [n for n, one in arms.items() if control in one.signatures])
        if design is not None:
            tables[control] = _table(design, arms, readers, control, plan)
    settings = [
        _setting(plan, one, arms[one.name], tables, definition.space.tolerance)
        for one in plan.settings
    ]
    plain = tables[UNCONSTRAINED]
    not_binding = [one.setting for one in settings if one.not_binding]
    return finite(
        ConfirmationSummary(
            name=definition.name,
            search=plan.search,
            plan=plan.digest,
            measure=plan.measure,
            metric=facts.metric.label,
            unit=facts.metric.unit,
            design=plan.design,
            worst_score=plan.worst_score,
            seeds=Seeds(planned=plan.seeds, requested=definition.space.search_seeds),
            families=plain.families(Family, not_binding),
            settings=settings,
            controls={name: CONTROLS[name].says for name in plan.controls},
            deviations=list(deviations(objects, definition, plan, list(arms.values()))),
        )
    )


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
    # A part for each planned control, so that all of them together keep the plan's error.
    return replace(plan.design, families=kept, error=plan.design.error / len(plan.controls))


def is_decided(objects: ObjectStore, definition: Definition, plan: Plan) -> bool:
    """True if every family has an outcome against plain training that may be printed."""
    return all(map(is_settled, summarize_confirmation(objects, definition, plan).families))


def is_settled(family: Family) -> bool:
    """True if more seeds need not be trained for a family.

    A claim that its settings do not bear out over units may come to be borne out at a later look.
    """
    return "undecided" not in (family.outcome, family.marked)


def _table(
    design: Design,
    arms: Mapping[str, SettingArms],
    readers: Mapping[str, units.Read],
    other: str,
    plan: Plan,
) -> Claims:
    """The constrained arms against one other kind, in the settings of the design."""
    gains = {name: arms[name].gains(other, plan.measure) for name in design.settings}

    def crossed(name: str, seeds: int) -> OverUnits | None:
        return units.over_units(arms[name], other, plan.seeds[:seeds], plan.measure, readers[name])

    return decide_claims(design, gains, plan.seeds, crossed)


def _setting(
    plan: Plan,
    planned: PlannedSetting,
    arms: SettingArms,
    tables: Mapping[str, Claims],
    tolerance: float,
) -> ConfirmedSetting:
    rows = {
        other: row
        for other, lines in tables.items()
        for row in lines.rows
        if row.name == planned.name and not row.settings
    }
    ours = rows[UNCONSTRAINED]
    gain = planned.search_gain.get(plan.measure)
    kinds = {
        kind: _arm(kind, arms, plan.seeds[: rows.get(kind, ours).counted], tolerance)
        for kind in arms.outcomes
    }
    reference, unit, plain = arms.reference(), arms.config.facts.unit, kinds[UNCONSTRAINED]
    test_units = None
    if reference is not None:
        test_units = units.Groups.by_names(reference.dev_units, unit).counts
    # Where units are too few to certify it, the means say whether the constraint binds. An arm
    # without a result says nothing of it.
    few = test_units is not None and test_units.groups < LEAST_UNITS
    meets = (plain.feasible_by_mean or 0) if few else plain.certified.feasible
    judged = plain.seeds - plain.counted_as_constant
    not_binding = judged > 0 and meets / judged >= CERTIFIED
    marks = {other: tables[other].mark(row) for other, row in rows.items()}
    if not_binding:
        marks[UNCONSTRAINED] = "not binding"
    contrasts = {
        other: _contrast(plan, arms, other, row, marks[other], tables[other])
        for other, row in rows.items()
    }
    return ConfirmedSetting(
        setting=planned.name,
        family=planned.family,
        proposal=planned.proposal,
        chosen=planned.chosen,
        point=planned.point,
        arms=kinds,
        test_units=test_units,
        contrasts=contrasts,
        search_gain=gain,
        confirmed_gain=ours.mean,
        shrinkage=_shrinkage(gain, ours.mean),
        equal_tries=planned.equal_tries,
        not_binding=not_binding,
    )


def _contrast(
    plan: Plan, arms: SettingArms, other: str, row: Row, marked: Marked, lines: Claims
) -> Contrast:
    """A line of the table, and both arms in every measure on the seeds that it counts."""
    seeds = plan.seeds[: row.counted]
    kinds = {kind: arms.outcomes.get(kind, {}) for kind in (CONSTRAINED, other)}
    counted = [ended[seed].record for ended in kinds.values() for seed in seeds if seed in ended]
    return Contrast(
        **row.keywords(),
        marked=marked,
        units=lines.crossed[row.name],
        question="matched" if other == UNCONSTRAINED else CONTROLS[other].question,
        per_seed={str(seed): gain for seed, gain in arms.gains(other, plan.measure).items()},
        means={kind: _means(by_seed, seeds) for kind, by_seed in kinds.items()},
        beside={measure: _spread(arms, other, measure, seeds) for measure in MEASURES},
        codes=codes_of(counted),
    )


def _means(by_seed: Mapping[int, Outcome], seeds: Sequence[int]) -> dict[Measure, float]:
    there = [by_seed[seed].measures for seed in seeds if seed in by_seed]
    return {
        name: fmean(one[name] for one in there)
        for name in MEASURES
        if there and all(name in one for one in there)
    }


def _shrinkage(searched: float | None, confirmed: float | None) -> float | None:
    """The fraction of a search's gain that was lost; None where it saw no gain."""
    if searched is None or confirmed is None or searched <= 0:
        return None
    return 1 - confirmed / searched


AnyFamily = TypeVar("AnyFamily", bound=Family)
Crossed = Callable[[str, int], OverUnits | None]  # of a setting, over its first seeds


@dataclass(frozen=True)
class Claims:
    """A table, and what stands of its claims over test units."""

    design: Design
    rows: tuple[Row, ...]
    crossed: Mapping[str, OverUnits | None]  # by setting, over the seeds that it counts

    def families(self, kind: type[AnyFamily], not_binding: Collection[str] = ()) -> list[AnyFamily]:
        """The lines of the families, with what may be claimed of each; see ``family_mark``."""
        return [
            kind(**row.keywords(), marked=self.family_mark(row, not_binding))
            for row in self.rows
            if row.settings
        ]

    def mark(self, row: Row) -> Marked:
        """The outcome that a table may print of a setting.

        A claim is made only where the interval over seeds and test units bears it out, too; without
        unit scores it holds for these test units alone.
        """
        return row.outcome if self._is_borne_out(row.outcome, row) else "undecided"

    def family_mark(self, row: Row, not_binding: Collection[str] = ()) -> Marked:
        """The outcome that a table may print of a family.

        The family's own, where a binding setting points that way and bears it out over units.
        """
        binding = [
            one
            for one in self.rows
            if one.family == row.family and not one.settings and one.name not in not_binding
        ]
        if not binding:
            return "not binding"
        sign = {"better": 1, "worse": -1}.get(row.outcome, 0)
        alike = [one for one in binding if not sign or (one.mean or 0.0) * sign > 0]
        is_borne_out = any(self._is_borne_out(row.outcome, one) for one in alike)
        return row.outcome if is_borne_out else "undecided"

    def _is_borne_out(self, outcome: str, row: Row) -> bool:
        over_units = self.crossed[row.name]
        return over_units is None or agrees(outcome, over_units.low, over_units.high, self.design)


def agrees(outcome: str, low: float | None, high: float | None, design: Design) -> bool:
    """True if an interval lies where an outcome says that the gain is."""
    least = design.smallest_effect or 0.0
    if low is None or high is None:
        return outcome == "undecided"
    return {"better": low > 0, "worse": high < 0, "equivalent": -least < low and high < least}.get(
        outcome, True
    )


def decide_claims(
    design: Design, gains: Mapping[str, Gains], seeds: Sequence[int], crossed: Crossed
) -> Claims:
    """A table whose settings are claimed at the first stage where seeds and units agree.

    What units do not bear out at the stage that decided over seeds may be borne out at a later one:
    where both intervals of that stage lie on the side that was decided, the numbers are its own.
    """
    cross = cache(crossed)  # each is a bootstrap
    rows = table(design, gains, seeds)
    later: dict[str, int] = {}
    for row in rows:
        now = None if row.settings else cross(row.name, row.counted)
        if now is None or agrees(row.outcome, now.low, now.high, design):
            continue
        for stage, _ in design.stages(row.seeds):
            then = cross(row.name, stage) if stage > row.counted else None
            if then is None or not agrees(row.outcome, then.low, then.high, design):
                continue
            rows_then = table(design, gains, seeds, {row.name: stage})
            (row_then,) = (r for r in rows_then if r.name == row.name and not r.settings)
            if agrees(row.outcome, row_then.low, row_then.high, design):
                later[row.name] = stage
                break
    if later:
        rows = table(design, gains, seeds, later)
    settings = [row for row in rows if not row.settings]
    return Claims(design, rows, {row.name: cross(row.name, row.counted) for row in settings})


def _arm(kind: str, arms: SettingArms, seeds: Sequence[int], tolerance: float) -> ArmsSummary:
    """One kind of arm over the seeds that its contrast counts; how all of them ended beside it."""
    every = arms.outcomes[kind]
    counted = [every[seed] for seed in seeds if seed in every]
    measured = [name for name in MEASURES if all(name in one.measures for one in counted)]
    values = {name: [one.measures[name] for one in counted] for name in measured if counted}
    ended = [outcome.status for outcome in every.values()]
    judged = [judge_outcome(outcome, arms, tolerance) for outcome in counted]
    verdicts = ["infeasible" if one is None else one.certificate.verdict for one in judged]
    certified = verdicts.count("feasible")
    return ArmsSummary(
        seeds=len(counted),
        wanted=len(arms.seeds),
        mean={name: fmean(v) for name, v in values.items()},
        sd={name: stdev(v) for name, v in values.items() if len(v) > 1},
        ended={status: ended.count(status) for status in dict.fromkeys(ended)},
        counted_as_constant=sum(outcome.counted_as_constant for outcome in counted),
        certified=Verdicts(
            feasible=certified,
            infeasible=verdicts.count("infeasible"),
            undecided=verdicts.count("undecided"),
        ),
        certified_interval=clopper_pearson(certified, len(counted)) if counted else None,
        feasible_by_mean=sum(one is not None and one.feasible for one in judged),
        feasible=bool(counted) and certified / len(counted) >= CERTIFIED,
    )


def judge_outcome(outcome: Outcome, arms: SettingArms, tolerance: float) -> Judgement | None:
    """Verdict on one arm under its setting's constraint, by test units; None without a result."""
    constraint = arms.config.constraint
    assert constraint is not None
    return judge([outcome.record], constraint, tolerance)


def _spread(arms: SettingArms, other: str, measure: Measure, seeds: Sequence[int]) -> Spread | None:
    """Mean and standard deviation of the gain in one measure; None where no seed has it."""
    values = [gain for seed, gain in arms.gains(other, measure).items() if seed in seeds]
    if not values:
        return None
    return Spread(mean=fmean(values), sd=stdev(values) if len(values) > 1 else None)


def deviations(
    objects: ObjectStore,
    definition: Definition,
    plan: Plan,
    arms: Sequence[SettingArms],
    other: str = UNCONSTRAINED,
) -> Iterator[str]:
    """Departures from the plan, a sentence each; failed arms are counted against ``other``'s."""
    others = other_readings(objects, definition)
    if others:
        yield (
            f"test data of it are read {len(others) + 1} times for the same network, also by "
            f"{', '.join(map(str, others))}: whoever reports one of them reports all."
        )
    extra = [s for s in definition.space.search_seeds if s not in plan.seeds]
    if extra:
        yield f"trained on {len(extra)} seeds that were not planned ({extra}); they do not count."
    by_seed = [ended for one in arms for ended in one.outcomes.values()]
    records = [outcome.record for ended in by_seed for outcome in ended.values()]
    versions = {str(record.environment.get("code", plan.code)) for record in records}
    if more := ", ".join(sorted(versions - {plan.code})):
        yield f"planned with version {plan.code} of the code, trained by {more}, too."
    for one in arms:
        pair = [one.outcomes[kind] for kind in (CONSTRAINED, other)]
        seeds = sorted(pair[0].keys() & pair[1].keys())
        failed, others_failed = ([arm[seed].counted_as_constant for seed in seeds] for arm in pair)
        if sum(failed) or sum(others_failed):
            both = f"{sum(failed)} constrained and {sum(others_failed)} {other.replace('_', ' ')}"
            p = failure_rates_p(failed, others_failed)
            yield (
                f"{one.name}: {both} arms ended without a result, of {len(seeds)} ended seeds, and "
                "count as the best constant prediction, as planned "
                f"(exact McNemar p = {p:.2g})."
            )
