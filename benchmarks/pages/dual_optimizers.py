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
    plain = {
        s: sum(one["feasible"] for one in found["plain"] if one["setting"] == s) for s in SETTINGS
    }
    tables = {
        "optimizers": _table(rows, plain, len(found["reaches"])),
        "penalty barrier": _barrier_table(found, barrier, plain),
    }
    return Made(tables, [*_facts(found, rows, plain), *_barrier_facts(barrier, plain)])


def _binding(plain: dict[str, int]) -> list[str]:
    """The settings whose constraint plain training meets on no seed."""
    return [setting for setting, met in plain.items() if met == 0]


def sign_test(ahead: int, behind: int) -> float:
    """The two-sided p of a sign test; ties are left out.

    >>> sign_test(4, 0), sign_test(1, 1)
    (0.125, 1.0)
    """
    n, most = ahead + behind, max(ahead, behind)
    tail = sum(math.comb(n, k) for k in range(most, n + 1))
    return min(1.0, math.ldexp(tail, 1 - n))


def _table(rows: Json, plain: dict[str, int], reaches: int) -> str:
    def met_rates(row: Json) -> int:
        return sum(one["feasible"] for of in row["tuning"].values() for one in of.values())

    def over_sgd(row: Json) -> str:
        return _gain_text([-less for less in row["objective_less_sgd"]])

    of = [rows[name] for name in CALLED]
    share = [row["feasible_from_share_of_steps"] for row in of]
    tries = reaches * len(SETTINGS)
    lines = [
        *_counts(of, plain),
        ["feasible from, median fraction of steps", "", *(number(s, 2, short=True) for s in share)],
        [f"rates feasible on the tuning seed, of {tries}", "", *(str(met_rates(r)) for r in of)],
        ["gain in the objective over SGD, both feasible (pairs)", "", "", *map(over_sgd, of[1:])],
    ]
    return table([f"feasible, of {_seeds(of[0])} seeds", "plain", *CALLED.values()], lines)


def _seeds(row: Json) -> int:
    return int(row["arms"]) // len(row["feasible_by_setting"])


def _counts(of: list[Json], plain: dict[str, int]) -> list[list[str]]:
    """Lines of feasible arms by setting and where the constraint binds; plain training's first."""
    columns = [plain, *(row["feasible_by_setting"] for row in of)]
    binding, seeds = _binding(plain), _seeds(of[0])
    lines = [[setting, *(str(column[setting]) for column in columns)] for setting in SETTINGS]
    for label, settings in (("arms", SETTINGS), ("arms where it binds", binding)):
        counts = (sum(column[s] for s in settings) for column in columns)
        lines.append([f"**of {seeds * len(settings)} {label}**", *map(str, counts)])
    most = (sum(2 * column[s] > seeds for s in binding) for column in columns)
    lines.append([f"of {len(binding)} binding settings, most seeds meet", *map(str, most)])
    return lines


def _facts(found: Json, rows: Json, plain: dict[str, int]) -> Iterator[str]:
    reaches = [f"{reach:g}" for reach in found["reaches"]]
    yield f"({', '.join(reaches[:-1])} or {reaches[-1]})"
    seeds, binding = _seeds(rows["sgd"]), _binding(plain)
    yield f"{seeds} fresh seeds"
    yield f"{next(iter(SETTINGS.values()))[2]['steps']} steps"
    met = [s for s, count in plain.items() if count == seeds]
    assert met == ["Ped2 UT L5", "Ped2 UT L5 detached"], "the page names them"
    assert len(met) + len(binding) == len(SETTINGS)
    yield "UT with L = 5"
    none = [name for name, row in rows.items() if row["feasible_by_setting"][met[0]] == 0]
    assert none == ["sgd", "adam", "adamw", "bare_decay"], "the page names them"
    in_all = {
        name: sum(row["feasible_by_setting"][s] for s in binding) for name, row in rows.items()
    }
    ours, most = in_all["augmented"], seeds * len(binding)
    assert ours == in_all["nupi"] == max(in_all.values()), "the page says so"
    yield f"in {ours} of {most} arms each"
    yield f"bare decay in {in_all['bare_decay']}, SGD in {in_all['sgd']}"
    assert (in_all["adam"], in_all["adamw"]) == (0, 1), "the page says so"
    ahead, behind = _sides(rows["augmented"], rows["sgd"], binding)
    yield f"ahead of SGD in {ahead} settings and {behind}"


def _sides(of: Json, against: Json, settings: list[str]) -> tuple[int, str]:
    """In how many settings more seeds are feasible; where fewer are, with a sign test, in words."""
    differences = [
        of["feasible_by_setting"][s] - against["feasible_by_setting"][s] for s in settings
    ]
    ahead, behind = sum(d > 0 for d in differences), sum(d < 0 for d in differences)
    p = number(sign_test(ahead, behind), 3, short=True).rstrip("0").rstrip(".")
    return ahead, f"behind in {behind} (sign test, p = {p})"


def _barrier_table(found: Json, rows: Json, plain: dict[str, int]) -> str:
    of = list(rows.values())
    lines = _counts(of, plain)
    lines.append(["tries feasible", "", *(str(row["tries_feasible"]) for row in of)])
    scores = {(a["setting"], a["seed"]): a["objective"] for a in found["plain"]}
    for setting in _binding(plain):
        gains = [
            _gain_text(
                [
                    scores[setting, one["seed"]] - one["objective"]
                    for one in row["each"]
                    if one["setting"] == setting and one["feasible"]
                ]
            )
            for row in of
        ]
        if any(gains):
            lines.append([f"gain over plain, {setting} (feasible arms)", "", *gains])
    return table([f"feasible, of {_seeds(of[0])} seeds", "plain", *rows], lines)


def _gain_text(gains: list[float]) -> str:
    return f"{number(fmean(gains), 3, signed=True, short=True)} ({len(gains)})" if gains else ""


def _barrier_facts(rows: Json, plain: dict[str, int]) -> Iterator[str]:
    binding = _binding(plain)
    ours, theirs, held = rows.values()
    met = [sum(row["feasible_by_setting"][s] for s in binding) for row in (ours, theirs, held)]
    assert met[1] == met[2], "the page says so"
    yield f"in {met[1]} of {_seeds(ours) * len(binding)} arms, the augmented in {met[0]}"
    ((ahead, behind),) = {_sides(row, ours, binding) for row in (theirs, held)}
    assert ahead == 1, "the page says so of each"
    yield behind
    yield f"on {held['feasible_by_setting']['Ped2 UT L5 detached']} of {_seeds(held)} seeds"
