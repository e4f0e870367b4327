"""Verdicts, gains and shares in plain words. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sweep.glossary import brief, two_codes
from sweep.render.table import number
from sweep.results.importance import ENOUGH
from sweep.results.summary import NO_ARM, ArmSummary, Importance, SettingSummary
from sweep.study.selection import FrontierPoint
from trainables.primal_dual.certificate import LEAST_UNITS, counted

# --- below a pair, on a terminal ------------------------------------------------------------------


def verdict_lines(entry: SettingSummary) -> list[str]:
    """Notes below a pair's numbers: certainty, demanded descent, edges of the search box."""
    ours, baseline = entry.arm("constrained"), entry.arm("unconstrained")
    n_seeds = len(entry.search_seeds)
    lines = []
    if ours.certificate:
        lines.append(certificate_text(ours, entry.tolerance))
    if seeds := infeasible_seeds(entry):
        lines.append(
            f"by seed: infeasible on {len(seeds)} of {n_seeds}: "
            + ", ".join(f"seed {seed} misses {share:.2f}" for seed, share in seeds.items())
        )
    bound = ours.worst_missing_share_seeds_upper
    if bound is not None:
        lines.append(
            f"over other seeds: the worst layer's mean missing share is at most {bound:.2f} (95 % "
            f"t bound from {n_seeds} seeds)"
        )
    if entry.demanded_descent:  # nothing is asked of a control
        least = entry.least_descent
        must = f"; a winner must ask for {100 * least:.0f} % at least" if least else ""
        lines.append(
            f"required: all layers together remove {100 * entry.demanded_descent:.0f} % of the "
            f"reference loss f0{must}"
        )
    if codes := codes_text(entry.codes):
        lines.append(codes)
    if entry.winner:
        lines += [f"the best may lie beyond its range: {edge}" for edge in entry.edges]
    if baseline.counted_as_constant:
        lines.append(counted_text(baseline))
    if len(entry.frontier) > 1:
        lines.append(frontier_text(entry.frontier))
    importance = entry.importance
    if importance and importance.by_field and importance.finished >= ENOUGH:
        lines.append(importance_text(importance))
    return lines


def infeasible_seeds(entry: SettingSummary) -> dict[str, float | None]:
    """Missing share by seed whose own constrained network is infeasible, of a feasible pair."""
    if not entry.arm("constrained").feasible:
        return {}
    ours = {seed: pair.constrained or NO_ARM for seed, pair in entry.seeds.items()}
    return {s: arm.worst_missing_share for s, arm in ours.items() if arm.feasible is False}


def certificate_text(arm: ArmSummary, tolerance: float) -> str:
    """How sure an arm's verdict is: whether another draw of held-out units could turn it.

    >>> arm = ArmSummary(feasible=True, certificate="undecided", certificate_units=4, \
certificate_cluster="clip", certificate_held_out=72, worst_missing_share_upper=0.31, \
least_units_met=0.5)
    >>> certificate_text(arm, 0.1)
    "undecided: feasible by its mean, but over 72 windows of 4 clips the worst layer's missing \
share may be 0.31 (95 % bound, allowed 0.10; fewer than 10 clips certify nothing); the constraint \
that fewest windows meet is met by 50 % of them"
    """
    count, cluster, met = arm.certificate_units, arm.certificate_cluster, arm.least_units_met
    assert count is not None
    assert met is not None
    units, bound = _counted(arm), arm.worst_missing_share_upper
    if arm.certificate == "feasible":
        text = f"certified feasible: over {units} no layer's missing share is above {bound:.2f}"
        text += f" (95 % bound, allowed {tolerance:.2f})"
    elif arm.certificate == "infeasible":
        text = f"certified infeasible: over {units} some layer's missing share is above "
        text += f"{tolerance:.2f} (95 %, corrected for the number of layers)"
    else:
        mean = "feasible by its mean, but" if arm.feasible else "infeasible by its mean, and"
        may = "has no 95 % bound (" if bound is None else f"may be {bound:.2f} (95 % bound, "
        few = f"; fewer than {LEAST_UNITS} {cluster}s certify nothing" * (count < LEAST_UNITS)
        text = f"undecided: {mean} over {units} the worst layer's missing share {may}"
        text += f"allowed {tolerance:.2f}{few})"
    counted = "windows" if cluster in ("clip", "window") else f"{cluster}s"
    return f"{text}; the constraint that fewest {counted} meet is met by {100 * met:.0f} % of them"


