"""Tables and figures of docs/statistics.md, of a calibration and of the rules."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from benchmarks.calibration import ONE, SEEDS
from benchmarks.imitated.claims import BOUND, CLIPS, EFFECTS, SHAPES, TABLES, WINDOWS
from benchmarks.imitated.claims import SEEDS as CLAIM_SEEDS
from benchmarks.imitated.null_sweeps import (
    BETWEEN_ARMS,
    BETWEEN_SETTINGS,
    FAMILIES,
    SETTINGS,
    family_effect,
)
from benchmarks.pages.made import Made, table
from benchmarks.pages.made import number as plain_number
from sweep.statistics import paired
from sweep.statistics.design import Design
from trainables.plain import Json

RESULTS = Path(__file__).parents[1] / "results/calibration.json"
RULES = {"looks": "looks", "any_time": "any time", "fixed": "fixed"}
PARTS = (5, 10, 20)  # seeds
SLOW_TOOL = "deep-significance, ASO < .5, one way"
TOOLS = {  # of the file: what the page calls it
    "this project, looks": "this project, `looks`",
    "this project, any_time": "this project, `any_time`",
    "autorank": "autorank, setting by setting",
    "autorank, settings as replicates": "autorank, settings as its replicates",
    "autorank, settings as replicates, best of 5 against one": (
        "the same, best of 5 in the search against one run"
    ),
    SLOW_TOOL: "deep-significance, violation below .5, one way",
    "deep-significance, ASO < .2, one way, Bonferroni": (
        f"the same, below .2 and its Bonferroni for {SETTINGS}"
    ),
    "rliable, probability of improvement, 95 %": (
        "rliable, 95 % interval of the probability of improvement"
    ),
}


def number(value: float | None, digits: int = 3) -> str:
    """Without the 0 before the point; a dash where nothing is."""
    return "none" if value is None else plain_number(value, digits, short=True)


def rates(cells: Sequence[Json], digits: int = 3) -> str:
    """Shares beside each other."""
    return beside([cell["rate"] for cell in cells], digits)


def beside(values: Iterable[float | None], digits: int = 3) -> str:
    """Numbers beside each other."""
    return "; ".join(number(value, digits) for value in values)


class Calibration:
    """The results of one run."""

    def __init__(self, text: str) -> None:
        """Those of a file."""
        self.of: dict[str, Json] = json.loads(text)

    def part(self, name: str) -> Json:
        """What one part found."""
        return self.of[name]["found"]

    def promised(self) -> str:
        """False stars and power of the three rules on tables of 36 settings."""
        null, one = self.part("null"), self.part("sequential")
        rows = [
            [says, *(number(null[rule][name]["rate"]) for rule in RULES), ".05"]
            for says, name in (
                ("tables with a star, no effect anywhere", "a star in the table"),
                ("with a false star beside true effects", "a false star beside true effects"),
                ("called equivalent at the smallest effect", "equivalent at the edge"),
            )
        ]
        rows += [
            [says, *(number(one[f"null, {kind}"][rule]["rate"]) for rule in RULES), allowed]
            for says, kind, allowed in (
                ("one comparison, normal differences", "normal", ".05"),
                ("t with 3 degrees of freedom", "t3", ".05"),
                ("equally skewed scores in both arms", "skewed scores", ".05"),
                ("skewed differences (exponential less 1)", "skewed", "not promised"),
                ("one arm fails on 5 % of seeds, mean 0", "5 % bounded failures", "not promised"),
            )
        ]
        power = [[one[name][rule] for name in ("effect 1", "effect 1 of 36")] for rule in RULES]
        rows.append(["power at d_z 1: alone; as one of 36", *(rates(of, 2) for of in power), ""])
        seeds = (plain_number(of[0]["mean seeds"], 1) for of in power)
        rows.append(["seeds used at d_z 1, alone", *seeds, ""])
        return table(["20 seeds", *RULES.values(), "allowed"], rows)

    def shaped(self) -> str:
        """Tables with a false star, by the shape of differences: looks; any time."""
        found = self.part("shapes")
        columns = [(families, of, seeds) for families, of in TABLES for seeds in (10, 20)]
        head = [f"{f * of} settings in {f}, {seeds} seeds" for f, of, seeds in columns]
        rows = []
        for kind in SHAPES:
            cells = [found[f"{f} families of {of}, {n} seeds, {kind}"] for f, of, n in columns]
            rows.append([kind, *(rates([one["looks"], one["any_time"]]) for one in cells)])
        return table(["differences", *head], rows)

    def reach(self) -> str:
        """The smallest effect that is marked with probability .8, by seeds and tests."""
        found = self.part("smallest_effects")

        def cell(seeds: int, tests: int) -> str:
            of = found[f"{seeds} seeds, one of {tests}"]
            values = [of[rule] for rule in ("fixed", "looks", "any_time")]
            return ", ".join("never" if v is None else plain_number(v, 1) for v in values)

        rows = [[str(seeds), *(cell(seeds, tests) for tests in (1, 6, 36))] for seeds in PARTS]
        head = ["one test: fixed, looks, any time", "one of 6 families", "one of 36 settings"]
        return table(["seeds", *head], rows)

    def later(self) -> str:
        """Reported over true effect of what is called better: of the counted seeds; of all."""
        found, rows = self.part("later_looks"), []
        for seeds in (10, 20):
            cells = []
            for effect in EFFECTS:
                of = found[f"{seeds} seeds, d_z {effect:g}"]
                both = [of[f"{name} over true, better"] for name in ("counted", "ended")]
                cells.append(beside(both, 2))
            rows.append([f"{seeds} seeds", *cells])
        return table(["", *(f"d_z {effect:g}" for effect in EFFECTS)], rows)

    def coverage(self) -> str:
        """How often intervals of 95 % hold what they are about."""
        found = self.part("coverage")

        def of(kind: str, name: str) -> list[Json]:
            return [found[kind][f"{name}, {seeds} seeds"] for seeds in PARTS]

        lines = {
            "paired t: normal": of("normal", "paired t"),
            "t with 3 degrees of freedom": of("t3", "paired t"),
            "equally skewed scores": of("skewed scores", "paired t"),
            "skewed differences": of("skewed", "paired t"),
            "one arm fails on 5 % of seeds": of("5 % bounded failures", "paired t"),
            "percentile bootstrap over seeds: normal": of("normal", "percentile bootstrap"),
        }
        both = found["crossed bootstrap of seeds and units"]
        for says, name in (("crossed bootstrap", "crossed"), ("paired t over seeds", "t")):
            cells = [both[f"{name}, {seeds} seeds"] for seeds in PARTS]
            lines[f"other seeds and 40 other units: {says}"] = cells
        rows = [[says, *(number(c["rate"]) for c in cells)] for says, cells in lines.items()]
        return table(["interval of 95 %", *(f"{seeds} seeds" for seeds in PARTS)], rows)

    def clips(self) -> str:
        """Coverage where half of the units' variance lies between clips."""
        rows = [
            [says, number(of["by clips"]["rate"], 2)] for says, of in self.part("in_clips").items()
        ]
        return table(["", "coverage"], rows)

    def claims(self) -> str:
        """How often a setting and its family are claimed to be better or worse, on 12 clips."""
        names = ("a setting", "the family")
        rows = [
            [says, *(number(of[f"{name}, marked"]["rate"], 2) for name in names)]
            for says, of in self.part("over_clips").items()
        ]
        return table(["true effect on all clips", *names], rows)

    def questions(self) -> str:
        """Single questions, and what was found."""
        tuning, sure, best, failed = map(
            self.part, ("tuning", "certificates", "best_of_n", "failures")
        )
        gap = max(
            abs(row[name] - row[f"{other} by the noncentral t"])
            for row in self.part("power")
            for name, other in (("one test", "one test"), ("family of six", "family"))
        )
        wins, margin = (
            tuning[f"best of 5 against 5 seeds: {n}"]
            for n in ("constrained wins", "mean margin in sd")
        )
        treated, finished = failed["intention to treat"], failed["per protocol"]
        patches = sure["10 windows of 16 patches that correlate .3"]

        def certified(verdict: str, layers: str) -> str:
            cells = [sure[f"{units} units, {layers} at it"][verdict] for units in (10, 40)]
            return rates(cells)

        rows = [
            ["Power as planned against as decided, one test; a family", f"within {number(gap)}"],
            ["Best of 5 tuned configurations against the best of 5 seeds of one, no method better",
             f"wins {number(wins['rate'], 2)}, by {number(margin, 2)} sd in the mean"],
            ["Best of 10 in each arm by one search, then 20 fresh seeds: tables with a star",
             number(tuning["one study, then fresh seeds: a star in the table"]["rate"], 2)],
            ["The same, tuned anew for every seed",
             number(tuning["a study per seed: a star in the table"]["rate"])],
            ["Best of 5; of 20 against one run: wins",
             rates([best[f"N = {n}"]["naive wins"] for n in (5, 20)], 2)],
            ["The same confirmed on 10 seeds: better",
             rates([best[f"N = {n}"]["confirmed better"] for n in (5, 20)])],
            ["Equal arms, one fails on its worst tenth of seeds, intention to treat: worse; better",
             rates([treated["constrained worse"], treated["constrained better"]])],
            ["The same, per protocol: worse; **better**",
             rates([finished["constrained worse"], finished["constrained better"]])],
            ["Certified feasible, one layer exactly at the tolerance: 10 units; 40",
             certified("certified feasible", "one layer")],
            ["Certified infeasible, every layer exactly at it: 10 units; 40",
             certified("certified infeasible", "every layer")],
            ["10 windows of 16 patches that correlate .3: counted as windows; as patches",
             rates([patches[f"certified feasible by {n}"]
                    for n in ("windows", "patches, as if independent")], 2)],
            ["Stars where no proposal can win, with identical arms, with one seed",
             ", ".join(str(of["stars"]) for of in self.part("without_winners").values())],
        ]  # fmt: skip
        return table(["question", "found"], rows)

    def tools(self) -> str:
        """False stars of other tools; empty where a tool was not asked."""
        found = self.part("tools")
        names = ("a setting, at 20 seeds", "a setting, looked at with 5, 10 and 20",
                 "a star in the table")  # fmt: skip
        rows = [
            [says, *(number(found[name][of]["rate"]) if of in found[name] else "" for of in names)]
            for name, says in TOOLS.items()
        ]
        head = ["", "a setting", "the same at 5, 10 or 20 seeds", f"a table of {SETTINGS}"]
        return table(head, rows)


