"""View of a stored sweep: its settings, proposals and arms as the store has them.

Reading needs no driver and works while one runs: what is final counts, the rest is listed as open.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from search_spaces.space import SearchSpace, Setting
from sweep.results.summary import ProposalCounts
from sweep.study.arms import arms_of_proposal, baselines
from sweep.study.definition import Definition, load_definition
from sweep.study.pairs import ProposalResult, ReadRecord, judge_proposal
from sweep.study.proposals import (
    ArmEnd,
    Observation,
    ProposalOutcome,
    StoredProposal,
    all_proposals,
    record_key,
    retired_settings,
)
from sweep.study.selection import SettingResult, closest_of, select, winner_of
from trainables.records.arm_record import ArmRecord, Status
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore
from trainables.records.parallel_reads import at_once

BATCH = 400  # records that are in memory at a time, about
Records = dict[str, ArmRecord | None]  # that were read, by signature; None: it never reported


@dataclass(frozen=True)
class ArmPlace:
    """One arm that the definition asks for, and what the store holds of it."""

    signature: str
    setting: str
    proposal: int | None  # None: an unconstrained arm of a search seed
    end: ArmEnd | None  # None while it is not final
    record: ArmRecord | None
    # ^ None: it never reported, or it is final and was not asked for. Of constrained arms, which
    #   may be thousands, without evaluation and with their last report alone.

    @property
    def is_final(self) -> bool:
        """True if it has its outcome."""
        return self.end is not None

    @property
    def status(self) -> Status | None:
        """Its record; None if it never reported."""
        return self.end.status if self.end else self.record.status if self.record else None

    @property
    def warnings(self) -> Sequence[str]:
        """Early signs of a bad run."""
        return self.end.warnings if self.end else self.record.warnings if self.record else ()


@dataclass(frozen=True)
class SettingView:
    """One setting as the store shows it now."""

    setting: Setting
    proposals: tuple[StoredProposal, ...]
    arms: tuple[ArmPlace, ...]  # every arm of the setting known so far; shared ones in each setting
    results: tuple[ProposalOutcome, ...]  # proposals whose constrained arms are final on every seed
    shown: SettingResult | None  # None: no pair was read

    def counts(self, space: SearchSpace) -> ProposalCounts:
        """How many proposals are wanted, stored and finished."""
        wanted, stored = space.proposals_of(self.setting), len(self.proposals)
        return ProposalCounts(wanted=wanted, stored=stored, finished=len(self.results))

    @property
    def observations(self) -> list[Observation]:
        """Outcomes of its finished proposals, as the search learns from them."""
        points = {proposal.number: proposal.point for proposal in self.proposals}
        return [one.observation(points[one.number]) for one in self.results]

    @property
    def baselines(self) -> dict[str, ArmRecord | None]:
        """Records of its unconstrained arms by signature, in the order of the search seeds."""
        return {arm.signature: arm.record for arm in self.arms if arm.proposal is None}

    @property
    def chosen(self) -> SettingResult:
        """Its winner or closest pair, with their records."""
        assert self.shown is not None, "read with `outcomes` alone"
        return self.shown


@dataclass(frozen=True)
class SweepView:
    """One sweep as the store shows it now."""

    definition: Definition
    settings: tuple[SettingView, ...]
    retired: Mapping[str, str] = field(default_factory=dict)  # setting: why its search ended early

    @property
    def arms(self) -> dict[str, ArmPlace]:
        """Every arm known so far, each signature once, in the first setting that asks for it."""
        places: dict[str, ArmPlace] = {}
        for view in self.settings:
            for arm in view.arms:
                places.setdefault(arm.signature, arm)
        return places

    @property
    def is_finished(self) -> bool:
        """True if every wanted proposal is stored and every arm of it is final."""
        wanted = self.definition.space.proposals_of
        return all(
            len(view.proposals) >= wanted(view.setting) and all(arm.is_final for arm in view.arms)
            for view in self.settings
        )


Read = Literal["outcomes", "pairs", "records"]


def load_sweep(
    objects: ObjectStore, name: str, read: Read = "records", *, record: ReadRecord | None = None
) -> SweepView:
    """Read the sweep called ``name``; UnknownName when there is none.

    Many objects are read at a time, and no more than asked for: a sweep has thousands of records.

    Args:
        objects: the storage root.
        name: the sweep.
        read: "outcomes": of judged proposals what is stored of the verdict, and the records of
            arms that are open; "pairs": beside them the records of the pairs that are shown;
            "records": of every arm, and all proposals are judged from them.
        record: how one is read: by who needs it once more, and keeps what was read.
    """
    definition = load_definition(objects, name)
    settings = definition.space.settings
    stored = all_proposals(objects, name, [setting.name for setting in settings])
    views: list[SettingView] = []
    batch: list[_SettingReading] = []
    for setting in settings:
        every = read == "records"
        batch.append(_SettingReading(definition, setting, stored[setting.name], from_records=every))
        if setting == settings[-1] or sum(len(one.needed) for one in batch) >= BATCH:
            views += _read(record or ArmStore(objects).record, batch, read != "outcomes")
            batch = []
    return SweepView(definition, tuple(views), retired_settings(objects, name))


def _read(
    record: ReadRecord, readings: Sequence[_SettingReading], with_pairs: bool
) -> list[SettingView]:
    """Some settings, their records read at once."""
    records: Records = {}
    _fetch(record, records, (s for one in readings for s in one.needed))
    _fetch(record, records, (s for one in readings for s in one.judged_beside_others(records)))
    for one in readings:
        one.judge(records)
    unsettled = list(readings) if with_pairs else []
    while unsettled:
        _fetch(record, records, (s for one in unsettled for s in one.of_shown))
        unsettled = [one for one in unsettled if not one.stands(records)]
    return [one.view(records, with_pairs=with_pairs) for one in readings]


def _fetch(record: ReadRecord, records: Records, signatures: Iterable[str]) -> None:
    """Read those that were not read yet, many at a time."""
    missing = [s for s in dict.fromkeys(signatures) if s not in records]
    records |= zip(missing, at_once(record, missing), strict=True)


class _SettingReading:
    """The state of one setting while it is read: proposals and their outcomes."""

    def __init__(
        self,
        definition: Definition,
        setting: Setting,
        proposals: Sequence[StoredProposal],
        *,
        from_records: bool,
    ) -> None:
        name = setting.name
        self.setting, self.proposals = setting, tuple(proposals)
        self.tolerance = definition.space.tolerance
        self.baselines = [arm.signature for arm in baselines(definition, name)]
        self.arms = {
            p.number: [a.signature for a in arms_of_proposal(definition, name, p.number, p.point)]
            for p in proposals
        }
        self.points = {p.number: p.point for p in proposals}
        self.judged: dict[int, ProposalOutcome] = {}
        if not from_records:
            verdicts = [p.verdict_on(self.arms[p.number]) for p in proposals]
            # What failed may have been trained again, by another sweep as well.
            self.judged = {o.number: o for o in verdicts if o and o.outcome != "failed"}
        known = {arm.signature for o in self.judged.values() for arm in o.arms}
        every = (*self.baselines, *(s for signatures in self.arms.values() for s in signatures))
        self.needed = [s for s in every if s not in known]  # to be read before all can be judged

    def judged_beside_others(self, records: Records) -> list[str]:
        """Drop verdicts that other records of the unconstrained arms were judged beside.

        Returns the signatures of their arms, to be read before they can be judged anew.
        """
        beside = tuple(record_key(records[signature]) for signature in self.baselines)
        stale = [number for number, o in self.judged.items() if not o.holds_beside(beside)]
        for number in stale:
            del self.judged[number]
        return [signature for number in stale for signature in self.arms[number]]

    def judge(self, records: Records) -> None:
        """Judge every proposal that has no verdict and whose arms are final."""
        for number in self.arms.keys() - self.judged.keys():
            result = self._result(number, records)
            if result is not None:
                self.judged[number] = ProposalOutcome.from_result(result)

    @property
    def shown(self) -> int | None:
        """The number of the pair to show."""
        judged = self.judged.values()
        chosen = winner_of(judged) or closest_of(judged)
        return None if chosen is None else chosen.number

    @property
    def of_shown(self) -> list[str]:
        """Signatures of the pair to show, and of the unconstrained arms."""
        shown = self.shown
        return [*self.baselines, *(() if shown is None else self.arms[shown])]

    def stands(self, records: Records) -> bool:
        """Judge the pair to show again from its records; False if the stored verdict was stale."""
        number = self.shown
        if number is None:
            return True
        result = self._result(number, records)
        if result is None:  # an arm's record is gone
            del self.judged[number]
            return False
        before, outcome = self.judged[number], ProposalOutcome.from_result(result)
        self.judged[number] = outcome
        return outcome.to_json() == before.to_json()

    def _result(self, number: int, records: Records) -> ProposalResult | None:
        """A proposal with its records, where its constrained arms are final on every seed."""
        arms = list(zip(self.arms[number], self.baselines, strict=True))
        point, least = self.points[number], self.setting.least_descent
        return judge_proposal(number, point, arms, records.get, self.tolerance, least)

    def view(self, records: Records, *, with_pairs: bool) -> SettingView:
        """The setting as it was read."""
        results = tuple(self.judged[number] for number in sorted(self.judged))
        ends = {arm.signature: arm for result in results for arm in result.arms}

        def complete(outcome: ProposalOutcome) -> ProposalResult:
            result = self._result(outcome.number, records)
            assert result is not None, "it stands"
            return result

        def place(signature: str, proposal: int | None) -> ArmPlace:
            record = records.get(signature)
            end = ends.get(signature)
            if record is not None and record.is_final:
                end = ArmEnd.from_record(record)
            if record is not None and proposal is not None:
                record = replace(record, reports=record.reports[-1:], evaluation=None)
            return ArmPlace(signature, self.setting.name, proposal, end, record)

        return SettingView(
            self.setting,
            self.proposals,
            (
                *(place(signature, None) for signature in self.baselines),
                *(place(s, number) for number, signatures in self.arms.items() for s in signatures),
            ),
            results,
            select(self.setting.name, results, complete) if with_pairs else None,
        )
