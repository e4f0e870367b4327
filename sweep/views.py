"""What a sweep has come to, read from the store: per setting its winner or closest pair, as JSON.

Reading needs no driver and works while one runs: what is final counts, the rest is listed as open.
Over several search seeds a number is the mean, except that missing shares and claims are the worst:
feasible, useful and vacuous hold when they hold on every seed. ``seeds`` has each seed alone;
the signature, config and MLflow run beside an aggregate are those of the first search seed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from search_spaces.space import Setting
from sweep.definition import Definition, load_definition
from sweep.pairs import join
from sweep.proposals import (
    ProposalOutcome,
    StoredProposal,
    retired_settings,
    stored_proposals,
)
from sweep.score_entries import (
    arms_entry,
    difference_entry,
    finite,
    references_entry,
)
from sweep.selection import ProposalResult, SettingResult, select
from trainables.object_store import ObjectStore
from trainables.results import ArmRecord, Outcome, Status
from trainables.run_store import RunStore

Json = Any
State = Literal["running", "stopped", "failed", "finished"]


@dataclass(frozen=True)
class ArmPlace:
    """One arm that the definition asks for, and what the store holds of it."""

    signature: str
    setting: str
    proposal: int | None  # None: an unconstrained arm of a search seed
    # None: it never reported. Of constrained arms, which may be thousands, without evaluation and
    record: ArmRecord | None  # with their last report alone

    @property
    def is_final(self) -> bool:
        """Whether it has its outcome."""
        return self.record is not None and self.record.is_final


@dataclass(frozen=True)
class SettingView:
    """One setting as the store shows it now."""

    setting: Setting
    proposals: tuple[StoredProposal, ...]
    arms: tuple[ArmPlace, ...]  # every arm of the setting known so far; shared ones in each setting
    results: tuple[ProposalOutcome, ...]  # proposals whose constrained arms are final on every seed
    chosen: SettingResult


@dataclass(frozen=True)
class SweepView:
    """One sweep as the store shows it now."""

    definition: Definition
    settings: tuple[SettingView, ...]
    retired: Mapping[str, str] = field(default_factory=dict)  # setting: why its search ended early

    @property
    def arms(self) -> dict[str, ArmPlace]:
        """Every arm known so far, each signature once, in the first setting that asks for it."""
        found: dict[str, ArmPlace] = {}
        for view in self.settings:
            for arm in view.arms:
                found.setdefault(arm.signature, arm)
        return found

    @property
    def is_finished(self) -> bool:
        """Whether every proposal asked for is stored and every arm of it is final."""
        wanted = self.definition.space.proposals_of
        return all(
            len(view.proposals) >= wanted(view.setting) and all(arm.is_final for arm in view.arms)
            for view in self.settings
        )


def load_sweep(objects: ObjectStore, name: str) -> SweepView:
    """Read the sweep called ``name``; UnknownName when there is none."""
    definition = load_definition(objects, name)
    settings = tuple(_setting(objects, definition, s) for s in definition.space.settings)
    return SweepView(definition, settings, retired_settings(objects, name))


def _setting(objects: ObjectStore, definition: Definition, setting: Setting) -> SettingView:
    space = definition.space
    proposals = tuple(stored_proposals(objects, definition.name, setting.name))
    read = RunStore(objects).record
    arms: list[ArmPlace] = []
    twins: list[ArmRecord | None] = []
    for seed in space.search_seeds:
        signature = space.run(setting, {}, seed=seed).unconstrained().signature()
        twins.append(read(signature))
        arms.append(ArmPlace(signature, setting.name, None, twins[-1]))
    outcomes: list[ProposalOutcome] = []

    def joined() -> Iterator[ProposalResult]:
        for proposal in proposals:
            final: list[ArmRecord] = []
            for seed in space.search_seeds:
                signature = space.run(setting, proposal.point, seed=seed).signature()
                record = read(signature)
                arms.append(ArmPlace(signature, setting.name, proposal.number, _short(record)))
                if record is not None and record.is_final:
                    final.append(record)
            if len(final) == len(space.search_seeds):
                pairs = tuple(join(ours, theirs) for ours, theirs in zip(final, twins, strict=True))
                result = ProposalResult(proposal.number, proposal.point, pairs)
                outcomes.append(ProposalOutcome.of(result))
                yield result

    chosen = select(setting.name, joined())
    return SettingView(setting, proposals, tuple(arms), tuple(outcomes), chosen)


def _short(record: ArmRecord | None) -> ArmRecord | None:
    return record and replace(record, reports=record.reports[-1:], evaluation=None)


# --- `sweep best` --------------------------------------------------------------------------------


def best(view: SweepView, run_ids: Mapping[str, str]) -> list[dict[str, Json]]:
    """One entry per setting: its winner, or the closest pair and why there is no winner.

    Args:
        view: the sweep.
        run_ids: MLflow run by signature, as far as they are known.
    """
    return [finite(_best(view, setting, run_ids)) for setting in view.settings]


def _best(view: SweepView, setting: SettingView, run_ids: Mapping[str, str]) -> dict[str, Json]:
    chosen = setting.chosen
    shown = chosen.shown
    pairs = () if shown is None else shown.pairs
    seeds = view.definition.space.search_seeds
    ours = [(p.constrained, p.judgement) for p in pairs]
    theirs = [(p.unconstrained, p.unconstrained_judgement) for p in pairs if p.unconstrained]
    if not pairs:  # the unconstrained arms come first: show them before any proposal is finished
        theirs = [(a.record, None) for a in setting.arms if a.proposal is None and a.record]
    every = [record for record, _ in (*ours, *theirs)]
    return {
        "setting": setting.setting.name,
        "task": view.definition.space.base.task,
        "winner": chosen.winner is not None,
        "why": chosen.why or None,
        "outcomes": dict(chosen.outcomes),
        "lost": lost(setting),
        "proposals": {
            "wanted": view.definition.space.proposals_of(setting.setting),
            "stored": len(setting.proposals),
            "finished": len(setting.results),
        },
        "proposal": None if shown is None else shown.number,
        "point": None if shown is None else shown.point,
        "search_seeds": list(seeds),
        "matched_capacity": matched_capacity(view, setting),
        "vacuous": bool(pairs) and all(p.is_vacuous for p in pairs),
        "constrained": arms_entry(ours, run_ids),
        "unconstrained": arms_entry(theirs if len(theirs) == len(seeds) else [], run_ids),
        "difference": difference_entry(pairs),
        "references": references_entry(every),
        "seeds": {
            str(seed): {
                "constrained": arms_entry([(p.constrained, p.judgement)], run_ids),
                "unconstrained": arms_entry(
                    [(p.unconstrained, p.unconstrained_judgement)] if p.unconstrained else [],
                    run_ids,
                ),
                "difference": difference_entry([p]),
            }
            for seed, p in zip(seeds, pairs, strict=False)
        },
    }


def matched_capacity(view: SweepView, setting: SettingView) -> bool:
    """Whether both arms of the setting's shown pair have the same parameters to train."""
    space, shown = view.definition.space, setting.chosen.shown
    point = {} if shown is None else shown.point
    return space.run(setting.setting, point, seed=space.search_seeds[0]).matched_capacity