def made() -> Made:
    """The tables of docs/statistics.md, and the facts in the prose between them."""
    of = Calibration(RESULTS.read_text(encoding="utf-8"))
    tables = {
        "what is marked": of.reach(),
        "later looks": of.later(),
        "promised": of.promised(),
        "shapes": of.shaped(),
        "coverage": of.coverage(),
        "in clips": of.clips(),
        "claims over clips": of.claims(),
        "questions": of.questions(),
        "tools": of.tools(),
    }
    return Made(tables, list(facts(of)))


def facts(of: Calibration) -> Iterator[str]:
    """What the prose says, from the rules themselves and from what the run found."""
    yield from _rules()
    yield from _draws(of)
    expected = {n: of.part("best_of_n")[f"N = {n}"]["expected"] for n in (5, 20)}
    yield f"of N equal ones by {expected[5]:.2f} standard deviations at N = 5"
    yield f"by {expected[20]:.2f} at N = 20"
    d_z = family_effect(1.0, len(FAMILIES["family 0"]), BETWEEN_SETTINGS)
    yield f"that correlate {number(BETWEEN_SETTINGS, 1)} has a d_z {d_z:.2f} times that of each"
    looks = of.part("coverage")["normal"]
    every, sequence = (looks[f"{name}, 2 to {SEEDS} seeds"]
                       for name in ("all looks at once", "confidence sequence"))  # fmt: skip
    yield f"All looks together cover with {number(every['rate'])}"
    yield f"over 2 to {SEEDS} seeds with {number(sequence['rate'])}"
    naive = of.part("sequential")["null, normal"]["t after every seed"]["rate"]
    yield (
        f"A t test after every seed from 3 to {SEEDS}, stopped at p < .05, marks "
        f"{number(naive, 2)} of null comparisons"
    )
    tuned = of.part("tuning")["one study, then fresh seeds: a star in the table"]["rate"]
    yield f"with equal methods {number(tuned, 2)} of tables have a star"


