"""The verb `sweep confirm` as its users meet it: plans, training, tables, refusals."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from benchmarks.scale import counted
from sweep.confirmation.plan import load_plan
from sweep.study.arms import stored_arms
from sweep.study.definition import load_definition
from tests.support import confirmations as hand
from tests.support.command_line import SPACE_FILE, refused, sweep
from tests.support.sweeps import FEASIBLE, FIRST, INFEASIBLE, SECOND, store_sweep
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore

# Long windows and few gammas: an arm's evaluation takes the whole test split.
SMALL = SPACE_FILE.replace(
    "steps=4",
    "data=replace(TINY.data, frames=20, patch_size=16), test_gammas=(0.0, 0.15, 0.5), "
    "eval_draws=1, steps=4",
)


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished search of one setting below this root."""
    folder = tmp_path_factory.mktemp("search")
    (folder / "mine.py").write_text(SMALL)
    root = folder / "store"
    sweep("run", str(folder / "mine.py"), "--storage", str(root), "--where", "inline")
    return root


@pytest.fixture
def mine(searched: Path, tmp_path: Path) -> str:
    """A copy of it."""
    return str(shutil.copytree(searched, tmp_path / "store"))


def confirm(store: str, *words: str, **options: Any) -> Any:
    named = ("--proposal", "only=0")
    return sweep("confirm", "mine", *named, *words, "--storage", store, **options)


