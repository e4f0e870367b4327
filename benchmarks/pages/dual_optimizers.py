"""Tables and figures of docs/dual_optimizers.md, from results/dual_optimizers.json."""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import fmean

from benchmarks.dual_optimizers import SETTINGS
from benchmarks.pages.made import Made, number, results, table
from trainables.plain import Json

CALLED = {
    "sgd": "SGD",
    "adam": "Adam",
    "adamw": "AdamW",
    "bare_decay": "bare decay",
    "nupi": "nuPI",
    "augmented": "augmented",
}


def made() -> Made:
    """What the page has of results."""
    found = results("dual_optimizers")
    rows, barrier = found["rows"], found["penalty_barrier"]["rows"]
    tables = {
        "optimizers": _table(rows, len(found["reaches"])),
        "penalty barrier": _barrier_table(barrier),
    }
    return Made(tables, [*_facts(found, rows), *_barrier_facts(barrier)])


def sign_test(ahead: int, behind: int) -> float:
    """The two-sided p of a sign test; ties are left out.

    >>> sign_test(4, 0), sign_test(1, 1)
    (0.125, 1.0)
    """
    n, most = ahead + behind, max(ahead, behind)
    tail = sum(math.comb(n, k) for k in range(most, n + 1))
    return min(1.0, math.ldexp(tail, 1 - n))


def _table(rows: Json, reaches: int) -> str:
    def met_rates(row: Json) -> int:
        return sum(one["feasible"] for of in row["tuning"].values() for one in of.values())

    def over_sgd(row: Json) -> str:
        return _gain_text([-less for less in row["objective_less_sgd"]])

    of = [rows[name] for name in CALLED]
    share = [row["feasible_from_share_of_steps"] for row in of]
    lines = [
        [setting, *(str(row["feasible_by_setting"][setting]) for row in of)] for setting in SETTINGS
    ]
    tries = reaches * len(SETTINGS)
    lines += [
        [f"**of {of[0]['arms']} arms**", *(str(row["feasible"]) for row in of)],
        ["settings that most seeds meet", *(str(r["settings_most_seeds_feasible"]) for r in of)],
        ["feasible from, median fraction of steps", *(number(s, 2, short=True) for s in share)],
        [f"rates feasible on the tuning seed, of {tries}", *(str(met_rates(row)) for row in of)],
        ["gain in the objective over SGD, both feasible (pairs)", "", *map(over_sgd, of[1:])],
    ]
    return table([f"feasible, of {of[0]['arms'] // len(SETTINGS)} seeds", *CALLED.values()], lines)


def _facts(found: Json, rows: Json) -> Iterator[str]:
    reaches = [f"{reach:g}" for reach in found["reaches"]]
    yield f"({', '.join(reaches[:-1])} or {reaches[-1]})"
    yield f"{len(found['arms']) // len(rows) // len(SETTINGS)} fresh seeds"
    yield f"{next(iter(SETTINGS.values()))[2]['steps']} steps"
    ours, next_best = rows["augmented"], rows["nupi"]
    yield f"in {ours['feasible']} of {ours['arms']} arms and nuPI in {next_best['feasible']}"
    for other in ("sgd", "bare_decay"):
        more, behind = _sides(ours, rows[other])
        yield f"{CALLED[other]} in {more} settings and {behind}"
    by_arm = {(a["setting"], a["optimizer"], a["seed"]): a["objective"] for a in found["arms"]}
    plain = {(a["setting"], a["seed"]): a["objective"] for a in found["plain"]}
    of, gains = "Ped2 UT L5", {}
    for name in CALLED:
        own = [plain[s, seed] - v for (s, n, seed), v in by_arm.items() if (s, n) == (of, name)]
        gains[name] = fmean(own)
    least, most = (
        number(gain, 2, short=True) for gain in (min(gains.values()), max(gains.values()))
    )
    ahead = max(gains, key=lambda name: gains[name])
    yield f"On UT with L = {of[-1]}"
    yield f"by {least} to {most} of the objective in the mean, {CALLED[ahead]}'s"


def _sides(of: Json, against: Json) -> tuple[int, str]:
    """In how many settings more seeds are feasible; where fewer are, with a sign test, in words."""
    there = against["feasible_by_setting"]
    pairs = [(count, there[setting]) for setting, count in of["feasible_by_setting"].items()]
    ahead, behind = sum(a > b for a, b in pairs), sum(a < b for a, b in pairs)
    p = number(sign_test(ahead, behind), 3, short=True).rstrip("0")
    return ahead, f"behind in {behind} (sign test, p = {p})"


def _barrier_table(rows: Json) -> str:
    ours, theirs = rows.values()
    lines = [
        [s, *(str(row["feasible_by_setting"][s]) for row in (ours, theirs)), _gain_text(gains)]
        for s, gains in _gains(rows).items()
    ]
    for label, field in (
        (f"**of {ours['arms']} arms**", "feasible"),
        ("settings that most seeds meet", "settings_most_seeds_feasible"),
        ("tries feasible on the tuning seed", "tries_feasible"),
    ):
        lines.append([label, str(ours[field]), str(theirs[field]), ""])
    seeds = ours["arms"] // len(ours["feasible_by_setting"])
    gain = "gain in the objective over the augmented, both feasible (pairs)"
    return table([f"feasible, of {seeds} seeds", *rows, gain], lines)


def _gains(rows: Json) -> dict[str, list[float]]:
    """By setting, the gain in the objective of each seed on which both ways are feasible."""
    ours, theirs = (
        {(a["setting"], a["seed"]): a["objective"] for a in row["each"] if a["feasible"]}
        for row in rows.values()
    )
    return {
        s: [ours[key] - theirs[key] for key in ours if key[0] == s and key in theirs]
        for s in next(iter(rows.values()))["feasible_by_setting"]
    }


def _gain_text(gains: list[float]) -> str:
    return f"{number(fmean(gains), 3, signed=True, short=True)} ({len(gains)})" if gains else ""


def _barrier_facts(rows: Json) -> Iterator[str]:
    ours, theirs = rows.values()
    yield f"in {theirs['feasible']} of {theirs['arms']} arms, the augmented in {ours['feasible']}"
    more, behind = _sides(theirs, ours)
    yield f"ahead in {more} settings and {behind}"
    worse = [gain for gains in _gains(rows).values() if fmean(gains) < 0 for gain in gains]
    least, most = (number(-gain, 3, short=True) for gain in (max(worse), min(worse)))
    yield f"objectives are worse by {least} to {most}"
