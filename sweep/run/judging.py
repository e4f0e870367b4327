"""Verdicts of a running sweep, each when the last arm of a proposal is final."""

from __future__ import annotations

import logging
from functools import partial

from sweep.run.events import Observer, first_winner_event
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
    """Judging of proposals as their arms end, and the stored files of their outcomes."""

    def __init__(
        self,
        search: Search,
        runs: ArmStore,
        codes: CodeOfArms,
        observer: Observer,
        resume_command: str,
    ) -> None:
        """Start without any proposal; a setting that cannot be judged retires in ``search``."""
        self._search, self._plan, self._codes = search, search.plan, codes
        self._observer, self._resume_command = observer, resume_command
        self._sweep = search.definition.name
        self.files = JudgedFiles(search.objects, self._sweep, search.points, search.outcomes)
        self.failed_baselines: dict[str, ArmRecord] = {}
        self._read = RecordReader(runs)
        self._has_winner = False
        # Proposals without an outcome: pairs of signatures by seed, and those that are not final.
        self._open: dict[_Key, tuple[list[tuple[str, str]], set[str]]] = {}
        self._waiting: dict[str, list[_Key]] = {}  # signature -> proposals that wait for it
        self._baseline_keys: dict[str, str] = {}  # signature -> ``record_key``

    def restore_verdict(
        self, setting: str, proposal: StoredProposal, arms: list[Arm], final: set[str]
    ) -> ProposalOutcome | None:
        """Restore a stored verdict where all its arms are final, and none was or is trained anew.

        None: there is no verdict, or it does not stand.
        """
        self._search.points[setting][proposal.number] = proposal.point
        outcome = proposal.verdict_on([arm.signature for arm in arms])
        plain = self._plan.baselines[setting]
        beside = tuple(self._baseline_keys.get(arm.signature, "") for arm in plain)
        if outcome is None or not (final >= {*outcome.signatures} and outcome.holds_beside(beside)):
            return None
        ends = zip(arms, outcome.arms, strict=True)
        # A list: ``counts`` has to note every arm, also behind one that does not count.
        if not all([self._codes.counts(arm, end) for arm, end in ends]):
            return None
        self._search.outcomes[setting][outcome.number] = outcome
        self._has_winner |= outcome.can_win
        return outcome

    def await_arms(self, setting: str, number: int, arms: list[Arm]) -> None:
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
        """Keep the final record of an unconstrained arm for all its pairs."""
        self._read.keep(record)
        self._baseline_keys[record.signature] = record_key(record)
        if record.status == "failed":
            self.failed_baselines[record.signature] = record

    def settle_arm(self, record: ArmRecord) -> None:
        """Judge the proposals that waited for this final arm alone."""
        for setting, number in self._waiting.pop(record.signature, ()):
            _, missing = self._open[setting, number]
            missing.discard(record.signature)
            if not missing:
                self._judge(setting, number, record)

    def _judge(self, setting: str, number: int, last: ArmRecord | None = None) -> None:
        """Judge a proposal whose arms are all final, for the search, the store and the observer."""
        pairs, _ = self._open.pop((setting, number))
        space = self._search.definition.space
        try:
            read, point = partial(self._read_final, last), self._search.points[setting][number]
            least = space.setting(setting).least_descent
            result = judge_proposal(number, point, pairs, read, space.tolerance, least)
            assert result is not None, "an arm of it is running again"
            outcome = ProposalOutcome.from_result(result)
        # Storage that is away is no fault of the proposal: the coordinator stops for it.
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
            self._observer.on_event(first_winner_event(self._sweep, setting, outcome))

    def _read_final(self, last: ArmRecord | None, signature: str) -> ArmRecord:
        record = last if last and last.signature == signature else self._read(signature)
        if record is None:
            raise StoreError(
                f"the record of arm {signature} is gone below {self._search.objects.root}. "
                f"`{self._resume_command}` trains it again."
            )
        return record
