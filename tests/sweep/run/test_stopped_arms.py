"""A sweep whose arms end early: they count as proposals that failed, once and for all."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from search_spaces.space import Sampler, SearchSpace, Setting, Uniform
from sweep.executors.executor import Executor
from sweep.results.best import best_entries
from sweep.results.status import status_of
from sweep.results.sweep_view import load_sweep
from sweep.run.run_sweep import run_sweep
from sweep.study.definition import Definition, put_definition
from sweep.study.pairs import ProposalResult, join
from sweep.study.proposals import ProposalOutcome, put_judged, put_proposal
from sweep.study.sampler import propose
from tests.support.oracles import TINY
from tests.support.proposals import stored_proposals
from tests.support.records import ended, finished, pair_config
from tests.support.training.trials import told
from trainables.records.arm_record import REPORTED_MISSING_SHARE, ArmRecord, Report, Status
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore
from trainables.trial import ArmTrial


def definition(sampler: Sampler) -> Definition:
    """Every arm ends early: the network is blank from its start, and trains too slowly to mend."""
    blank = TINY.with_fields({"model.variant": "literal", "primal_lr": 1e-6})
    space = SearchSpace(
        name="blank",
        summary="",
        base=blank,
        settings=(Setting("g0.15", {}),),
        ranges={"constraint.alpha": Uniform(0.1, 0.3)},
        n_proposals=4,
        search_seeds=(0,),
        sampler=sampler,
    )
    return Definition("blank", space)


def records(objects: ObjectStore) -> dict[str, ArmRecord | None]:
    runs = ArmStore(objects)
    return {signature: runs.record(signature) for signature in load_sweep(objects, "blank").arms}


@pytest.mark.parametrize("sampler", ["random", "tpe", "gp"])
def test_stopped_arms_are_failed_proposals_and_are_never_trained_again(
    sampler: Sampler, tmp_path: Path
) -> None:
    objects = ObjectStore(tmp_path)
    asked = put_definition(objects, definition(sampler))
    summary = run_sweep(objects, asked, Executor("inline"), display=False)
    assert summary.is_done
    assert summary.outcomes["stopped"] == sum(summary.outcomes.values()) == 4
    assert summary.exit_code == 0  # like diverged: a result
    assert summary.problems == ()

    proposals = stored_proposals(objects, asked.name, "g0.15")
    told = [p.outcome.observation(p.point) for p in proposals if p.outcome is not None]
    assert [t.is_usable for t in told] == [True] * 4
    runs = ArmStore(objects)
    for proposal, of in zip(proposals, told, strict=True):
        assert proposal.outcome is not None
        (record,) = map(runs.record, proposal.outcome.signatures)
        assert record is not None
        assert of.worst_missing_share == record.reports[-1].scalars[REPORTED_MISSING_SHARE]
        assert math.isnan(of.objective)
    assert propose(asked.space, "g0.15", 4, told)  # the search goes on

    before = records(objects)
    assert {record.status for record in before.values() if record} == {"stopped"}
    for retry in (False, True):
        again = run_sweep(objects, asked, Executor("inline"), display=False, retry_failed=retry)
        assert again.is_done
        assert records(objects) == before  # started_ms and ended_ms too: nothing was trained


def test_a_sweep_of_stopped_arms_says_why_it_has_no_winner(tmp_path: Path) -> None:
    objects = ObjectStore(tmp_path)
    asked = put_definition(objects, definition("random"))
    run_sweep(objects, asked, Executor("inline"), display=False)
    view = load_sweep(objects, asked.name)
    (entry,) = best_entries(view, {})
    assert entry["winner"] is False
    assert (
        "every proposal failed, diverged or was stopped; the first: ended at step" in entry["why"]
    )
    assert entry["lost"] == {"stopped": 4}
    shown = status_of(view)
    assert shown.statuses == {"stopped": 5}
    assert all("ended at step" in failure.reason for failure in shown.failures)
    assert len(shown.failures) == 5


@pytest.mark.parametrize(
    ("tolerance", "status"), [(0.1, "stopped"), (0.05, "stopped"), (0.95, "finished")]
)
def test_an_arm_that_misses_what_its_sweep_tolerates_trains_to_its_end(
    tmp_path: Path, tolerance: float, status: Status
) -> None:
    """It is wound up half-way, where it misses .93; where that is met, its multipliers may stay."""
    space = replace(
        definition("random").space,
        base=TINY.with_fields({"constraint.alpha": 0.5}),
        ranges={},
        n_proposals=1,
        tolerance=tolerance,
    )
    objects = ObjectStore(tmp_path)
    asked = put_definition(objects, Definition("blank", space))
    run_sweep(objects, asked, Executor("inline"), display=False)
    ended_as = {
        record.config.constraint: record.status for record in records(objects).values() if record
    }
    assert ended_as == {None: "finished", space.base.constraint: status}
    on_ray = ObjectStore(tmp_path / "other")  # as a worker of Ray trains it, in this process
    trial = ArmTrial(config=told(space.base, on_ray.root, tolerance=tolerance))
    while not trial.train()["done"]:
        pass
    record = ArmStore(on_ray).record(space.base.signature())
    assert record is not None
    assert record.status == status


@pytest.mark.parametrize("ended_as", ["stopped", "diverged"])
def test_one_seed_that_ends_early_keeps_what_the_other_measured(
    ended_as: Status, objects: ObjectStore
) -> None:
    first, second = pair_config(seed=0), pair_config(seed=1)
    losses = [0.5, 0.4, 0.3, 0.2]
    whole = join(finished(first, losses, objective=-0.3), finished(first.unconstrained(), losses))
    early = join(
        replace(
            ended(second, ended_as, "why"),
            reports=[
                Report(
                    step=step, timestamp_ms=0, scalars={REPORTED_MISSING_SHARE: share}, layers={}
                )
                for step, share in ((20, 1.9), (30, 1.7))
            ],
        ),
        finished(second.unconstrained(), losses),
    )
    result = ProposalResult(0, {}, (whole, early))
    assert math.isnan(result.objective)
    assert math.isnan(result.worst_missing_share)
    put_judged(objects, "s", "a", {0: {}}, {0: ProposalOutcome.from_result(result)})
    put_proposal(objects, "s", "a", 0, {})
    (stored,) = stored_proposals(objects, "s", "a")  # as after a restart
    assert stored.outcome is not None
    told = stored.outcome.observation({})
    assert told.outcome == ended_as
    assert told.objective == -0.3
    assert whole.judgement is not None
    measured = 1.7 if ended_as == "stopped" else whole.judgement.worst
    assert told.worst_missing_share == measured


def test_one_stopped_seed_keeps_a_proposal_from_winning_and_a_stopped_baseline_is_counted() -> None:
    good, bad = pair_config(seed=0), pair_config(seed=1)
    losses = [0.5, 0.4, 0.3, 0.2]
    plain = [0.5, 0.4, 0.4, 0.2]  # misses the constraint
    whole = join(finished(good, losses), finished(good.unconstrained(), plain))
    without_arm = join(ended(bad, "stopped", "blank"), finished(bad.unconstrained(), losses))
    without_baseline = join(finished(bad, losses), ended(bad.unconstrained(), "stopped", "blank"))
    assert ProposalResult(0, {}, (whole, whole)).can_win
    result = ProposalResult(0, {}, (whole, without_arm))
    assert result.outcome == "stopped"
    assert not result.can_win
    result = ProposalResult(0, {}, (whole, without_baseline))
    assert result.outcome == "feasible"
    assert result.can_win  # that plain training came to nothing is a result
    assert [p.compared.status for p in result.pairs if p.compared] == ["finished", "stopped"]