def _rules() -> Iterator[str]:
    """What is planned today."""
    design = Design.planned(ONE, SEEDS)
    error, spent = 100 * design.error, [100 * share for share in design.spending]
    yield f"in the table is {error:g} % at most"
    yield f"at {design.looks[0]} seeds and the last, which spend {spent[0]:g} and {spent[1]:g} %"
    yield f"at {100 - spent[1] / 100 * error:g} % at the last of two looks"
    yield f"both cover with {100 - error:g} %"
    yield f"plain training has an error of {error:g} %"
    yield f"at most {4 * error:g} % that anything on it is false"
    yield f"is marked more often than {error:g} %"
    yield f"mark no difference at an error of {error:g} %"
    few = next(k for k in range(2, SEEDS) if paired.sign_flip(np.ones(k)).least_p <= design.error)
    assert few == 6
    yield "no sign flip is below 2 / 2^k, so fewer than six seeds"
    yield "marked with probability .8"  # sweep.statistics.power


def _draws(of: Calibration) -> Iterator[str]:
    """How much was drawn, as the file says beside every rate."""
    sweeps = of.part("null")["looks"]["a star in the table"]["of"]
    shapes, *_ = of.part("shapes").values()
    clips, *_ = of.part("in_clips").values()
    yield f"{SETTINGS} settings in {len(FAMILIES)} families, {SEEDS} seeds"
    yield f"{sweeps:,} sweeps"
    yield f"{shapes['looks']['of']:,} tables a cell"
    yield f"{clips['by clips']['of']:,} draws a cell"
    half = [1.96 * math.sqrt(0.05 * 0.95 / draws) for draws in (sweeps, sweeps // 4)]
    yield (
        f"known to {number(half[0], 2)}, of a quarter as many to {number(half[1], 2)}, with 95 %"
    )
    seconds = sum(part["seconds"] for name, part in of.of.items()
                  if isinstance(part, dict) and name != "tools")  # fmt: skip
    yield f"{round(seconds / 60)} CPU minutes"
    yield f"counts as {BOUND:g} standard deviations"
    yield "Basins lie at +-1"  # benchmarks.imitated.claims.shaped
    yield f"On {CLIPS} clips of {WINDOWS} windows, {CLAIM_SEEDS} seeds"
    tools = of.part("tools")
    tables, slow = (tools[name]["a star in the table"]["of"] for name in ("autorank", SLOW_TOOL))
    yield f"{tables} null sweeps (deep-significance: {slow},"
    yield f"each of {SETTINGS} settings with {SEEDS} seeds"
    yield f"because {SETTINGS} tests are not corrected for"
    yield f"where arms correlate {number(BETWEEN_ARMS, 1)}"
