"""`sweep run --reproduce`: the same bits, or which numbers differ; no success by absence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.command_line import refused, sweep
from trainables.config.arm import TRAINING_VERSION


def test_an_exported_configuration_trains_again_to_the_same_bits(
    trained: Path, tmp_path: Path
) -> None:
    sweep("export", "mine", "--out", str(tmp_path / "out"), "--all")
    config = str(tmp_path / "out" / "configs" / "only.json")
    again = sweep("run", config, "--fresh", "--where", "inline")
    assert "2 arms trained again: identical, bit for bit" in again.stdout
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
    assert "identical" not in result.output
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
    assert "2 arms trained again: identical, bit for bit" in ran.stdout
    elsewhere = str(tmp_path / "elsewhere")
    assert "nothing to compare with" in refused(
        "run", space_file, "--reproduce", "--storage", elsewhere
    )
    assert not Path(elsewhere).exists()
