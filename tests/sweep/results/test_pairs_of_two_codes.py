"""Pairs whose arms different code trained: marked wherever they are shown."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest

from sweep.cli.text.best import print_overview
from sweep.confirmation.comparisons import summarize_confirmation
from sweep.confirmation.paper_tables import paper_confirmed_table
from sweep.confirmation.tables import confirmed_table
from sweep.results.best import best_summaries
from sweep.results.sweep_view import load_sweep
from tests.support import confirmations
from tests.support.command_line import sweep
from tests.support.sweeps import FEASIBLE, FIRST, SECOND, store_sweep
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore

MARK = "two codes: the arms of this pair were trained by"


def trained_by(objects: ObjectStore, *, plain: str | None, constrained: str | None) -> None:
    """Give the arms of a stored sweep the code that trained them."""
    for signature in objects.names("arms"):
        record = ArmStore(objects).record(signature)
        assert record is not None
        code = plain if record.config.constraint is None else constrained
        environment = {**record.environment, "training_code": {"trainables": code}}
        record = replace(record, environment=environment if code else record.environment)
        objects.put_json(f"arms/{signature}/record.json", record.to_json())


@pytest.mark.parametrize(
    ("plain", "constrained", "is_marked"),
    [("1a", "1a", False), ("1a", "2b", True), (None, "2b", True), (None, None, False)],
)
def test_a_pair_of_two_codes_is_marked_wherever_it_is_shown(
    root: Path, tmp_path: Path, plain: str | None, constrained: str | None, is_marked: bool
) -> None:
    objects = ObjectStore(root)
    store_sweep(objects, {FIRST: [FEASIBLE], SECOND: [FEASIBLE]})
    trained_by(objects, plain=plain, constrained=constrained)
    told = {f"trainables {code}" if code else "unknown code" for code in (plain, constrained)}
    entries = json.loads(sweep("best", "tiny", "--json").stdout)
    assert [set(entry["codes"]) for entry in entries] == [told, told]
    assert (MARK in " ".join(sweep("best", "tiny").stdout.split())) == is_marked
    sweep("export", "tiny", "--out", str(tmp_path / "out"))
    for table in ("results", "paper_results"):
        for form in ("md", "tex"):
            text = (tmp_path / "out" / "tables" / f"{table}.{form}").read_text()
            assert (MARK in " ".join(text.split())) == is_marked, (table, form)
    for table in ("results", "proposals"):
        text = (tmp_path / "out" / "tables" / f"{table}.csv").read_text()
        codes = {row["codes"] for row in csv.DictReader(text.splitlines())}
        assert codes == {"; ".join(sorted(told))}, table
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert set(manifest["pairs"][FIRST]["codes"]) == told
    sweep("report", "tiny", "--page", "--out", str(tmp_path / "report"))
    page = next((tmp_path / "report").glob("*.html")).read_text()
    assert ("trained by" in page and "wo codes: the arms" in page) == is_marked


@pytest.mark.parametrize("constrained", ["1a", "2b"])
def test_a_confirmed_pair_of_two_codes_is_marked(root: Path, constrained: str) -> None:
    objects = ObjectStore(root)
    confirmations.searched(objects)
    plan, definition = confirmations.stored(objects)
    score = {"unconstrained": 9.0, "constrained": 8.0}
    confirmations.trained(objects, definition, lambda _, kind, seed: score[kind] + 0.01 * seed % 3)
    trained_by(objects, plain="1a", constrained=constrained)
    entry = summarize_confirmation(objects, definition, plan)
    is_marked = constrained != "1a"
    told = sorted({"trainables 1a", f"trainables {constrained}"})
    assert [one.against_plain.codes for one in entry.settings] == [told, told]
    table = confirmed_table(entry)
    assert (f"{FIRST} against unconstrained: {MARK}" in " ".join(table.notes)) == is_marked
    rows = [row for row in table.rows if row["level"] == "setting"]
    assert [row["codes"] for row in rows] == ["; ".join(told)] * 2
    paper = paper_confirmed_table(definition.space, entry)
    assert (MARK in " ".join(paper.notes)) == is_marked


def test_the_overview_of_many_settings_is_marked_too(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    objects = ObjectStore(root)
    store_sweep(objects, {FIRST: [FEASIBLE], SECOND: [FEASIBLE]})
    trained_by(objects, plain="1a", constrained="2b")
    print_overview(best_summaries(load_sweep(objects, "tiny"), {}))
    assert " ".join(capsys.readouterr().out.split()).count(MARK) == 2


@pytest.mark.parametrize(("plain", "is_marked"), [(48, False), (96, True), (0, False)])
def test_a_pair_of_networks_of_unequal_size_is_marked(
    root: Path, plain: int, is_marked: bool
) -> None:
    """One code may build another network under another library, or for a constraint."""
    objects = ObjectStore(root)
    store_sweep(objects, {FIRST: [FEASIBLE]})
    for signature in objects.names("arms"):
        record = ArmStore(objects).record(signature)
        assert record is not None
        sized = replace(record, parameters=plain if record.config.constraint is None else 48)
        objects.put_json(f"arms/{signature}/record.json", sized.to_json())
    entry = json.loads(sweep("best", "tiny", "--json").stdout)[0]
    shown = " ".join(sweep("best", "tiny").stdout.split())
    assert (MARK in shown) == is_marked
    assert ("unknown code with 96 parameters" in entry["codes"]) == is_marked
