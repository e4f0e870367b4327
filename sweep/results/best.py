"""Best pair of each setting: its winner, or the closest pair and why.

Over several search seeds a number is the mean, and verdicts and missing shares are those of the
mean losses. ``seeds`` has each seed alone; the signature, config and MLflow run beside an aggregate
are those of the first search seed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import partial

from search_spaces.effects.descent import largest_alpha
from search_spaces.effects.edges import edges_of
from sweep.results.aggregates import arm_summary, gain_over_seeds, pair_summary, reference_summaries
from sweep.results.importance import importance
from sweep.results.provenance import codes_of
from sweep.results.summary import PairSummary, SettingSummary
from sweep.results.sweep_view import SettingView, SweepView
from sweep.study.feasibility import plain_meets_up_to
from sweep.study.selection import beaten_by, is_selected
from trainables.plain import Json, finite


def best_summaries(view: SweepView, run_ids: Mapping[str, str]) -> list[SettingSummary]:
    """One summary per setting: its winner, or the closest pair and why there is no winner."""
    return [finite(_best(view, setting, run_ids)) for setting in view.settings]


def best_entries(view: SweepView, run_ids: Mapping[str, str]) -> list[dict[str, Json]]:
    """``best_summaries`` as JSON."""
    return [summary.to_json() for summary in best_summaries(view, run_ids)]


def _best(view: SweepView, setting: SettingView, run_ids: Mapping[str, str]) -> SettingSummary:
    chosen = setting.chosen
    shown = chosen.shown
    pairs = () if shown is None else shown.pairs
    space = view.definition.space
    seeds = space.search_seeds
    selected = is_selected(space, setting.setting)
    plain = [a.record for a in setting.arms if a.proposal is None and a.record]
    if shown is not None:
        pair = pair_summary(pairs, shown, run_ids, selected=selected)
    else:  # the unconstrained arms come first: show them before any proposal
        baselines = plain if len(plain) == len(seeds) else []
        pair = PairSummary(
            unconstrained=arm_summary(baselines, None, run_ids),
            gain=gain_over_seeds([], selected=selected),
        )
    run = partial(space.run, setting.setting, seed=seeds[0])
    model = run({}).model
    return SettingSummary(
        setting=setting.setting.name,
        task=space.base.task,
        phase=space.phase,
        split=space.base.measured_on,
        model=model.name,
        model_variant=model.variant,
        winner=chosen.winner is not None,
        why=chosen.why or None,
        outcomes=dict(chosen.outcomes),
        lost=lost(setting),
        proposals=setting.counts(space),
        proposal=None if shown is None else shown.number,
        point=None if shown is None else shown.point,
        point_name=None if shown is None else setting.setting.point_name(shown.number),
        search_seeds=list(seeds),
        matched_capacity=run({} if shown is None else shown.point).matched_capacity,
        codes=codes_of([record for pair in pairs for record in pair.arms] or plain),
        tolerance=space.tolerance,
        is_control=shown is not None and shown.constraint.is_control,
        demanded_descent=None if shown is None else shown.demanded_descent,
        least_descent=setting.setting.least_descent,
        edges=[]
        if shown is None or len(setting.results) == 1  # the best of one says nothing of a range
        else edges_of(space, setting.setting, shown.point),
        frontier=chosen.frontier,
        importance=importance(setting, list(space.ranges)),
        not_binding=shown is not None and shown.not_binding,
        plain_meets_up_to=plain_meets_up_to(space, setting.setting, plain)
        if len(plain) == len(seeds)
        else None,
        largest_alpha=largest_alpha(space, setting.setting),
        constrained=pair.constrained,
        unconstrained=pair.unconstrained,
        gain=pair.gain,
        references=reference_summaries([*(p.constrained for p in pairs), *plain]),
        seeds={
            str(seed): pair_summary([p], p, run_ids, selected=selected)
            for seed, p in zip(seeds, pairs, strict=False)
        },
    )


def lost(setting: SettingView) -> dict[str, int]:
    """Why the proposals that are finished and did not win lost: how many for each reason."""
    winner = setting.chosen.winner
    reasons: Counter[str] = Counter()
    for result in setting.results:
        if winner is not None and result.number == winner.number:
            continue
        reason: str = result.outcome
        if result.can_win:
            reason = beaten_by(winner, result)
        elif result.outcome == "feasible":
            reason = f"feasible, {result.hindrance}"
        reasons[reason] += 1
    return reasons
