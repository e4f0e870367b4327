"""Pages of findings: every number is in a committed file of results."""

from __future__ import annotations

import json
import re

import pytest

from benchmarks.pages import confirmed, leads, statistics
from benchmarks.pages.__main__ import DOCS, PAGES, faults
from benchmarks.pages.made import Made, rewritten, table, unaccounted
from sweep.confirmation.plan import UNCONSTRAINED

TABLE = "<!-- gains -->\n| a |\n| --- |\n| 0.5 |\n<!-- end -->"
PAGE = f"# Of 9\n\n{TABLE}\n\n4 seeds, [0](9.md), above 0."
MADE = Made({"gains": table(["a"], [["0.5"]])}, ["Of 9", "4 seeds"])


@pytest.mark.parametrize("name", PAGES)
def test_every_number_of_a_page_of_findings_is_of_its_results(
    name: str, request: pytest.FixtureRequest
) -> None:
    path, made = DOCS / name, PAGES[name]()
    text = path.read_text(encoding="utf-8")
    if request.config.getoption("--update-golden"):
        text = rewritten(text, made.tables)
        path.write_text(text, encoding="utf-8")
    assert faults(text, made) == []
    linkless = re.sub(r"\]\([^)]*\)", lambda link: "_" * len(link[0]), text)
    numbers = list(re.compile(r"(?<![\w.])\d*\.?\d+").finditer(made.part(linkless)))
    for planted in (numbers[len(numbers) // 4], numbers[len(numbers) // 2], numbers[-1]):
        at = linkless.index(made.part(linkless)) + planted.end() - 1
        other = str((int(text[at]) + 1) % 10)
        assert faults(text[:at] + other + text[at + 1 :], made), planted


def test_a_number_that_is_in_no_file_of_results_is_told() -> None:
    page = PAGE.replace("[0]", "[it]")
    assert faults(page, MADE) == []
    assert faults(page.replace("0.5", "0.6"), MADE) == ["a table is not as it is made"]
    assert faults(page.replace("4 seeds", "5 seeds"), MADE) == ["4 seeds", "5"]
    assert faults(page + " And 3.2 more.", MADE) == ["3.2"]
    assert faults(page, Made({**MADE.tables, "more": ""}, MADE.facts)) == ["more"]
    assert unaccounted(PAGE, MADE.facts) == ["0"]
    with pytest.raises(KeyError):
        rewritten(page.replace("gains", "losses"), MADE.tables)


def test_outcomes_stand_by_the_rule_of_the_plan_and_by_todays() -> None:
    dust = confirmed.Confirmed("ped2_small_dust")
    family, *settings = dust.rows(UNCONSTRAINED)
    for row in settings:
        assert dust.outcomes(row, UNCONSTRAINED) == ("better", "undecided")
    assert dust.outcomes(family, UNCONSTRAINED) == ("better", "better")


def test_a_contrast_without_scores_by_unit_is_decided_by_seeds() -> None:
    dust = confirmed.Confirmed("ped2_small_dust")
    dust.again = {}
    row = dust.rows(UNCONSTRAINED)[1]
    dust.settings[row.name]["contrasts"][UNCONSTRAINED]["units"] = None
    assert dust.over_units(row.name, UNCONSTRAINED) is None
    assert dust.outcomes(row, UNCONSTRAINED)[0] == row.outcome


def test_the_page_of_leads_has_what_sign_flips_say() -> None:
    made = leads.made()
    rows = [row.split(" | ") for row in made.tables["video leads"].splitlines()[2:]]
    assert {row[5] for row in rows} == {".125"}
    assert "sign flips of 4 seeds have a p of .125 at the least" in made.facts


@pytest.mark.parametrize(
    ("said", "planted"),
    [
        ("by 1.87 at N", "by 9.87 at N"),
        ("d_z 1.55 times", "d_z 9.55 times"),
        (".90 of tables", ".20 of tables"),
        ("`looks` | .0002", "`looks` | .9"),
        ("setting by setting | .046", "setting by setting | .946"),
        ("30 and 70 %", "20 and 80 %"),
    ],
)
def test_the_page_of_statistics_is_accounted_for_from_its_top_to_its_end(
    said: str, planted: str
) -> None:
    text = (DOCS / "statistics.md").read_text(encoding="utf-8")
    made = PAGES["statistics.md"]()
    assert said in text
    assert faults(text.replace(said, planted), made)


def test_facts_of_statistics_follow_the_file() -> None:
    text = statistics.RESULTS.read_text(encoding="utf-8")
    found = json.loads(text)
    found["best_of_n"]["found"]["N = 5"]["expected"] = 3.0
    found["tuning"]["found"]["one study, then fresh seeds: a star in the table"]["rate"] = 0.2
    found["tools"]["found"]["autorank"]["a star in the table"]["of"] = 7
    found["null"]["found"]["looks"]["a star in the table"]["of"] = 400
    now, then = (
        set(statistics.facts(statistics.Calibration(of))) for of in (json.dumps(found), text)
    )
    assert {
        "of N equal ones by 3.00 standard deviations at N = 5",
        "with equal methods .20 of tables have a star",
        "7 null sweeps (deep-significance: 30,",
        "400 sweeps",
        "known to .02, of a quarter as many to .04, with 95 %",
    } == now - then
