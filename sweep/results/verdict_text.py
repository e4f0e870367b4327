"""Verdict on a setting's pair in plain words, from ``best_entries``. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sweep.render.table import NOTHING, YES_NO, Row, number
from sweep.results.importance import ENOUGH
from trainables.plain import Json
from trainables.primal_dual.certificate import LEAST_UNITS, counted

# --- below a pair, on a terminal ------------------------------------------------------------------


def verdict_lines(entry: Mapping[str, Json]) -> list[str]:
    """What stands below a pair's numbers: how sure its verdict is, what it asks, where it lies."""
    ours, theirs = entry["constrained"] or {}, entry["unconstrained"] or {}
    lines = []
    if ours.get("certificate"):
        lines.append(certificate_text(ours, entry["tolerance"]))
    if seeds := infeasible_seeds(entry):
        lines.append(
            f"by seed: infeasible on {len(seeds)} of {len(entry['search_seeds'])}: "
            + ", ".join(f"seed {seed} misses {share:.2f}" for seed, share in seeds.items())
        )
    bound = ours.get("worst_missing_share_seeds_upper")
    if bound is not None:
        lines.append(
            f"over other seeds: the worst layer's mean missing share is at most {bound:.2f} (95 % "
            f"t bound from {len(entry['search_seeds'])} seeds)"
        )
    if entry["demanded_descent"]:  # nothing is asked of a control
        least = entry["least_descent"]
        must = f"; a winner must ask for {100 * least:.0f} % at least" if least else ""
        lines.append(
            f"asked: all layers together remove {100 * entry['demanded_descent']:.0f} % of the "
            f"reference loss f0{must}"
        )
    if codes := codes_text(entry):
        lines.append(codes)
    lines += [f"the best may lie beyond its range: {edge}" for edge in entry["edges"]]
    if theirs.get("counted_as_constant"):
        lines.append(counted_text(entry))
    if len(entry["frontier"]) > 1:
        lines.append(frontier_text(entry))
    found = entry.get("importance")  # a cluster's head of an earlier version does not say it
    if found and found["of"] and found["finished"] >= ENOUGH:
        lines.append(importance_text(found))
    return lines


def infeasible_seeds(entry: Mapping[str, Json]) -> dict[str, float]:
    """Of a feasible pair the seeds whose own constrained network is not, and what each misses."""
    if not (entry["constrained"] or {}).get("feasible"):
        return {}
    ours = {seed: pair["constrained"] or {} for seed, pair in entry["seeds"].items()}
    return {s: v["worst_missing_share"] for s, v in ours.items() if v.get("feasible") is False}


def certificate_text(values: Mapping[str, Json], tolerance: float) -> str:
    """How sure an arm's verdict is: whether another draw of held-out units could turn it.

    >>> values = {"feasible": True, "certificate": "undecided", "certificate_units": 4, \
"certificate_cluster": "clip", "certificate_held_out": 72, "worst_missing_share_upper": 0.31, \
"least_units_met": 0.5}
    >>> certificate_text(values, 0.1)
    "undecided: feasible by its mean, but over 72 windows of 4 clips the worst layer's missing \
share may be 0.31 (95 % bound, allowed 0.10; fewer than 10 clips certify nothing); the constraint \
that fewest windows meet is met by 50 % of them"
    """
    count, cluster = values["certificate_units"], values["certificate_cluster"]
    units = _counted(values)
    verdict, bound = values["certificate"], values["worst_missing_share_upper"]
    if verdict == "feasible":
        text = f"certified feasible: over {units} no layer's missing share is above {bound:.2f}"
        text += f" (95 % bound, allowed {tolerance:.2f})"
    elif verdict == "infeasible":
        text = f"certified infeasible: over {units} some layer's missing share is above "
        text += f"{tolerance:.2f} (95 %, corrected for the number of layers)"
    else:
        mean = "feasible by its mean, but" if values["feasible"] else "infeasible by its mean, and"
        may = "has no 95 % bound (" if bound is None else f"may be {bound:.2f} (95 % bound, "
        few = f"; fewer than {LEAST_UNITS} {cluster}s certify nothing" * (count < LEAST_UNITS)
        text = f"undecided: {mean} over {units} the worst layer's missing share {may}"
        text += f"allowed {tolerance:.2f}{few})"
    met = values["least_units_met"]
    counted = "windows" if cluster in ("clip", "window") else f"{cluster}s"
    return f"{text}; the constraint that fewest {counted} meet is met by {100 * met:.0f} % of them"


def certified_over(entries: Sequence[Mapping[str, Json]]) -> str:
    """What the certificates of several pairs count, in brackets; '' where there is none.

    >>> values = {"certificate": "undecided", "certificate_units": 4, "certificate_cluster": \
"clip", "certificate_held_out": 72}
    >>> certified_over([{"constrained": values}, {"constrained": values}, {"constrained": None}])
    ' (72 windows of 4 clips; fewer than 10 certify nothing)'
    """
    every = [e["constrained"] for e in entries if (e["constrained"] or {}).get("certificate")]
    counts = list(dict.fromkeys(map(_counted, every)))
    if any(values["certificate_units"] < LEAST_UNITS for values in every):
        counts.append(f"fewer than {LEAST_UNITS} certify nothing")
    return f" ({'; '.join(counts)})" if counts else ""


def _counted(values: Mapping[str, Json]) -> str:
    held_out = values.get("certificate_held_out")  # heads of an earlier version do not say it
    return counted(values["certificate_units"], values["certificate_cluster"], held_out)


