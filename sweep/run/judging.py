"""Verdicts of a running sweep, each when the last arm of a proposal is final."""

from __future__ import annotations

import logging
from functools import partial

from sweep.run.events import Observer, of_first_winner
from sweep.run.forget_failed import CodeOfArms
from sweep.run.searching import Search
from sweep.study.arms import Arm, RecordReader
from sweep.study.pairs import judge_proposal
from sweep.study.proposals import JudgedFiles, ProposalOutcome, StoredProposal, record_key
from trainables.errors import StoreError
from trainables.records.arm_record import ArmRecord
from trainables.records.arms import ArmStore

_Key = tuple[str, int]  # setting, proposal number

log = logging.getLogger(__name__)


class Judging:
    """Proposals without an outcome, the arms that they wait for, and files of the judged ones."""

    def __init__(
        self,
        search: Search,
        runs: ArmStore,
        codes: CodeOfArms,
        observer: Observer,
        resume_command: str,
    ) -> None:
        """No proposal is waited for yet.

        Args:
            search: holds points and outcomes; a setting that cannot be judged retires there.
            runs: the stored records.
            codes: which arms count, although other code trained them.
            observer: told of judged proposals and of the first winner; never raises.
            resume_command: what trains an arm again whose record is gone.
        """
        self._search, self._plan, self._codes = search, search.plan, codes
        self._observer, self._resume_command = observer, resume_command
        self._sweep = search.definition.name
        self.files = JudgedFiles(search.objects, self._sweep, search.points, search.outcomes)
        self.failed_baselines: dict[str, ArmRecord] = {}
        self._read = RecordReader(runs)
        self._has_winner = False
        # Of proposals without an outcome: arms and baselines by seed, and what they wait for.
        self._open: dict[_Key, tuple[list[tuple[str, str]], set[str]]] = {}
        self._waiting: dict[str, list[_Key]] = {}  # signature -> proposals that wait for it
        self._beside: dict[str, str] = {}  # unconstrained arms: ``record_key``

    def believe(
        self, setting: str, proposal: StoredProposal, arms: list[Arm], final: set[str]
    ) -> ProposalOutcome | None:
        """A stored verdict that stands: all its arms are final, and none was or is trained anew."""
        self._search.points[setting][proposal.number] = proposal.point
        outcome = proposal.verdict_on([arm.signature for arm in arms])
        beside = tuple(self._beside.get(arm.signature, "") for arm in self._plan.baselines[setting])
        if outcome is None or not (final >= {*outcome.signatures} and outcome.holds_beside(beside)):
            return None
        ends = zip(arms, outcome.arms, strict=True)
        if not all([self._codes.takes(arm, end) for arm, end in ends]):  # it notes each of them
            return None
        self._search.outcomes[setting][outcome.number] = outcome
        self._has_winner |= outcome.can_win
        return outcome

    def expect(self, setting: str, number: int, arms: list[Arm]) -> None:
        """Judge a proposal once its arms and their baselines are final, which may be now."""
        beside = zip(arms, self._plan.baselines[setting], strict=True)
        pairs = [(arm.signature, plain.signature) for arm, plain in beside]
        missing = {s for pair in pairs for s in pair if not self._plan.is_final(s)}
        self._open[setting, number] = (pairs, missing)
        for signature in missing:
            self._waiting.setdefault(signature, []).append((setting, number))
        if not missing:
            self._judge(setting, number)

    def keep_baseline(self, record: ArmRecord) -> None:
        """An unconstrained arm is final: what it came to is kept for all its pairs."""
        self._read.keep(record)
        self._beside[record.signature] = record_key(record)
        if record.status == "failed":
            self.failed_baselines[record.signature] = record

    def settle(self, record: ArmRecord) -> None:
        """An arm is final: judge the proposals that waited for it alone."""
        for setting, number in self._waiting.pop(record.signature, ()):
            _, missing = self._open[setting, number]
            missing.discard(record.signature)
            if not missing:
                self._judge(setting, number, record)

    def _judge(self, setting: str, number: int, last: ArmRecord | None = None) -> None:
        """All arms of a proposal are final: judge it, and let the search and the store know."""
        pairs, _ = self._open.pop((setting, number))
        space = self._search.definition.space
        try:
            read, point = partial(self._final, last), self._search.points[setting][number]
            least = space.setting(setting).least_descent
            result = judge_proposal(number, point, pairs, read, space.tolerance, least)
            assert result is not None, "an arm of it is running again"
            outcome = ProposalOutcome.from_result(result)
        except StoreError:
            raise
        except Exception as error:
            log.exception("proposal %s of setting %s could not be judged", number, setting)
            self._search.retire(setting, f"proposal {number} could not be judged", error)
            return
        self._search.outcomes[setting][number] = outcome
        self.files.changed(setting)
        self._observer.on_proposal(setting, result)
        if outcome.can_win and not self._has_winner:
            self._has_winner = True
            self._observer.on_event(of_first_winner(self._sweep, setting, outcome))

    def _final(self, last: ArmRecord | None, signature: str) -> ArmRecord:
        record = last if last and last.signature == signature else self._read(signature)
        if record is None:
            raise StoreError(
                f"the record of arm {signature} is gone below {self._search.objects.root}. "
                f"`{self._resume_command}` trains it again."
            )
        return record
