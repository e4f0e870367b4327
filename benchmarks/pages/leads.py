"""Tables and figures of docs/leads.md, from results/leads.json."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from statistics import fmean

from benchmarks.leads.declared import CLIPPED, LEADS, Fields
from benchmarks.pages.made import Made, number, results, span, table
from trainables.plain import Json

VIDEO = {
    "H1": "H1: one dictionary",
    "H1 on more noise": "H1, trained on 3 times the noise",
    "H2": "H2: run at 30 layers",
    "H4": "H4: constraints on 1 to 3 times the noise",
    "H5": "H5: constraints on groups of clips, worst clip",
}
BEYOND = "seen beyond every point"
# Plain training of a lead's own noise and depth, where that is not "plain".
ALIKE = {"H1 on more noise": "gamma x 3", "H2": "plain at 30"}


def made() -> Made:
    """What the page has of results."""
    found = results("leads")
    video, words = {name: found[name] for name in VIDEO}, {"H3": found["H3"]}
    tables = {
        "video leads": _leads(video, VIDEO),
        "video points": _points_table(_points(found["H1"])),
        "words": _leads(words, {"H3": "H3: detached UT on words"}),
        "per layer": _leads({"H6": found["H6"]}, {"H6": "H6: a dictionary per layer"}),
        "clips": _leads({"H7": found["H7"]}, {"H7": "H7: beside other clips"}),
        "clip points": _points_table(_points(found["H7"])),
    }
    return Made(tables, list(_facts(found)))


def _interval(found: Json, digits: int) -> str:
    low, high = found["interval"]
    is_short = digits == 3
    return span({"mean": found["mean"], "low": low, "high": high}, digits, short=is_short)


def _leads(leads: Mapping[str, Json], called: Mapping[str, str]) -> str:
    """The outcome of every judged arm, with what decides it."""
    rows = []
    for name, lead in leads.items():
        digits = 3 if lead["smallest_effect"] < 0.1 else 2
        for judged, verdict in lead["verdicts"].items():
            above = verdict["above_frontier"]
            rows.append(
                [
                    called[name],
                    _form(judged),
                    f"**{_interval(above, digits)}**",
                    f"{above['better_in']} of {above['seeds']}",
                    str(verdict["where"].count(BEYOND)),
                    number(above["sign_flip_p"], 3, short=True),
                    verdict["outcome"],
                ]
            )
    head = ["lead", "form", "above the frontier", "seeds above it", "without a match"]
    return table([*head, "p by sign flips", "outcome"], rows)


def _form(judged: str) -> str:
    """Which form of the constraint, and the clip where it is not the default one."""
    _, _, clip = judged.partition(", clip ")
    form = "detached" if judged.startswith("detached") else "Lagrangian"
    return f"{form}, clip {clip}" if clip else form


def _points(lead: Json) -> dict[str, tuple[float, float]]:
    """Every arm's mean scores on seen and unseen noise."""
    seeds = lead["by_seed"].values()
    found = {}
    for arm in lead["arms"]:
        points = [seed[arm]["points"][arm] for seed in seeds]
        found[arm] = (fmean(p[0] for p in points), fmean(p[1] for p in points))
    return found


def _points_table(points: Mapping[str, tuple[float, float]]) -> str:
    """RMSE of every arm, lower is better."""
    rows = [[arm, *(number(abs(score), 2) for score in of)] for arm, of in points.items()]
    return table(["RMSE", "seen", "unseen"], rows)


def _times(arms: Mapping[str, Fields]) -> str:
    """The largest noise of these arms over that of H1."""
    gammas = [fields.get("train_gamma_high", 0.0) for fields in arms.values()]
    return f"{max(gammas) / LEADS['H1'].base.train_gamma:g}"


