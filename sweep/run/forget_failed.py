"""Retry of failed arms: their records and their proposals' outcomes are forgotten."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sweep.study.arms import Arm, arms_by_proposal, baselines
from sweep.study.definition import Definition
from sweep.study.proposals import ProposalOutcome, drop_outcomes
from trainables.errors import StoreError
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore
from trainables.records.parallel_reads import at_once


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


def failures(
    runs: ArmStore,
    again: str,
    outcomes: Mapping[str, Mapping[int, ProposalOutcome]],
    failed_baselines: Mapping[str, str],
) -> Iterator[str]:
    """What failed so that a setting has nothing to show, or nothing to compare with: a line each.

    Args:
        runs: where the reasons are read.
        again: the command that continues the sweep.
        outcomes: what each setting's proposals came to.
        failed_baselines: signature of an unconstrained arm -> why it failed.
    """
    remedy = f"`{again} --retry-failed` trains what failed again, in whichever sweep it did."
    if failed_baselines:
        reason = next(iter(failed_baselines.values()))
        yield f"{len(failed_baselines)} unconstrained arms failed; the first: {reason} {remedy}"
    for setting, of in outcomes.items():
        if of and all(outcome.outcome == "failed" for outcome in of.values()):
            reason = _reason(runs, of[min(of)].signatures)
            yield f"{setting}: all {len(of)} proposals failed; the first: {reason} {remedy}"


def _reason(runs: ArmStore, signatures: tuple[str, ...]) -> str:
    """Why the first of these arms failed."""
    try:
        records = [runs.record(signature) for signature in signatures]
    except StoreError as error:
        return str(error)
    return next((r.reason for r in records if r is not None and r.reason), "no reason is stored.")
