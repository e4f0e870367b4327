"""Arms of a confirmation, as the store has them: by setting, kind and seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

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
from trainables.records.arm_record import ArmRecord, Evaluation
from trainables.records.parallel_reads import at_once


@dataclass(frozen=True)
class SettingArms:
    """The arms of one setting of a confirmation that are final, by kind and seed."""

    name: str
    seeds: tuple[int, ...]  # planned ones that are asked for so far
    signatures: Mapping[str, Mapping[int, str]]  # every arm asked for
    outcomes: Mapping[str, Mapping[int, Outcome]]
    config: ArmConfig  # a constrained arm's
    references: Mapping[int, Evaluation] = field(default_factory=dict)  # of finished arms, by seed

    def reference(self, seed: int | None = None) -> Evaluation | None:
        """What says what the constant prediction comes to on a seed's data; None: nothing yet.

        An arm of that seed, whose data may be of that seed's split; where none finished, of the
        first seed that has one.
        """
        if not self.references:
            return None
        first = min(self.references)
        return self.references[seed if seed is not None and seed in self.references else first]

    def worst(self, seed: int) -> Measures:
        """What an arm of this seed without a result counts for; empty: nothing is known yet."""
        found = self.reference(seed)
        return {} if found is None else constant_of(self.config, found)

    def gains(self, other: str, measure: Measure) -> dict[int, float]:
        """Gain of the constrained arms over ``other`` on every seed that both have."""
        ours, theirs = (
            {s: o.measures[measure] for s, o in of.items() if measure in o.measures}
            for of in (self.outcomes[CONSTRAINED], self.outcomes.get(other, {}))
        )
        higher = self.config.facts.metric.higher_is_better
        return paired_differences(ours, theirs, higher_is_better=higher)


def read_arms(record: ReadRecord, definition: Definition, plan: Plan) -> list[SettingArms]:
    """Every setting of a confirmation with its final arms on planned seeds, read at once."""
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
    records = dict(zip(every, at_once(record, every), strict=True))
    found = []
    for setting_name, kinds in asked.items():
        final = {
            kind: [r for r in map(records.get, by.values()) if r is not None and r.is_final]
            for kind, by in kinds.items()
        }
        references = _references([r for of in final.values() for r in of])
        config = _constrained(definition, setting_name)
        arms = SettingArms(
            setting_name, definition.space.search_seeds, kinds, {}, config, references
        )
        ended = {kind: outcomes(of, arms.worst) for kind, of in final.items()}
        found.append(replace(arms, outcomes=ended))
    return found


def confirmed_view(view: SweepView, read: ReadRecord) -> SweepView:
    """A confirmation whose settings show the pairs that it confirms, on the seeds that ended."""

    def shown(one: SettingView) -> SettingResult:
        setting, found = one.setting, None
        mine = tuple(p for p in one.proposals if setting.point_name(p.number) == CONSTRAINED)
        for stored, arms in read_pairs(view, replace(one, proposals=mine), read):
            if pairs := tuple(arm.pair for arm in arms if arm.pair is not None):
                found = ProposalResult(stored.number, stored.point, pairs, setting.least_descent)
        why = "" if found else "no arm has ended"
        return SettingResult(setting.name, one.chosen.outcomes, found, found, why)

    return replace(view, settings=tuple(replace(one, shown=shown(one)) for one in view.settings))


def _constrained(definition: Definition, setting: str) -> ArmConfig:
    space = definition.space
    found = space.setting(setting)
    return space.run(found, found.points[CONSTRAINED], seed=space.search_seeds[0])


def _references(records: Sequence[ArmRecord]) -> dict[int, Evaluation]:
    """Of each seed an arm with a result, which scored the constant prediction on the same data."""
    found: dict[int, Evaluation] = {}
    for record in records:
        if record.status == "finished" and record.evaluation:
            found.setdefault(record.config.seed, record.evaluation)
    return found
