"""Tables as lists of columns: each says once what it holds, and is in CSV, short form or both."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from jinja2 import UndefinedError

from sweep.render.csv import to_csv
from sweep.render.html import fill
from sweep.render.table import NOTHING, Bold, Column, table_of
from tests.support.code_figures import ROOT


@dataclass(frozen=True)
class Named:
    name: str


@dataclass(frozen=True)
class Measured(Named):
    loss: float | None


NAME = Column[Named]("setting", lambda one: one.name)
LINES = [Measured("one", 0.5), Measured("two", None)]


def test_a_column_is_in_csv_under_its_name_and_in_the_short_form_under_its_header() -> None:
    columns = [
        NAME,  # of the lines' base class
        Column[Measured]("", lambda one: one.loss, name="loss"),
        Column[Measured]("loss, rounded", lambda one: one.loss, "+.2f", name=""),
        Column[Measured]("gain", lambda one: Bold(one.name)),
    ]
    table = table_of("t", "T", columns, LINES, [])
    assert to_csv(table) == "setting,loss,gain\none,0.5,one\ntwo,,two\n"
    assert table.shown == [
        ("setting", ["one", "two"]),
        ("loss, rounded", ["+0.50", NOTHING]),
        ("gain", ["one", "two"]),
    ]
    assert table.texts == 1  # words before the first number
    assert all(isinstance(cell, Bold) for cell in dict(table.shown)["gain"])


def test_a_misspelt_name_in_a_template_is_an_error_and_words_are_no_markup(tmp_path: Path) -> None:
    template = tmp_path / "one.html.jinja"
    template.write_text("<p>{{ words }}</p>")
    assert fill(template, words="<b> & more") == "<p>&lt;b&gt; &amp; more</p>"
    with pytest.raises(UndefinedError, match="words"):
        fill(template, wards="")


MISSPELT = """
from sweep.confirmation.summary import ConfirmationSummary, Family
from sweep.render.table import Column
from sweep.report import search
from sweep.report.measured import Measured
from sweep.report.style import ARMS
from sweep.results.provenance import Manifest
from sweep.results.status import SweepStatus
from sweep.results.summary import ArmSummary, SettingSummary
from sweep.results.tables.frontier import COLUMNS, Line
from sweep.statistics.row import Row

Column[SettingSummary]("gain", lambda one: one.gain.unsen_mean, "+.3f")  # wrong
Column[Line]("proposal", lambda one: one.point.numbr)  # wrong
Column[SettingSummary]("pair", lambda one: one.setting, nam="")  # wrong
COLUMNS[0].valeu  # wrong
ArmSummary(worst_leyer=1)  # wrong


def read(pair: SettingSummary, confirmed: ConfirmationSummary, status: SweepStatus) -> None:
    pair.outcomes["feasibel"]  # wrong
    pair.outcomes["feasible"]
    confirmed.settings[0].against_plan  # wrong
    confirmed.settings[0].against_plain.ended.mean
    status.arms.finl  # wrong


def write(manifest: Manifest) -> None:
    manifest.arms.finl  # wrong
    manifest.sweeep  # wrong
    manifest.pairs["one"].winner  # wrong
    manifest.sweep, manifest.arms.final


def draw(data: Measured) -> None:
    data.pairs.where(seting="one")  # wrong
    data.pairs.where(setting="one").mean_by("severty")  # wrong
    data.pairs.where(setting="one").mean_by("severity").index
    data.facts.having("leyer").valeus  # wrong
    data.steps.indexed("arm", "sed")  # wrong
    data.proposals[search.OBJETIVE]  # wrong
    data.ratios[0].share_below  # wrong
    ARMS["unconstraind"]  # wrong
    ARMS["unconstrained"]


def mark(row: Row) -> Family:
    Family(**row.keywords(), markd="better")  # wrong
    return Family(**row.keywords(), marked="better")
"""


@pytest.mark.slow
def test_mypy_finds_a_misspelt_column_key_and_attribute(tmp_path: Path) -> None:
    file = tmp_path / "misspelt.py"
    file.write_text(MISSPELT)
    command = [sys.executable, "-m", "mypy", "--strict", str(file)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    found = {int(n) for n in re.findall(rf"{file.name}:(\d+): error:", ran.stdout)}
    lines = enumerate(MISSPELT.splitlines(), start=1)
    assert found == {number for number, line in lines if line.endswith("# wrong")}, ran.stdout
