"""Calibration of a confirmation's statistics on imitated sweeps, through the code that decides.

    python -m benchmarks.calibration [--sweeps 2000] [--only null ...] [--figure best_of_n.svg]

36 settings in 6 families (benchmarks/imitated/null_sweeps.py), 20 seeds; what is decided is what
``sweep.statistics.decisions.decide`` decides, winners are ``winner_of``'s, certificates
``certify``'s. A rate is a share of sweeps with its exact 95 % interval; ``passes`` where that
interval does not lie above what is allowed. Decisions only accumulate, so a rate of sweeps with a
star at 20 seeds is that of a star at any time. autorank, deep-significance and rliable judge the
same sweeps where they are installed. JSON on standard output.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import numpy.typing as npt

from benchmarks.imitated.claims import (
    in_clips,
    later_looks,
    over_clips,
    power_by_rule,
    shapes,
    smallest_effects,
)
from benchmarks.imitated.null_sweeps import (
    BETWEEN_ARMS,
    FAMILIES,
    SETTINGS,
    UNITS,
    Floats,
    batches,
    expected_best,
    family_effect,
    noise,
    scales,
    searched,
)  # fmt: skip
from benchmarks.imitated.other_tools import quiet, verdicts
from benchmarks.imitated.rates import generator_of, rate
from sweep.statistics import paired, power, two_sources
from sweep.statistics.decisions import OUTCOMES, decide, staged_p
from sweep.statistics.design import Design, Rule
from trainables.config.arm import ConstraintConfig
from trainables.plain import Json, finite
from trainables.primal_dual.certificate import certify
from trainables.primal_dual.constraints import Scales, descent_constraints

SEEDS = 20
RULES: tuple[Rule, ...] = get_args(Rule)
ONE: dict[str, tuple[str, ...]] = {"one": ("only",)}
Marks = npt.NDArray[np.bool_]
PROMISED = ("normal", "t3", "skewed scores")  # symmetric differences
KINDS = (*PROMISED, "skewed", "5 % bounded failures")
BETTER, WORSE, EQUIVALENT = (OUTCOMES.index(o) for o in ("better", "worse", "equivalent"))


def starred(design: Design, differences_BSK: Floats) -> Marks:
    """Outcomes better or worse, [B, F + S]."""
    stars: Marks = np.isin(decide(design, differences_BSK).outcome, (BETTER, WORSE))
    return stars


def null(sweeps: int) -> Json:
    """S1: no configuration differs; any star in the table, and claims of equivalence at its edge.

    ``partly``: families 0-2 have effects in five settings of six, families 3-5 none; a false star
    is one of the sixth settings or of those families. ``edge``: every true difference is as large
    as the smallest effect of interest.
    """
    counts = {(rule, kind): 0 for rule in RULES for kind in ("null", "partly", "edge", "settings")}
    effect_S = np.array([1.5, 1.5, 1.5, 1.5, 1.5, 0.0] * 3 + [0.0] * 18)
    is_null = np.concatenate([[False] * 3 + [True] * 3, effect_S == 0])
    for batch, size in enumerate(batches(sweeps)):
        generator = generator_of("null", batch)
        sigma_BS = scales(generator, size)
        worth_BS, _ = searched(generator, sigma_BS, configurations=10, spread=0.0)
        first, second = noise(generator, sigma_BS, SEEDS)
        differences = worth_BS[..., None] + first - second
        for rule in RULES:
            design = Design.planned(FAMILIES, SEEDS, rule=rule)
            stars = starred(design, differences)
            counts[rule, "null"] += int(stars.any(axis=-1).sum())
            counts[rule, "settings"] += int(stars[:, 6:].sum())
            partly = starred(design, differences + (effect_S * sigma_BS)[..., None])
            counts[rule, "partly"] += int(partly[:, is_null].any(axis=-1).sum())
            edge = decide(replace(design, smallest_effect=0.4), differences + 0.4)
            counts[rule, "edge"] += int((edge.outcome == EQUIVALENT).any(axis=-1).sum())
    return {
        rule: {
            "a star in the table": rate(counts[rule, "null"], sweeps, 0.05),
            "a false star beside true effects": rate(counts[rule, "partly"], sweeps, 0.05),
            "equivalent at the edge": rate(counts[rule, "edge"], sweeps, 0.05),
            "settings starred": rate(counts[rule, "settings"], sweeps * SETTINGS),
        }
        for rule in RULES
    }


def tuning(sweeps: int) -> Json:
    """S2: both arms have configurations of equal worth in the mean, sd 1; no arm is better.

    ``best of 5 against 5 seeds`` is the paper's comparison; ``one study``: each arm's best of 10,
    then fresh seeds; ``a study per seed``: tuned anew for each.
    """
    wins, gain, stars, tables = 0, 0.0, {"one study": 0, "a study per seed": 0}, 0
    design = Design.planned(FAMILIES, SEEDS)
    for batch, size in enumerate(batches(sweeps)):
        generator = generator_of("tuning", batch)
        sigma_BS = np.ones((size, SETTINGS))
        tuned = generator.normal(0, 1, (5, size, SETTINGS)) + np.stack(
            [noise(generator, sigma_BS, 1)[0][..., 0] for _ in range(5)]
        )
        plain = noise(generator, sigma_BS, 5)[1]
        margin = tuned.max(axis=0) - plain.max(axis=-1)
        wins, gain = wins + int((margin > 0).sum()), gain + float(margin.sum())
        if tables >= sweeps // 2:  # tuning anew for every seed takes 40 searches a sweep
            continue
        tables += size
        first, second = noise(generator, sigma_BS, SEEDS)
        studies = [
            [searched(generator, sigma_BS, 10, 1.0)[0] for _ in range(SEEDS)] for _ in range(2)
        ]
        worth = np.stack([np.stack(of_arm, axis=-1) for of_arm in studies])  # [2, B, S, K]
        for name, values in (("one study", worth[..., :1]), ("a study per seed", worth)):
            found = starred(design, values[0] - values[1] + first - second)
            stars[name] += int(found.any(axis=-1).sum())
    return {
        "best of 5 against 5 seeds: constrained wins": rate(wins, sweeps * SETTINGS),
        "best of 5 against 5 seeds: mean margin in sd": gain / (sweeps * SETTINGS),
        "one study, then fresh seeds: a star in the table": rate(stars["one study"], tables),
        "a study per seed: a star in the table": rate(stars["a study per seed"], tables, 0.05),
    }


def drawn(kind: str, generator: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """Differences with a true mean of 0."""
    if kind == "t3":
        return np.asarray(generator.standard_t(3, shape))
    if kind == "skewed scores":  # of both arms alike, so that their difference is symmetric
        first, second = generator.exponential(1.0, (2, *shape))
        return np.asarray(first - second)
    if kind == "skewed":
        return np.asarray(generator.exponential(1.0, shape) - 1)
    values = generator.standard_normal(shape)
    if kind == "5 % bounded failures":
        return np.asarray(np.where(generator.random(shape) < 0.05, -4.0, values) + 0.2)
    return np.asarray(values)


def coverage(sweeps: int) -> Json:
    """S3: how often each named interval holds the true mean."""
    found: dict[str, Json] = {}
    for kind in KINDS:
        values = drawn(kind, generator_of("coverage", kind), (sweeps, SEEDS))
        rows: dict[str, Json] = {}
        for seeds in (5, 10, 20):
            low, high = paired.t_interval(values[:, :seeds])
            covers = rate(int(((low <= 0) & (high >= 0)).sum()), sweeps)
            if kind in PROMISED:
                covers["passes"] = 0.93 <= covers["rate"] <= 0.97
            rows[f"paired t, {seeds} seeds"] = covers
            drawn_K = generator_of("percentile", kind, seeds).integers(0, seeds, (1000, seeds))
            means = values[: sweeps // 2, drawn_K].mean(axis=-1)
            low, high = np.quantile(means, [0.025, 0.975], axis=-1)
            rows[f"percentile bootstrap, {seeds} seeds"] = rate(
                int(((low <= 0) & (high >= 0)).sum()), len(means)
            )
        names: dict[Rule, str] = {"looks": "all looks at once", "any_time": "confidence sequence"}
        for rule, name in names.items():
            design = Design.planned(ONE, SEEDS, rule=rule)
            different, _ = staged_p(design, values)
            rows[f"{name}, 2 to 20 seeds"] = rate(
                int((different > 0.05).all(axis=-1).sum()), sweeps
            )
        found[kind] = rows
    found["crossed bootstrap of seeds and units"] = crossed(max(50, sweeps // 4))
    return found


def crossed(sweeps: int) -> Json:
    """Coverage over other seeds and other units, of it and of the t interval of seeds alone."""
    counts: dict[tuple[int, str], int] = {}
    for seeds in (5, 10, 20):
        generator = generator_of("crossed", seeds)
        for draw in range(sweeps):
            seed, unit = generator.normal(0, 0.5, (1, seeds, 1)), generator.normal(0, 1, UNITS)
            losses = seed + unit + generator.normal(0, 1, (1, seeds, UNITS))
            interval = two_sources.crossed_bootstrap(
                losses, np.zeros_like(losses), np.ones(UNITS), np.negative, key=draw, draws=1000
            )
            t_low, t_high = paired.t_interval(losses[0].mean(axis=-1))
            for name, covers in (
                ("crossed", interval.low <= 0 <= interval.high), ("t", t_low <= 0 <= t_high),
            ):  # fmt: skip
                counts[seeds, name] = counts.get((seeds, name), 0) + int(covers)
    return {
        f"{name}, {seeds} seeds": rate(count, sweeps) for (seeds, name), count in counts.items()
    }


def power_of_decisions(sweeps: int) -> Json:
    """S4: how often an effect is marked against the noncentral t: one test, one family of six."""
    rows = []
    for effect in (0.5, 1.0, 2.0):
        for seeds in (5, 10, 20):
            one = Design.planned(ONE, seeds, rule="fixed")
            values = generator_of("power", effect, seeds).normal(effect, 1, (sweeps, 1, seeds))
            single = float((decide(one, values).outcome[:, 1] == BETTER).mean())
            of_one = power.power(one, effect, seeds, 1)
            six = Design.planned(FAMILIES, seeds, rule="fixed")
            marked = 0
            for batch, size in enumerate(batches(sweeps)):
                generator = generator_of("family power", effect, seeds, batch)
                first, second = noise(generator, np.ones((size, SETTINGS)), seeds)
                values = first - second
                values[:, :6] += effect * math.sqrt(2 * (1 - BETWEEN_ARMS))
                marked += int((decide(six, values).outcome[:, 0] == BETTER).sum())
            of_family = power.power(six, family_effect(effect, 6, 0.3), seeds, 6)
            rows.append({
                "effect": effect, "seeds": seeds,
                "one test": single, "one test by the noncentral t": of_one,
                "family of six": marked / sweeps, "family by the noncentral t": of_family,
                "passes": max(abs(single - of_one), abs(marked / sweeps - of_family)) <= 0.02,
            })  # fmt: skip
    return rows


def sequential(sweeps: int) -> Json:
    """S5: one comparison that may stop early: false marks, power and seeds needed."""
    designs = {rule: Design.planned(ONE, SEEDS, rule=rule) for rule in RULES}
    looks = tuple(range(3, SEEDS + 1))
    naive = Design(ONE, looks=looks, spending=(1 / len(looks),) * len(looks))
    rows: dict[str, Json] = {}
    nulls = [(f"null, {kind}", kind, 0.0, 1) for kind in KINDS]
    effects = [("effect 1", "normal", 1.0, 1), ("effect 1 of 36", "normal", 1.0, SETTINGS)]
    for name, kind, effect, tests in (*nulls, *effects):
        values = drawn(kind, generator_of("sequential", kind), (sweeps, SEEDS)) + effect
        level = 0.05 / tests
        row: dict[str, Json] = {}
        for rule, design in designs.items():
            marks = staged_p(design, values)[0] <= level
            stages = np.array([n for n, _ in design.stages(SEEDS)])
            ended = np.where(marks.any(axis=-1), stages[marks.argmax(axis=-1)], SEEDS)
            allowed = 0.05 if kind in PROMISED and not effect else None
            row[rule] = rate(int(marks.any(axis=-1).sum()), sweeps, allowed)
            row[rule]["mean seeds"] = float(ended.mean())
        every = staged_p(naive, values)[0] / len(looks) <= level  # unspent: p < .05 at each
        row["t after every seed"] = rate(int(every.any(axis=-1).sum()), sweeps)
        rows[name] = row
    return rows


def unequal_failures(sweeps: int) -> Json:
    """S6: equal arms, but each constrained one fails in the tenth of the seeds it does worst on.

    A family of six settings; a failure counts as 4 standard deviations below the mean. Per
    protocol: the seeds on which all six finished.
    """
    design = Design.planned({"family": FAMILIES["family 0"]}, SEEDS)
    counts = {(way, of): 0 for way in ("treated", "finished") for of in (BETTER, WORSE)}
    mean = {"treated": 0.0, "finished": 0.0}
    for batch, size in enumerate(batches(sweeps)):
        generator = generator_of("failures", batch)
        second, own = (noise(generator, np.ones((size, SETTINGS)), SEEDS)[0][:, :6] for _ in "ab")
        first = math.sqrt(BETWEEN_ARMS) * second + math.sqrt(1 - BETWEEN_ARMS) * own
        fails = own < np.quantile(own, 0.1)
        kept = np.where(fails.any(axis=1, keepdims=True), np.nan, first - second)
        order = np.argsort(np.isnan(kept), axis=-1, kind="stable")
        for way, values in (
            ("treated", np.where(fails, -4.0, first) - second),
            ("finished", np.take_along_axis(kept, order, axis=-1)),
        ):
            outcome = decide(design, values).outcome[:, 0]
            for of in (BETTER, WORSE):
                counts[way, of] += int((outcome == of).sum())
            mean[way] += float(np.nanmean(values)) * size / sweeps
    return {
        name: {
            "mean difference": mean[way],
            "constrained better": rate(counts[way, BETTER], sweeps),
            "constrained worse": rate(counts[way, WORSE], sweeps),
        }
        for name, way in (("intention to treat", "treated"), ("per protocol", "finished"))
    }


def certificates(sweeps: int) -> Json:
    """S7: false certificates where layers are exactly at the tolerance; units of one window alike.

    Certified infeasible is false where every layer is at it, certified feasible where any is.
    """
    config = ConstraintConfig(
        alpha=0.2, reference_loss=1.0, reference_unit="constant", scale="none"
    )  # fmt: skip
    layers, tolerance = 5, 0.1
    constraints = descent_constraints(config, layers, Scales(1.0, 1.0))
    keep = 1 - (1 - tolerance) * config.alpha
    edge_F = np.array([1.0, *((1 + tolerance * config.alpha) * keep**n for n in range(layers))])
    one_F = edge_F * 0.8 ** np.array([0, 1, 1, 2, 3, 4])  # the second layer alone is at it
    found: dict[str, Json] = {}
    for units in (10, 40):
        for name, mean_F in (("one layer at it", one_F), ("every layer at it", edge_F)):
            generator = generator_of("certificates", units, name)
            counts = {"feasible": 0, "infeasible": 0, "undecided": 0}
            for _ in range(sweeps):
                losses = mean_F * (1 + 0.1 * generator.standard_normal((units, layers + 1)))
                certificate = certify(
                    constraints, losses, tolerance=tolerance,
                    clusters=list(map(str, range(units))), cluster="window",
                )  # fmt: skip
                counts[certificate.verdict] += 1
            row = {"certified feasible": rate(counts["feasible"], sweeps, 0.05)}
            if name.startswith("every"):
                row["certified infeasible"] = rate(counts["infeasible"], sweeps, 0.05)
            found[f"{units} units, {name}"] = row
    few, patches = 10, 16  # windows, and patches of each, correlated .3
    generator = generator_of("clusters")
    counts = {"window": 0, "patch": 0}
    smaller = max(100, sweeps // 2)
    windows = [str(w) for w in range(few) for _ in range(patches)]
    for _ in range(smaller):
        shared = generator.standard_normal((few, 1, layers + 1))
        own = generator.standard_normal((few, patches, layers + 1))
        spread = math.sqrt(0.3) * shared + math.sqrt(0.7) * own
        losses = one_F * (1 + 0.1 * spread.reshape(-1, layers + 1))
        for name, clusters in (("window", windows), ("patch", list(map(str, range(160))))):
            verdict = certify(
                constraints, losses, tolerance=tolerance, clusters=clusters, cluster=name
            ).verdict
            counts[name] += verdict == "feasible"
    found["10 windows of 16 patches that correlate .3"] = {
        "certified feasible by windows": rate(counts["window"], smaller, 0.05),
        "certified feasible by patches, as if independent": rate(counts["patch"], smaller),
    }
    return found


def without_winners(sweeps: int) -> Json:
    """S8: sweeps all of whose proposals do not bind or are infeasible, and identical arms."""
    size = min(sweeps, 200)
    generator = generator_of("without winners")
    worth, _ = searched(generator, scales(generator, size), 10, 1.0, can_win=False)
    design = Design.planned(FAMILIES, SEEDS)
    missing = np.broadcast_to(worth[..., None], (size, SETTINGS, SEEDS))
    stars = {
        "no proposal can win": int(starred(design, missing).sum()),
        "identical arms": int(starred(design, np.zeros((1, SETTINGS, SEEDS))).sum()),
        "one seed": int(starred(design, np.ones((1, SETTINGS, 1))).sum()),
    }
    return {name: {"stars": count, "passes": count == 0} for name, count in stars.items()}


def tools(sweeps: int) -> Json:
    """Stars of other tools on null sweeps: per setting, in a table, and when looked at thrice."""
    found, missing = verdicts()
    rows: dict[str, Json] = {name: {"left out": reason} for name, reason in missing.items()}
    generator = generator_of("tools")
    sigma_BS = scales(generator, sweeps)
    first, second = noise(generator, sigma_BS, SEEDS)
    rules: tuple[Rule, ...] = ("looks", "any_time")
    for rule in rules:
        stars = starred(Design.planned(FAMILIES, SEEDS, rule=rule), first - second)
        rows[f"this project, {rule}"] = _stars(stars[:, None, 6:], np.any(stars, axis=-1))
    for name, verdict in found.items():
        is_slow = name.startswith("deep")  # a second each
        kept = max(1, sweeps // 5) if is_slow else sweeps
        looks = (SEEDS,) if is_slow or name.startswith("rliable") else (5, 10, SEEDS)
        marks = np.zeros((kept, len(looks), SETTINGS), dtype=bool)
        with quiet():
            for b, i, s in np.ndindex(marks.shape):
                marks[b, i, s] = verdict(first[b, s, : looks[i]], second[b, s, : looks[i]])
        rows[name] = _stars(marks, np.any(marks[:, -1], axis=-1))
    if "autorank" in found:  # as its authors mean it: replicates are data sets, here the settings
        tuned = np.max([noise(generator, sigma_BS, 1)[0][..., 0] for _ in range(5)], axis=0)
        for name, arms in (
            ("settings as replicates", (first.mean(axis=-1), second.mean(axis=-1))),
            ("settings as replicates, best of 5 against one", (tuned, second[..., 0])),
        ):
            with quiet():
                count = sum(found["autorank"](a, b) for a, b in zip(*arms, strict=True))
            rows[f"autorank, {name}"] = {"a star in the table": rate(count, sweeps)}
    return rows


def _stars(marks_BNS: Marks, tables_B: Marks) -> Json:
    of = marks_BNS.shape[0] * SETTINGS
    row = {
        "a setting, at 20 seeds": rate(int(marks_BNS[:, -1].sum()), of),
        "a star in the table": rate(int(tables_B.sum()), len(tables_B)),
    }
    if marks_BNS.shape[1] > 1:
        row["a setting, looked at with 5, 10 and 20"] = rate(int(marks_BNS.any(axis=1).sum()), of)
    return row


def best_of(sweeps: int) -> dict[int, tuple[Floats, Floats, Floats]]:
    """Per number of tries N, per setting: margin of the best, confirmed margin, better or not.

    Nothing has an effect. The best of N constrained runs is compared with one unconstrained run;
    then 10 fresh seeds of both, in sweeps of one setting.
    """
    found = {}
    for tries in (1, 5, 20):
        generator = generator_of("best of", tries)
        tried = generator.standard_normal((sweeps, tries)).max(axis=-1)
        fresh = generator.standard_normal((sweeps, 1, 10)) * math.sqrt(2)
        decisions = decide(Design.planned(ONE, 10), fresh)
        better = decisions.outcome[:, 1] == BETTER
        found[tries] = (tried - generator.standard_normal(sweeps), fresh.mean(axis=(1, 2)), better)
    return found


def best_of_n(sweeps: int) -> Json:
    """Shares of constrained wins under no effect: best of N against one, and confirmed."""
    return {
        f"N = {tries}": {
            "naive wins": rate(int((margin > 0).sum()), sweeps),
            "mean margin in sd": float(margin.mean()),
            "expected": expected_best(tries),
            "confirmed better": rate(int(better.sum()), sweeps, 0.05),
        }
        for tries, (margin, _, better) in best_of(sweeps).items()
    }


PARTS: dict[str, Callable[[int], Json]] = {
    "null": null,
    "tuning": tuning,
    "coverage": coverage,
    "power": power_of_decisions,
    "sequential": sequential,
    "failures": unequal_failures,
    "certificates": certificates,
    "without_winners": without_winners,
    "best_of_n": best_of_n,
    "shapes": shapes,
    "power_by_rule": power_by_rule,
    "smallest_effects": smallest_effects,
    "later_looks": later_looks,
    "in_clips": in_clips,
    "over_clips": over_clips,
}


def main() -> None:
    """Run what is asked for; everything by default."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sweeps", type=int, default=2_000)
    parser.add_argument("--tool-sweeps", type=int, default=50, help="for autorank and others")
    parser.add_argument("--only", nargs="+", choices=[*PARTS, "tools"])
    parser.add_argument("--figure", type=Path, help="draw the best of N beside confirmation")
    options = parser.parse_args()
    wanted = options.only or [*PARTS, "tools"]
    result: dict[str, Json] = {"benchmark": "calibration", "sweeps": options.sweeps}
    for name in wanted:
        start = time.process_time()
        part = tools(options.tool_sweeps) if name == "tools" else PARTS[name](options.sweeps)
        result[name] = {"seconds": round(time.process_time() - start, 1), "found": part}
    if options.figure:
        from benchmarks.imitated.figure import draw

        draw(best_of(options.sweeps), options.figure)
    print(json.dumps(finite(result), indent=1))


if __name__ == "__main__":
    main()
