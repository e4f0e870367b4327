"""Tables of docs/paper.md, from results/paper_words.json."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

from benchmarks.pages.made import Made, number, results, table
from sweep.results.aggregates import area
from trainables.plain import Json

ARMS = ("constrained", "unconstrained")
NOTHING = "—"
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
    tables["search"] = _search(found["ut_search"])
    return Made(tables, list(_facts(found)), start="## What trains")


def _facts(found: Json) -> Iterator[str]:
    """Sentences' numbers: of the search, which every table of UT builds on, and of the tables."""
    (first, *_) = found["ut_search"]["rows"].values()
    plain = first["pairs"][0]["unconstrained"]
    yield f"a loss of {number(plain['losses'][0], 2)}"
    yield f"a mean RMSE of {number(plain['identity'], 1)}"
    departures = found["ut_departures"]
    yield f"The dual learning rate is {departures['base']['constraint.dual_lr']:g}"
    fewer = departures["rows"]["batches of 100 sequences"]["fields"]
    passes = f"{fewer['steps']} steps in place of {departures['base']['steps']:,}"
    yield f"Batches of {fewer['batch_size']} make the same passes in {passes}"
    yield from _of_rows(found["ut_tables"])
    yield from _of_texts(found["text_ut"])


def _of_rows(part: Json) -> Iterator[str]:
    pairs = {name: row["pairs"] for name, row in part["rows"].items()}
    arms = [pair[arm] for row in pairs.values() for pair in row for arm in ARMS]
    assert all(arm["mean"] > arm["identity"] for arm in arms)
    assert not any(pair["constrained"]["feasible"] for row in pairs.values() for pair in row)
    depths = [int(name[1]) for name in pairs if name != "L3 g0.15"]
    deep = {
        depth: fmean(p["unconstrained"]["mean"] for p in pairs[f"L{depth} g0.09"])
        for depth in depths
    }
    yield " and ".join(f"{number(deep[depth], 0)} with {depth} layers" for depth in depths)
    yield f"at train gamma {part['rows']['L3 g0.15']['fields']['train_gamma']:g}"


def _of_texts(part: Json) -> Iterator[str]:
    base = part["base"]
    yield f"the first {base['data.max_length']} tokens of IMDb's reviews"
    yield f"{base['steps']} steps at train gamma {base['train_gamma']:g}"
    areas = {
        arm: [_area(pair[arm]) for row in part["rows"].values() for pair in row["pairs"]]
        for arm in ARMS
    }
    assert all(ours < plain for ours, plain in zip(*areas.values(), strict=True))
    best = {arm: number(max(values), 3) for arm, values in areas.items()}
    yield f"{best['constrained']} against {best['unconstrained']}"
    (published, *_) = (row["published"] for row in part["rows"].values())
    yield f"published are {published[0]:.3f} and {published[1]:.3f}"


def _search(part: Json) -> str:
    """The one search of a model: what each dual learning rate comes to on dev."""
    arms = {name: row["pairs"][0]["constrained"] for name, row in part["rows"].items()}
    (first, *_) = part["rows"].values()
    arms["unconstrained"] = first["pairs"][0]["unconstrained"]
    rows = [
        [
            name,
            *(number(loss, 2) for loss in arm["losses"]),
            number(arm["mean"], 2),
            NOTHING if name == "unconstrained" else _feasible([arm]),
        ]
        for name, arm in arms.items()
    ]
    layers = [f"layer {layer}" for layer in range(1, len(rows[0]) - 3)]
    return table(["held-out loss of", "the input", *layers, "mean RMSE", "feasible"], rows)


def _of_part(part: Json, digits: int) -> str:
    """Scores of both arms, the gain seed by seed, and what the constrained arm met."""
    is_published = any(row["published"] for row in part["rows"].values())
    rows = list(_rows(part, digits, is_published))
    head = ["", *ARMS, "gain by seed", "feasible", "their held-out losses"]
    head += ["published", "gain there"] * is_published
    first = next(iter(part["rows"].values()))["pairs"][0]["unconstrained"]
    for name, called in (("identity", "the unchanged input"), ("wiener", "a Wiener filter")):
        if first.get(name) is not None:
            rows.append([called, number(first[name], digits), *[""] * (len(head) - 2)])
    return table(head, rows)


def _rows(part: Json, digits: int, is_published: bool) -> Iterator[list[str]]:
    sign = -1.0 if _is_video(part) else 1.0
    score = _mean_score if _is_video(part) else _area
    best: dict[str, float] = {}
    for name, row in part["rows"].items():
        pairs = row["pairs"]
        scores = {arm: [score(pair[arm]) for pair in pairs] for arm in ARMS}
        for arm, values in scores.items():
            best[arm] = max([best.get(arm, -math.inf), *(sign * v for v in values)])
        yield [
            name,
            *(_mean(scores[arm], digits) for arm in ARMS),
            ", ".join(
                _number(sign * (ours - plain), digits, signed=True)
                for ours, plain in zip(*scores.values(), strict=True)
            ),
            _feasible([pair["constrained"] for pair in pairs]),
            ", ".join(_mean([_last(pair[arm]) for pair in pairs], digits) for arm in ARMS),
            *(_published(row["published"], sign, digits) if is_published else ()),
        ]
    if part["is_paired"]:
        gain = number(best[ARMS[0]] - best[ARMS[1]], digits, signed=True)
        scores_of_best = [number(sign * best[arm], digits) for arm in ARMS]
        yield ["the best of each", *scores_of_best, gain, *[""] * (2 + 2 * is_published)]


def _is_video(part: Json) -> bool:
    return bool(part["space"].startswith("paper_video"))


def _mean_score(arm: Mapping[str, Json]) -> float:
    """The mean score of an arm; not a number where it has none, as one that diverged."""
    return float(arm.get("mean", math.nan))


def _area(arm: Mapping[str, Json]) -> float:
    """The area under the scores of an arm over test gammas, as Table 4 has of accuracy."""
    return area(arm["scores"]) if "scores" in arm else math.nan


def _last(arm: Mapping[str, Json]) -> float:
    return float(arm["losses"][-1]) if "losses" in arm else math.nan


def _number(value: float, digits: int, *, signed: bool = False) -> str:
    return number(value, digits, signed=signed) if math.isfinite(value) else "diverged"


def _mean(values: Sequence[float], digits: int) -> str:
    return _number(fmean(values), digits)


def _published(cell: Sequence[float] | None, sign: float, digits: int) -> list[str]:
    if cell is None:
        return ["", ""]
    gain = number(sign * (cell[0] - cell[1]), digits, signed=True)
    return [f"{cell[0]:g}, {cell[1]:g}", gain]


def _feasible(arms: Sequence[Mapping[str, Json]]) -> str:
    met = sum(bool(arm.get("feasible")) for arm in arms)
    return f"{met} of {len(arms)}"
