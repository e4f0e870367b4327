"""The option `sweep confirm --replications`: tuning repeated, its table, and what it refuses."""

from __future__ import annotations

import functools
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from search_spaces.space import SearchSpace
from sweep.api import training
from sweep.cli import replications as verb
from sweep.confirmation.plan import (
    ReplicationsPlan,
    load_plan,
    load_replications,
    planned_seeds,
    replications_of,
)
from sweep.confirmation.replications import trained_by
from sweep.results.sweep_view import load_sweep
from sweep.run.coordinator import Coordinator
from sweep.statistics.decisions import table
from sweep.study.arms import Arm
from sweep.study.definition import load_definition, put_extension, sweep_names
from tests.support import confirmations as hand
from tests.support import toy_sweeps as toy
from tests.support.command_line import SPACE_FILE, refused, sweep
from tests.support.proposals import stored_proposals
from tests.support.records import ended, finished
from tests.support.sweeps import (
    FEASIBLE,
    FIRST,
    INFEASIBLE,
    PLAIN,
    SECOND,
    SPACE,
    USELESS,
    store_sweep,
)
from trainables.records.arm_record import ArmRecord
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore

# Plain training stands where the constraint does, so that four steps find a winner: it has to be
# better than trivial alone. Long windows and few gammas: an arm's evaluation takes the whole test
# split.
PLAINLY = (
    SPACE_FILE.replace("Uniform", "LogUniform")
    .replace(
        "steps=4, report_every=2)",
        "data=replace(TINY.data, frames=20, patch_size=16), train_gamma=0.5, "
        "test_gammas=(0.0, 0.5, 1.0), eval_draws=1, steps=4, report_every=4)"
        '.with_fields({"constraint.weights_by": "last_layer"})',
    )
    .replace('"constraint.alpha": LogUniform(0.1, 0.3)', '"primal_lr": LogUniform(0.002, 0.01)')
)
DESCENDS = [0.5, 0.3, 0.18, 0.1]  # feasible at every alpha of the space
ONCE = ("--rule", "fixed")
ONE = replace(SPACE, settings=SPACE.settings[:1], search_seeds=(0,), n_proposals=2)


def side(arm: Arm) -> str:
    constraint = arm.config.constraint
    if constraint is None:
        return "unconstrained"
    return "tuned_plain" if constraint.weights_by == "last_layer" else "constrained"


def score(gamma: float, kind: str, seed: int) -> float:
    """The metric of a final arm, lower is better: the constrained ones by 1 and a bit."""
    better = {"constrained": 1.0 + 0.1 * (seed % 3), "tuned_plain": 0.0, "unconstrained": -0.5}
    return 12.0 + gamma - better[kind]


class Trainer:
    """Stands in for training: a real coordinator, and records by hand."""

    def __init__(self) -> None:
        self.trained: list[str] = []
        self.ends: dict[tuple[str, str, int], str | list[float]] = {}  # setting, side, seed
        self.left = 10_000  # arms before it is interrupted

    def __call__(self, objects: ObjectStore, definition: Any, *args: Any, **options: Any) -> int:
        accepts = options.get("accept_code", False)
        coordinator = Coordinator(objects, definition, accept_code=accepts)
        coordinator.start()
        arms = toy.train(coordinator, self.record, self.left)
        self.left -= len(arms)
        self.trained += [arm.signature for arm in arms]
        return 0 if coordinator.summary().is_done else 1

    def record(self, arm: Arm) -> ArmRecord:
        kind, seed = side(arm), arm.config.seed
        own = self.ends.get((arm.setting, kind, seed), PLAIN if kind != "constrained" else DESCENDS)
        if isinstance(own, str):
            return ended(arm.config, own, "the loss is nan.")
        if arm.config.measured_on == "dev":
            return finished(arm.config, own)
        value = score(arm.config.train_gamma, kind, seed)
        units = {"dev_units": [f"c{i}:0" for i in range(12)], "dev_losses": [own] * 12}
        scores = dict.fromkeys(("0.00", "0.20", "0.40"), value)
        return finished(arm.config, own, scores=scores, split="test", **units)


