"""Tables and figures of docs/confirmed.md, from results/confirmed.json and the spaces searched.

Intervals and outcomes are decided anew from the differences that the file has of every seed: by the
rule of the plan, which is from before sign flips had to agree with t, and by today's. The interval
over test units is that of the file; those of the older confirmation on video took windows of one
clip for independent ones and counts for nothing here: its networks were trained once more, beside
fewer controls, to have their scores by clip.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from benchmarks.pages.made import Made, number, results, span, table
from search_spaces.catalog import find
from search_spaces.space import SearchSpace
from sweep.confirmation.chosen import JITTER
from sweep.confirmation.comparisons import agrees
from sweep.confirmation.plan import UNCONSTRAINED
from sweep.statistics.decisions import OUTCOMES
from sweep.statistics.decisions import table as decided
from sweep.statistics.design import Design
from sweep.statistics.row import Row
from trainables.config.test_conditions import unseen_gammas
from trainables.plain import Json

FOLDER = Path(__file__).parents[1]
NETWORKS = {  # entry of the file: what the page calls it, and the space that was searched
    "ped2_small_dust": ("DUST, UCSD Ped2", "ped2_small"),
    "ped2_small_ut": ("UT, UCSD Ped2", "ped2_small"),
    "imdb_minilm_short": ("MiniLM, IMDb", "minilm_short"),
}
RULES = ("by its plan", "by today's rule")
CERTIFIED = "certified feasible by the old count"  # windows of a clip as independent
AGAINST = {
    UNCONSTRAINED: "plain training",
    "deep_supervision": "deep supervision, tuned",
    "replayed_weights": "mean weights of its run, held fixed",
    "detached": "detached, at the same alpha",
    "larger_gamma": "plain training on twice the noise",
}


class Confirmed:
    """One confirmation of the file, decided by its plan's rule and by today's."""

    def __init__(self, name: str) -> None:
        """The entry of that name."""
        of = results("confirmed")[name]
        self.plan, self.found = of["plan"], of["confirmed"]
        self.called, space = NETWORKS[name]
        self.space: SearchSpace = find(str(FOLDER / "confirmed" / f"{space}.py")).space
        self.design = Design.from_json(self.plan["design"])
        self.settings: dict[str, Json] = {one["setting"]: one for one in self.found["settings"]}
        again = of.get("again", {"confirmed": {"settings": []}})["confirmed"]
        self.again_plan: str = again.get("plan", "")
        self.again: dict[str, Json] = {one["setting"]: one for one in again["settings"]}
        self.is_short = self.found["metric"] == "accuracy"  # numbers from 0 to 1
        self.digits = 4 if self.is_short else 3

    def rows(self, other: str, *, today: bool = False) -> tuple[Row, ...]:
        """Lines of the table against one other arm, its family's first."""
        contrasts = {name: one["contrasts"].get(other) for name, one in self.settings.items()}
        gains = {
            name: {int(seed): gain for seed, gain in found["per_seed"].items()}
            for name, found in contrasts.items()
            if found is not None
        }
        families = {f: tuple(n for n in of if n in gains) for f, of in self.design.families.items()}
        error = self.design.error
        if other != UNCONSTRAINED:
            error /= len(self.plan["controls"])
        design = replace(self.design, families=families, error=error)
        if today:
            design = replace(design, sign_flips=True)
        return decided(design, gains, self.plan["seeds"])

    def row(self, setting: str, other: str) -> Row:
        """The line of one setting."""
        return next(row for row in self.rows(other) if row.name == setting)

    def over_units(self, setting: str, other: str) -> Json:
        """The interval over seeds and test units; None: the file has none that holds.

        It is that of the networks trained again, where every seed came to the same gain.
        """
        found = self.settings[setting]["contrasts"][other]
        again = self.again.get(setting, {"contrasts": {}})["contrasts"].get(other)
        if again is not None and again["per_seed"] == found["per_seed"]:
            found = again
        found = found["units"]
        return found if self.is_short or "groups" in (found or {}) else None

    def outcomes(self, row: Row, other: str) -> tuple[str, str]:
        """What may be said by the plan's rule, and by today's.

        Where scores by unit are kept an outcome has to hold over units, too; that of a family, for
        one of its settings.
        """
        of = [one.name for one in self.rows(other) if row.settings and not one.settings]
        over = [self.over_units(name, other) for name in of or [row.name]]
        borne_out = {
            outcome: any(
                u is None or agrees(outcome, u["low"], u["high"], self.design) for u in over
            )
            for outcome in OUTCOMES
        }
        said = []
        for today in (False, True):
            of_rule = self.rows(other, today=today)
            found = next(one.outcome for one in of_rule if one.name == row.name)
            said.append(found if borne_out[found] else f"undecided ({found} over seeds only)")
        return said[0], said[1]

    def interval(self, value: Json) -> str:
        """A gain with its interval."""
        return span(value, self.digits, short=self.is_short)

    def form(self, setting: str) -> str:
        """What a setting is called, with its alpha."""
        alpha = self.settings[setting]["point"]["constraint.alpha"]
        form = "detached" if setting.endswith("-detached") else "Lagrangian"
        return f"{form}, alpha {number(alpha, 3).rstrip('0')}"

    def headline(self) -> Iterator[list[str]]:
        """What the first table says of every setting, and of several together."""
        for name, one in self.settings.items():
            row, over = self.row(name, UNCONSTRAINED), self.over_units(name, UNCONSTRAINED)
            certified = one["arms"]["constrained"]
            yield [
                f"{self.called}: {self.form(name)}",
                self.interval(row.to_json()),
                "not known" if over is None else self.interval(over),
                *self.outcomes(row, UNCONSTRAINED),
                f"{certified['certified']['feasible']} of {certified['seeds']}",
            ]
        if len(self.settings) > 1:
            family = self.rows(UNCONSTRAINED)[0]
            said = self.outcomes(family, UNCONSTRAINED)
            yield [f"{self.called}: all together", self.interval(family.to_json()), "", *said, ""]

    def arms(self) -> str:
        """Means of every arm; those of a setting's own run are named after it."""
        rows: dict[str, list[str]] = {}
        for kind in ("constrained", *AGAINST):
            for name, one in self.settings.items():
                arm = one["arms"].get(kind)
                if arm is None:
                    continue
                of = f" ({self.form(name)})" if kind in ("replayed_weights", "detached") else ""
                label = self.form(name) if kind == "constrained" else f"{AGAINST[kind]}{of}"
                mean = (arm["mean"][measure] for measure in ("seen_mean", "unseen_mean"))
                certified = arm["certified"]
                rows[label] = [
                    label,
                    *(number(m, 3 if self.is_short else 2, short=self.is_short) for m in mean),
                    f"{certified['feasible']}, {certified['infeasible']} of {arm['seeds']}",
                ]
        head = [self.found["metric"], "seen", "unseen", f"{CERTIFIED}, infeasible"]
        return table(head, rows.values())

    def gains(self) -> str:
        """Every setting against every other arm on unseen noise."""
        rows = []
        for name, one in self.settings.items():
            for other in (kind for kind in AGAINST if kind in one["contrasts"]):
                row, over = self.row(name, other), self.over_units(name, other)
                network = [self.form(name)] if len(self.settings) > 1 else []
                rows.append(
                    [
                        *network,
                        AGAINST[other],
                        self.interval(row.to_json()),
                        "not known" if over is None else self.interval(over),
                        *self.outcomes(row, other),
                    ]
                )
        head = ["network"] if len(self.settings) > 1 else []
        head += ["against", "gain, unseen", "over test units, too", *RULES]
        return table(head, rows)


