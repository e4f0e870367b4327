"""A store that another training version filled: no verb reads it as empty, none changes it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import sweep as python_api
import sweep.results.export
import sweep.run.reproduce  # these copy the version: not while a test has another one
import trainables.predictors.predictor  # noqa: F401
from search_spaces.space import SearchSpace, Setting
from sweep.errors import OtherVersion
from sweep.results.sweep_view import load_sweep
from sweep.run.retention import keep_winners_weights
from sweep.study.arms import stored_arms
from sweep.study.definition import load_definition
from tests.support.command_line import contents, refused, sweep
from tests.support.sweeps import FEASIBLE, FIRST, SECOND, SPACE, store_sweep
from trainables.config import arm
from trainables.records.objects import ObjectStore

DEFINITION = "sweeps/tiny/definition.json"
VERBS = (
    ("status", "tiny"),
    ("status", "tiny", "--json"),
    ("best", "tiny"),
    ("best", "tiny", "--json"),
    ("export", "tiny", "--all", "--out", "out"),
    ("report", "tiny", "--out", "out"),
    ("answers", "tiny", "--out", "out"),
    ("confirm", "tiny"),
    ("confirm", "tiny", "--dry-run"),
    ("confirm", "tiny", "--replications", "2"),
    ("reproduce", "tiny", FIRST),
    ("resume", "tiny"),
    ("resume", "tiny", "--proposals", "9"),
    ("resume", "tiny", "--retry-failed"),
    ("sync", "tiny"),
    ("register", "tiny"),
    ("run", "quickstart", "--start-from", "tiny"),
)


@pytest.fixture(params=["says its version", "is older"])
def upgraded(
    request: pytest.FixtureRequest, stored: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> ObjectStore:
    """The sweep tiny, which the version before this one trained."""
    if request.param == "is older":
        plain = stored.get_json(DEFINITION)
        stored.put_json(DEFINITION, {k: v for k, v in plain.items() if k != "training_version"})
    monkeypatch.setattr(arm, "TRAINING_VERSION", arm.TRAINING_VERSION + 1)
    return stored


@pytest.mark.parametrize("words", VERBS, ids=" ".join)
def test_every_verb_says_which_version_trained_it_and_changes_nothing(
    upgraded: ObjectStore, words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = contents(Path(upgraded.root))
    said = refused(*words)
    version = arm.TRAINING_VERSION
    assert f"tiny was trained by training version {version - 1}" in said
    assert f"this is version {version}" in said
    assert "the release that trained" in said
    assert "--name" in said
    assert contents(Path(upgraded.root)) == before
    assert not (tmp_path / "out").exists()


def test_the_python_api_says_so_too(upgraded: ObjectStore) -> None:
    with pytest.raises(OtherVersion, match="trained by training version"):
        python_api.load("tiny", upgraded.root)


def test_an_earlier_export_stays_as_it_is(stored: ObjectStore, tmp_path: Path) -> None:
    out = tmp_path / "out"
    sweep("export", "tiny", "--all", "--out", str(out))
    before = contents(out)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arm, "TRAINING_VERSION", 999)
        refused("export", "tiny", "--all", "--out", str(out))
    assert contents(out) == before


def test_the_list_marks_it_and_shows_the_others(upgraded: ObjectStore) -> None:
    store_sweep(upgraded, {FIRST: [FEASIBLE]}, name="new")
    listed = sweep("list", "--json")
    states = {entry["name"]: entry["state"] for entry in json.loads(listed.stdout)}
    assert states == {"tiny": "other version", "new": "stopped"}
    assert "tiny was trained by training version" in listed.stderr
    assert "other version" in sweep("list").stdout


def of_removed_options(plain: dict[str, Any], where: str) -> None:
    """Let a stored space name an option that was removed, as one of an earlier version may."""
    name, first = "constraint.alpha_ramp_steps", plain["settings"][0]
    if where == "base":
        plain["base"]["constraint"]["dual_noise"] = 0.1
    elif where == "ranges":
        plain["ranges"][name] = next(iter(plain["ranges"].values()))
    elif where == "points":
        first["points"] = [{"name": "ramp", "fields": {name: 100}}]
    else:
        first["fields"][name] = 100


@pytest.mark.parametrize("where", ["base", "ranges", "points", "fields"])
def test_a_sweep_of_an_option_that_was_removed_is_of_another_version(
    stored: ObjectStore, where: str
) -> None:
    plain = stored.get_json(DEFINITION)
    store_sweep(stored, {FIRST: [FEASIBLE]}, name="new")
    of_removed_options(plain["space"], where)
    stored.put_json(DEFINITION, plain)
    before = contents(Path(stored.root))
    listed = sweep("list", "--json")
    states = {entry["name"]: entry["state"] for entry in json.loads(listed.stdout)}
    assert states == {"tiny": "other version", "new": "stopped"}
    for said in (listed.stderr, sweep("best", "tiny", exits=1).stderr):
        assert re.search(r"(dual_noise|alpha_ramp_steps).*: the option was removed\.", said)
        assert "Read it with the version that wrote it" in said
        assert "not installed" not in said
        assert "Did you mean" not in said
    assert "may use any: tiny (other version)" in sweep("rm", "new", answer="n\n").stdout
    assert contents(Path(stored.root)) == before


def test_rm_deletes_its_arms_and_no_others(upgraded: ObjectStore) -> None:
    old = set(upgraded.names("arms"))
    store_sweep(upgraded, {FIRST: [FEASIBLE]}, name="new")
    assert "10 arms" in sweep("rm", "tiny", "--yes").stdout
    assert not old & set(upgraded.names("arms"))
    assert all(a.is_final for a in load_sweep(upgraded, "new").settings[0].arms)


def test_removing_another_sweep_leaves_its_arms(upgraded: ObjectStore) -> None:
    old = set(upgraded.names("arms"))
    store_sweep(upgraded, {FIRST: [FEASIBLE]}, name="new")
    sweep("rm", "new", "--yes")
    assert set(upgraded.names("arms")) == old


def test_the_end_of_another_sweep_does_not_stumble_over_it(upgraded: ObjectStore) -> None:
    store_sweep(upgraded, {FIRST: [FEASIBLE]}, name="new")
    keep_winners_weights(upgraded, load_sweep(upgraded, "new"))


def of_before(stored: ObjectStore, setting: str) -> None:
    """Give the arms of a setting names that this version does not, as before a fault was mended."""
    plain = stored.get_json(DEFINITION)
    stored.put_json(DEFINITION, {k: v for k, v in plain.items() if k != "training_version"})
    judged = f"sweeps/tiny/proposals/{setting}/judged.json"
    verdicts = stored.get_json(judged)
    space = load_definition(stored, "tiny").space
    arms = [space.run(space.setting(setting), {}, seed=seed) for seed in space.search_seeds]
    names = [config.unconstrained().signature() for config in arms]
    for one in verdicts.values():
        for end in one["outcome"]["arms"]:
            names.append(end["signature"])
            end["signature"] = end["signature"][::-1]
    stored.put_json(judged, verdicts)
    for signature in names:
        Path(stored.root, "arms", signature).rename(Path(stored.root, "arms", signature[::-1]))


LITERAL = replace(SPACE, base=SPACE.base.with_fields({"model.variant": "literal"}))
GAMMA_0 = replace(
    SPACE,
    base=SPACE.base.with_fields({"constraint.reference": "virtual_layer0"}),
    settings=(SPACE.settings[0], Setting(SECOND, {"train_gamma": 0.0})),
)


@pytest.mark.parametrize(
    ("space", "why"),
    [
        (LITERAL, r"0\.1 \+ 0\.2"),
        (SPACE, "without folding its transform"),
        (GAMMA_0, "the noise of the loss was the least test gamma"),
    ],
)
def test_a_setting_that_trains_to_other_numbers_since_is_no_empty_one(
    root: Path, space: SearchSpace, why: str, tmp_path: Path
) -> None:
    """What was mended says so in the names of the arms: no version tells them apart."""
    objects = ObjectStore(root)
    store_sweep(objects, {FIRST: [FEASIBLE, FEASIBLE], SECOND: [FEASIBLE]}, space=space)
    of_before(objects, SECOND)
    before = contents(root)
    for words in (("status",), ("best",), ("resume",), ("export", "--out", str(tmp_path / "o"))):
        said = refused(*words, "tiny")
        assert re.search(f"1 of its 3 judged proposals train to other numbers since .*{why}", said)
        assert "arms that train to the same numbers are taken as they are" in said
    assert contents(root) == before


def test_rm_deletes_all_of_a_sweep_whose_arms_have_other_names_now(stored: ObjectStore) -> None:
    """The plain ones too, which no verdict names; what another sweep uses stays."""
    store_sweep(stored, {FIRST: [FEASIBLE]}, name="new")
    kept = {arm.signature for arm in stored_arms(stored, load_definition(stored, "new"))}
    of_before(stored, SECOND)
    assert "6 arms" in sweep("rm", "tiny", "--yes").stdout
    assert set(stored.names("arms")) == kept & set(stored.names("arms"))
    assert all(a.is_final for a in load_sweep(stored, "new").settings[0].arms)


def test_rm_deletes_arms_of_before_that_no_verdict_names(stored: ObjectStore) -> None:
    of_before(stored, SECOND)
    for setting in (FIRST, SECOND):
        stored.delete(f"sweeps/tiny/proposals/{setting}/judged.json")
    assert "10 arms" in sweep("rm", "tiny", "--yes").stdout
    assert stored.names("arms") == []


def test_a_sweep_of_before_versions_were_stored_reads_on(stored: ObjectStore) -> None:
    before = sweep("best", "tiny", "--json").stdout
    plain = stored.get_json(DEFINITION)
    stored.put_json(DEFINITION, {k: v for k, v in plain.items() if k != "training_version"})
    assert sweep("best", "tiny", "--json").stdout == before