@pytest.fixture
def trainer(
    request: pytest.FixtureRequest, objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> Trainer:
    """A finished search called tiny, of this space or the smallest; replications train at once."""
    store_searched(objects, getattr(request, "param", ONE))
    found = Trainer()
    monkeypatch.setattr(training, "train", found)
    for name in ("resolved", "resolve_fresh"):
        monkeypatch.setattr(verb, name, lambda definition, **_: definition)
    return found


def store_searched(objects: ObjectStore, space: SearchSpace) -> None:
    came_to = {setting.name: [FEASIBLE] * space.n_proposals for setting in space.settings}
    store_sweep(objects, came_to, space=space)


def replications(objects: ObjectStore, count: int, *words: str, exits: int = 0) -> Any:
    said = sweep(
        "confirm", "tiny", "--replications", str(count), *words, "--json",
        "--storage", objects.root, exits=exits,
    )  # fmt: skip
    return json.loads(said.stdout) if not exits else said.stderr


def planned(objects: ObjectStore) -> ReplicationsPlan:
    plan = load_replications(objects, "tiny.replications")
    assert plan is not None
    return plan


def by_setting(entry: Any) -> dict[str, Any]:
    return {one["setting"]: one for one in entry["settings"]}


@pytest.mark.slow
def test_replications_end_to_end(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(PLAINLY)
    root = ("--storage", str(tmp_path / "store"), "--where", "inline")
    sweep("run", str(tmp_path / "mine.py"), *root)
    objects = ObjectStore(tmp_path / "store")
    before = set(objects.names("arms"))
    said = sweep("confirm", "mine", "--replications", "2", *root)
    out = " ".join(said.stdout.split())
    assert "both sides of mine tuned anew in every replication, test split. 2 of 2 planned" in out
    assert "The unit is the replication" in out
    assert "Departs from the plan" not in out
    assert len(set(objects.names("arms")) - before) == 2 * (1 + 1 + 1 + 3)
    again = sweep("confirm", "mine", "--replications", "2", *root)
    assert again.stdout == said.stdout
    assert again.stderr == ""


def test_what_continues_them_has_the_options_they_were_given(
    objects: ObjectStore, trainer: Trainer
) -> None:
    trainer.left = 1
    told = replications(objects, 2, *ONCE, "--workers", "3", "--fuse", "2", exits=1)
    assert "replication 1 of 2 is unfinished" in told
    again = "confirm tiny --replications 2 --workers 3 --fuse 2"
    assert again in " ".join(told.split())


@pytest.mark.parametrize("trainer", [SPACE], indirect=True)
def test_differences_are_those_of_the_stored_records(
    objects: ObjectStore, trainer: Trainer
) -> None:
    dry = replications(objects, 3, *ONCE, "--dry-run")
    assert sweep_names(objects) == ["tiny"]
    assert load_replications(objects, "tiny.replications") is None
    searched = [tuple(seeds) for seeds in dry["search_seeds"]]
    trainer.ends = {
        **{(FIRST, "constrained", seed): INFEASIBLE for seed in searched[1]},
        **{(SECOND, "tuned_plain", seed): USELESS for seed in searched[2]},
        (SECOND, "constrained", 1001): "diverged",
    }
    entry = replications(objects, 3, *ONCE)
    plan = planned(objects)
    assert {name: dry[name] for name in plan.to_json()} == json.loads(json.dumps(plan.to_json()))
    gammas = {FIRST: 0.15, SECOND: 0.2}
    constant = 50.0  # of ``finished``
    expected: dict[str, dict[int, float]] = {FIRST: {}, SECOND: {}}
    store = ArmStore(objects)
    for number in (1, 2, 3):
        definition = load_definition(objects, f"tiny.replication-{number}.confirmation")
        assert definition.space.search_seeds == (999 + number,)
        own: dict[tuple[str, str], ArmRecord] = {}
        for setting, kind, config in hand.every_arm(definition):
            record = store.record(config.signature())
            assert record is not None
            own[setting, kind] = record
        for setting in (FIRST, SECOND):
            ours, theirs = (own.get((setting, kind)) for kind in ("constrained", "tuned_plain"))
            if ours is None:
                expected[setting][number] = 0.0
                continue
            values = [
                constant
                if record is None or record.evaluation is None
                else record.evaluation.scores["0.40"]
                for record in (ours, theirs)
            ]
            expected[setting][number] = values[1] - values[0]
    assert expected[FIRST][2] == 0.0
    assert expected[SECOND][2] == score(0.2, "tuned_plain", 1001) - constant
    assert expected[SECOND][3] == constant - score(gammas[SECOND], "constrained", 1002)
    shown = by_setting(entry)
    for setting, values in expected.items():
        found = {int(number): d for number, d in shown[setting]["per_replication"].items()}
        assert found == pytest.approx(values)
    rows = [row.to_json() for row in table(plan.design, expected, (1, 2, 3))]
    for row, one in zip(rows, [*entry["families"], shown[FIRST], shown[SECOND]], strict=True):
        numbers = {n: v for n, v in row.items() if isinstance(v, float)}
        assert {n: one[n] for n in numbers} == pytest.approx(numbers)
        assert (one["replications"], one["outcome"]) == (3, row["outcome"])
    assert shown[FIRST]["no_winner"] == {"constrained": 1, "tuned_plain": 0}
    assert shown[SECOND]["no_winner"] == {"constrained": 0, "tuned_plain": 1}
    assert shown[SECOND]["counted_as_constant"] == {"constrained": 1, "tuned_plain": 0}
    assert shown[FIRST]["certified"] == {"feasible": 2, "trained": 2}
    assert "1 constrained and 0 tuned plain arms ended without a result" in entry["deviations"][0]


def test_replications_share_no_seed_and_propose_anew(
    objects: ObjectStore, trainer: Trainer
) -> None:
    entry = replications(objects, 2)
    plan, search = planned(objects), load_definition(objects, "tiny").space
    every = [*search.search_seeds, *plan.seeds, *(s for of in plan.search_seeds for s in of)]
    assert len(every) == len(set(every)) == 1 + 2 + 2 * 1
    for suffix in ("", ".tuned_plain"):
        names = ["tiny", "tiny.replication-1", "tiny.replication-2"][bool(suffix) :]
        spaces = [load_definition(objects, name + suffix).space for name in names]
        assert {space.n_proposals for space in spaces} == {2}
        assert len({space.sampler_seed for space in spaces}) == len(names)
        points = [
            repr(proposal.point)
            for name in names[suffix == "" :]
            for proposal in stored_proposals(objects, name + suffix, FIRST)
            if proposal.number > 0  # the default point is the first try of every search
        ]
        assert len(points) == len(set(points)) == 2
    assert entry["deviations"] == []
    assert entry["replications"]["complete"] == 2


def test_it_goes_on_where_it_was_interrupted(objects: ObjectStore, trainer: Trainer) -> None:
    seen = []
    for left in (2, 4, 5, 10_000):
        trainer.left = left
        said = replications(objects, 2, exits=0 if left > 100 else 1)
        seen.append(len(trainer.trained))
        if left < 100:
            assert "sweep confirm tiny --replications 2" in said
    assert seen == [2, 6, 11, 2 * (3 + 2 + 3)]
    assert max(Counter(trainer.trained).values()) == 1
    assert said["replications"]["complete"] == 2
    assert replications(objects, 2) == said
    assert len(trainer.trained) == seen[-1]


def test_beside_arms_of_other_code_they_go_on_where_that_is_accepted(
    objects: ObjectStore, trainer: Trainer
) -> None:
    trainer.left = 2
    replications(objects, 2, exits=1)
    name = f"arms/{trainer.trained[0]}/record.json"
    plain = objects.get_json(name)
    objects.put_json(name, {**plain, "environment": {"training_code": {"trainables": "00000000"}}})
    trainer.left = 10_000
    refused = replications(objects, 2, exits=2)
    assert "tiny.replication-1 uses 1 arm of other code" in refused
    assert "--accept-code" in refused
    assert replications(objects, 2, "--accept-code")["replications"]["complete"] == 2


def test_a_search_without_any_winner_counts(objects: ObjectStore, trainer: Trainer) -> None:
    trainer.ends |= {(FIRST, "constrained", seed): INFEASIBLE for seed in (2000, 2001)}
    entry = replications(objects, 2, *ONCE)
    assert sweep_names(objects) == ["tiny", "tiny.replication-1", "tiny.replication-2"]
    (one,) = entry["settings"]
    assert (one["mean"], one["outcome"], one["replications"]) == (0.0, "undecided", 2)
    assert one["no_winner"] == {"constrained": 2, "tuned_plain": 0}
    assert one["certified"] == {"feasible": 0, "trained": 0}


def test_it_ends_when_all_is_decided(objects: ObjectStore, trainer: Trainer) -> None:
    entry = replications(objects, 9, "--rule", "any_time", "--until-decided")
    assert 5 < entry["replications"]["complete"] < 9
    assert [one["outcome"] for one in entry["families"]] == ["better"]
    assert {one["marked"] for one in entry["settings"]} == {"better"}


def test_the_plan_stays(objects: ObjectStore, trainer: Trainer) -> None:
    replications(objects, 2)
    trained = len(trainer.trained)
    root = ("--storage", objects.root)
    said = refused("confirm", "tiny", "--replications", "3", *root)
    assert "is planned with 2 replications, got --replications 3" in said
    said = refused("confirm", "tiny", "--replications", "2", "--rule", "any_time", *root)
    assert "the confirmation tiny.replications has a plan already" in said
    assert "--rule: planned looks, requested any_time" in said
    said = refused("confirm", "tiny", "--replications", "2", "--error", "0.1", *root)
    assert "--error: planned 0.05, requested 0.1" in said
    search = load_definition(objects, "tiny")
    put_extension(objects, search.extended(n_proposals=3))
    assert "tiny is not finished" in refused("confirm", "tiny", "--replications", "2", *root)
    trainer(objects, load_definition(objects, "tiny"))
    assert replications(objects, 2)["deviations"] == []  # their tries are those of the plan
    put_extension(objects, load_definition(objects, "tiny.replication-1").extended(n_proposals=3))
    (said,) = replications(objects, 2)["deviations"]
    assert "tiny.replication-1 made 3 tries on seeds [2000], planned were 2" in said
    assert len(trainer.trained) == trained + 1


def test_readings_beside_them_are_named_and_they_are_one(
    objects: ObjectStore, trainer: Trainer
) -> None:
    replications(objects, 2)
    plan, definition = hand.stored(objects, hand.wanted(seeds=2))
    hand.trained(objects, definition, lambda setting, kind, seed: 9.0 + seed % 7)
    (said,) = replications(objects, 2)["deviations"]
    assert "read 2 times" in said
    assert "also by tiny.confirmation (of tiny):" in said
    for name, other in (
        ("tiny.confirmation", "also by tiny.replications (of tiny):"),
        ("tiny.replication-1.confirmation", "also by tiny.confirmation (of tiny):"),
    ):
        shown = json.loads(sweep("best", name, "--json", "--storage", objects.root).stdout)
        assert "read 2 times" in shown["deviations"][0]
        assert other in shown["deviations"][0]
    sweep("rm", plan.name, "--yes", "--storage", objects.root)
    sweep("rm", "tiny.replication-2.confirmation", "--yes", "--storage", objects.root)
    trained = len(trainer.trained)
    (said,) = replications(objects, 2)["deviations"]
    assert "read 3 times" in said
    assert "tiny.replication-2.confirmation (of tiny.replication-2, plan" in said
    assert len(trainer.trained) == trained + 3
    other = replications(objects, 2, "--name", "more")
    assert "tiny.replications (of tiny)" in other["deviations"][0]
    assert len(trainer.trained) > trained + 3  # winners meet on seeds that nobody has used


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--replications", "1"), "--replications must be at least 2, got 1"),
        (("--replications", "2", "--proposal", f"{FIRST}=0"), "got --proposal"),
        (("--replications", "2", "--controls", "penalty"), "got --controls penalty"),
        (("--replications", "2", "--seeds", "5"), "Leave --seeds out"),
        (("--replications", "2", "--address", "http://h:8265"), "--where cluster'"),
    ],
)
def test_what_makes_no_sense_is_refused(
    objects: ObjectStore, words: tuple[str, ...], text: str
) -> None:
    store_searched(objects, ONE)
    assert text in refused("confirm", "tiny", *words, "--storage", objects.root)


