"""Arms that are trained again: failed ones, and those that other code trained.

A failure says something of the code that it was met with, and of no other: with other code such an
arm is trained anew, unasked. What came to a result is a measurement of its code: beside arms of
this code it would make pairs of two, so that a sweep goes on only where it is told to.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from sweep.errors import CodeDiffers
from sweep.run.alike import drop_failed_alike, failed_alike
from sweep.study.advice import counted
from sweep.study.arms import Arm, all_judged, arms_by_proposal, baselines
from sweep.study.definition import Definition
from sweep.study.proposals import ArmEnd, ProposalOutcome, drop_outcomes
from trainables.config.arm import ArmConfig
from trainables.environment import changed_since
from trainables.errors import Misuse
from trainables.records.arm_record import UNKNOWN_CODE, ArmRecord, code_text
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore
from trainables.records.parallel_reads import at_once

Plain = Mapping[str, Sequence[Arm]]
EVERY = range(2**31)  # proposals, by number


# --- failed arms ----------------------------------------------------------------------------------


def forget_failed(objects: ObjectStore, definition: Definition) -> list[str]:
    """Forget every failed arm of the sweep; returns their signatures. Diverged arms are results."""
    runs = ArmStore(objects)
    forgotten: list[str] = []

    def failed(arms: list[Arm]) -> list[str]:
        records = at_once(runs.record, [arm.signature for arm in arms])
        return [r.signature for r in records if r is not None and r.status == "failed"]

    def forget(signatures: list[str]) -> None:
        for signature in signatures:
            runs.forget(signature)
        forgotten.extend(signatures)

    # Outcomes go first: killed in between, a proposal is judged once more. What was judged beside a
    # failed unconstrained arm could not win, whatever it came to.
    lost = {s.name: failed(baselines(definition, s.name)) for s in definition.space.settings}
    again: dict[str, dict[int, list[str]]] = {setting: {} for setting in lost}
    for setting, stored, arms in arms_by_proposal(objects, definition):
        is_failed = stored.outcome is None or stored.outcome.outcome == "failed"
        signatures = failed(arms) if is_failed else []
        if signatures or lost[setting]:
            again[setting][stored.number] = signatures
    for setting, of in again.items():
        drop_outcomes(objects, definition.name, setting, of)
        for signatures in of.values():
            forget(signatures)
    forget(sorted({signature for without in lost.values() for signature in without}))
    return forgotten


def forget_asked(
    objects: ObjectStore, definition: Definition, codes: CodeOfArms, retry_failed: bool
) -> None:
    """Forget what a run is to train again: also what the last one failed alike with."""
    if retry_failed or failed_alike(objects, definition.name):
        forget_failed(objects, definition)
        drop_failed_alike(objects, definition.name)
    if codes.retrains:
        codes.anew |= set(forget_other_code(objects, definition))


def failures(
    again: str,
    outcomes: Mapping[str, Mapping[int, ProposalOutcome]],
    failed_baselines: Mapping[str, ArmRecord],
    since_ms: int,
) -> Iterator[str]:
    """What failed so that a setting has nothing to show, or nothing to compare with: a line each.

    Args:
        again: the command that continues the sweep.
        outcomes: what each setting's proposals came to.
        failed_baselines: unconstrained arms that failed, by signature.
        since_ms: when this run began; what failed before was not tried in it.
    """
    remedy = f"`{again} --retry-failed` trains what failed again, in whichever sweep it did."
    if failed_baselines:
        reason = told_failure(next(iter(failed_baselines.values())), since_ms)
        arms = counted(len(failed_baselines), "unconstrained arm")
        yield f"{arms} failed; the first: {reason} {remedy}"
    for setting, of in outcomes.items():
        if of and all(outcome.outcome == "failed" for outcome in of.values()):
            ends = [end for end in of[min(of)].arms if end.reason]
            reason = told_failure(ends[0], since_ms) if ends else "no reason is stored."
            all_of = "its only proposal" if len(of) == 1 else f"all {len(of)} proposals"
            yield f"{setting}: {all_of} failed; the first: {reason} {remedy}"


def told_failure(end: ArmEnd | ArmRecord, since_ms: int) -> str:
    """Why an arm failed; of a failure of before, when and in which sweep it was."""
    if end.ended_ms >= since_ms:
        return end.reason
    return f"{end.reason} ({failed_when(end.ended_ms, end.trained_for)}, and not tried again here.)"


def failed_when(ended_ms: int, trained_for: str | None) -> str:
    """When an arm failed, in this machine's time, and in which sweep."""
    at = time.strftime("%Y-%m-%d %H:%M", time.localtime(ended_ms / 1000))
    return f"failed at {at}" + f" in sweep {trained_for}" * bool(trained_for)


