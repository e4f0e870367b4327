"""Calibration of claims where differences are no normal replicates: shapes, units, failed seeds.

What the rule of before came to, which plans of before keep, is in results/calibration_before.json:
a first look at five seeds, by t tests alone. Parts of ``benchmarks.calibration``.
"""

from __future__ import annotations

import math
from typing import get_args

import numpy as np

from benchmarks.imitated.null_sweeps import Floats, batches
from benchmarks.imitated.rates import generator_of, rate
from sweep.confirmation.comparisons import decide_claims
from sweep.confirmation.summary import OverUnits, Variance
from sweep.confirmation.units import Groups
from sweep.statistics import power
from sweep.statistics.decisions import OUTCOMES, decide, staged_p
from sweep.statistics.design import Design, Rule
from sweep.statistics.two_sources import crossed_bootstrap, variance_components
from trainables.plain import Json

RULES: tuple[Rule, ...] = get_args(Rule)
TABLES = ((4, 3), (6, 6))  # families, and settings of each
SYMMETRIC = ("normal", "two basins, noise .05", "two basins, noise .3", "a tenth of both arms fail")
SHAPES = (*SYMMETRIC, "exponential less 1", "lognormal(1) less its mean", "a fifth of one arm fail")
BOUND = -4.0  # what an arm that failed counts as
EFFECTS = (0.3, 0.5, 0.7, 1.0)
ONE: dict[str, tuple[str, ...]] = {"one": ("only",)}
BETTER, WORSE = OUTCOMES.index("better"), OUTCOMES.index("worse")
CLIPS, WINDOWS, SEEDS = 12, 18, 10


def shaped(
    kind: str, generator: np.random.Generator, tables: int, families: int, settings: int, seeds: int
) -> Floats:
    """Differences with a true mean of 0, [tables, families x settings, seeds]."""
    shape = (tables, families * settings, seeds)
    noise = generator.standard_normal(shape)
    if kind.startswith("two basins"):  # one a family, which its settings share
        basins = generator.choice([-1.0, 1.0], (tables, families, seeds))
        return np.asarray(basins.repeat(settings, axis=1) + float(kind.split()[-1]) * noise)
    if kind == "exponential less 1":
        return np.asarray(generator.exponential(1.0, shape) - 1)
    if kind == "lognormal(1) less its mean":
        return np.asarray(np.exp(noise) - math.exp(0.5))
    if kind == "a tenth of both arms fail":
        first, second = (
            np.where(generator.random(shape) < 0.1, BOUND, generator.standard_normal(shape))
            for _ in "ab"
        )
        return np.asarray(first - second)
    if kind == "a fifth of one arm fail":
        first = np.where(generator.random(shape) < 0.2, BOUND, noise - BOUND / 4)
        return np.asarray(first - generator.standard_normal(shape))
    shared = generator.standard_normal((tables, 1, seeds))
    return np.asarray(math.sqrt(0.5) * (shared + noise))