def test_another_search_of_that_name_is_no_replication_of_it(
    objects: ObjectStore, trainer: Trainer
) -> None:
    replications(objects, 2)
    search = load_sweep(objects, "tiny").definition
    objects.delete_folder("sweeps/tiny")
    store_searched(objects, replace(search.space, tolerance=0.2))
    said = refused("confirm", "tiny", "--replications", "2", "--storage", objects.root)
    assert "planned for another search than the stored tiny" in said
    assert load_plan(objects, "tiny.replications") is None  # a file of its own


def test_the_text_of_plan_and_table(
    objects: ObjectStore, trainer: Trainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    words = ("confirm", "tiny", "--replications", "2", "--storage", objects.root)
    out = sweep(*words, "--dry-run").stdout
    once = " ".join(out.split())
    assert "tiny.replications: 2 replications of tiny" in once
    assert "2 tries a setting on 1 seed of its own, from 2000 on" in once
    assert "Tested at 2 replications" in once
    assert "differences between replications" in once
    assert "Cost: 16 arms at most, about" in once
    assert "equivalent below 0.2 grey levels." in once
    assert "A replication: 3 of the search, 2 of tuned_plain, 3 on the fresh seed" in once
    table_out = sweep(*words).stdout
    assert len(trainer.trained) == len(set(trainer.trained)) == 16
    assert "2 of 2 planned replications are complete" in " ".join(table_out.split())
    for text in (out, table_out):
        assert max(map(len, text.splitlines())) <= 80
        assert all(line == line.rstrip() for line in text.splitlines())


def test_the_first_name_of_the_option_is_refused_with_the_present_one() -> None:
    assert "--studies is called --replications now." in refused("confirm", "tiny", "--studies", "3")
    assert "--studies" not in sweep("confirm", "--help").stdout


def test_a_plan_that_an_earlier_version_stored_goes_on_under_its_name(
    objects: ObjectStore, trainer: Trainer
) -> None:
    replications(objects, 2)
    trained = len(trainer.trained)
    for path in objects.tree("sweeps"):
        if "replication" in path:
            names = ("replications", "studies"), (".replication-", ".study-")
            earlier = functools.reduce(lambda text, pair: text.replace(*pair), names, path)
            plain = objects.get_json(f"sweeps/{path}")
            if "name" in plain:
                plain["name"] = functools.reduce(
                    lambda text, pair: text.replace(*pair), names, plain["name"]
                )
            if "trained" in plain and plain["name"] == "tiny.studies":  # a hash with its names
                own = ReplicationsPlan.from_json(plain)
                plain["trained"] = trained_by(load_definition(objects, "tiny"), own)
            objects.delete(f"sweeps/{path}")
            objects.put_json(f"sweeps/{earlier}", plain)
    assert "tiny.study-1" in sweep_names(objects)
    entry = replications(objects, 2)
    assert (entry["name"], entry["replications"]["complete"]) == ("tiny.studies", 2)
    assert len(trainer.trained) == trained
    stored = load_replications(objects, "tiny.replications")
    assert stored is not None
    effect = f"{stored.design.smallest_effect:g}"
    at = ("--storage", objects.root, "--smallest-effect")
    again = ["confirm", "tiny", "--replications", "2", *at]
    shown = json.loads(sweep(*again, effect, "--dry-run", "--json").stdout)
    assert (shown["name"], shown["digest"]) == ("tiny.studies", stored.digest)
    assert "tiny.studies has a plan already" in refused(*again, "9.5", "--dry-run")
    assert not objects.exists("sweeps/tiny.replications/replications.json")
    assert replications_of(objects, "tiny.study-1.confirmation") == stored
    assert replications_of(objects, "tiny.replication-1.confirmation") is None
    taken = planned_seeds(objects, "tiny", but="another")
    assert {*stored.seeds, *(s for seeds in stored.search_seeds for s in seeds)} <= taken