@pytest.fixture(scope="module")
def confirmed_once(searched: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A root in which it is confirmed on two seeds, and the JSON that this printed."""
    root = shutil.copytree(searched, tmp_path_factory.mktemp("confirmed") / "store")
    return root, confirm(str(root), "--seeds", "2", "--where", "inline", "--json").stdout


@pytest.fixture
def confirmed(confirmed_once: tuple[Path, str], tmp_path: Path) -> str:
    """A copy of that root."""
    return str(shutil.copytree(confirmed_once[0], tmp_path / "confirmed"))


def test_a_dry_run_prints_the_plan_its_power_and_its_cost(mine: str) -> None:
    out = confirm(mine, "--dry-run", "--seeds", "6").stdout
    assert "6 fresh seeds from 1000, 12 arms at most" in out
    assert "d_z 1" in out
    assert "equivalent below 0.2 grey levels." in " ".join(out.split())
    assert (
        "Sign flips of 6 seeds have no p below 0.031; a family is marked from 0.05 on."
        in " ".join(out.split())
    )
    assert "Estimate, within a factor of 2" in out
    plain = json.loads(confirm(mine, "--dry-run", "--seeds", "6", "--json").stdout)
    assert (plain["arms"], len(plain["seeds"])) == (12, 6)
    assert plain["estimate"]["arms"] == 12
    assert load_plan(ObjectStore(mine), "mine.confirmation") is None
    assert "mine.confirmation" not in sweep("list", "--storage", mine).stdout


def test_it_trains_tests_and_shows_the_table_again(mine: str, tmp_path: Path) -> None:
    out = confirm(mine, "--seeds", "3", "--controls", "detached", "--where", "inline").stdout
    plan = load_plan(ObjectStore(mine), "mine.confirmation")
    assert plan is not None
    assert f"3 of 3 planned seeds count. Plan {plan.digest}." in " ".join(out.split())
    again = sweep("confirm", "mine", "--storage", mine, "--where", "inline").stdout
    shown = sweep("best", "mine.confirmation", "--storage", mine).stdout
    answer, _, table = shown.partition("\n\n")  # first here, last where it was trained
    assert table.strip() in again
    assert again.rstrip().endswith(answer)
    entry = json.loads(sweep("best", "mine.confirmation", "--json", "--storage", mine).stdout)
    (setting,) = entry["settings"]
    assert set(setting["contrasts"]) == {"unconstrained", "detached"}
    assert len(setting["contrasts"]["detached"]["per_seed"]) == 3
    exported = tmp_path / "out"
    sweep("export", "mine.confirmation", "--storage", mine, "--out", str(exported))
    files = {str(path.relative_to(exported)) for path in exported.rglob("*") if path.is_file()}
    assert files == {
        "confirmed.json", "manifest.json", "plan.json", *(
            f"tables/{name}.{form}"
            for name in ("confirmed", "paper_results", "paper_hyperparameters")
            for form in ("csv", "md", "tex")
        ),
    }  # fmt: skip
    assert json.loads((exported / "confirmed.json").read_text()) == entry


@pytest.mark.slow
def test_it_keeps_to_a_budget_and_goes_on_where_it_ended(mine: str) -> None:
    budget = ("--where", "inline", "--max-arms", "3")
    out = " ".join(confirm(mine, "--seeds", "2", *budget).stdout.split())
    assert "mine.confirmation reached its budget (--max-arms 3): 3 of 4 arms are final" in out
    assert len(ObjectStore(mine).names("arms")) == 2 + 3  # the search's, too
    again = sweep("confirm", "mine", "--storage", mine, *budget).stdout
    assert "1 of 2 planned seeds count" in " ".join(again.split())  # what there is, so far
    assert len(ObjectStore(mine).names("arms")) == 2 + 3
    out = " ".join(sweep("confirm", "mine", "--storage", mine, "--where", "inline").stdout.split())
    assert "2 of 2 planned seeds count" in out
    said = refused("confirm", "mine", "--replications", "3", "--storage", mine, "--max-arms", "3")
    assert "--replications trains many sweeps, got --max-arms 3" in said


def test_beside_arms_of_other_code_it_goes_on_where_that_is_accepted(confirmed: str) -> None:
    """As the message advises, in the words of the verb that was given."""
    objects = ObjectStore(confirmed)
    plan = load_plan(objects, "mine.confirmation")
    assert plan is not None
    arms = {arm.signature for arm in stored_arms(objects, load_definition(objects, plan.name))}
    kept, *_, left = sorted(arms)
    name = f"arms/{kept}/record.json"
    plain = objects.get_json(name)
    objects.put_json(name, {**plain, "environment": {"training_code": {"trainables": "00000000"}}})
    ArmStore(objects).forget(left)
    again = ("confirm", "mine", "--storage", confirmed, "--where", "inline")
    said = refused(*again)
    for way in ("mine.confirmation uses", "--accept-code", "`sweep confirm` with another --name"):
        assert way in said
    assert "4 of 4" in " ".join(sweep(*again, "--accept-code").stdout.split())


@pytest.mark.slow
def test_another_plan_under_that_name_is_refused(confirmed: str) -> None:
    said = refused(
        "confirm", "mine", "--proposal", "only=0", "--seeds", "4", "--storage", confirmed
    )
    assert "has a plan already" in said
    assert "--seeds: planned 2, requested 4\nLeave" in said  # and nothing that nobody asked for
    other = ("--seeds", "3", "--name", "mine.again")
    out = " ".join(confirm(confirmed, *other, "--where", "inline").stdout.split())
    plan = load_plan(ObjectStore(confirmed), "mine.again")
    assert plan is not None
    assert plan.seeds == (1002, 1003, 1004)  # those before are no longer fresh
    assert "read 2 times for the same network, also by mine.confirmation (of mine)" in out
    told = sweep("rm", "mine.confirmation", "--yes", "--storage", confirmed).stdout
    assert "4 arms were evaluated on the test split" in told
    out = " ".join(sweep("best", "mine.again", "--storage", confirmed).stdout.split())
    assert "mine.confirmation (of mine, plan" in out
    assert "after 4 of its arms had ended" in out


def test_its_seeds_and_failed_arms_are_those_of_the_plan(confirmed: str) -> None:
    for words in (("--seeds", "5"), ("--retry-failed",)):
        said = refused("resume", "mine.confirmation", *words, "--storage", confirmed)
        assert "those of its plan" in said
    said = refused("best", "mine.confirmation", "--only", "nosuch", "--storage", confirmed)
    assert "nosuch" in said


def test_json_is_all_that_is_printed(confirmed_once: tuple[Path, str]) -> None:
    entry = json.loads(confirmed_once[1])
    assert entry["settings"][0]["contrasts"]["unconstrained"]["counted"] == 2


def test_a_space_that_reads_the_test_split_needs_a_plan(tmp_path: Path) -> None:
    peeks = SPACE_FILE.replace(
        "report_every=2)", 'report_every=2, measured_on="test", early_stop=False)'
    )
    (tmp_path / "peek.py").write_text(
        peeks.replace("search_seeds", 'phase="confirmation", search_seeds')
    )
    said = refused("run", str(tmp_path / "peek.py"), "--storage", str(tmp_path / "store"))
    assert "`sweep confirm NAME` makes one of a finished sweep, with a plan" in said
    assert not (tmp_path / "store" / "arms").exists()


@pytest.mark.slow
def test_a_tuned_control_is_searched_first(mine: str) -> None:
    words = ("--seeds", "2", "--controls", "penalty,tuned_plain,one_dictionary")
    said = confirm(mine, *words, "--where", "inline").stderr
    assert "only has no control one_dictionary." in said
    entry = json.loads(sweep("best", "mine.confirmation", "--json", "--storage", mine).stdout)
    (setting,) = entry["settings"]
    assert set(setting["contrasts"]) == {"unconstrained", "penalty", "tuned_plain"}
    assert setting["contrasts"]["tuned_plain"]["question"] == "tuned"
    assert "mine.penalty" in sweep("list", "--storage", mine).stdout


@pytest.mark.slow
def test_until_decided_trains_seed_by_seed_to_the_last(mine: str) -> None:
    how = ("--rule", "any_time", "--until-decided", "--where", "inline")
    confirm(mine, "--seeds", "4", *how)
    entry = json.loads(sweep("best", "mine.confirmation", "--json", "--storage", mine).stdout)
    (family,) = entry["families"]
    assert entry["seeds"]["requested"] == [1000, 1001, 1002, 1003]
    assert family["outcome"] == "undecided"  # four of one sign are luck


def test_no_winner_is_said_with_the_way_out(objects: ObjectStore) -> None:
    store_sweep(objects, {FIRST: [INFEASIBLE] * 3, SECOND: [INFEASIBLE] * 3})
    said = refused("confirm", "tiny", "--storage", objects.root)
    assert "tiny has no winner to confirm" in said
    assert "no proposal is feasible" in said
    assert "--proposal SETTING=NUMBER" in said


def test_what_cannot_be_confirmed_is_refused(objects: ObjectStore) -> None:
    hand.searched(objects)
    root = ("--storage", objects.root)
    assert "Did you mean 'penalty'" in refused("confirm", "tiny", "--controls", "penalti", *root)
    assert "SETTING=NUMBER, got 'a'" in refused("confirm", "tiny", "--proposal", "a", *root)
    assert "has proposals 0, 1, 2, got 9" in refused(
        "confirm", "tiny", "--proposal", f"{FIRST}=9", *root
    )
    twice = ("--proposal", f"{FIRST}=0", "--proposal", f"{FIRST}=1")
    assert "one proposal of a setting, got 0 and 1" in refused("confirm", "tiny", *twice, *root)
    assert "alone or names" in refused("confirm", "tiny", "--controls", "none,detached", *root)
    assert "nobody" in refused("confirm", "nobody", *root)
    hand.stored(objects)
    assert "is a confirmation itself" in refused("confirm", hand.NAME, *root)


def test_json_of_what_a_cluster_is_yet_to_train_is_refused(tmp_path: Path) -> None:
    told = refused("confirm", "mine", "--address", "http://127.0.0.1:9", "--json")
    assert "`sweep best mine.confirmation --json --address http://127.0.0.1:9` prints it" in told


def test_what_is_left_out_of_a_plan_is_told(objects: ObjectStore) -> None:
    store_sweep(objects, {FIRST: [FEASIBLE, INFEASIBLE, FEASIBLE], SECOND: [INFEASIBLE] * 3})
    root = ("--storage", objects.root, "--dry-run")
    said = sweep("confirm", "tiny", *root).stderr
    assert f"{SECOND} is left out: no proposal is feasible" in said
    said = sweep("confirm", "tiny", "--proposal", f"{FIRST}=1", *root).stderr
    assert f"proposal 1 of {FIRST}, which is named, was infeasible in the search." in said
    said = sweep("confirm", "tiny", "--controls", "one_dictionary", *root).stderr
    assert f"{FIRST} has no control one_dictionary." in said
    said = refused("confirm", "tiny", "--only", SECOND, *root)
    assert FIRST not in said


def test_no_arm_of_a_confirmation_is_a_winner(confirmed: str) -> None:
    said = json.loads(sweep("status", "mine.confirmation", "--json", "--storage", confirmed).stdout)
    assert [one["winner"] for one in said["settings"]] == [None]


def test_a_search_that_goes_on_is_not_confirmed(objects: ObjectStore) -> None:
    store_sweep(objects, {FIRST: [INFEASIBLE]})
    said = refused("confirm", "tiny", "--storage", objects.root)
    assert "tiny is not finished" in said
    assert "sweep resume tiny" in said


def test_the_text_of_a_whole_confirmation(
    objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    hand.searched(objects)
    _, definition = hand.stored(objects, hand.wanted(controls=("detached", "mixed_gamma")))
    hand.trained(objects, definition, lambda setting, kind, seed: 9.0 + 0.01 * (seed % 7))
    out = sweep("best", hand.NAME, "--storage", objects.root).stdout
    for word in ("family", "against", "certified", "in search", "detached", "plain training"):
        assert word in out
    assert max(map(len, out.splitlines())) <= 100
    assert all(line == line.rstrip() for line in out.splitlines())
    once = " ".join(out.split())
    assert "against plain training paired t interval, 95 %; against controls paired t" in once
    assert "t interval, 97.5 %." in once  # two controls share the error
    assert "0.05 for the entire table, and 0.025 for each control" in once
    below = once[once.index(f"{SECOND}, proposal") :]  # of every setting its finding
    assert below.index("Undecided: +0 grey levels, on all test gammas") < below.index(
        "certified feasible:"
    )


def test_best_and_export_read_each_record_once(tmp_path: Path) -> None:
    reads: dict[str, list[int]] = {"best": [], "export": []}
    for seeds in (2, 6):
        objects = ObjectStore(str(tmp_path / f"{seeds} seeds"))
        hand.searched(objects)
        _, definition = hand.stored(objects, hand.wanted(seeds=seeds))
        hand.trained(objects, definition, lambda setting, kind, seed: 9.0 + 0.01 * (seed % 7))
        for verb, words in (("best", ()), ("export", ("--out", str(tmp_path / f"out {seeds}")))):
            with counted() as counts:
                sweep(verb, hand.NAME, *words, "--storage", objects.root)
            reads[verb].append(counts["read"])
    more = 4 * 2 * 2  # arms: seeds, settings, kinds; of each its record and its scores by unit
    assert {verb: found[1] - found[0] for verb, found in reads.items()} == {
        "best": 2 * more,
        "export": 2 * more,
    }
