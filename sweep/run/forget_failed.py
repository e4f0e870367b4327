"""Arms that are trained again, or refused: failed ones, and those of other code.

A failure says something of the code that it was met with, and of no other: with other code such an
arm is trained anew, unasked. What came to a result is a measurement of its code, and stays: beside
arms of this code it would make pairs of two, so that a sweep goes on only where it is told to.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

from sweep.errors import CodeDiffers
from sweep.study.advice import counted
from sweep.study.arms import Arm, arms_by_proposal, baselines, is_judged
from sweep.study.definition import Definition
from sweep.study.proposals import ArmEnd, ProposalOutcome, drop_outcomes
from trainables.config.arm import ArmConfig
from trainables.environment import changed_since
from trainables.errors import list_first
from trainables.records.arm_record import THEN, UNKNOWN_CODE, ArmRecord, code_text
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore
from trainables.records.parallel_reads import at_once

# --- failed arms ----------------------------------------------------------------------------------


def forget_failed(objects: ObjectStore, definition: Definition) -> None:
    """Forget every failed arm of the sweep, so that it trains again. Diverged arms are results."""
    runs = ArmStore(objects)

    def failed(arms: list[Arm]) -> list[str]:
        records = at_once(runs.record, [arm.signature for arm in arms])
        return [r.signature for r in records if r is not None and r.status == "failed"]

    # What was judged beside a failed unconstrained arm could not win: it is judged again, too.
    plain = {s.name: failed(baselines(definition, s.name)) for s in definition.space.settings}
    proposals: dict[str, dict[int, list[str]]] = {setting: {} for setting in plain}
    for setting, stored, arms in arms_by_proposal(objects, definition):
        is_failed = stored.outcome is None or stored.outcome.outcome == "failed"
        signatures = failed(arms) if is_failed else []
        if signatures or plain[setting]:
            proposals[setting][stored.number] = signatures
    # Outcomes go before the records that they are of, and shared baselines last: after a kill in
    # between, proposals are judged once more, and the next call still finds what has failed.
    for setting, by_number in proposals.items():
        drop_outcomes(objects, definition.name, setting, by_number)
        for signature in chain.from_iterable(by_number.values()):
            runs.forget(signature)
    for signature in sorted(set(chain.from_iterable(plain.values()))):
        runs.forget(signature)


def failure_problems(
    again: str,
    outcomes: Mapping[str, Mapping[int, ProposalOutcome]],
    failed_baselines: Mapping[str, ArmRecord],
    since_ms: int,
) -> Iterator[str]:
    """Yield a problem for each setting that failures leave without a result or a baseline.

    ``again`` is the command that continues the sweep. What failed before ``since_ms``, when this
    run began, was not tried in it.
    """
    remedy = f"`{again} --retry-failed` trains what failed again, in whichever sweep it did."
    if failed_baselines:
        reason = _failure_text(next(iter(failed_baselines.values())), since_ms)
        arms = counted(len(failed_baselines), "unconstrained arm")
        yield f"{arms} failed; the first: {reason} {remedy}"
    for setting, judged in outcomes.items():
        if judged and all(outcome.outcome == "failed" for outcome in judged.values()):
            ends = [end for end in judged[min(judged)].arms if end.reason]
            reason = _failure_text(ends[0], since_ms) if ends else "no reason is stored."
            every = "its only proposal" if len(judged) == 1 else f"all {len(judged)} proposals"
            yield f"{setting}: {every} failed; the first: {reason} {remedy}"


def _failure_text(end: ArmEnd | ArmRecord, since_ms: int) -> str:
    """The reason of a failure; of one before ``since_ms`` also when and in which sweep it was."""
    if end.ended_ms >= since_ms:
        return end.reason
    when = failure_time_text(end.ended_ms, end.trained_for)
    return f"{end.reason} ({when}, and not tried again here.)"


def failure_time_text(ended_ms: int, trained_for: str | None) -> str:
    """Text on when an arm failed, in this machine's time, and in which sweep."""
    minute = time.strftime("%Y-%m-%d %H:%M", time.localtime(ended_ms / 1000))
    return f"failed at {minute}" + f" in sweep {trained_for}" * bool(trained_for)


# --- arms of other code ---------------------------------------------------------------------------


_SHOWN = 5  # names of files