def shapes(sweeps: int) -> Json:
    """S9: tables with a false star by the shape of differences; half of the sweeps."""
    tables = max(20, sweeps // 2)
    rows: dict[str, Json] = {}
    for families, settings in TABLES:
        names = {
            f"family {f}": tuple(f"setting {f}.{s}" for s in range(settings))
            for f in range(families)
        }
        for seeds in (10, 20):
            for kind in SHAPES:
                counts = dict.fromkeys(RULES, 0)
                for batch, size in enumerate(batches(tables)):
                    generator = generator_of("shapes", families, seeds, kind, batch)
                    values = shaped(kind, generator, size, families, settings, seeds)
                    for rule in RULES:
                        outcome = decide(Design.planned(names, seeds, rule=rule), values).outcome
                        stars = np.isin(outcome, (BETTER, WORSE)).any(axis=-1)
                        counts[rule] += int(stars.sum())
                rows[f"{families} families of {settings}, {seeds} seeds, {kind}"] = {
                    rule: rate(count, tables, 0.05 if kind in SYMMETRIC else None)
                    for rule, count in counts.items()
                }
    return rows


def power_by_rule(sweeps: int) -> Json:
    """S10: how often normal differences are marked, as one of so many tests; mean seeds by looks.

    With ``looks`` training may stop where it is marked.
    """
    draws = sweeps
    rows: dict[str, Json] = {}
    for seeds in (10, 20):
        for effect in EFFECTS:
            generator = generator_of("power by rule", seeds, effect)
            values = generator.standard_normal((draws, seeds)) + effect
            for rule in RULES:
                design = Design.planned(ONE, seeds, rule=rule)
                different = staged_p(design, values)[0]
                stages = np.array([n for n, _ in design.stages(seeds)])
                for tests in (1, 2, 6, 36):
                    marks = different <= 0.05 / tests
                    any_mark = marks.any(axis=-1)
                    ended = np.where(any_mark, stages[marks.argmax(axis=-1)], seeds)
                    row = rows.setdefault(f"{seeds} seeds, one of {tests}, {rule}", {})
                    row[f"d_z {effect:g}"] = {
                        **rate(int(any_mark.sum()), draws),
                        "mean seeds": float(ended.mean()),
                    }
    return rows


def smallest_effects(sweeps: int) -> Json:
    """The smallest d_z that is marked with probability .8 as one of so many tests; None: none is.

    It is what ``sweep confirm --dry-run`` prints, whatever the sweeps; of few, for tests, a part.
    """
    every = (5, 10, 20) if sweeps >= 1000 else (5,)
    return {
        f"{seeds} seeds, one of {tests}": {
            rule: power.smallest_effect(Design.planned(ONE, seeds, rule=rule), seeds, tests)
            for rule in RULES
        }
        for seeds in every
        for tests in (1, 6, 36)
    }


def later_looks(sweeps: int) -> Json:
    """S11: how much too large what is called better is told: reported over true effect, in means.

    ``counted``: of the seeds that decided; ``ended``: over all that were trained.
    """
    rows: dict[str, Json] = {}
    for seeds in (10, 20):
        for effect in EFFECTS:
            generator = generator_of("later looks", seeds, effect)
            values = generator.standard_normal((sweeps, 1, seeds)) + effect
            found = decide(Design.planned(ONE, seeds), values)
            better = found.outcome[:, 1] == BETTER
            early = better & (found.counted[:, 1] < seeds)
            covers = (found.ended_low <= effect) & (found.ended_high >= effect)
            rows[f"{seeds} seeds, d_z {effect:g}"] = {
                "better": rate(int(better.sum()), sweeps),
                "early": rate(int(early.sum()), sweeps),
                **{
                    f"{name} over true, {of}": (
                        float(mean[:, 1][which].mean()) / effect if which.any() else None
                    )
                    for of, which in (("better", better), ("early", early))
                    for name, mean in (("counted", found.mean), ("ended", found.ended_mean))
                },
                "interval of all ended covers": rate(int(covers[:, 1].sum()), sweeps),
            }  # fmt: skip
    return rows


def in_clips(sweeps: int) -> Json:
    """S12: coverage over other seeds and other clips; half of the units' variance is of clips."""
    draws = max(5, sweeps // 4)
    rows: dict[str, Json] = {}
    for clips in (4, 10, 12):
        generator = generator_of("in clips", clips)
        groups = [str(clip) for clip in range(clips) for _ in range(WINDOWS)]
        counts = {"by clips": 0, "by windows, as before": 0}
        for draw in range(draws):
            losses = _losses(generator, clips)
            for name, given in (("by clips", groups), ("by windows, as before", ())):
                interval = crossed_bootstrap(
                    losses, np.zeros_like(losses), np.ones(len(groups)), np.negative,
                    key=draw, draws=1000, groups_U=given,
                )  # fmt: skip
                counts[name] += int(interval.low <= 0 <= interval.high)
        rows[f"{clips} clips of {WINDOWS} windows, {SEEDS} seeds"] = {
            name: rate(count, draws) for name, count in counts.items()
        }
    return rows


def _losses(generator: np.random.Generator, clips: int, effect: float = 0.0) -> Floats:
    """Losses of the first arm less those of the second, [1, seeds, units]; below 0 is better."""
    seed = generator.normal(0, 0.5, (1, SEEDS, 1))
    clip = generator.normal(0, math.sqrt(0.5), clips).repeat(WINDOWS)
    window = generator.normal(0, math.sqrt(0.5), clips * WINDOWS)
    rest = generator.standard_normal((1, SEEDS, clips * WINDOWS))
    return np.asarray(seed + clip + window + rest - effect)


def over_clips(sweeps: int) -> Json:
    """S13: what is claimed on 12 clips of an effect on all clips, by seeds and over clips, too.

    A family of two settings. ``pair fails``: both arms of one seed end without a result, and are
    the constant prediction on every unit; ``arm fails``: the constrained one alone, worse by 2.
    ``over seeds, as before``: families were claimed by seeds alone, and so was every setting one
    of whose seeds had failed.
    """
    tables, clips = max(5, sweeps // 4), CLIPS
    design = Design.planned({"family": ("a", "b")}, SEEDS)
    names = tuple(f"clip{clip}:{window}" for clip in range(clips) for window in range(WINDOWS))
    groups = Groups.by_names(names, "window")
    rows: dict[str, Json] = {}
    for effect in (0.0, 1.0):
        for how in ("none fails", "pair fails", "arm fails"):
            counts = {
                (of, by): 0
                for of in ("a setting", "the family")
                for by in ("over seeds, as before", "marked")
            }
            for table in range(tables):
                generator = generator_of("over clips", effect, how, table)
                losses = {name: _losses(generator, clips, effect) for name in ("a", "b")}
                if how != "none fails":
                    for values in losses.values():
                        values[0, 3] = 0.0 if how == "pair fails" else 2.0

                def crossed(name: str, seeds: int, losses: dict[str, Floats] = losses) -> OverUnits:
                    ours = losses[name][:, :seeds]
                    interval = crossed_bootstrap(
                        ours, np.zeros_like(ours), np.ones(len(names)), np.negative,
                        key=seeds, draws=500, groups_U=groups.by_unit,
                    )  # fmt: skip
                    return OverUnits(
                        mean=interval.mean,
                        low=interval.low,
                        high=interval.high,
                        name=interval.name,
                        seeds=seeds,
                        variance=Variance(**vars(variance_components(ours[0]))),
                        **groups.counts.keywords(),
                    )

                gains = {
                    name: dict(enumerate((-values[0].mean(axis=-1)).tolist()))
                    for name, values in losses.items()
                }
                shown = decide_claims(design, gains, range(SEEDS), crossed)
                (family,) = (row for row in shown.rows if row.settings)
                setting = next(row for row in shown.rows if not row.settings)
                for of, row, marked in (
                    ("a setting", setting, shown.mark(setting)),
                    ("the family", family, shown.family_mark(family)),
                ):
                    counts[of, "over seeds, as before"] += row.outcome in ("better", "worse")
                    counts[of, "marked"] += marked in ("better", "worse")
            rows[f"effect {effect:g}, {how}"] = {
                f"{of}, {by}": rate(count, tables) for (of, by), count in counts.items()
            }
    return rows