def codes_text(entry: Mapping[str, Json]) -> str:
    """That the arms of a pair were trained by several codes; empty where one trained all.

    >>> codes_text({"codes": ["trainables 1a"]})
    ''
    >>> codes_text({"codes": ["trainables 1a", "unknown code"]})
    'two codes: its arms were trained by trainables 1a and by unknown code, so that a difference \
between them may be that of the code'
    """
    codes = entry.get("codes") or []  # a cluster's head of an earlier version does not say it
    if len(codes) < 2 and not any(", then " in code for code in codes):
        return ""
    return (
        f"two codes: its arms were trained by {' and by '.join(codes)}, so that a difference "
        "between them may be that of the code"
    )


def counted_text(entry: Mapping[str, Json]) -> str:
    """That unconstrained arms ended early, and what they count as."""
    theirs = entry["unconstrained"]
    count, seeds = theirs["counted_as_constant"], len(entry["search_seeds"])
    how = " or ".join(sorted({s for s in theirs["status"] if s != "finished"}))
    return (
        f"the unconstrained arm {how} on {count} of {seeds} seed{'s' * (seeds > 1)}, and counts "
        "as the best constant prediction there"
    )


def frontier_text(entry: Mapping[str, Json]) -> str:
    """What objective is to be had for how much demanded descent."""
    points = (
        f"{p['objective']:.4f} for {100 * p['demanded_descent']:.0f} % (p{p['number']})"
        for p in entry["frontier"]
    )
    return "objective (lower is better) for the share of f0 asked: " + ", ".join(points)


def importance_text(found: Mapping[str, Json]) -> str:
    """What searched values go with, as far as a rank correlation says it.

    >>> rho = {"objective": None, "worst_missing_share": 0.75}
    >>> importance_text({"feasible": 2, "finished": 9, "of": {"constraint.alpha": rho}})
    'rank correlation with the objective (2 feasible proposals) and the missing share (9 \
finished): alpha —, +0.75'
    """
    values = "; ".join(
        f"{name.removeprefix('constraint.')} {number(rho['objective'], '+.2f')}, "
        f"{number(rho['worst_missing_share'], '+.2f')}"
        for name, rho in found["of"].items()
    )
    return (
        f"rank correlation with the objective ({found['feasible']} feasible proposals) and the "
        f"missing share ({found['finished']} finished): {values}"
    )


# --- in tables ------------------------------------------------------------------------------------


def share_text(row: Row, arm: str) -> str:
    """A cell: the worst layer's missing share."""
    return number(row[f"{arm}_worst_missing_share"], ".2f")


def sureness_text(row: Row, arm: str) -> str:
    """A cell: what the bounds over held-out units say of the arm."""
    found = row[f"{arm}_certificate"]
    return NOTHING if found is None else str(found)


def units_text(row: Row, arm: str) -> str:
    """A cell: the share of held-out units that meet the layer that fewest meet."""
    return number(row[f"{arm}_units_met"], ".0%")


def claims_text(row: Row, arm: str) -> str:
    """A cell: the verdict, and whether the arm is useful."""
    claims = (row[f"{arm}_{claim}"] for claim in ("feasible", "useful"))
    return ", ".join(YES_NO[claim] for claim in claims)


def gain_header(rows: Sequence[Row]) -> str:
    """The gain's header: it says so where any pair was selected by its scores."""
    return "gain" + " (selection-biased)" * any(row["selection_biased"] for row in rows)


def bias_text(rows: Sequence[Row], samples: str) -> str:
    """What gains are worth: where pairs were selected, and that they have no interval."""
    selected = [row["setting"] for row in rows if row["selection_biased"]]
    if not selected:
        return "; no pair was selected by it, and it carries no interval"
    of = "" if len(selected) == len(rows) else f" in {', '.join(selected)}"
    return (
        f"; the pair was selected on these {samples}{of}, so the gain is selection-biased and "
        "carries no interval; fresh seeds must confirm it"
    )


def verdict_legend(
    tolerance: float, phase: str, entries: Sequence[Mapping[str, Json]]
) -> list[str]:
    """What the columns about feasibility mean."""
    return [
        f"missing share: worst layer, mean over the {phase} seeds, or the median seed (of two the "
        "better one) where that misses more, held out at train gamma; feasible up to "
        f"{tolerance:.2f}. certificate: what 95 % bounds over the held-out units say"
        f"{certified_over(entries)}; undecided: other units could turn the verdict.",
        "units met: the share of held-out units whose own losses meet the constraint, of "
        "the layer that fewest meet. descent asked: the share of f0 that all layers together are "
        "asked to remove.",
    ]


def code_notes(entries: Sequence[Mapping[str, Json]]) -> list[str]:
    """The settings whose pair two codes trained, for below a table."""
    return [f"{e['setting']}: {text}." for e in entries if (text := codes_text(e))]


def verdict_notes(rows: Sequence[Row], entries: Sequence[Mapping[str, Json]]) -> list[str]:
    """What a reader must know of single settings before quoting their pair."""
    return [
        *(
            f"{row['setting']}: vacuous: the unconstrained arm meets the constraint by itself."
            for row in rows
            if row["vacuous"]
        ),
        *code_notes(entries),
        *(
            f"{row['setting']}: {counted_text(entry)}."
            for row, entry in zip(rows, entries, strict=True)
            if row["unconstrained_counted_as_constant"]
        ),
        *(f"{r['setting']}: at the edge of its box: {r['edges']}." for r in rows if r["edges"]),
    ]


def listed(values: Sequence[float] | None) -> str | None:
    """Values by layer in one cell of CSV."""
    return None if values is None else " ".join(map(repr, values))
