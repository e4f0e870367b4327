"""Proposals of pairs whose arms finished, written by hand, and those of a store."""

from __future__ import annotations

from sweep.study.pairs import Pair, ProposalResult, join
from sweep.study.proposals import StoredProposal, all_proposals
from tests.support.records import finished, pair_config
from trainables.records.objects import ObjectStore

FEASIBLE = [0.5, 0.4, 0.3, 0.2]
INFEASIBLE = [0.5, 0.4, 0.38, 0.2]  # layer 2 misses (0.38 - 0.32) / 0.08 = 0.75


def proposal(number: int, *pairs: Pair) -> ProposalResult:
    return ProposalResult(number, {"constraint.alpha": 0.2}, pairs)


def pair(
    losses: list[float], *, seed: int = 0, objective: float = 0.0, gamma: float = 0.15
) -> Pair:
    config = pair_config(seed).with_fields({"train_gamma": gamma})
    return join(
        finished(config, losses, objective=objective), finished(config.unconstrained(), INFEASIBLE)
    )


def stored_proposals(objects: ObjectStore, sweep: str, setting: str) -> list[StoredProposal]:
    """Every stored proposal of one setting, by number."""
    return all_proposals(objects, sweep, [setting])[setting]