# --- arms of other code ---------------------------------------------------------------------------


_SHOWN = 5  # names of files


@dataclass(frozen=True)
class Codes:
    """What becomes of arms that other code trained: refused, unless one of these is said."""

    accept_code: bool = False
    retrain: bool = False

    def __post_init__(self) -> None:
        """Refuse what contradicts itself."""
        if self.accept_code and self.retrain:
            raise Misuse(
                "--accept-code takes arms of other code as they are and --retrain trains them "
                "anew: give one of them."
            )

    @property
    def options(self) -> tuple[str, ...]:
        """What a command line says for the same; saying it again retrains nothing twice."""
        return ("--accept-code",) * self.accept_code + ("--retrain",) * self.retrain


AS_TRAINED = Codes()


class CodeOfArms:
    """Which of a sweep's arms other code trained than would train them now."""

    def __init__(self, objects: ObjectStore, definition: Definition, codes: Codes) -> None:
        """Nothing is looked at yet."""
        self._objects, self._definition, self._codes = objects, definition, codes
        self._here: dict[tuple[str, str, str], str] = {}
        self.others: dict[str, str] = {}  # signature -> the code that trained it
        self._commits: set[str] = set()  # of the sources of those, where they are known
        self.unknown: set[str] = set()  # arms whose records do not say
        self.anew: set[str] = set()  # that failed with other code, or are to be trained anew

    @property
    def retrains(self) -> bool:
        """Whether arms of other code are trained anew."""
        return self._codes.retrain

    @cached_property
    def _counts_failures(self) -> bool:
        """Of a confirmation, where a failure is a planned arm's outcome."""
        return self._definition.space.phase == "confirmation"

    def here(self, config: ArmConfig) -> str:
        """The code that would train an arm now."""
        of = (config.task, config.model.name, config.data.name)
        if of not in self._here:
            from trainables.registry.training_code import training_code

            self._here[of] = code_text(training_code(*of))
        return self._here[of]

    def wanted(self, configs: Sequence[ArmConfig]) -> list[str]:
        """The code that workers must have for these arms; empty: any is accepted."""
        return [] if self._codes.accept_code else [self.here(config) for config in configs]

    def takes(self, arm: Arm, end: ArmEnd | ArmRecord) -> bool:
        """Whether what an arm came to counts; False where it is to be trained anew."""
        if not end.code or end.code == UNKNOWN_CODE:
            self.unknown.add(arm.signature)
        elif end.code != self.here(arm.config):
            is_mended = end.status == "failed" and not self._counts_failures
            if is_mended or self._codes.retrain:
                self.anew.add(arm.signature)
                return False
            self.others[arm.signature] = end.code
            if isinstance(end, ArmRecord) and end.environment.get("dirty") is False:
                self._commits.add(str(end.environment["commit"]))
        return True

    def counts(self, arm: Arm, end: ArmEnd | ArmRecord, plain: Plain) -> bool:
        """As ``takes``; what does not count is forgotten, and before it what was judged beside it.

        Args:
            arm: a final one.
            end: what it came to.
            plain: the unconstrained arms by setting.
        """
        if self.takes(arm, end):
            return True
        for setting, arms in plain.items():
            if arm.signature in {one.signature for one in arms}:
                drop_outcomes(self._objects, self._definition.name, setting, EVERY)
        ArmStore(self._objects).forget(arm.signature)
        return False

    def count(
        self, setting: str, arms: Sequence[Arm], ends: Sequence[ArmEnd], plain: Plain
    ) -> bool:
        """Whether all arms of a judged proposal count, and those that it was judged beside."""
        if not self.anew.isdisjoint(arm.signature for arm in plain[setting]):
            return False
        return all([self.counts(a, end, plain) for a, end in zip(arms, ends, strict=True)])

    def refuse(self) -> None:
        """Raise CodeDiffers where arms of other code were met, and are not accepted."""
        if not self.others or self._codes.accept_code:
            return
        arms = counted(len(self.others), "arm")
        there = {part for code in self.others.values() for part in code.split(", ")}
        here = {part for code in self._here.values() for part in code.split(", ")}
        theirs, ours = (", ".join(sorted(parts)) for parts in (there - here, here - there))
        files = sorted({file for commit in self._commits for file in changed_since(commit)})
        if files and "trainables" in theirs:
            more = f" and {len(files) - _SHOWN} more" * (len(files) > _SHOWN)
            ours += f"; since then changed in trainables/: {', '.join(files[:_SHOWN])}{more}"
        raise CodeDiffers(
            f"{self._definition.name} uses {arms} of other code ({theirs}; here {ours}), and a "
            "pair of two codes may differ by its code. Nothing was trained. Give the same command "
            "with --retrain to train these anew, also for other sweeps that share them, or with "
            "--accept-code to take them, marked in every table. Or restore the code, or give what "
            "you changed (a model, task or data set of a plug-in) another name."
        )

    def told(self) -> str:
        """What a user should know of arms that are taken all the same; empty: nothing."""
        lines = []
        if self.others:
            codes = "; ".join(sorted(set(self.others.values())))
            arms = counted(len(self.others), "arm")
            lines.append(f"taken as trained: {arms} of other code ({codes})")
        if self.anew:
            what = "of other code" if self._codes.retrain else "that had failed with other code"
            lines.append(f"trained anew: {counted(len(self.anew), 'arm')} {what}")
        if self.unknown:
            lines.append(
                f"trained before records named their code: {counted(len(self.unknown), 'arm')}, so "
                "that it is not known whether it was this one"
            )
        return "; ".join(lines)


