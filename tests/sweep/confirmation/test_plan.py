"""Plans: put once, compared, and what is trained from stage to stage."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from sweep.confirmation.plan import (
    Plan,
    PlannedSetting,
    ReplicationsPlan,
    load_plan,
    planned_seeds,
    put_plan,
)
from sweep.errors import NameTaken
from sweep.statistics.design import Design, Rule
from tests.support.code_figures import ROOT
from trainables.records.objects import ObjectStore

ROW = PlannedSetting(
    name="L3",
    family="ped2, ut",
    proposal=4,
    chosen="winner",
    point={"constraint.alpha": 0.1},
    search_gain={"unseen_mean": 0.3},
)


def plan(seeds: int = 20, rule: Rule = "looks", **fields: object) -> Plan:
    made = Plan(
        name="mine.confirmation",
        search="mine",
        settings=(ROW,),
        controls=("penalty",),
        measure="unseen_mean",
        design=Design.planned({"ped2, ut": ("L3",)}, seeds, rule=rule, smallest_effect=0.2),
        seeds=tuple(range(1000, 1000 + seeds)),
        code="0.1",
    )
    return replace(made, **fields)  # type: ignore[arg-type]


def test_a_plan_is_put_once_and_names_itself(objects: ObjectStore) -> None:
    assert load_plan(objects, "mine.confirmation") is None
    assert put_plan(objects, plan()) == plan() == load_plan(objects, "mine.confirmation")
    assert put_plan(objects, plan(code="0.2")) == plan()  # who made it first counts
    assert plan().digest != plan(seeds=19).digest
    assert len(plan().digest) == 12


def test_plans_that_were_published_keep_their_digest() -> None:
    published = json.loads((ROOT / "benchmarks/results/confirmed.json").read_text())
    assert published
    for of in published.values():
        stored = dict(of["plan"])
        digest = stored.pop("digest")
        kind = ReplicationsPlan if "tuned" in of else Plan
        outcome = of["tuned" if "tuned" in of else "confirmed"]
        assert kind.from_json(stored).digest == digest == outcome["plan"]


@pytest.mark.parametrize(
    ("other", "text"),
    [
        (plan(seeds=10), "--seeds: planned 20, requested 10"),
        (plan(controls=()), "--controls: planned penalty, requested none"),
        (plan(rule="any_time"), "--rule: planned looks, requested any_time"),
        (
            plan(settings=(replace(ROW, proposal=5),)),
            "L3: planned proposal 4, requested proposal 5",
        ),
        (plan(settings=(replace(ROW, name="L5"),)), "L5: planned none"),
        (plan(settings=()), "L3: planned, not requested"),
    ],
)
def test_another_plan_of_that_name_is_refused(objects: ObjectStore, other: Plan, text: str) -> None:
    put_plan(objects, plan())
    with pytest.raises(NameTaken) as refused:
        put_plan(objects, other)
    assert text in str(refused.value)
    assert "--name" in str(refused.value)
    assert load_plan(objects, "mine.confirmation") == plan()


def test_a_plan_that_cannot_be_read_takes_no_seeds_and_is_told(
    objects: ObjectStore, capsys: pytest.CaptureFixture[str]
) -> None:
    put_plan(objects, plan())
    for name in ("mine.confirmation", "other.confirmation"):
        objects.put(f"sweeps/{name}/definition.json", b"{}")
    objects.put("sweeps/other.confirmation/plan.json", b"{}")
    assert planned_seeds(objects, "mine", but="again") == set(plan().seeds)
    assert "the seeds of other.confirmation may be taken again" in capsys.readouterr().err
    objects.put("sweeps/other.replications/replications.json", b"{}")
    assert planned_seeds(objects, "mine", but="again") == set(plan().seeds)
    assert "the seeds of other.replications may be taken again" in capsys.readouterr().err


def test_the_seeds_of_replications_by_any_name_are_taken(objects: ObjectStore) -> None:
    replications = ReplicationsPlan(
        **{**vars(plan()), "name": "again.replications", "seeds": (1000, 1001)},
        search_seeds=((2000,), (2001,)),
    )
    put_plan(objects, replications)
    put_plan(
        objects, replace(replications, name="others.replications", search="others", seeds=(7, 8))
    )
    assert planned_seeds(objects, "mine", but="mine.replications") == {1000, 1001, 2000, 2001}
    assert planned_seeds(objects, "mine", but="again.replications") == set()


def stages(of: Plan) -> list[int]:
    asked = [len(of.first_seeds)]
    while more := of.more_seeds(asked[-1]):
        asked.append(len(more))
        assert more == of.seeds[: len(more)]
    return asked


def test_stages_are_the_looks_or_seed_by_seed() -> None:
    assert stages(plan()) == [20]
    assert stages(plan(until_decided=True)) == [10, 20]
    assert stages(plan(seeds=12, until_decided=True)) == [10, 12]
    assert stages(plan(seeds=6, rule="any_time", until_decided=True)) == [3, 4, 5, 6]
    assert stages(plan(seeds=6, rule="fixed", until_decided=True)) == [6]
