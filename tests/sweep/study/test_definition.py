"""Stored definitions: what they accept, how they grow, and what is said of unreadable ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from search_spaces.space import SearchSpace
from sweep.errors import NameTaken
from sweep.executors.executor import Executor
from sweep.run.run_sweep import command_to_resume
from sweep.study.definition import (
    Definition,
    folder,
    judged_arms,
    load_definition,
    put_definition,
    put_extension,
)
from sweep.study.proposals import put_proposal
from sweep.study.registration import registered
from sweep.study.requirements import folder_of, with_folder, with_folders_of
from tests.support.proposals import stored_proposals
from tests.support.sweeps import FEASIBLE, SPACE, store_sweep
from trainables.config.renamed import FIRST_NAMES
from trainables.errors import InvalidValue, StoreError
from trainables.plain import with_names
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore

SETTING = SPACE.settings[0].name


def change(objects: ObjectStore, name: str, **values: Any) -> None:
    """Store a JSON object with other fields than this version writes; None takes one away."""
    plain = {**objects.get_json(name), **values}
    objects.put_json(name, {key: value for key, value in plain.items() if value is not None})


def test_what_another_version_wrote_is_named_with_a_remedy(objects: ObjectStore) -> None:
    asked = store_sweep(objects, {SETTING: [FEASIBLE]})
    signature = objects.names("arms")[0]
    judged = f"{folder(asked.name)}/proposals/{SETTING}/judged.json"
    definition = f"{folder(asked.name)}/definition.json"
    remedy = "Read it with the version that wrote it, or give another --storage"
    change(objects, f"arms/{signature}/record.json", a_field_of_tomorrow=1)
    with pytest.raises(StoreError, match=rf"{signature}/record\.json .*{remedy}"):
        ArmStore(objects).record(signature)
    change(objects, judged, **{"0": {"point": {}}})  # derived: it is made again
    assert [p.outcome for p in stored_proposals(objects, asked.name, SETTING)] == [None]
    change(objects, definition, a_field_of_tomorrow=1)
    with pytest.raises(StoreError, match=rf"definition\.json .*a_field_of_tomorrow.*{remedy}"):
        load_definition(objects, asked.name)
    change(objects, definition, a_field_of_tomorrow=None, space={"layers": 3})
    with pytest.raises(StoreError, match=rf"definition\.json .*{remedy}"):
        load_definition(objects, asked.name)
    objects.put(definition, b"[1, 2")
    with pytest.raises(StoreError, match=rf"definition\.json .*{remedy}"):
        load_definition(objects, asked.name)


def test_how_a_sweep_runs_does_not_make_it_another(objects: ObjectStore) -> None:
    there = put_definition(objects, Definition("tiny", SPACE))
    packed = Definition("tiny", replace(SPACE, gpus_per_arm=0.25, stall_after_s=60.0))
    assert put_definition(objects, packed) == there
    asked_for = registered(objects, packed, named=("gpus_per_arm",), say=print).space
    assert (asked_for.gpus_per_arm, asked_for.stall_after_s) == (0.25, 3600.0)
    assert load_definition(objects, "tiny") == there


def test_a_sweep_grows_to_the_most_that_was_asked_for(objects: ObjectStore) -> None:
    asked = put_definition(objects, Definition("tiny", SPACE))
    assert (asked.space.n_proposals, asked.space.search_seeds) == (3, (0, 1))
    # Two writers who both read the sweep before either of them wrote.
    put_extension(objects, asked.extended(n_proposals=9, search_seeds=(0, 1, 7)))
    put_extension(objects, asked.extended(n_proposals=5, search_seeds=(0, 1, 4)))
    grown = load_definition(objects, "tiny").space
    assert (grown.n_proposals, grown.search_seeds) == (9, (0, 1, 7, 4))


def test_changed_data_under_a_taken_name_are_said_to_have_changed(objects: ObjectStore) -> None:
    first, changed = (SPACE.with_base({"data.fingerprint": text}) for text in ("aa", "bb"))
    put_definition(objects, Definition("tiny", first))
    with pytest.raises(NameTaken, match="The data have changed since"):
        put_definition(objects, Definition("tiny", changed))
    with pytest.raises(NameTaken, match="Choose another --name, or continue the stored one"):
        put_definition(objects, Definition("tiny", changed.with_base({"steps": 77})))


def moved(folder: str, *others: str) -> SearchSpace:
    """The space, whose settings each read a folder: the first this one."""
    folders = (folder, *others) if others else (folder,) * len(SPACE.settings)
    settings = (
        replace(setting, fields={**setting.fields, "data.folder": place})
        for setting, place in zip(SPACE.settings, folders, strict=True)
    )
    return replace(SPACE, settings=tuple(settings))


def test_data_that_single_settings_read_may_move(objects: ObjectStore) -> None:
    """As SWEEP_DATA gives them, where other settings of the space read none."""
    there = put_definition(objects, Definition("tiny", moved("/data1")))
    given = Definition("tiny", moved("/data2"))
    assert put_definition(objects, given) == there
    for found in (with_folders_of(there, given.space), with_folder(there, "/data2")):
        assert found.space == moved("/data2")
    again = command_to_resume(objects, given, Executor("inline"))
    assert "--data /data2" in again
    assert "--stall-after" not in again
    slow = replace(there, space=replace(there.space, stall_after_s=7200.0))
    again = command_to_resume(objects, slow, Executor("inline"))
    assert "--stall-after 7200" in again
    assert "--data" not in again


@pytest.mark.parametrize("given", ["/new", None])
def test_a_folder_for_all_takes_the_place_of_those_that_settings_were_stored_with(
    given: str | None,
) -> None:
    """A sweep that began with SWEEP_DATA, and is given --data."""
    space = SPACE.with_base({"data.folder": given})
    found = with_folders_of(Definition("tiny", moved("/old")), space).space
    runs = [found.run(s, found.default_point(s), seed=0) for s in found.settings]
    assert {run.data.folder for run in runs} == {given or "/old"}


def test_settings_with_a_folder_each_keep_theirs(objects: ObjectStore) -> None:
    there = put_definition(objects, Definition("tiny", moved("/a", "/b")))
    with pytest.raises(InvalidValue, match=r"data\.folder is fixed by the settings"):
        with_folder(there, "/data2")
    base = SPACE.base.with_fields({"data.folder": "/b"})
    mixed = Definition("x", replace(moved("/a"), base=base))
    with pytest.raises(InvalidValue, match=r"data\.folder is fixed by the settings"):
        with_folder(mixed, "/data2")
    found = with_folders_of(there, moved("/c", "/d"))
    assert [s.fields["data.folder"] for s in found.space.settings] == ["/c", "/d"]
    assert folder_of(found.space) is None


def test_an_extension_never_replaces_another(
    objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = put_definition(objects, Definition("tiny", SPACE))
    put_extension(objects, asked.extended(n_proposals=5))
    monkeypatch.setattr(
        "sweep.study.definition._extensions", lambda *_: []
    )  # listed before it was put
    put_extension(objects, asked.extended(search_seeds=(0, 1, 2)))
    monkeypatch.undo()
    grown = load_definition(objects, "tiny").space
    assert (grown.n_proposals, grown.search_seeds) == (5, (0, 1, 2))
    assert len([n for n in objects.names("sweeps/tiny") if n.startswith("extension")]) == 2


def test_a_sweep_whose_files_have_fields_under_their_first_names_is_read(
    objects: ObjectStore,
) -> None:
    listed = replace(SPACE.settings[0], points={"late": {"decay_fraction": 0.1}})
    base = SPACE.base.with_fields({"warmup_fraction": 0.1})
    space = replace(SPACE, base=base, settings=(listed, *SPACE.settings[1:]))
    definition = store_sweep(objects, {SETTING: [FEASIBLE]}, space=space)
    put_proposal(objects, definition.name, SETTING, 1, {"decay_fraction": 0.1})
    signatures = objects.names("arms")

    def everything() -> tuple[object, ...]:
        proposals = stored_proposals(objects, definition.name, SETTING)
        assert proposals[0].outcome is not None
        records = [ArmStore(objects).record(signature) for signature in signatures]
        return load_definition(objects, definition.name), proposals, records

    now = everything()
    for path in objects.tree(""):
        if path.endswith(".json"):
            earlier = with_names(objects.get_json(path), FIRST_NAMES)
            objects.delete(path)
            objects.put_json(path, earlier)
    stored = objects.get_json(f"{folder(definition.name)}/definition.json")
    assert stored["space"]["settings"][0]["points"][0]["fields"] == {"decay_share": 0.1}
    assert everything() == now
    assert isinstance(now[1], list)
    assert now[1][1].point == {"decay_fraction": 0.1}


def test_verdicts_that_earlier_versions_stored_are_read_under_the_present_names(
    objects: ObjectStore,
) -> None:
    definition = store_sweep(objects, {SETTING: [FEASIBLE]})
    (now,) = stored_proposals(objects, definition.name, SETTING)
    judged = f"{folder(definition.name)}/proposals/{SETTING}/judged.json"
    first = {
        "beats_trivial": "useful",
        "observed_objective": "told_objective",
        "observed_missing_share": "told_missing_share",
    }
    plain = with_names(objects.get_json(judged), first)
    plain["0"]["outcome"]["hindrance"] = "vacuous"
    objects.put_json(judged, plain)
    (read,) = stored_proposals(objects, definition.name, SETTING)
    assert now.outcome is not None
    assert read == replace(now, outcome=replace(now.outcome, hindrance="not binding"))


@pytest.mark.parametrize("damage", [["no verdict"], {"outcome": {"arms": []}}, {}])
def test_a_verdict_that_cannot_be_read_hides_no_arms_of_the_others(
    objects: ObjectStore, damage: Any
) -> None:
    """`sweep rm` of another sweep asks which arms are in use."""
    definition = store_sweep(objects, {SETTING: [FEASIBLE, FEASIBLE]})
    judged = f"{folder(definition.name)}/proposals/{SETTING}/judged.json"
    plain = objects.get_json(judged)
    first, second = (
        {end["signature"] for end in plain[number]["outcome"]["arms"]} for number in ("0", "1")
    )
    assert judged_arms(objects, definition.name) == first | second
    objects.put_json(judged, {**plain, "0": damage})
    assert judged_arms(objects, definition.name) == second
    del plain["0"]["point"]
    objects.put_json(judged, plain)
    assert judged_arms(objects, definition.name) == first | second
