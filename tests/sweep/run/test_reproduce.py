"""`sweep reproduce`, `run --reproduce`: the same numbers or which differ; absence never is."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from search_spaces.space import Setting
from sweep.results.cells import find_cell, parse_cell
from sweep.results.sweep_view import load_sweep
from sweep.study.definition import load_definition
from tests.support.command_line import contents, refused, sweep
from tests.support.sweeps import FEASIBLE, FIRST, SECOND, SPACE, store_sweep
from trainables.config.arm import TRAINING_VERSION
from trainables.errors import UnknownName
from trainables.records.arm_record import ArmRecord
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore


def test_an_exported_configuration_trains_again_to_the_same_bits(
    trained: Path, tmp_path: Path
) -> None:
    sweep("export", "mine", "--out", str(tmp_path / "out"), "--all")
    config = str(tmp_path / "out" / "configs" / "only.json")
    again = sweep("run", config, "--reproduce", "--where", "inline")
    assert "2 arms trained again: the same to the last digit" in again.stdout
    assert not (trained / "scratch").exists()

    plain = json.loads(Path(config).read_text())
    plain["runs"]["0"]["constrained"]["evaluation"]["ood_auc"] += 0.25
    Path(config).write_text(json.dumps(plain))
    differs = sweep("run", config, "--reproduce", "--where", "inline", exits=1)
    assert "1 numbers differ" in differs.stdout
    assert "evaluation.ood_auc" in differs.stdout
    assert "same machine type and versions" in differs.stdout


@pytest.mark.parametrize("version", [None, 0])
def test_an_edited_configuration_is_not_trained_and_never_identical(
    trained: Path, tmp_path: Path, version: int | None
) -> None:
    sweep("export", "mine", "--out", str(tmp_path / "out"), "--all")
    path = tmp_path / "out" / "configs" / "only.json"
    plain = json.loads(path.read_text())
    expected = plain["runs"]["0"]["constrained"]["signature"]
    if version is None:
        plain["runs"]["0"]["config"]["steps"] = 6
    else:
        plain["training_version"] = version
    path.write_text(json.dumps(plain))
    result = sweep("run", str(path), "--reproduce", "--where", "inline", exits=1)
    assert "the same" not in result.output
    said = (
        (expected, "instead") if version is None else ("version 0", f"version {TRAINING_VERSION}")
    )
    assert all(words in result.stderr for words in said)
    assert not (trained / "scratch").exists()
    sweep("run", str(path), "--name", "again", "--where", "inline")  # without --reproduce it may


def test_arms_without_a_record_to_compare_with_are_no_success(
    trained: Path, space_file: str
) -> None:
    words = ("run", space_file, "--reproduce", "--where", "inline", "--proposals", "2")
    result = sweep(*words, exits=1)
    assert "1 of 3 arms had nothing to be compared with" in result.stderr
    assert not (trained / "scratch").exists()


def test_a_space_that_is_reproduced_is_compared_with_what_is_stored(
    trained: Path, space_file: str, tmp_path: Path
) -> None:
    ran = sweep("run", space_file, "--reproduce", "--where", "inline")
    assert "2 arms trained again: the same to the last digit" in ran.stdout
    elsewhere = str(tmp_path / "elsewhere")
    assert "nothing to compare with" in refused(
        "run", space_file, "--reproduce", "--storage", elsewhere
    )
    assert not Path(elsewhere).exists()
    limited = refused("run", space_file, "--reproduce", "--max-hours", "1", "--where", "inline")
    assert "leave out --max-arms" in limited


# --- one cell -------------------------------------------------------------------------------------


def reproduced(*words: str, exits: int = 0) -> dict[str, Any]:
    ran = sweep("reproduce", *words, "--where", "inline", "--json", exits=exits)
    entry: dict[str, Any] = json.loads(ran.stdout)
    return entry


def edited(root: Path, arm: str, change: Callable[[dict[str, Any]], None]) -> None:
    """Store the record of one arm of the sweep anew, its evaluation changed."""
    store = ArmStore(ObjectStore(root))
    (place,) = (
        place
        for place in load_sweep(ObjectStore(root), "mine").arms.values()
        if (place.proposal is None) == (arm == "unconstrained")
    )
    record = store.record(place.signature)
    assert record is not None
    plain = record.to_json()
    change(plain["evaluation"])
    store.forget(place.signature)
    store.put_record(ArmRecord.from_json(plain))


def test_a_cell_is_trained_again_to_the_same_numbers_and_the_sweep_is_not_touched(
    trained: Path,
) -> None:
    before = contents(trained)
    ran = sweep("reproduce", "mine", "only", "--where", "inline")
    assert "only, proposal 0 (closest): 2 arms, which took" in ran.stderr
    assert "2 arms trained again: the same to the last digit" in ran.stdout
    assert contents(trained) == before
    row = next(line for line in ran.stdout.splitlines() if "mean RMSE" in line)
    best = json.loads(sweep("best", "mine", "--json").stdout)[0]
    value = f"{best['constrained']['mean_over_gammas']:.6g}"
    assert row.split() == ["mean", "RMSE", value, value, "0"]


def test_the_numbers_of_a_cell_are_those_of_the_tables(trained: Path) -> None:
    entry = reproduced("mine", "only")
    best = json.loads(sweep("best", "mine", "--json").stdout)[0]
    assert [cell["arm"] for cell in entry["cells"]] == ["constrained", "unconstrained"]
    for cell in entry["cells"]:
        shown = best[cell["arm"]]
        numbers = {row["number"]: (row["old"], row["new"]) for row in cell["numbers"]}
        assert numbers["ood_auc"] == (shown["ood_auc"], shown["ood_auc"])
        for gamma, score in shown["scores"].items():
            assert numbers[f"RMSE at gamma {gamma}"] == (score, score)
        for layer, loss in enumerate(shown["layer_losses"]):
            assert numbers[f"held-out loss, layer {layer}"] == (loss, loss)
        for layer, share in enumerate(shown["missing_share"], start=shown["first_layer"]):
            assert numbers[f"missing share, layer {layer}"] == (share, share)
        assert numbers["seconds"][0] > 0


def test_one_arm_is_trained_alone_and_compared_alone(trained: Path) -> None:
    edited(trained, "unconstrained", lambda e: e.update(ood_auc=e["ood_auc"] + 1))
    ours = sweep("reproduce", "mine", "only/constrained#0@0", "--where", "inline")
    assert "1 of 2 arms are done" in ours.stdout
    assert "1 arm trained again: the same to the last digit" in ours.stdout
    before = contents(trained)
    theirs = reproduced("mine", "only/unconstrained", exits=1)
    (cell,) = theirs["cells"]
    (arm,) = cell["arms"]
    assert (arm["verdict"], arm["different"]) == ("differs", 1)
    assert arm["differences"][0]["what"] == "evaluation.ood_auc"
    kept = Path(theirs["records"])
    assert kept.is_relative_to(trained / "scratch")
    after = contents(trained)
    assert {name: after[name] for name in before} == before
    assert all(name.startswith("scratch/") for name in after.keys() - before.keys())


def test_a_millionth_of_a_number_is_no_difference_and_is_told(trained: Path) -> None:
    edited(trained, "constrained", lambda e: e.update(ood_auc=e["ood_auc"] * (1 + 5e-7)))
    ran = sweep("reproduce", "mine", "only/constrained", "--where", "inline")
    assert "1 arm trained again: the same to 1e-06, by 5e-07 of a number at most" in ran.stdout
    assert "evaluation.ood_auc" in ran.stdout
    assert not (trained / "scratch").exists()


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("gone", "unknown setting of mine 'gone'. Known: only."),
        ("onl", "unknown setting of mine 'onl'. Known: only. Did you mean 'only'?"),
        ("only/plain", "unknown arm of only 'plain'. Known: constrained, unconstrained."),
        ("only#7", "unknown proposal of only '7'. Known: 0."),
        ("only@3", "unknown search seed of mine '3'. Known: 0."),
        ("only@x", "a cell must be SETTING[/ARM][#PROPOSAL][@SEED], got 'only@x'"),
        ("only@0@0", "got 'only@0@0'"),
        ("/constrained", "got '/constrained'"),
    ],
)
def test_an_unknown_cell_is_refused_with_what_is_known(
    trained: Path, cell: str, message: str
) -> None:
    before = contents(trained)
    assert message in refused("reproduce", "mine", cell, "--where", "inline")
    assert contents(trained) == before


def test_an_arm_that_has_not_ended_is_not_trained_again(stored: ObjectStore) -> None:
    """The second setting of the sweep has one proposal, and its first seed lost its record."""
    definition = load_definition(stored, "tiny")
    space = definition.space
    config = space.run(space.setting(SECOND), {}, seed=0).unconstrained()
    ArmStore(stored).forget(config.signature())
    said = refused("reproduce", "tiny", f"{SECOND}/unconstrained", "--where", "inline")
    assert f"({config.signature()}) has not ended" in said


def test_a_setting_may_be_called_as_tables_call_it(stored: ObjectStore) -> None:
    names = ("ped2-ut-L3-g0.2", "ped2-ut-L5-g0.2", "ped2-ut-L5-g0.2-detached")
    space = replace(SPACE, settings=tuple(Setting(name, {}) for name in names))
    store_sweep(stored, {name: [FEASIBLE] for name in names}, name="many", space=space)
    view = load_sweep(stored, "many", "outcomes")
    with pytest.raises(UnknownName, match=r"Did you mean 'L5-g0\.2-detached'"):
        find_cell(view, parse_cell("L5-g0.2-detahced"))
    found = find_cell(view, parse_cell("L5-g0.2-detached"))
    assert found.definition.space.settings[0].name == names[2]
    space = replace(SPACE, settings=tuple(Setting(name, {}) for name in names[1:]))
    store_sweep(stored, {names[1]: [FEASIBLE]}, name="few", space=space)
    with pytest.raises(UnknownName, match=r"Known: L5-g0\.2, L5-g0\.2-detached\."):
        find_cell(load_sweep(stored, "few", "outcomes"), parse_cell("L5"))
    said = refused("reproduce", "many", "g0.2", "--where", "inline")
    assert f"'g0.2' is the end of 2 settings: {names[0]}, {names[1]}. Name one of them." in said


def test_a_cell_asks_for_the_very_arms_of_the_sweep(stored: ObjectStore) -> None:
    """Oracle: the signatures that the sweep itself lists."""
    view = load_sweep(stored, "tiny")
    for proposal in (0, 1):
        found = find_cell(view, parse_cell(f"{FIRST}#{proposal}"))
        arms = [a for a in view.arms.values() if a.setting == FIRST]
        wanted = {a.signature for a in arms if a.proposal in (None, proposal)}
        assert {arm.signature for arm in found.named} == wanted
    assert find_cell(view, parse_cell(FIRST)).role == "winner"
    assert find_cell(view, parse_cell(SECOND)).role == "closest"


@pytest.mark.slow
def test_a_cell_of_a_confirmation_is_trained_again(trained: Path) -> None:
    sweep("confirm", "mine", "--proposal", "only=0", "--seeds", "2", "--where", "inline")
    before = contents(trained)
    entry = reproduced("mine.confirmation", "only/constrained")
    (cell,) = entry["cells"]
    assert cell["verdict"] == "identical"
    assert len(cell["seeds"]) == 2
    table = json.loads(sweep("best", "mine.confirmation", "--json").stdout)
    mean = table["settings"][0]["arms"]["constrained"]["mean"]["mean_over_gammas"]
    (row,) = (row for row in cell["numbers"] if row["number"] == "mean RMSE")
    assert row["old"] == row["new"] == pytest.approx(mean, rel=1e-12)  # summed in another order
    assert contents(trained) == before