def certified_over(arms: Iterable[ArmSummary | None]) -> str:
    """The units that the certificates of several pairs count, in brackets; '' without any.

    >>> arm = ArmSummary(certificate="undecided", certificate_units=4, certificate_cluster="clip", \
certificate_held_out=72)
    >>> certified_over([arm, arm, None])
    ' (72 windows of 4 clips; fewer than 10 certify nothing)'
    """
    certified = [arm for arm in arms if arm is not None and arm.certificate]
    counts = list(dict.fromkeys(map(_counted, certified)))
    if any((arm.certificate_units or 0) < LEAST_UNITS for arm in certified):
        counts.append(f"fewer than {LEAST_UNITS} certify nothing")
    return f" ({'; '.join(counts)})" if counts else ""


def _counted(arm: ArmSummary) -> str:
    units, cluster = arm.certificate_units or 0, arm.certificate_cluster or ""
    return counted(units, cluster, arm.certificate_held_out)


def codes_text(codes: Sequence[str]) -> str:
    """Warning that several codes trained the arms of a pair; empty where one did."""
    if len(codes) < 2 and not any(", then " in code for code in codes):
        return ""
    return two_codes(" and by ".join(codes))


def counted_text(baseline: ArmSummary) -> str:
    """How an unconstrained arm ended early, on how many seeds, and what it counts as."""
    count, seeds = baseline.counted_as_constant, len(baseline.status)
    how = " or ".join(sorted({s for s in baseline.status if s != "finished"}))
    return (
        f"the unconstrained arm {how} on {count} of {seeds} seed{'s' * (seeds > 1)}, and counts "
        "as the best constant prediction there"
    )


def frontier_text(frontier: Sequence[FrontierPoint]) -> str:
    """Objectives that are to be had for how much demanded descent."""
    points = (
        f"{p.objective:.4f} for {100 * p.demanded_descent:.0f} % (p{p.number})" for p in frontier
    )
    return "objective (lower is better) for the required fraction of f0: " + ", ".join(points)


def importance_text(importance: Importance) -> str:
    """Rank correlations of the searched values.

    >>> from sweep.results.summary import Correlations
    >>> rho = Correlations(objective=None, worst_missing_share=0.75)
    >>> importance_text(Importance(feasible=2, finished=9, by_field={"constraint.alpha": rho}))
    'rank correlation with the objective (2 feasible proposals) and the missing share (9 \
finished): alpha —, +0.75'
    """
    values = "; ".join(
        f"{name.removeprefix('constraint.')} {number(rho.objective, '+.2f')}, "
        f"{number(rho.worst_missing_share, '+.2f')}"
        for name, rho in importance.by_field.items()
    )
    return (
        f"rank correlation with the objective ({importance.feasible} feasible proposals) and the "
        f"missing share ({importance.finished} finished): {values}"
    )


# --- in tables ------------------------------------------------------------------------------------


def gain_header(summaries: Iterable[SettingSummary]) -> str:
    """The gain's header: it says so where any pair was selected by its scores."""
    return "gain" + " (selection-biased)" * any(s.gain.selection_biased for s in summaries)


def bias_text(summaries: Sequence[SettingSummary], samples: str) -> str:
    """Limits of the gains: the settings whose pair was selected by them, and no interval."""
    selected = [summary.setting for summary in summaries if summary.gain.selection_biased]
    if not selected:
        return "; no pair was selected by it, and it carries no interval"
    where = "" if len(selected) == len(summaries) else f" in {', '.join(selected)}"
    return (
        f"; the pair was selected on these {samples}{where}, so the gain carries no interval and "
        f"is {brief('selection-biased')}"
    )


