"""Arms that are trained again, or refused: failed ones, and those of other code.

A failure says something of the code that it was met with, and of no other: with other code such an
arm is trained anew, unasked. What came to a result is a measurement of its code, and stays: beside
arms of this code it would make pairs of two, so that a sweep goes on only where it is told to.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

from sweep.errors import CodeDiffers
from sweep.run.alike import drop_failed_alike, failed_alike
from sweep.study.advice import counted
from sweep.study.arms import Arm, arms_by_proposal, baselines, is_judged
from sweep.study.definition import Definition
from sweep.study.proposals import ArmEnd, ProposalOutcome, drop_outcomes
from trainables.config.arm import ArmConfig
from trainables.environment import changed_since
from trainables.records.arm_record import THEN, UNKNOWN_CODE, ArmRecord, code_text
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore
from trainables.records.parallel_reads import at_once

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


def forget_asked(objects: ObjectStore, definition: Definition, retry_failed: bool) -> None:
    """Forget what a run is to train again: also what the last one failed alike with."""
    if retry_failed or failed_alike(objects, definition.name):
        forget_failed(objects, definition)
        drop_failed_alike(objects, definition.name)


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


class CodeOfArms:
    """Which of a sweep's arms other code trained than would train them now."""

    def __init__(self, definition: Definition, *, accept_code: bool = False) -> None:
        """Nothing is looked at yet.

        Args:
            definition: the sweep.
            accept_code: take what other code came to as it is.
        """
        self._accepts = accept_code
        # Of a confirmation, where a failure is a planned arm's outcome.
        self._counts_failures = definition.space.phase == "confirmation"
        self._name = definition.name
        self._here: dict[tuple[str, str, str], str] = {}
        self.others: dict[str, str] = {}  # signature -> the code that trained it
        self._instead: set[str] = set()  # parts of the code that would train those now
        self._commits: set[str] = set()  # of the sources of those, where they are known
        self.unknown: set[str] = set()  # arms whose records do not say, of all of their training
        self.anew: set[str] = set()  # that failed with other code

    def here(self, config: ArmConfig) -> str:
        """The code that would train an arm, as it was when this was asked first."""
        of = (config.task, config.model.name, config.data.name)
        if of not in self._here:
            from trainables.registry.training_code import training_code

            self._here[of] = code_text(training_code(*of))
        return self._here[of]

    def wanted(self, configs: Sequence[ArmConfig]) -> list[str]:
        """The code that workers must have for these arms; empty: any is accepted."""
        return [] if self._accepts else [self.here(config) for config in configs]

    def takes(self, arm: Arm, end: ArmEnd | ArmRecord) -> bool:
        """Whether what an arm came to counts; False where it is to be trained anew."""
        known = set(end.code.split(THEN)) - {UNKNOWN_CODE, ""}
        here = self.here(arm.config)
        if known - {here}:
            if end.status == "failed" and not self._counts_failures:
                self.anew.add(arm.signature)
                return False
            self.others[arm.signature] = end.code
            self._instead |= set(here.split(", "))
            if isinstance(end, ArmRecord) and end.environment.get("dirty") is False:
                self._commits.add(str(end.environment["commit"]))
        elif end.code != here:
            self.unknown.add(arm.signature)
        return True

    def refuse(self) -> None:
        """Raise CodeDiffers where arms of other code were met, and are not accepted."""
        if not self.others or self._accepts:
            return
        codes = {one for code in self.others.values() for one in code.split(THEN)}
        there = {part for code in codes for part in code.split(", ")}
        theirs, ours = there - self._instead, self._instead - there
        if not (theirs and ours):  # a part came, or went
            theirs, ours = there, self._instead
        told = ", ".join(sorted(ours))
        files = sorted({file for commit in self._commits for file in changed_since(commit)})
        if files and any(part.startswith("trainables ") for part in theirs):
            more = f" and {len(files) - _SHOWN} more" * (len(files) > _SHOWN)
            told += f"; since then changed in trainables/: {', '.join(files[:_SHOWN])}{more}"
        raise CodeDiffers(
            f"{self._name} uses {counted(len(self.others), 'arm')} of other code "
            f"({', '.join(sorted(theirs))}; here {told}), and a pair of two codes may differ by "
            "its code. Nothing more is trained. Give the same command with --accept-code to take "
            "the results of that code: tables mark pairs of two codes. To train all anew, `sweep "
            "run` it with another --storage; of a confirmation, `sweep confirm` with another "
            "--name. Or restore that code, and give what you changed another name."
        )

    def told(self) -> str:
        """What a user should know of arms that are taken all the same; empty: nothing."""
        lines = []
        if self.others:
            codes = "; ".join(sorted(set(self.others.values())))
            arms = counted(len(self.others), "arm")
            lines.append(f"taken as trained: {arms} of other code ({codes})")
        if self.anew:
            arms = counted(len(self.anew), "arm")
            lines.append(f"trained anew: {arms} that had failed with other code")
        if self.unknown:
            lines.append(
                f"trained before records named their code: {counted(len(self.unknown), 'arm')}, so "
                "that it is not known whether it was this one"
            )
        return "; ".join(lines)


def refuse_other_code(
    objects: ObjectStore, definition: Definition, *, accept_code: bool = False
) -> None:
    """Raise CodeDiffers where a sweep that has more to train would pair arms of two codes.

    Before it is stored, or grows: nothing is changed. Its driver looks once more.
    """
    if accept_code:
        return
    objects.check_writable()  # where it cannot be, reading what is there says less
    codes, runs = CodeOfArms(definition), ArmStore(objects)
    stored = list(arms_by_proposal(objects, definition))
    unread = [arm for s in definition.space.settings for arm in baselines(definition, s.name)]
    for _, proposal, arms in stored:
        verdict = proposal.verdict_on([arm.signature for arm in arms])
        if verdict is None:
            unread += arms
        else:
            for arm, end in zip(arms, verdict.arms, strict=True):
                codes.takes(arm, end)
    if is_judged(definition, stored) and not codes.anew:
        return  # nothing is left to be trained
    records = at_once(lambda arm: runs.record(arm.signature), unread)
    for arm, record in zip(unread, records, strict=True):
        if record is not None:
            codes.takes(arm, record)
    codes.refuse()