def other_code(objects: ObjectStore, definition: Definition) -> CodeOfArms:
    """What code the arms of a sweep are of that have a record; nothing is changed."""
    codes = CodeOfArms(objects, definition, AS_TRAINED)
    for _ in _arms_of_other_code(objects, definition, codes):
        pass
    return codes


def refuse_other_code(objects: ObjectStore, definition: Definition, codes: Codes) -> None:
    """Raise CodeDiffers where a sweep that has more to train would pair arms of two codes.

    Before it is stored, or grows: nothing is changed. Its driver looks once more.
    """
    if codes.retrain:
        _refuse_retraining(definition)
    if codes.accept_code or codes.retrain:
        return
    objects.check_writable()  # where it cannot be, reading what is there says less
    found = other_code(objects, definition)
    if found.others and not all_judged(objects, definition):
        found.refuse()


def _refuse_retraining(definition: Definition) -> None:
    if definition.space.phase == "confirmation":
        raise Misuse(
            f"{definition.name} is a confirmation: its arms are trained once, so --retrain is not "
            "for it. Leave it out, or confirm again with `sweep confirm` under another --name."
        )


def forget_other_code(objects: ObjectStore, definition: Definition) -> list[str]:
    """Forget every arm of a sweep that other code trained; returns their signatures."""
    _refuse_retraining(definition)
    codes = CodeOfArms(objects, definition, Codes(retrain=True))
    found = list(_arms_of_other_code(objects, definition, codes))
    for setting in dict.fromkeys(setting for setting, _ in found):
        drop_outcomes(objects, definition.name, setting, EVERY)
    signatures = sorted({arm.signature for _, arm in found})
    for signature in signatures:
        ArmStore(objects).forget(signature)
    return signatures


def _arms_of_other_code(
    objects: ObjectStore, definition: Definition, codes: CodeOfArms
) -> Iterator[tuple[str, Arm]]:
    """Settings, and arms of them that other code trained or began."""
    runs = ArmStore(objects)
    ends: list[tuple[str, Arm, ArmEnd | ArmRecord]] = []
    names = [setting.name for setting in definition.space.settings]
    unread = [(name, arm) for name in names for arm in baselines(definition, name)]
    for setting, stored, arms in arms_by_proposal(objects, definition):
        verdict = stored.verdict_on([arm.signature for arm in arms])
        if verdict is None:
            unread += [(setting, arm) for arm in arms]
        else:
            ends += [(setting, arm, end) for arm, end in zip(arms, verdict.arms, strict=True)]
    for setting, arm, end in ends:
        if not codes.takes(arm, end) or arm.signature in codes.others:
            yield setting, arm
    records = at_once(lambda one: runs.record(one[1].signature), unread)
    for (setting, arm), record in zip(unread, records, strict=True):
        if record is not None and (not codes.takes(arm, record) or arm.signature in codes.others):
            yield setting, arm
