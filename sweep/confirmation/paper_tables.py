"""Tables of a confirmation in the paper's arrangement. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from search_spaces.space import SearchSpace
from sweep.confirmation.arms import SettingArms, constrained_run
from sweep.confirmation.comparisons import CERTIFIED
from sweep.confirmation.plan import CONSTRAINED, MEAN, MEASURES, UNCONSTRAINED, Measure
from sweep.confirmation.summary import ConfirmationSummary, ConfirmedSetting
from sweep.confirmation.words import ended_text, is_early
from sweep.glossary import DIRECTION, brief
from sweep.render.table import Table
from sweep.results.tables.paper_hyperparameters import Trained
from sweep.results.tables.paper_results import (
    INFEASIBLE,
    NO_WINNER,
    UNDECIDED,
    Line,
    mark_notes,
    paper_measure,
    results_arranged,
)

_LINES: Mapping[Measure, str] = {
    "unseen_mean": "unseen",
    "seen_mean": "seen",
    "shift_mean": "shifts",
    "mean_over_gammas": "all",
    "ood_auc": "area",
    "anytime_mean": "layers",
}
_MARKS = {
    INFEASIBLE: "too few networks are certified feasible on the test split, and some infeasible, "
    "or too few feasible by their means",
    UNDECIDED: "too few networks are certified feasible on the test split, none infeasible, and "
    "enough feasible by their means",
    NO_WINNER: brief("not binding"),
}


def paper_confirmed_table(
    space: SearchSpace, entry: ConfirmationSummary, *, beside_paper: bool = False
) -> Table:
    """Both arms on fresh seeds, the tested measure and that of the paper; bold where decided."""
    settings = entry.settings
    lines = [line for one in settings for line in _lines(space, one, entry.measure)]
    facts = space.base.facts
    tested = _LINES[entry.measure]
    intervals = sorted({one.against_plain.interval for one in settings})
    ended = {one.setting: one.against_plain.counted for one in settings}
    counts = sorted(set(ended.values()))
    seeds = (
        f"{counts[0]} fresh seeds"
        if len(counts) == 1
        else "fresh seeds, " + ", ".join(f"{name}: {count}" for name, count in ended.items())
    )
    notes = [
        f"{facts.metric.label} on the test split, in {facts.metric.unit}, "
        f"{facts.metric.direction}; mean over {seeds}. L: layers; gamma: train gamma.",
        f"{tested}: {MEASURES[entry.measure]}, which is tested."
        + "".join(
            f" {_LINES[name]}: {MEASURES[name]}, as the paper has it, which is not."
            for name in dict.fromkeys(_paper_measure(space, one.setting) for one in settings)
            if name != entry.measure
        ),
        f"gain: paired by seed, {DIRECTION}; bold where the plan's "
        f"test says better or worse. Interval: {'; '.join(intervals)}.",
        *mark_notes([line.marks for line in lines], _MARKS),
        *(
            f"{one.setting}: decided at {contrast.decided_at} seeds; over all "
            f"{contrast.seeds} that ended the tested gain is {ended_text(contrast)}."
            for one in settings
            if is_early(contrast := one.against_plain)
        ),
        f"Plan {entry.plan}, stored before the test split was read.",
        *(f"Departs from the plan: {text}" for text in entry.deviations),
    ]
    return results_arranged(lines, notes, beside_paper=beside_paper)


def trained_arms(arms: Sequence[SettingArms], entry: ConfirmationSummary) -> list[Trained]:
    """Configuration and scales of the constrained arms of every setting."""
    marks = {one.setting: _mark(one) for one in entry.settings}
    trained = []
    for one in arms:
        records = [outcome.record for outcome in one.outcomes[CONSTRAINED].values()]
        scales = [r.evaluation.scales for r in records if r.evaluation is not None]
        first = scales[0] if scales else None
        trained.append(Trained(one.name, one.config, first, marks[one.name]))
    return trained


def _lines(space: SearchSpace, one: ConfirmedSetting, measure: Measure) -> list[Line]:
    config, contrast = constrained_run(space, one.setting), one.against_plain
    key = config.facts.metric.key
    lines = []
    for name in dict.fromkeys((measure, _paper_measure(space, one.setting))):
        ours, plain = (one.arms[arm].mean.get(name) for arm in (CONSTRAINED, UNCONSTRAINED))
        is_tested = name == measure
        beside = contrast.beside.get(name)
        lines.append(
            Line(
                setting=one.setting,
                config=config,
                layers=config.model.layers,
                numbers=_LINES[name],
                measure=_measure_column(name, key),
                constrained=ours,
                unconstrained=plain,
                marks=_mark(one),
                gain=contrast.mean if is_tested else beside.mean if beside else None,
                low=contrast.low if is_tested else None,
                high=contrast.high if is_tested else None,
                outcome=contrast.marked if is_tested else "not tested",
                seeds=contrast.counted,
                codes=contrast.codes,
            )
        )
    return lines


def _paper_measure(space: SearchSpace, name: str) -> Measure:
    is_area = paper_measure(constrained_run(space, name)) == "ood_auc"
    return "ood_auc" if is_area else "mean_over_gammas"


def _mark(one: ConfirmedSetting) -> str:
    ours = one.constrained
    mark = NO_WINNER if one.not_binding else ""
    if ours.feasible or not ours.seeds:
        return mark
    by_mean = ours.feasible_by_mean or 0
    missed = ours.certified.infeasible or by_mean < CERTIFIED * ours.seeds
    return (INFEASIBLE if missed else UNDECIDED) + mark


def _measure_column(name: Measure, key: str) -> str:
    """The name of a measure, as the tables of a search have it."""
    if name == "ood_auc":
        return name
    return f"mean_{key}" if name == MEAN else f"{name}_{key}"
