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
from sweep.confirmation.comparisons import (
    Claims,
    decide_claims,
    deviations,
    is_settled,
    judge_outcome,
)
from sweep.confirmation.measures import constant_of, sign_of
from sweep.confirmation.plan import CONSTRAINED, ReplicationsPlan, load_plan
from sweep.confirmation.replications import TUNED, has_winner, replication_search
from sweep.confirmation.summary import (
    CertifiedWinners,
    OverUnits,
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


def summarize_replications(
    objects: ObjectStore, search: Definition, plan: ReplicationsPlan
) -> ReplicationsSummary:
    """Everything that the replications show now, for texts and programs."""
    parts = _every_part(objects, search, plan)
    by_name = {
        name: {seed: settings[name] for seed, settings in parts.items() if name in settings}
        for name in plan.design.settings
    }
    arms = {name: _merged(plan, name, by_seed) for name, by_seed in by_name.items()}
    shown = _table(objects, plan, parts, arms)
    settings = [_setting(plan, shown, r, by_name[r.name]) for r in shown.rows if not r.settings]
    facts = search.space.base.facts
    first = replication_search(search, plan, 1).space
    trained = Definition(plan.name, replace(first, search_seeds=plan.seeds), search.mlflow_uri)
    present = [one for one in arms.values() if one is not None]
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
                complete=sum(_is_complete(plan, settings) for settings in parts.values()),
                n_proposals=plan.n_proposals,
                seeds=plan.seeds,
                search_seeds=plan.search_seeds,
            ),
            families=shown.families(ReplicatedFamily),
            settings=settings,
            deviations=[
                *_other_tries(objects, plan),
                *deviations(objects, trained, plan, present, TUNED),
            ],
        )
    )


def is_decided(objects: ObjectStore, search: Definition, plan: ReplicationsPlan) -> bool:
    """True if every family has an outcome that may be printed."""
    return all(map(is_settled, summarize_replications(objects, search, plan).families))


def _every_part(
    objects: ObjectStore, search: Definition, plan: ReplicationsPlan
) -> dict[int, dict[str, _Part]]:
    return {
        seed: _parts(objects, plan, number, search.space.tolerance)
        for number, seed in enumerate(plan.seeds, start=1)
    }


def _table(
    objects: ObjectStore,
    plan: ReplicationsPlan,
    parts: Mapping[int, Mapping[str, _Part]],
    arms: Mapping[str, SettingArms | None],
) -> Claims:
    gains: dict[str, dict[int, float]] = {name: {} for name in plan.design.settings}
    for seed, settings in parts.items():
        for name, part in settings.items():
            if part.gain is not None:
                gains[name][seed] = part.gain
    present = {name: one for name, one in arms.items() if one is not None}
    readers = {name: units.reader(objects, one, plan.measure) for name, one in present.items()}

    def crossed(name: str, replications: int) -> OverUnits | None:
        if name not in present:
            return None
        seeds = plan.seeds[:replications]
        return units.over_units(present[name], TUNED, seeds, plan.measure, readers[name])

    return decide_claims(plan.design, gains, plan.seeds, crossed)


def _is_complete(plan: ReplicationsPlan, settings: Mapping[str, _Part]) -> bool:
    every = [settings.get(name) for name in plan.design.settings]
    return all(part is not None and part.gain is not None for part in every)


def _parts(
    objects: ObjectStore, plan: ReplicationsPlan, number: int, tolerance: float
) -> dict[str, _Part]:
    """Results of one replication by setting; those that wait for an arm have no number."""
    name = plan.replication(number)
    chosen = load_plan(objects, confirmation_name(name))
    if chosen is None:
        is_there = objects.exists(definition_name(name))
        has_none = is_there and has_winner(objects, name) is False
        return dict.fromkeys(plan.design.settings if has_none else (), _PLAINLY)
    if not objects.exists(definition_name(chosen.name)):
        return {}
    definition = load_definition(objects, chosen.name)
    arms = read_arms(ArmStore(objects).record, definition, chosen)
    trained = {one.name: _part(one, plan, chosen.seeds[0], tolerance) for one in arms}
    return {name: trained.get(name, _PLAINLY) for name in plan.design.settings}


def _part(arms: SettingArms, plan: ReplicationsPlan, seed: int, tolerance: float) -> _Part:
    """The two winners of one replication in a setting, or the constant for a plain one."""
    lacks = "" if TUNED in arms.signatures else TUNED
    ours, plain = (arms.outcomes.get(kind, {}).get(seed) for kind in (CONSTRAINED, TUNED))
    if ours is None or (plain is None and not lacks):
        return _Part(None, lacks, arms)
    judged = judge_outcome(ours, arms, tolerance)
    is_certified = judged is not None and judged.certificate.verdict == "feasible"
    if ours.counted_as_constant and (plain is None or plain.counted_as_constant):
        return _Part(0.0, lacks, arms)  # also where no arm has scored the constant
    if plain is not None:
        gain = arms.gains(TUNED, plan.measure).get(seed)
        return _Part(gain, lacks, arms, is_certified)
    assert ours.record.evaluation is not None, "it counts for itself"
    constant = constant_of(ours.record.config, ours.record.evaluation)[plan.measure]
    better = sign_of(ours.record.config) * (ours.measures[plan.measure] - constant)
    return _Part(better, lacks, arms, is_certified)


def _merged(plan: ReplicationsPlan, name: str, parts: Mapping[int, _Part]) -> SettingArms | None:
    """The final arms of all replications in a setting, as of one confirmation; None without any.

    Its config is that of one replication: what the others constrain by differs.
    """
    there = [part.arms for part in parts.values() if part.arms is not None]
    if not there:
        return None
    kinds = (CONSTRAINED, TUNED)
    signatures = {
        k: {s: v for a in there for s, v in a.signatures.get(k, {}).items()} for k in kinds
    }
    outcomes = {k: {s: v for a in there for s, v in a.outcomes.get(k, {}).items()} for k in kinds}
    references = {seed: one for a in there for seed, one in a.references.items()}
    return SettingArms(name, plan.seeds, signatures, outcomes, there[0].config, references)


def _setting(
    plan: ReplicationsPlan, shown: Claims, row: Row, by_seed: Mapping[int, _Part]
) -> ReplicatedSetting:
    parts = [by_seed[seed] for seed in plan.seeds[: row.counted]]
    outcomes = [part.arms.outcomes for part in parts if part.arms is not None]
    constants = {
        kind: sum(o.counted_as_constant for by in outcomes for o in by.get(kind, {}).values())
        for kind in (CONSTRAINED, TUNED)
    }
    trained = [part for part in parts if part.lacks != CONSTRAINED]
    lacking = {kind: sum(part.lacks == kind for part in parts) for kind in (CONSTRAINED, TUNED)}
    gains = {
        str(number): by_seed[seed].gain
        for number, seed in enumerate(plan.seeds, start=1)
        if seed in by_seed
    }
    return ReplicatedSetting(
        **row.keywords(),
        marked=shown.mark(row),
        units=shown.crossed[row.name],
        no_winner=lacking,
        counted_as_constant=constants,
        certified=CertifiedWinners(
            feasible=sum(part.is_certified for part in trained), trained=len(trained)
        ),
        per_replication=gains,
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
