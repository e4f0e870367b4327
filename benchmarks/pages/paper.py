"""Tables of docs/paper.md, from results/paper_words.json."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean

from benchmarks.pages.made import Made, number, results, table
from trainables.plain import Json

ARMS = ("constrained", "unconstrained")
PARTS = {  # results: the page's table, and decimals of its scores
    "ut_tables": ("video", 2),
    "ut_departures": ("departures", 2),
    "dust": ("dictionaries", 2),
    "text_ut": ("texts", 3),
}


def made() -> Made:
    """What the page has of results."""
    found = results("paper_words")
    tables = {
        called: _of_part(found[name], digits)
        for name, (called, digits) in PARTS.items()
        if name in found
    }
    if "ut_search" in found:
        tables["search"] = _search(found["ut_search"])
    return Made(tables, [], start="## What trains")


def _search(part: Json) -> str:
    """The one search of a model: what each dual learning rate comes to on dev."""
    rows = []
    for name, row in part["rows"].items():
        (pair,) = row["pairs"]
        one = pair["constrained"]
        losses = [number(loss, 2) for loss in one["losses"][1:]]
        largest = number(max(one["multipliers"]), 2)
        rows.append([name, ", ".join(losses), _feasible([one]), largest])
    (plain, *_) = [row["pairs"][0]["unconstrained"] for row in part["rows"].values()]
    rows.append(["unconstrained", ", ".join(number(loss, 2) for loss in plain["losses"][1:])])
    head = ["arm", "held-out loss of layers 1, 2, 3", "feasible", "largest multiplier at the end"]
    return table(head, [[*row, *[""] * (len(head) - len(row))] for row in rows])


def _of_part(part: Json, digits: int) -> str:
    """Scores of both arms, the gain seed by seed, and what the constrained arm met."""
    head = ["", "constrained", "unconstrained", "gain by seed", "feasible", "held-out loss"]
    is_published = any(row["published"] for row in part["rows"].values())
    head += ["published", "gain there"] * is_published
    rows = list(_rows(part, digits, is_published))
    first = next(iter(part["rows"].values()))["pairs"][0]["unconstrained"]
    for name, called in (("identity", "the unchanged input"), ("wiener", "a Wiener filter")):
        if first.get(name) is not None:
            rows.append([called, number(first[name], digits), *[""] * (len(head) - 2)])
    return table(head, rows)


def _rows(part: Json, digits: int, is_published: bool) -> Iterator[list[str]]:
    for name, row in part["rows"].items():
        pairs = row["pairs"]
        sign = -1.0 if part["space"].startswith("paper_video") else 1.0
        gains = [sign * (p["constrained"]["mean"] - p["unconstrained"]["mean"]) for p in pairs]
        cells = [name, *(number(fmean(p[arm]["mean"] for p in pairs), digits) for arm in ARMS)]
        cells.append(", ".join(number(gain, digits, signed=True) for gain in gains))
        cells.append(_feasible([p["constrained"] for p in pairs]))
        cells.append(
            ", ".join(number(fmean(p[arm]["losses"][-1] for p in pairs), digits) for arm in ARMS)
        )
        if is_published:
            there = row["published"]
            cells += [f"{there[0]:g}, {there[1]:g}", number(sign * (there[0] - there[1]), digits)]
        yield cells


def _feasible(arms: list[Json]) -> str:
    met = sum(bool(arm.get("feasible")) for arm in arms)
    return f"{met} of {len(arms)}"