def verdict_legend(tolerance: float, arms: Iterable[ArmSummary | None]) -> list[str]:
    """Legend of the columns about feasibility."""
    return [
        missing_share_text(tolerance),
        f"{brief('certificate')}{certified_over(arms)}.",
        f"{brief('units met', 'descent asked')}.",
    ]


def missing_share_text(tolerance: float, seeds: int = 2) -> str:
    """The missing share of a pair: of which layer and seed it is."""
    over = (
        ", mean over the seeds, or the median seed (of two the better one) where that misses more"
    ) * (seeds > 1)
    return (
        f"{brief('missing share')}; of the worst layer, held out at train gamma{over}; feasible up "
        f"to {tolerance:.2f}."
    )


def code_notes(codes: Mapping[str, Sequence[str]]) -> list[str]:
    """Warnings of the settings whose pair several codes trained, by their name; below a table."""
    return [f"{name}: {text}." for name, own in codes.items() if (text := codes_text(own))]


def verdict_notes(summaries: Sequence[SettingSummary]) -> list[str]:
    """Warnings of single settings, to be read before their pair is quoted."""
    return [
        *(f"{one.setting}: {brief('not binding')}." for one in summaries if one.not_binding),
        *code_notes({one.setting: one.codes for one in summaries}),
        *counted_notes(summaries),
        *(
            f"{one.setting}: at the edge of its box: {'; '.join(one.edges)}."
            for one in summaries
            if one.edges
        ),
    ]


def counted_notes(summaries: Iterable[SettingSummary]) -> list[str]:
    """Settings whose unconstrained arm ended early on some seed, and what it counts as."""
    plain = {one.setting: one.arm("unconstrained") for one in summaries}
    return [
        f"{name}: {counted_text(arm)}." for name, arm in plain.items() if arm.counted_as_constant
    ]


def listed(values: Sequence[float | None] | None) -> str | None:
    """Values by layer in one cell of CSV."""
    return None if values is None else " ".join(map(repr, values))


def two_codes_notes(entries: Sequence[SettingSummary]) -> list[str]:
    """The warning that pairs are of two codes, whose gains say nothing about constraining."""
    count = sum(bool(codes_text(entry.codes)) for entry in entries)
    if not count:
        return []
    who = "Its pair is" if len(entries) == 1 else f"{count} of {len(entries)} pairs shown are"
    return [
        f"{who} of two codes: what differs between the arms may be the code, so no gain counts."
    ]


def size_text(gain: float, least: float | None, unit: str) -> str:
    """How much better or worse, with a word for what is too small to matter.

    Args:
        gain: above 0 is better.
        least: the smallest effect of interest; None: none was named.
        unit: of both.

    >>> size_text(0.03, 0.2, "grey levels")
    'slightly better, by 0.03 grey levels, too little to matter (below 0.2)'
    >>> size_text(-0.9, 0.2, "grey levels")
    'worse, by 0.9 grey levels'
    """
    slight = is_slight(gain, least)
    way = "better" if gain > 0 else "worse"
    text = f"{'slightly ' * slight}{way}, by {abs(gain):.3g} {unit}"
    return f"{text}, too little to matter (below {least:g})" if slight else text


def is_slight(gain: float, least: float | None) -> bool:
    """True if a gain, or a loss, is below the smallest effect of interest."""
    return least is not None and abs(gain) < least


def percent(share: float) -> str:
    """A share in percent, two digits of what is small.

    >>> percent(0.0128), percent(0.996), percent(13.04), percent(1e-6)
    ('1.3 %', '100 %', '1,304 %', 'less than 0.01 %')
    """
    if 0 < share < 1e-4:
        return "less than 0.01 %"
    return f"{100 * share:,.0f} %" if share >= 0.1 else f"{100 * share:.2g} %"
