"""Findings of a sweep in sentences, from the entries of ``best_entries``. Pure.

Signs, not sizes, and no claim beyond the data: gains of pairs that a search selected are
descriptions of this sweep. Which way is better is the metric's own (``task_facts.Metric``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trainables.plain import Json
from trainables.registry.lookup import facts_of
from trainables.registry.task_facts import Metric

# A linear filter that training the network is to beat, the one that knows least first.
FILTERS = ("wiener_train", "wiener")


def findings(entries: Sequence[Mapping[str, Json]]) -> list[str]:
    """Two to four sentences: winners, constrained against plain training, the linear filter.

    Args:
        entries: those of ``best_entries``, of one sweep.
    """
    winners = [entry for entry in entries if entry["winner"]]
    if not winners and not any(entry["proposals"]["finished"] for entry in entries):
        return ["Nothing is found yet: no proposal has finished."]
    if not winners:
        return ["No setting has a winner; each says why."]
    metric = facts_of(entries[0]["task"]).metric
    have = f"{len(winners)} of {len(entries)} settings {'has' if len(winners) == 1 else 'have'}"
    controls = sum(entry.get("is_control", False) for entry in winners)
    what = "a useful model that meets descent constraints which plain training misses."
    if controls:
        is_or_are = "is" if controls == 1 else "are"
        are = "it is" if len(winners) == 1 else f"{controls} of them {is_or_are}"
        what = f"{are} a control, which a constraint judges and does not train."
    sentences = [f"{'The setting has' if len(entries) == 1 else have} a winner: {what}"]
    for block, words in (
        ("seen_mean", "On what training or selection looked at (seen gammas)"),
        ("unseen_mean", "Out of distribution (unseen gammas)"),
    ):
        sentences += _compared(winners, block, words, metric)
    sentences += _against_filter(winners, metric)
    return sentences


def _compared(
    winners: Sequence[Mapping[str, Json]], block: str, words: str, metric: Metric
) -> list[str]:
    """How many winners are better and worse than plain training, and by how much."""
    gains = [gain for entry in winners if (gain := entry["gain"].get(block)) is not None]
    if not gains:
        return []
    better, worse = ([gain for gain in gains if gain * sign > 0] for sign in (1, -1))
    sides = [(name, side) for name, side in (("better", better), ("worse", worse)) if side]
    if not sides:
        return [f"{words} winners and plain training score the same."]
    texts: list[str] = []
    for name, side in sides:
        who = f"and {len(side)}" if texts else _who(len(side), len(gains))
        than = "" if texts else " than plain training"
        are = "is" if len(side) == 1 else "are"
        texts.append(f"{who} {are} {name}{than}, by {_sizes(side, metric)}")
    return [f"{words} {', '.join(texts)}."]


def _who(count: int, every: int) -> str:
    if count < every:
        return f"{count} of {every} winners"
    return {1: "the winner", 2: "both winners"}.get(every, f"all {every} winners")


def _sizes(side: Sequence[float], metric: Metric) -> str:
    low, high = (format(abs(d), ".3g") for d in (min(side, key=abs), max(side, key=abs)))
    return f"{low if low == high else f'{low} to {high}'} {metric.unit}"


def _against_filter(winners: Sequence[Mapping[str, Json]], metric: Metric) -> list[str]:
    """How the winners stand to a linear filter out of distribution, where the task has one."""
    name = next((f for f in FILTERS if f in winners[0]["references"]), None)
    if name is None:
        return []
    pairs = [
        (entry["constrained"]["unseen_mean"], entry["references"][name]["unseen_mean"])
        for entry in winners
    ]
    gains = [metric.gain(*pair) for pair in pairs if None not in pair]
    if not gains:
        return []
    beaten = sum(gain > 0 for gain in gains)
    who = _who(beaten or len(gains), len(gains))
    if beaten == 0:
        return [f"On unseen gammas no winner beats a linear (Wiener) filter: it is ahead of {who}."]
    return [f"On unseen gammas {who} beat{'s' * (beaten == 1)} a linear (Wiener) filter."]
