"""Table of replications: what their stored arms show of both sides tuned.

One gain for each replication and setting, tested by the same function as a confirmation's: the unit
is the replication, every planned one counts, and the tuned question has a table of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from sweep.confirmation import units
from sweep.confirmation.arms import SettingArms, read_arms
from sweep.confirmation.chosen import confirmation_name, tuning_name
from sweep.confirmation.comparisons import Held, deviations, held, is_settled, verdict
from sweep.confirmation.measures import constant_of, sign_of
from sweep.confirmation.plan import CONSTRAINED, ReplicationsPlan, load_plan
from sweep.confirmation.replications import TUNED, found_winner, replication_search
from sweep.confirmation.summary import (
    ReplicatedFamily,
    ReplicatedSetting,
    ReplicationCounts,
    ReplicationsSummary,
)
from sweep.statistics.row import Row
from sweep.study.definition import Definition, definition_name, load_definition
from trainables.plain import finite
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore


@dataclass(frozen=True)
class _Part:
    """The result of one replication in one setting."""

    gain: float | None  # > 0: the constrained side is better; None: not yet
    lacks: str = ""  # the side whose search found no winner
    arms: SettingArms | None = None  # None: nothing is trained on the fresh seed
    is_certified: bool = False  # its constrained network, as feasible


_PLAINLY = _Part(0.0, lacks=CONSTRAINED)


def replicated(
    objects: ObjectStore, search: Definition, plan: ReplicationsPlan
) -> ReplicationsSummary:
    """Everything that the replications show now, for texts and programs."""
    parts = _every_part(objects, search, plan)
    by_name = {
        name: {seed: by[name] for seed, by in parts.items() if name in by}
        for name in plan.design.settings
    }
    arms = {name: _merged(plan, name, of) for name, of in by_name.items()}
    shown = _table(objects, plan, parts, arms)
    settings = [_setting(plan, shown, r, by_name[r.name]) for r in shown.rows if not r.settings]
    facts = search.space.base.facts
    whole = replace(replication_search(search, plan, 1), name=plan.name)
    whole = replace(whole, space=replace(whole.space, search_seeds=plan.seeds))
    return finite(
        ReplicationsSummary(
            name=plan.name,
            search=plan.search,
            plan=plan.digest,
            measure=plan.measure,
            metric=facts.metric.label,
            unit=facts.metric.unit,
            design=plan.design,
            worst_score=plan.worst_score,
            no_winner=plan.no_winner,
            replications=ReplicationCounts(
                planned=plan.count,
                complete=sum(_is_complete(plan, by) for by in parts.values()),
                n_proposals=plan.n_proposals,
                seeds=plan.seeds,
                search_seeds=plan.search_seeds,
            ),
            families=shown.families(ReplicatedFamily),
            settings=settings,
            deviations=[
                *_other_tries(objects, plan),
                *deviations(objects, whole, plan, [of for of in arms.values() if of], TUNED),
            ],
        )
    )


def is_decided(objects: ObjectStore, search: Definition, plan: ReplicationsPlan) -> bool:
    """True if every family has an outcome that may be printed."""
    return all(map(is_settled, replicated(objects, search, plan).families))


def _every_part(
    objects: ObjectStore, search: Definition, plan: ReplicationsPlan
) -> dict[int, dict[str, _Part]]:
    """By the fresh seed of the replication, and by setting."""
    return {
        seed: _parts(objects, plan, number, search.space.tolerance)
        for number, seed in enumerate(plan.seeds, start=1)
    }


def _table(
    objects: ObjectStore,
    plan: ReplicationsPlan,
    parts: Mapping[int, Mapping[str, _Part]],
    arms: Mapping[str, SettingArms | None],
) -> Held:
    found: dict[str, dict[int, float]] = {name: {} for name in plan.design.settings}
    for seed, by in parts.items():
        for name, part in by.items():
            if part.gain is not None:
                found[name][seed] = part.gain
    readers = {
        name: units.reader(objects, of, plan.measure) for name, of in arms.items() if of is not None
    }

    def crossed(name: str, replications: int) -> units.OverUnits | None:
        of = arms[name]
        if of is None:
            return None
        return units.over_units(of, TUNED, plan.seeds[:replications], plan.measure, readers[name])

    return held(plan.design, found, plan.seeds, crossed)


def _is_complete(plan: ReplicationsPlan, by: Mapping[str, _Part]) -> bool:
    every = [by.get(name) for name in plan.design.settings]
    return all(part is not None and part.gain is not None for part in every)


def _parts(
    objects: ObjectStore, plan: ReplicationsPlan, number: int, tolerance: float
) -> dict[str, _Part]:
    """Results of one replication by setting; those that wait for an arm have no number."""
    name = plan.replication(number)
    chosen = load_plan(objects, confirmation_name(name))
    if chosen is None:
        is_there = objects.exists(definition_name(name))
        has_none = is_there and found_winner(objects, name) is False
        return dict.fromkeys(plan.design.settings if has_none else (), _PLAINLY)
    if not objects.exists(definition_name(chosen.name)):
        return {}
    definition = load_definition(objects, chosen.name)
    found = read_arms(ArmStore(objects).record, definition, chosen)
    trained = {one.name: _part(one, plan, chosen.seeds[0], tolerance) for one in found}
    return {name: trained.get(name, _PLAINLY) for name in plan.design.settings}


def _part(arms: SettingArms, plan: ReplicationsPlan, seed: int, tolerance: float) -> _Part:
    """The two winners of one replication in a setting, or what stands for the plain one."""
    lacks = "" if TUNED in arms.signatures else TUNED
    ours, theirs = (arms.outcomes.get(kind, {}).get(seed) for kind in (CONSTRAINED, TUNED))
    if ours is None or (theirs is None and not lacks):
        return _Part(None, lacks, arms)
    is_certified = verdict(ours, arms, tolerance) == "feasible"
    if ours.counted_as_constant and (theirs is None or theirs.counted_as_constant):
        return _Part(0.0, lacks, arms)  # also where no arm says what the constant comes to
    if theirs is not None:
        found = arms.gains(TUNED, plan.measure).get(seed)
        return _Part(found, lacks, arms, is_certified)
    assert ours.record.evaluation is not None, "it counts for itself"
    constant = constant_of(ours.record.config, ours.record.evaluation)[plan.measure]
    better = sign_of(ours.record.config) * (ours.measures[plan.measure] - constant)
    return _Part(better, lacks, arms, is_certified)


def _merged(plan: ReplicationsPlan, name: str, of: Mapping[int, _Part]) -> SettingArms | None:
    """The final arms of all replications in a setting, as of one confirmation; None without any.

    Its config is that of one replication: what the others constrain by differs.
    """
    there = [part.arms for part in of.values() if part.arms is not None]
    if not there:
        return None
    kinds = (CONSTRAINED, TUNED)
    signatures = {
        k: {s: v for a in there for s, v in a.signatures.get(k, {}).items()} for k in kinds
    }
    outcomes = {k: {s: v for a in there for s, v in a.outcomes.get(k, {}).items()} for k in kinds}
    references = {seed: of for a in there for seed, of in a.references.items()}
    return SettingArms(name, plan.seeds, signatures, outcomes, there[0].config, references)


def _setting(
    plan: ReplicationsPlan, shown: Held, row: Row, of: Mapping[int, _Part]
) -> ReplicatedSetting:
    crossed = shown.crossed[row.name]
    parts = [of[seed] for seed in plan.seeds[: row.counted]]
    outcomes = [part.arms.outcomes for part in parts if part.arms is not None]
    constants = {
        kind: sum(o.counted_as_constant for by in outcomes for o in by.get(kind, {}).values())
        for kind in (CONSTRAINED, TUNED)
    }
    trained = [part for part in parts if part.lacks != CONSTRAINED]
    lacking = {kind: sum(part.lacks == kind for part in parts) for kind in (CONSTRAINED, TUNED)}
    gains = {
        str(number): of[seed].gain for number, seed in enumerate(plan.seeds, start=1) if seed in of
    }
    certified = {"feasible": sum(part.is_certified for part in trained), "trained": len(trained)}
    return ReplicatedSetting.from_json(
        {
            **row.to_json(),
            "marked": shown.mark(row),
            "units": None if crossed is None else crossed.to_json(),
            "no_winner": lacking,
            "counted_as_constant": constants,
            "certified": certified,
            "per_replication": gains,
        }
    )


def _other_tries(objects: ObjectStore, plan: ReplicationsPlan) -> Iterator[str]:
    """Searches that were given more tries or seeds than planned, after they were stored."""
    for number in range(1, plan.count + 1):
        name, seeds = plan.replication(number), plan.search_seeds[number - 1]
        for one in (name, tuning_name(name, TUNED)):
            if objects.exists(definition_name(one)):
                space = load_definition(objects, one).space
                if (space.n_proposals, space.search_seeds) != (plan.n_proposals, seeds):
                    yield (
                        f"{one} made {space.n_proposals} tries on seeds {list(space.search_seeds)},"
                        f" planned were {plan.n_proposals} on {list(seeds)}."
                    )
