"""Best pair of each setting as JSON: its winner, or the closest pair and why.

Over several search seeds a number is the mean, and verdicts and missing shares are those of the
mean losses. ``seeds`` has each seed alone; the signature, config and MLflow run beside an aggregate
are those of the first search seed.
"""

from __future__ import annotations

from collections.abc import Mapping

from sweep.results.aggregates import (
    arms_entry,
    difference_entry,
    references_entry,
)
from sweep.results.sweep_view import SettingView, SweepView
from sweep.study.edges import edges_of
from sweep.study.selection import (
    is_selected,
)
from trainables.plain import Json, finite


def best_entries(view: SweepView, run_ids: Mapping[str, str]) -> list[dict[str, Json]]:
    """One entry per setting: its winner, or the closest pair and why there is no winner.

    Args:
        view: the sweep.
        run_ids: MLflow run by signature, as far as they are known.
    """
    return [finite(_best(view, setting, run_ids)) for setting in view.settings]


def _best(view: SweepView, setting: SettingView, run_ids: Mapping[str, str]) -> dict[str, Json]:
    chosen = setting.chosen
    shown = chosen.shown
    pairs = () if shown is None else shown.pairs
    space = view.definition.space
    seeds = space.search_seeds
    ours = [p.constrained for p in pairs]
    theirs = [p.compared or p.unconstrained for p in pairs if p.unconstrained]
    model = space.run(setting.setting, {}, seed=seeds[0]).model
    if not pairs:  # the unconstrained arms come first: show them before any proposal is finished
        theirs = [a.record for a in setting.arms if a.proposal is None and a.record]
    selected = is_selected(space, setting.setting)
    return {
        "setting": setting.setting.name,
        "task": view.definition.space.base.task,
        "model": model.name,
        "model_variant": model.variant,
        "winner": chosen.winner is not None,
        "why": chosen.why or None,
        "outcomes": dict(chosen.outcomes),
        "lost": lost(setting),
        "proposals": {
            "wanted": view.definition.space.proposals_of(setting.setting),
            "stored": len(setting.proposals),
            "finished": len(setting.results),
        },
        "proposal": None if shown is None else shown.number,
        "point": None if shown is None else shown.point,
        "search_seeds": list(seeds),
        "matched_capacity": matched_capacity(view, setting),
        "tolerance": space.tolerance,
        "demanded_descent": None if shown is None else shown.demanded_descent,
        "least_descent": setting.setting.least_descent,
        "edges": [] if shown is None else edges_of(space, setting.setting, shown.point),
        "frontier": [vars(point) for point in chosen.frontier],
        "vacuous": shown is not None and shown.vacuous,
        "constrained": arms_entry(ours, None if shown is None else shown.judgement, run_ids),
        "unconstrained": arms_entry(
            theirs if len(theirs) == len(seeds) else [],
            None if shown is None else shown.unconstrained_judgement,
            run_ids,
        ),
        "difference": difference_entry(pairs, selected=selected),
        "references": references_entry([*ours, *theirs]),
        "seeds": {
            str(seed): {
                "constrained": arms_entry([p.constrained], p.judgement, run_ids),
                "unconstrained": arms_entry(
                    [p.compared or p.unconstrained] if p.unconstrained else [],
                    p.unconstrained_judgement,
                    run_ids,
                ),
                "difference": difference_entry([p], selected=selected),
            }
            for seed, p in zip(seeds, pairs, strict=False)
        },
    }


def matched_capacity(view: SweepView, setting: SettingView) -> bool:
    """Whether both arms of the setting's shown pair have the same parameters to train."""
    space, shown = view.definition.space, setting.chosen.shown
    point = {} if shown is None else shown.point
    return space.run(setting.setting, point, seed=space.search_seeds[0]).matched_capacity


def lost(setting: SettingView) -> dict[str, int]:
    """Why the proposals that are finished and did not win lost: how many for each reason."""
    winner = setting.chosen.winner
    reasons: dict[str, int] = {}
    for result in setting.results:
        if winner is not None and result.number == winner.number:
            continue
        reason: str = result.outcome
        if result.outcome == "feasible":
            reason = "worse objective" if result.can_win else f"feasible, {result.hindrance}"
        reasons[reason] = reasons.get(reason, 0) + 1
    return reasons
