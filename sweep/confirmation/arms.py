"""Arms of a confirmation, as the store has them: by setting, kind and seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from search_spaces.space import SearchSpace
from sweep.confirmation.measures import Measures, Outcome, constant_of, outcomes
from sweep.confirmation.plan import CONSTRAINED, UNCONSTRAINED, Measure, Plan
from sweep.results.facts import read_pairs
from sweep.results.sweep_view import SettingView, SweepView
from sweep.statistics.paired import paired_differences
from sweep.study.arms import arms_of_proposal, baselines
from sweep.study.definition import Definition
from sweep.study.pairs import ProposalResult, ReadRecord
from sweep.study.selection import SettingResult
from trainables.config.arm import ArmConfig
from trainables.records.arm_record import ArmRecord
from trainables.records.evaluation import Evaluation
from trainables.records.parallel_reads import at_once


@dataclass(frozen=True)
class SettingArms:
    """The arms of one setting of a confirmation that are final, by kind and seed."""

    name: str
    seeds: tuple[int, ...]  # planned ones that are requested so far
    signatures: Mapping[str, Mapping[int, str]]  # every requested arm
    outcomes: Mapping[str, Mapping[int, Outcome]]
    config: ArmConfig  # a constrained arm's
    references: Mapping[int, Evaluation] = field(default_factory=dict)  # of finished arms, by seed

    def reference(self, seed: int | None = None) -> Evaluation | None:
        """An evaluation that scores the constant prediction on a seed's data; None: none yet.

        That of an arm of this seed, whose data may be of that seed's split; where none finished, of
        the first seed that has one.
        """
        if not self.references:
            return None
        first = min(self.references)
        return self.references[seed if seed is not None and seed in self.references else first]

    def worst(self, seed: int) -> Measures:
        """Measures of an arm of this seed without a result; empty: nothing is known yet."""
        reference = self.reference(seed)
        return {} if reference is None else constant_of(self.config, reference)

    def gains(self, other: str, measure: Measure) -> dict[int, float]:
        """Gain of the constrained arms over ``other`` on every seed that both have."""
        ours, others = (
            {seed: o.measures[measure] for seed, o in ended.items() if measure in o.measures}
            for ended in (self.outcomes[CONSTRAINED], self.outcomes.get(other, {}))
        )
        higher = self.config.facts.metric.higher_is_better
        return paired_differences(ours, others, higher_is_better=higher)


def read_arms(record: ReadRecord, definition: Definition, plan: Plan) -> list[SettingArms]:
    """Every setting of a confirmation with its final arms on planned seeds, read at once."""
    requested: dict[str, dict[str, dict[int, str]]] = {}
    for setting in definition.space.settings:
        arms = {UNCONSTRAINED: baselines(definition, setting.name)}
        for number, (kind, point) in enumerate(setting.points.items()):
            arms[kind] = arms_of_proposal(definition, setting.name, number, point)
        requested[setting.name] = {
            kind: {a.config.seed: a.signature for a in by_seed if a.config.seed in plan.seeds}
            for kind, by_seed in arms.items()
        }
    by_kind = [by_seed for kinds in requested.values() for by_seed in kinds.values()]
    every = list(dict.fromkeys(signature for by_seed in by_kind for signature in by_seed.values()))
    records = dict(zip(every, at_once(record, every), strict=True))
    settings = []
    for name, kinds in requested.items():
        final = {
            kind: [r for r in map(records.get, by_seed.values()) if r is not None and r.is_final]
            for kind, by_seed in kinds.items()
        }
        references = _references([one for kept in final.values() for one in kept])
        config = constrained_run(definition.space, name)
        seeds = definition.space.search_seeds
        empty = SettingArms(name, seeds, kinds, {}, config, references)
        ended = {kind: outcomes(kept, empty.worst) for kind, kept in final.items()}
        settings.append(replace(empty, outcomes=ended))
    return settings


def confirmed_view(view: SweepView, read: ReadRecord) -> SweepView:
    """A confirmation whose settings show the pairs that it confirms, on the seeds that ended."""

    def shown(one: SettingView) -> SettingResult:
        setting, result = one.setting, None
        mine = tuple(p for p in one.proposals if setting.point_name(p.number) == CONSTRAINED)
        for stored, arms in read_pairs(view, replace(one, proposals=mine), read):
            if pairs := tuple(arm.pair for arm in arms if arm.pair is not None):
                result = ProposalResult(stored.number, stored.point, pairs, setting.least_descent)
        why = "" if result else "no arm has ended"
        return SettingResult(setting.name, one.chosen.outcomes, result, result, why)

    return replace(view, settings=tuple(replace(one, shown=shown(one)) for one in view.settings))


def constrained_run(space: SearchSpace, name: str) -> ArmConfig:
    """The constrained run of a setting of a confirmation, on its first seed."""
    setting = space.setting(name)
    return space.run(setting, setting.points[CONSTRAINED], seed=space.search_seeds[0])


def _references(records: Sequence[ArmRecord]) -> dict[int, Evaluation]:
    """By seed an evaluation, which scored the constant prediction on the same data."""
    by_seed: dict[int, Evaluation] = {}
    for record in records:
        if record.status == "finished" and record.evaluation:
            by_seed.setdefault(record.config.seed, record.evaluation)
    return by_seed
