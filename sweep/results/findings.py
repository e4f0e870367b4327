"""Findings of a sweep in sentences, from the summaries of its settings. Pure.

Words are no larger than their numbers: what is below the measure's smallest effect of interest is
no difference that matters. Gains of pairs that a search selected are descriptions of this sweep.
Where nothing wins, the reason is told in numbers, and what to do about it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from sweep.glossary import TERMS
from sweep.results.summary import SettingSummary
from sweep.results.verdict_text import codes_text, is_slight, percent, two_codes_notes
from sweep.study.advice import counted
from sweep.study.feasibility import never_binds
from sweep.study.pairs import ROUNDING
from trainables.config.arm import ArmConfig
from trainables.registry.find_plugins import facts_of
from trainables.registry.task_facts import Metric

# A linear filter that training the network is to beat, the one that knows least first.
FILTERS = ("wiener_train", "wiener")
FEW = 3  # proposals, of which none says what others would reach
CLOSE = 0.5  # a missing share up to which more proposals may find what is feasible


class Step(NamedTuple):
    """A next step: a sentence, and the words after ``sweep`` where one command does it."""

    text: str
    words: tuple[str, ...] = ()


def answer(entries: Sequence[SettingSummary]) -> str:
    """The findings, and where nothing won what to do next."""
    step = next_step(entries)
    return " ".join([*findings(entries), *([step.text] if step else [])])


def findings(entries: Sequence[SettingSummary]) -> list[str]:
    """Sentences on winners, constrained against plain training, and the linear filter."""
    winners = [entry for entry in entries if entry.winner]
    if not winners and not any(entry.proposals.finished for entry in entries):
        return ["Nothing is found yet: no proposal has finished.", *_never_bind(entries)]
    metric = facts_of(entries[0].task).metric
    if not winners:
        return _nothing_won(entries, metric)
    have = f"{len(winners)} of {len(entries)} settings {'has' if len(winners) == 1 else 'have'}"
    controls = sum(entry.is_control for entry in winners)
    what = (
        "a model that beats trivial predictors (its input, a constant) and meets, in the mean over "
        "held-out data, descent constraints which plain training misses."
    )
    if controls:
        is_or_are = "is" if controls == 1 else "are"
        are = "it is" if len(winners) == 1 else f"{controls} of them {is_or_are}"
        what = f"{are} a control, which a constraint judges and does not train."
    sentences = [f"{'The setting has' if len(entries) == 1 else have} a winner: {what}"]
    sentences = [*_unfinished(entries), *sentences]
    sentences += [*_certified(winners), *_barely_binding(winners), *two_codes_notes(winners)]
    of_one_code = [entry for entry in winners if not codes_text(entry.codes)]
    seeds = len(winners[0].search_seeds)
    seen = [entry.gain.seen_mean for entry in of_one_code]
    unseen = [entry.gain.unseen_mean for entry in of_one_code]
    on_seen = "On what training or selection looked at (seen gammas)"
    sentences += _compared(seen, seeds, on_seen, metric)
    sentences += _compared(unseen, seeds, "Out of distribution (unseen gammas)", metric)
    sentences += _against_filter(winners, metric)
    return sentences + _never_bind(entries)


def _unfinished(entries: Sequence[SettingSummary]) -> list[str]:
    """How many proposals have finished, where not all of them have."""
    finished = sum(entry.proposals.finished for entry in entries)
    wanted = sum(entry.proposals.wanted for entry in entries)
    return [f"{finished} of {wanted} proposals have finished."] * (finished < wanted)


def _certified(winners: Sequence[SettingSummary]) -> list[str]:
    """How many winners meet the constraints beyond the held-out data at hand."""
    arms = [entry.arm("constrained") for entry in winners if not entry.is_control]
    judged = [arm for arm in arms if arm.certificate]
    sure = sum(arm.certificate == "feasible" for arm in judged)
    if not judged:
        return []
    if sure == len(judged):
        return [f"Certified at 95 %: {_who(sure, len(winners))}."]
    others = f"another draw of {judged[0].certificate_cluster}s could turn the verdict"
    if not sure:
        who = {1: "The winner is not", 2: "Neither winner is"}.get(len(winners), "No winner is")
        return [f"{who} certified: {others}."]
    are = "is" if sure == 1 else "are"
    rest = "other" if sure + 1 == len(judged) else "others"
    return [f"{sure} of {len(judged)} winners {are} certified at 95 %; of the {rest} {others}."]


def _barely_binding(winners: Sequence[SettingSummary]) -> list[str]:
    """Winners whose plain arm misses the constraint by less than twice the tolerance."""
    shares = [
        share
        for entry in winners
        if (share := entry.arm("unconstrained").worst_missing_share) is not None
        and share <= 2 * entry.tolerance
        and not entry.is_control
    ]
    if not shares:
        return []
    low, high = (f"{share:.3f}" for share in (min(shares), max(shares)))
    return [
        f"Plain training comes close to the constraints of {_who(len(shares), len(winners))}, too "
        f"(missing share {low if low == high else f'{low} to {high}'}, allowed "
        f"{winners[0].tolerance:.3f}): other seeds may meet them."
    ]


def _compared(
    measured: Sequence[float | None], seeds: int, words: str, metric: Metric
) -> list[str]:
    """How many winners are better and worse than plain training, and by how much."""
    gains = [gain for gain in measured if gain is not None]
    if not gains:
        return []
    on = "one seed" if seeds == 1 else f"mean over {seeds} seeds"
    slight = [gain for gain in gains if is_slight(gain, metric.smallest_effect)]
    if len(slight) == len(gains):
        either = {1: "the winner", 2: "either winner"}.get(len(gains), "any winner")
        return [
            f"{words} there is no difference that matters between {either} and plain training "
            f"({_signed(slight)} {metric.unit}, the smallest that matters "
            f"{metric.smallest_effect:g}; {on})."
        ]
    texts: list[str] = []
    for name, sign in (("better", 1), ("worse", -1)):
        side = [gain for gain in gains if gain not in slight and gain * sign > 0]
        if side:
            who = f"and {len(side)}" if texts else _who(len(side), len(gains))
            than = "" if texts else " than plain training"
            are = "is" if len(side) == 1 else "are"
            texts.append(f"{who} {are} {name}{than}, by {_sizes(side, metric)}")
    if slight:
        no = f"{len(slight)} show{'s' * (len(slight) == 1)} no difference that matters"
        texts.append(f"and {no} ({_signed(slight)})")
    return [f"{words} {', '.join(texts)} ({on})."]


def _signed(gains: Sequence[float]) -> str:
    """Gains with their sign, so that a loss is seen as one."""
    low, high = (format(gain, "+.3g") for gain in (min(gains), max(gains)))
    return f"gain {low}" if low == high else f"gains {low} to {high}"


def _who(count: int, every: int) -> str:
    if count < every:
        return f"{count} of {every} winners"
    return {1: "the winner", 2: "both winners"}.get(every, f"all {every} winners")


def _sizes(side: Sequence[float], metric: Metric) -> str:
    low, high = (format(abs(d), ".3g") for d in (min(side, key=abs), max(side, key=abs)))
    return f"{low if low == high else f'{low} to {high}'} {metric.unit}"


def _against_filter(winners: Sequence[SettingSummary], metric: Metric) -> list[str]:
    """How the winners stand to a linear filter out of distribution, where the task has one."""
    name = next((f for f in FILTERS if f in winners[0].references), None)
    if name is None:
        return []
    gains = [
        metric.gain(ours, linear)
        for entry in winners
        if (ours := entry.arm("constrained").unseen_mean) is not None
        and (linear := entry.reference(name).unseen_mean) is not None
    ]
    if not gains:
        return []
    beaten = sum(gain > 0 for gain in gains)
    who = _who(beaten or len(gains), len(gains))
    if beaten == 0:
        return [f"On unseen gammas no winner beats a linear (Wiener) filter: it is ahead of {who}."]
    return [f"On unseen gammas {who} beat{'s' * (beaten == 1)} a linear (Wiener) filter."]


# --- where nothing wins ---------------------------------------------------------------------------


def _nothing_won(entries: Sequence[SettingSummary], metric: Metric) -> list[str]:
    """Why there is no winner: of one setting its own reason, of many how often which."""
    judged = [entry for entry in entries if entry.proposals.finished]
    if len(entries) == 1:
        sentences = [f"No winner: {(entries[0].why or '').rstrip('.')}{_given(entries[0])}."]
    else:
        kinds = Counter(map(_kind, judged))
        reasons = [f"in {n} {_REASONS[kind]}" for kind, n in kinds.most_common()]
        shares = [e.arm("constrained").worst_missing_share for e in judged if _kind(e) in _MISSING]
        missed = [share for share in shares if share is not None]
        if missed:
            low, high = (f"{share:.2f}" for share in (min(missed), max(missed)))
            most = low if low == high else f"{low} to {high}"
            reasons.append(f"where it is missed, by {most} (allowed {entries[0].tolerance:.2f})")
        sentences = [f"None of {len(entries)} settings has a winner: {'; '.join(reasons)}."]
    behind = {entry.setting: text for entry in judged if (text := _behind(entry, metric))}
    for setting, text in list(behind.items())[:1]:
        more = f"; the same in {len(behind) - 1} more" * (len(behind) > 1)
        sentences.append(text if len(judged) == 1 else f"{text[:-1]} ({setting}{more}).")
    notes = [*_never_bind(entries), *two_codes_notes(judged)]
    return [*_unfinished(entries), *sentences, *notes]


def _never_bind(entries: Sequence[SettingSummary]) -> list[str]:
    """The settings of which plain training meets every constraint that they search."""
    texts = {entry.setting: text for entry in entries if (text := _cannot_win(entry))}
    if not texts:
        return []
    setting, text = next(iter(texts.items()))
    more = f"; the same in {len(texts) - 1} more" * (len(texts) > 1)
    return [f"In {setting} {text}{more}."]


def _cannot_win(entry: SettingSummary) -> str:
    """That plain training meets every constraint that the setting searches; '' where not."""
    if codes_text(entry.codes):
        return ""
    return never_binds(entry.plain_meets_up_to, entry.largest_alpha)


_MISSING = ("close", "far", "held out")
_REASONS = {  # by what keeps the closest proposal of a setting from winning
    "failed": "every proposal failed, diverged or was stopped",
    "close": "the constraint is missed by the closest proposal, which came near",
    "far": "the constraint is missed by the closest proposal, by far",
    "held out": "the closest proposal meets the constraint on training data alone",
    "beats no trivial predictor": "the closest proposal does not beat the trivial predictors",
    "not binding": TERMS["not binding"].brief,
    "little": "the constraint asks for too little",
    "alone": "the plain arm to compare with is missing",
}


def _kind(entry: SettingSummary) -> str:
    ours = entry.arm("constrained")
    if ours.worst_missing_share is None:
        return "failed"
    if not ours.feasible and not entry.is_control:
        near = "close" if ours.worst_missing_share <= CLOSE else "far"
        trained = ours.missing_share_training
        is_met = trained and all(s is not None and s <= entry.tolerance for s in trained)
        return "held out" if is_met and near == "far" else near
    if not ours.beats_trivial:
        return "beats no trivial predictor"
    if entry.not_binding:
        return "not binding"
    demanded = entry.demanded_descent or 0.0
    asks_enough = entry.is_control or demanded >= entry.least_descent - ROUNDING
    return "alone" if asks_enough else "little"


def _given(entry: SettingSummary) -> str:
    """The reduction required of the worst layer, and the one that it delivers; '' if unknown."""
    ours = entry.arm("constrained")
    if _kind(entry) not in _MISSING or ours.worst_missing_share is None:
        return ""
    constraint = ArmConfig.from_json(ours.config).constraint
    if constraint is None:
        return ""
    is_bounded = constraint.reference == "bound_first" and ours.worst_layer == 1
    if is_bounded or ours.worst_layer == 0:  # held to f0, and asked for no descent
        return ""
    alpha = constraint.alpha
    gives = alpha * (1 - ours.worst_missing_share)
    does = f"{'removes' if gives >= 0 else 'adds'} {percent(abs(gives))}"
    return f"; alpha asks it to remove {percent(alpha)} of the loss before it, and it {does}"


def _behind(entry: SettingSummary, metric: Metric) -> str:
    """That plain training has not come past what needs no training; '' where it has."""
    plain, references = entry.arm("unconstrained").seen_mean, entry.references
    scores = {name: one.seen_mean for name, one in references.items() if one.seen_mean is not None}
    trivial = _trivial(entry)
    linear = next((name for name in FILTERS if name in references), "")
    if plain is None or trivial not in scores:
        return ""
    names = {trivial: "returning the input" if trivial == "identity" else "the best constant"}
    names |= {linear: "a linear (Wiener) filter"} if linear in scores else {}
    gains = {name: metric.gain(plain, scores[name]) for name in names}
    no_better = [names[name] for name, gain in gains.items() if gain <= 0]
    texts = [f"no better than {' or '.join(no_better)}"] * bool(no_better)
    if 0 < gains[trivial] < metric.smallest_effect:
        texts.insert(0, f"hardly better than {names[trivial]}")
    beside = "".join(f", {what} {scores[name]:.4g}" for name, what in names.items())
    return (
        f"Plain training itself is {' and '.join(texts)}: {metric.label} on seen gammas "
        f"{plain:.4g}{beside}."
    ) * bool(texts)


def _trivial(entry: SettingSummary) -> str:
    """The name of the trivial predictor that training has to beat first."""
    return "identity" if "identity" in entry.references else "constant"


def _untrained(entry: SettingSummary, metric: Metric) -> str:
    """How plain training has failed to learn: "worse" than what needs no training, or "slow"."""
    plain, trivial = entry.arm("unconstrained").seen_mean, entry.reference(_trivial(entry))
    if not _behind(entry, metric) or plain is None or trivial.seen_mean is None:
        return ""
    lost = -metric.gain(plain, trivial.seen_mean)
    return "worse" if lost >= metric.smallest_effect else "slow"


def next_step(entries: Sequence[SettingSummary]) -> Step | None:
    """The step that most settings without a winner need; None where any setting has one.

    Nothing follows from pairs of two codes.
    """
    judged = [e for e in entries if e.proposals.finished and not codes_text(e.codes)]
    if not judged or any(entry.winner for entry in entries):
        return None
    metric = facts_of(entries[0].task).metric
    kinds = [
        "not binding" if _cannot_win(entry) else _untrained(entry, metric) or _kind(entry)
        for entry in judged
    ]
    ((kind, _),) = Counter(kinds).most_common(1)
    alike = [entry for entry, other in zip(judged, kinds, strict=True) if other == kind]
    runs = [ArmConfig.from_json(one.constrained.config) for one in alike if one.constrained]
    alphas = [run.constraint.alpha for run in runs if run.constraint]
    alpha = f"{min(alphas, default=0.0):.4g}"
    steps = 2 * max((run.steps for run in runs), default=0)
    longer = f"a new sweep, `--name NEW --set steps={steps}`"
    near = f"a proposal came close in only {kinds.count('close')} of {len(kinds)} settings"
    more = 2 * max(entry.proposals.wanted for entry in entries)
    tried = max(entry.proposals.finished for entry in judged)
    return {
        "worse": Step(f"First lower primal_lr, or train longer ({longer})."),
        "slow": Step(
            f"First train longer ({longer}) or with a higher primal_lr; then ask for less than "
            f"alpha {alpha}."
        ),
        "close": Step(
            f"Search on, to {more} proposals a setting: the closest came near.",
            ("resume", "--proposals", str(more)),
        ),
        "far": Step(
            f"Ask for less than alpha {alpha}, or train longer ({longer})"
            + (
                f": {near if 'close' in kinds else 'no proposal came close'}, so that more of them "
                "hardly help."
                if tried > FEW and not _unfinished(judged)
                else f", or search on, after {counted(tried, 'proposal')} so far."
            )
        ),
        "held out": Step(
            f"Ask for less than alpha {alpha}, or train on more data or for fewer steps: on "
            "training data the constraint is met."
        ),
        "beats no trivial predictor": Step(f"Train longer ({longer}) or with another primal_lr."),
        "not binding": Step(_ask_for_more(alike, alphas)),
        "little": Step(f"Ask for more than alpha {max(alphas, default=0.0):.4g}."),
        "failed": Step(
            "See why its arms ended, then lower primal_lr or constraint.dual_lr.", ("status",)
        ),
        "alone": Step("Train the plain arms that are missing.", ("resume", "--retry-failed")),
    }[kind]


def _ask_for_more(entries: Sequence[SettingSummary], alphas: Sequence[float]) -> str:
    """From which alpha on the constraints bind, where plain training met those that were tried."""
    known = [one.plain_meets_up_to for one in entries if one.plain_meets_up_to]
    if not known:
        return f"Ask for more than alpha {max(alphas, default=0.0):.4g}."
    low, high = (math.ceil(1000 * limit) / 1000 for limit in (min(known), max(known)))
    if low >= 1.0:
        return "Plain training meets the constraint at every alpha: ask for a smaller f0."
    limits = f"{low:g}" if low == high else f"{low:g} to {high:g}, by setting"
    cannot = sum(bool(_cannot_win(one)) for one in entries)
    where = "its range" if cannot < len(entries) else "a new sweep, with another range of it"
    seeds = "the seed that was" if len(entries[0].search_seeds) == 1 else "the seeds that were"
    return (
        f"Ask for clearly more than alpha {limits}: up to there plain training meets the "
        f"constraint on {seeds} tried, and others may differ. Search on in {where}."
    )
