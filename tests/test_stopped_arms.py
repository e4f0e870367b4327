"""A sweep whose arms end early: they count as proposals that failed, once and for all."""

from __future__ import annotations

from pathlib import Path

import pytest

from search_spaces.space import Sampler, SearchSpace, Setting, Uniform
from sweep.definition import Definition, put_definition
from sweep.execution import run_sweep
from sweep.pairs import join
from sweep.proposals import stored_proposals
from sweep.search import propose
from sweep.selection import ProposalResult, select
from sweep.views import best, load_sweep, status
from tests.oracles import TINY
from tests.records import ended, finished, pair_config
from trainables.object_store import ObjectStore
from trainables.results import ArmRecord
from trainables.run_store import RunStore


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
    runs = RunStore(objects)
    return {signature: runs.record(signature) for signature in load_sweep(objects, "blank").arms}


@pytest.mark.parametrize("sampler", ["random", "tpe", "gp"])
def test_stopped_arms_are_failed_proposals_and_are_never_trained_again(
    sampler: Sampler, tmp_path: Path
) -> None:
    objects = ObjectStore(tmp_path)
    asked = put_definition(objects, definition(sampler))
    summary = run_sweep(objects, asked, where="inline", display=False)
    assert summary.is_done
    assert summary.outcomes["stopped"] == sum(summary.outcomes.values()) == 4
    assert summary.exit_code == 0  # like diverged: a result
    assert summary.problems == ()

    proposals = stored_proposals(objects, asked.name, "g0.15")
    told = [p.outcome.told(p.point) for p in proposals if p.outcome is not None]
    assert [t.is_measured for t in told] == [False] * 4
    assert propose(asked.space, "g0.15", 4, told)  # the search goes on

    before = records(objects)
    assert {record.status for record in before.values() if record} == {"stopped"}
    for retry in (False, True):
        again = run_sweep(objects, asked, where="inline", display=False, retry_failed=retry)
        assert again.is_done
        assert records(objects) == before  # started_ms and ended_ms too: nothing was trained


def test_a_sweep_of_stopped_arms_says_why_it_has_no_winner(tmp_path: Path) -> None:
    objects = ObjectStore(tmp_path)
    asked = put_definition(objects, definition("random"))
    run_sweep(objects, asked, where="inline", display=False)
    view = load_sweep(objects, asked.name)
    (entry,) = best(view, {})
    assert entry["winner"] is False
    assert (
        "every proposal failed, diverged or was stopped; the first: ended at step" in entry["why"]
    )
    assert entry["lost"] == {"stopped": 4}
    shown = status(view)
    assert shown["statuses"] == {"stopped": 5}
    assert all("ended at step" in failure["reason"] for failure in shown["failures"])
    assert len(shown["failures"]) == 5


def test_one_stopped_seed_or_twin_keeps_a_proposal_from_winning() -> None:
    good, bad = pair_config(seed=0), pair_config(seed=1)
    losses = [0.5, 0.4, 0.3, 0.2]
    whole = join(finished(good, losses), finished(good.unconstrained(), losses))
    without_arm = join(ended(bad, "stopped", "blank"), finished(bad.unconstrained(), losses))
    without_twin = join(finished(bad, losses), ended(bad.unconstrained(), "stopped", "blank"))
    assert ProposalResult(0, {}, (whole, whole)).can_win
    result = ProposalResult(0, {}, (whole, without_arm))
    assert result.outcome == "stopped"
    assert not result.can_win
    result = ProposalResult(0, {}, (whole, without_twin))
    assert result.outcome == "feasible"
    assert not result.can_win
    why = select("s", [result]).why
    assert why.endswith("has no finished unconstrained arm to stand beside: blank")