def made() -> Made:
    """What docs/confirmed.md has of results."""
    of = {name: Confirmed(name) for name in NETWORKS}
    head = [
        "network, data", "gain on unseen noise (95 %)", "over test units, too", *RULES, CERTIFIED,
    ]  # fmt: skip
    tables = {"headline": table(head, [row for one in of.values() for row in one.headline()])}
    tables |= {f"{name} gains": one.gains() for name, one in of.items()}
    tables["ped2_small_dust arms"] = of["ped2_small_dust"].arms()
    return Made(tables, list(_facts(of)))


def _in_short(dust: Confirmed) -> Iterator[str]:
    """What either rule says of each setting of DUST, and of both together."""
    family, *_ = dust.rows(UNCONSTRAINED, today=True)
    said = [dust.outcomes(dust.row(name, UNCONSTRAINED), UNCONSTRAINED) for name in dust.settings]
    ((then, now),) = set(said)
    together = dust.outcomes(family, UNCONSTRAINED)[1]
    yield f"by the rule declared then {then};"
    assert family.p is not None
    yield (
        f"{now} for each setting and {together} for both together "
        f"(p = {number(family.p, 3, short=True)})"
    )


def _facts(of: Mapping[str, Confirmed]) -> Iterator[str]:
    for one in of.values():
        setting = next(s for s in one.space.settings if s.name in one.settings)
        run = one.space.run(setting, {}, seed=0)
        unseen = unseen_gammas(run)
        seen = max(g for g in run.test_gammas if g not in unseen)
        plan = one.plan
        assert all(
            one.space.is_in_box(one.space.setting(s["name"]), s["point"]) for s in plan["settings"]
        )
        yield f"{one.space.n_proposals} proposals of TPE on {len(one.space.search_seeds)} seeds"
        yield f"{len(plan['seeds'])} fresh seeds"
        named = (s for s in plan["settings"] if s["chosen"] == "named")
        yield from (f"--proposal {s['name']}={s['proposal']}" for s in named)
        yield f"plan {plan['digest']}"
        yield f"--seeds {len(plan['seeds'])}"
        yield f"{run.steps:,} steps"
        yield f"train gamma {run.train_gamma:g}"
        yield f"gammas above {seen:g}, to {max(unseen):g}"
        row = one.row(setting.name, UNCONSTRAINED)
        yield f"p = {number(row.sign_flip.least_p, 3, short=True)} at {row.counted} seeds"
        if run.data.name == "ucsd_ped2":
            data = run.data
            yield f"{run.model.layers} layers"
            yield f"{data.frame_size} x {data.frame_size} frames"
            yield f"patches of {data.patch_size} x {data.patch_size}"
        else:
            yield f"first {run.data.max_length} tokens"
    dust, ut, minilm = of.values()
    yield from _in_short(dust)
    pairs = [*dust.again.values(), *ut.settings.values()]
    lagrangian, detached, of_ut = (number(s["equal_tries"]["gain"], 3, signed=True) for s in pairs)
    (tries,) = {s["equal_tries"]["tries"] for s in pairs}
    yield f"draw {tries} of each: {lagrangian} for DUST's Lagrangian"
    yield f"{detached} for its detached form, {of_ut} for UT"
    yield f"plan {dust.again_plan}"
    yield f"an error of {dust.design.error:g}"
    yield f"{dust.design.smallest_effect:g} grey levels"
    yield f"{number(minilm.design.smallest_effect or 0, 2, short=True)} of accuracy"
    yield f"moved by {100 * JITTER:g} % of its size"
    shares = []
    for name, one in dust.settings.items():
        error = one["arms"][UNCONSTRAINED]["mean"]["unseen_mean"]
        gain = dust.row(name, UNCONSTRAINED).mean
        assert gain is not None
        shares.append(f"{100 * gain / error:.1f} %")
    yield f"{' and '.join(shares)} of plain training's error"
    units = ut.settings[next(iter(ut.settings))]["test_units"]
    yield f"{units['units']} windows of {units['groups']} clips"