def lost(setting: SettingView) -> dict[str, int]:
    """Why the proposals that are finished and did not win lost: how many for each reason."""
    winner = setting.chosen.winner
    reasons: dict[str, int] = {}
    for result in setting.results:
        if winner is not None and result.number == winner.number:
            continue
        reason: str = result.outcome
        if result.outcome == "feasible":
            reason = "worse objective" if result.can_win else "feasible, not useful"
        reasons[reason] = reasons.get(reason, 0) + 1
    return reasons


# --- `sweep status` -------------------------------------------------------------------------------


def state(view: SweepView, *, is_running: bool) -> State:
    """What a sweep does now, from its records; for every verb that says it."""
    if is_running:
        return "running"
    if not view.is_finished:
        return "stopped"
    outcomes = {result.outcome for setting in view.settings for result in setting.results}
    return "failed" if outcomes == {"failed"} else "finished"


def proposals_done(view: SweepView) -> int:
    """How many proposals have every constrained arm final."""
    return sum(len(setting.results) for setting in view.settings)


ENDED_EARLY: tuple[Status, ...] = ("failed", "diverged", "stopped")  # what needs a user comes first


def status(view: SweepView, *, is_running: bool = False) -> dict[str, Json]:
    """How far a sweep is: arms by what became of them, settings by proposals, arms not yet final.

    Args:
        view: the sweep.
        is_running: whether a driver works on it: without one no arm is in training.
    """
    arms = view.arms.values()
    final = sum(arm.is_final for arm in arms)
    space = view.definition.space
    missing = sum(max(space.proposals_of(s.setting) - len(s.proposals), 0) for s in view.settings)
    begun = [a for a in arms if a.record is not None and not a.record.is_final]
    training, interrupted = (begun, []) if is_running else ([], begun)
    return {
        "state": state(view, is_running=is_running),
        "arms": {
            "wanted": len(arms) + missing * len(space.search_seeds),
            "final": final,
            "training": len(training),
            "interrupted": len(interrupted),
        },
        "statuses": _count(a.record.status for a in arms if a.record is not None),
        "settings": [
            finite(_setting_status(s, space.proposals_of(s.setting))) for s in view.settings
        ],
        "retired": dict(view.retired),
        "in_training": [finite(_progress(arm)) for arm in training],
        "interrupted": [finite(_progress(arm)) for arm in interrupted],
        "warnings": [
            {"signature": a.signature, "setting": a.setting, "warning": warning}
            for a in arms
            if a.record is not None
            for warning in a.record.warnings
        ],
        "failures": [
            {
                "signature": a.signature,
                "setting": a.setting,
                "status": status,
                "reason": a.record.reason,
            }
            for status in ENDED_EARLY
            for a in arms
            if a.record is not None and a.record.status == status
        ],
    }


def _setting_status(setting: SettingView, wanted: int) -> dict[str, Json]:
    winner = setting.chosen.winner
    return {
        "setting": setting.setting.name,
        "proposals": {
            "wanted": wanted,
            "stored": len(setting.proposals),
            "finished": len(setting.results),
        },
        "outcomes": dict(setting.chosen.outcomes),
        "winner": None if winner is None else winner.number,
        "objective": None if winner is None else winner.objective,
    }


def _progress(arm: ArmPlace) -> dict[str, Json]:
    assert arm.record is not None
    last = arm.record.reports[-1] if arm.record.reports else None
    return {
        "signature": arm.signature,
        "setting": arm.setting,
        "proposal": arm.proposal,
        "seed": arm.record.config.seed,
        "step": 0 if last is None else last.step,
        "steps": arm.record.config.steps,
        "reported_ms": None if last is None else last.timestamp_ms,
    }


# --- plain values ---------------------------------------------------------------------------------


def _count(names: Iterator[str]) -> dict[str, int]:
    return dict(sorted(Counter(names).items()))


def outcome_text(outcomes: Mapping[Outcome, int] | Mapping[str, int]) -> str:
    """Counts above zero in words.

    >>> outcome_text({"feasible": 2, "infeasible": 1, "diverged": 0})
    '2 feasible, 1 infeasible'
    """
    return ", ".join(f"{count} {name}" for name, count in outcomes.items() if count) or "none yet"