def _facts(found: Json) -> Iterator[str]:
    base = LEADS["H1"].base
    yield f"{base.data.frame_size} x {base.data.frame_size} frames"
    yield f"patches of {base.data.patch_size} x {base.data.patch_size}"
    yield f"{base.model.layers} layers and one dictionary of {base.model.atoms_per_side**2} atoms"
    yield f"gamma {base.train_gamma:g} for {base.steps:,} steps"
    yield "paired t interval of 95 %"  # benchmarks/leads/judged.py
    more = LEADS["H1 on more noise"]
    yield f"trained on {_times(more.judged)} times the noise"
    yield f"then goes to {_times(more.plain)} times"
    yield f"{100 * base.model.start_jitter:g} % of its size"
    yield f"smallest effect of interest ({LEADS['H1'].smallest:g} grey levels, "
    yield f"{LEADS['H3'].smallest:g} of accuracy)"
    for name, seeds in (("H1", "fresh seeds"), ("H3", "fresh seeds"), ("H6", "new seeds")):
        yield f"{len(found[name]['by_seed'])} {seeds}"
    of = [
        verdict["differences"][ALIKE.get(name, "plain")]["unseen"]["mean"]
        for name in VIDEO
        for verdict in found[name]["verdicts"].values()
    ]
    judged = [v["above_frontier"] for name in VIDEO for v in found[name]["verdicts"].values()]
    assert all(one["interval"][1] < 0 and not one["better_in"] for one in judged)
    (seeds,) = {one["seeds"] for one in judged}
    yield f"All lie below the frontier by t alone, on each of {seeds} seeds."
    least = min(one["sign_flip_p"] for one in judged)
    assert least == math.ldexp(1, 1 - seeds) > 0.05
    yield f"sign flips of {seeds} seeds have a p of {number(least, 3, short=True)} at the least"
    better = sum(gain > 0 for gain in of)
    yield f"In {better} of the {len(of)} rows"
    h6 = found["H6"]["verdicts"]
    twice = [v["differences"]["steps x 2"]["unseen"]["mean"] for v in h6.values()]
    yield f"by {number(-max(twice), 2)} and {number(-min(twice), 2)}"
    yield from _clip_facts(found["H7"])
    yield f"--seeds {len(found['H6']['by_seed'])}"
    yield f"--seeds {len(found['H3']['by_seed'])}"
    yield f"at train gamma {LEADS['H3'].base.train_gamma:g}"


def _clip_facts(h7: Json) -> Iterator[str]:
    """What the detached form gains over plain training, by its clip, and what the rule says."""
    lead, clips = LEADS["H7"], ("plain", "clip 0.01")
    seeds = len(h7["by_seed"])
    yield f"--seeds {seeds}"
    yield f"on {seeds} later seeds"
    yield f"a norm of {lead.base.grad_clip:g}"
    yield f"one of {lead.judged['detached 0.2, clip 0.001']['grad_clip']:g}"
    default, small = (h7["verdicts"]["detached 0.2"]["differences"][clip] for clip in clips)
    found, clip = default["unseen"], lead.plain["clip 0.01"]["grad_clip"]
    lagrangian = h7["verdicts"]["lagrangian 0.116"]["differences"]["plain"]["unseen"]
    assert lagrangian["interval"][0] < 0 < lagrangian["interval"][1]
    yield f"The Lagrangian's {_interval(lagrangian, 2)} over the default clip is undecided"
    yield f"gains {_interval(found, 2)} on unseen noise, on {found['better_in']} of {seeds} seeds"
    yield f"a clip of {clip:g} it gains {_interval(small['unseen'], 2)}"
    yield f"on seen noise {_interval(small['seen'], 2)}"
    of = {name: verdict["outcome"] for name, verdict in h7["verdicts"].items()}
    assert sorted(of.values()) == ["below the frontier", *["ruled out"] * 3]
    assert of["detached 0.2, clip 0.001"] == "below the frontier"
    lower = seeds - h7["verdicts"]["detached 0.2, clip 0.001"]["above_frontier"]["better_in"]
    yield f"the best of them on seen noise, on {lower} of {seeds}"
    beyond = h7["verdicts"]["detached 0.2, clip 0.001"]["where"].count(BEYOND)
    yield f"without a match on {beyond} of {seeds} seeds"
    points = _points(h7)
    least, default_ = (number(abs(points[arm][1]), 2) for arm in ("clip 0.001", "plain"))
    yield f"the mean error with {CLIPPED['grad_clip']:g} is {least}, with the default {default_}"
    smaller = [point for name, point in points.items() if name.endswith("clip 0.001")]
    assert min(seen for seen, _ in smaller) > max(
        points[name][0] for name in ("plain", "lagrangian 0.116", "detached 0.2")
    )
    assert points["clip 0.01"][1] == max(points[name][1] for name in ("plain", *lead.plain))
    yield f"At a clip of {CLIPPED['grad_clip']:g}"