class CodeOfArms:
    """Comparison of the code that trained a sweep's arms with the code that would train them."""

    def __init__(self, definition: Definition, *, accept_code: bool = False) -> None:
        """Start without any arm; ``accept_code``: arms of other code count as they are."""
        self._accepts = accept_code
        # In a confirmation a failure is a planned arm's outcome.
        self._counts_failures = definition.space.phase == "confirmation"
        self._name = definition.name
        self._current: dict[tuple[str, str, str], str] = {}
        self._others: dict[str, str] = {}  # signature -> the other code that trained it
        self._instead: set[str] = set()  # parts of the code that would train those now
        self._commits: set[str] = set()  # the sources of those, where they are known
        self._unknown: set[str] = set()  # arms whose records do not name all of their code
        self.retrained: set[str] = set()  # arms that failed with other code

    def current_code(self, config: ArmConfig) -> str:
        """The code that would train an arm, as it was when it was first computed."""
        names = (config.task, config.model.name, config.data.name)
        if names not in self._current:
            from trainables.registry.training_code import training_code

            self._current[names] = code_text(training_code(*names))
        return self._current[names]

    def required_codes(self, configs: Sequence[ArmConfig]) -> list[str]:
        """The code that workers must have for these arms; empty: any is accepted."""
        return [] if self._accepts else [self.current_code(config) for config in configs]

    def counts(self, arm: Arm, end: ArmEnd | ArmRecord) -> bool:
        """Note the code that trained an arm; False: its end does not count, it is trained anew."""
        known = set(end.code.split(THEN)) - {UNKNOWN_CODE, ""}
        current = self.current_code(arm.config)
        if known - {current}:
            if end.status == "failed" and not self._counts_failures:
                self.retrained.add(arm.signature)
                return False
            self._others[arm.signature] = end.code
            self._instead |= set(current.split(", "))
            if isinstance(end, ArmRecord) and end.environment.get("dirty") is False:
                self._commits.add(str(end.environment["commit"]))
        elif end.code != current:
            self._unknown.add(arm.signature)
        return True

    def refuse_others(self) -> None:
        """Raise CodeDiffers where arms of other code were met, and are not accepted."""
        if not self._others or self._accepts:
            return
        codes = {one for code in self._others.values() for one in code.split(THEN)}
        stored = {part for code in codes for part in code.split(", ")}
        before, now = stored - self._instead, self._instead - stored
        if not (before and now):  # a part came, or went
            before, now = stored, self._instead
        here = ", ".join(sorted(now))
        files = sorted({file for commit in self._commits for file in changed_since(commit)})
        if files and any(part.startswith("trainables ") for part in before):
            here += f"; since then changed in trainables/: {list_first(files, _SHOWN)}"
        raise CodeDiffers(
            f"{self._name} uses {counted(len(self._others), 'arm')} of other code "
            f"({', '.join(sorted(before))}; here {here}), and a pair of two codes may differ by "
            "its code. Nothing more is trained. Give the same command with --accept-code to take "
            "the results of that code: tables mark pairs of two codes. To train all anew, `sweep "
            "run` it with another --storage; of a confirmation, `sweep confirm` with another "
            "--name. Or restore that code, and give what you changed another name."
        )

    def describe_others(self) -> str:
        """A note for users on arms of other, or of unknown, code; empty where there are none."""
        lines = []
        if self._others:
            codes = "; ".join(sorted(set(self._others.values())))
            arms = counted(len(self._others), "arm")
            lines.append(f"taken as trained: {arms} of other code ({codes})")
        if self.retrained:
            arms = counted(len(self.retrained), "arm")
            lines.append(f"trained anew: {arms} that had failed with other code")
        if self._unknown:
            arms = counted(len(self._unknown), "arm")
            lines.append(
                f"trained before records named their code: {arms}, so that it is not known "
                "whether it was this one"
            )
        return "; ".join(lines)


def refuse_other_code(
    objects: ObjectStore, definition: Definition, *, accept_code: bool = False
) -> None:
    """Raise CodeDiffers where a sweep that has more to train would pair arms of two codes.

    For use before a sweep is stored, or grows: nothing is changed. Its driver checks once more.
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
                codes.counts(arm, end)
    if is_judged(definition, stored) and not codes.retrained:
        return  # nothing is left to be trained
    records = at_once(lambda arm: runs.record(arm.signature), unread)
    for arm, record in zip(unread, records, strict=True):
        if record is not None:
            codes.counts(arm, record)
    codes.refuse_others()
