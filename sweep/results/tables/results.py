"""Tables of results and of shifts, in full (CSV) and in a short form. Pure.

They are made from ``best_entries``. The short form shows what a reader compares, with notes. What
is infeasible is marked, never hidden. No bold and no star: a search alone confirms nothing. What
training or selection looked at (seen) and what it did not (unseen) never share a column, but for
the mean over all test gammas, which says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from statistics import fmean

from search_spaces.space import SearchSpace
from sweep.render.table import Row, Table, number
from sweep.results.aggregates import ARMS, COSTS, shift_mean
from sweep.results.summary import ArmSummary
from sweep.results.tables.columns import (
    GAIN,
    GAUSSIAN,
    config_of,
    form_of,
    headed,
    layer_columns,
    model_notes,
    pair_columns,
    reference_notes,
    split_column,
    without_idle,
)
from sweep.results.verdict_text import (
    bias_text,
    claims_text,
    gain_header,
    listed,
    share_text,
    sureness_text,
    units_text,
    verdict_legend,
    verdict_notes,
)
from trainables.config.arm import ArmConfig
from trainables.config.test_conditions import (
    FAMILIES,
    gamma_key,
    seen_gammas,
    severity_key,
    unseen_gammas,
)
from trainables.plain import Json
from trainables.registry.task_facts import (
    Metric,
    TaskFacts,
    reference_label,
    shift_references,
)


def results_table(space: SearchSpace, entries: Sequence[Mapping[str, Json]]) -> Table:
    """Both arms of every setting's winner, or of its closest pair, beside the references."""
    rows = [_results_row(config_of(space, entry), entry) for entry in entries]
    facts = space.base.facts
    label, mean = facts.metric.label, f"mean_{facts.metric.key}"
    # Who a line is about, what columns of CSV call that, and the form of its numbers: both arms,
    # the gain, and what needs no training.
    lines = [
        (row, line)
        for row in rows
        for line in (
            *((arm, arm, ".3f") for arm in ARMS),
            (gain_header([row]), "gain", "+.3f"),
            *((reference_label(name), name, ".3f") for name in facts.metric.shown),
        )
    ]
    shown = [
        *headed([row for row, _ in lines]),
        ("arm", [who for _, (who, _, _) in lines]),
        *(
            (header, [number(row.get(column.format(name)), form) for row, (_, name, form) in lines])
            for header, column in (
                (f"mean {label}", f"{{}}_{mean}"),
                ("ood_auc", "{}_ood_auc"),
                ("seen", f"{{}}_seen_{mean}"),
                ("unseen", f"{{}}_unseen_{mean}"),
            )
        ),
        *(
            (header, [text(row, name) if name in ARMS else "" for row, (_, name, _) in lines])
            for header, text in (
                ("missing share", share_text),
                ("certificate", sureness_text),
                ("units met", units_text),
                ("feasible, useful", claims_text),
            )
        ),
    ]
    arms = [ArmSummary.from_json(entry["constrained"] or {}) for entry in entries]
    seeds = len(space.search_seeds)
    notes = [
        f"mean {label}: the plain mean over all test gammas, seen and unseen, and over "
        f"{seeds} {space.phase} seed{'s' * (seeds > 1)}, on {space.base.measured_on} "
        f"{facts.samples}, in {facts.metric.unit}; {facts.metric.direction}.",
        f"ood_auc: the trapezoid area under {label} over test gamma.",
        _note_on_seen(facts),
        *reference_notes(facts.metric),
        *verdict_legend(space.tolerance, space.phase, arms),
        f"{GAIN}{bias_text(rows, facts.samples)}.",
        *(
            f"{row['setting']}: no winner: {row['why'].rstrip('.')}."
            for row in rows
            if not row["winner"]
        ),
        *verdict_notes(rows, entries),
        *model_notes(rows),
    ]
    caption = "Constrained and unconstrained arms"
    return Table("results", caption, without_idle(space, rows), shown, notes, texts=4, headed=3)


def _note_on_seen(facts: TaskFacts) -> str:
    return (
        "seen: the mean over the test gammas that training or selection looked at, up to "
        f"train gamma + {facts.near_shift:.2f}, or the next one where none lies in that range; "
        "unseen: the mean over what neither looked at. Only what is unseen speaks of OOD "
        "robustness."
    )


def shifts_table(space: SearchSpace, entries: Sequence[Mapping[str, Json]]) -> Table:
    """Every test condition alone (CSV), and in blocks of a shift's seen or unseen severities.

    A block shows the mean over its severities, which have equal weight.
    """
    blocks = [block for entry in entries for block in _shift_blocks(config_of(space, entry), entry)]
    rows = [row for block in blocks for row in block]
    firsts = [block[0] for block in blocks]
    facts = space.base.facts
    label, key = facts.metric.label, facts.metric.key
    shown = [
        *headed(firsts),
        ("block", [row["block"] for row in firsts]),
        ("shift", [_shift_text(block) for block in blocks]),
        *(
            (header, [number(_mean_of(block, column), form) for block in blocks])
            for header, column, form in (
                ("constrained", f"constrained_{key}", ".3f"),
                ("unconstrained", f"unconstrained_{key}", ".3f"),
                (gain_header(rows), f"gain_{key}", "+.3f"),
                *((reference_label(name), f"{name}_{key}", ".3f") for name in facts.metric.shown),
            )
        ),
    ]
    used = [s for s in FAMILIES if any(row["shift"] == s for row in firsts)]
    notes = [
        f"{label}: mean over the severities and the {space.phase} seeds, on "
        f"{space.base.measured_on} {facts.samples}, in {facts.metric.unit}; "
        f"{facts.metric.direction}.",
        _note_on_seen(facts),
        f"{GAUSSIAN}: severities are test gammas, {facts.noise_unit}.",
        *(
            f"{s.replace('_', ' ')}: {', '.join(f'{v:g}' for v in FAMILIES[s].severities)}, "
            f"{FAMILIES[s].unit}."
            for s in used
        ),
    ]
    if used:
        notes += [
            "shifts other than gaussian come on top of Gaussian noise at train gamma, and have "
            "entered neither training nor selection"
            + ("; Identity is the disturbed input itself." if facts.has_identity else "."),
        ]
    notes += [
        *reference_notes(facts.metric),
        f"{GAIN}{bias_text(firsts, facts.samples)}.",
        *model_notes(firsts),
    ]
    return Table("shifts", "Seen and unseen shifts", rows, shown, notes, texts=5, headed=3)


# --- rows -----------------------------------------------------------------------------------------


_OF_ARM = {  # column, behind the name of the arm: key of its entry
    "ood_auc": "ood_auc",
    "objective": "objective",
    "held_out_loss": "held_out_loss",
    "feasible": "feasible",
    "useful": "useful",
    "worst_missing_share": "worst_missing_share",
    "worst_layer": "worst_layer",
    "first_layer": "first_layer",
    "missing_share_by_layer": "missing_share",
    "missing_share_training_by_layer": "missing_share_training",
    "missing_share_relaxed_by_layer": "missing_share_relaxed",
    "certificate": "certificate",
    "certificate_units": "certificate_units",
    "certificate_cluster": "certificate_cluster",
    "certificate_held_out": "certificate_held_out",
    "missing_share_upper_by_layer": "missing_share_upper",
    "missing_share_lower_by_layer": "missing_share_lower",
    "missing_share_seeds_upper_by_layer": "missing_share_seeds_upper",
    "units_met": "least_units_met",
    "units_met_by_layer": "units_met",
    "counted_as_constant": "counted_as_constant",
    "signature": "signature",
    **{cost: cost for cost in COSTS},
}


def _results_row(config: ArmConfig, entry: Mapping[str, Json]) -> Row:
    row: Row = {
        "setting": entry["setting"],
        "data": config.data.name,
        "model": config.model.name,
        "model_variant": config.model.variant,
        "layers": config.model.layers,
        "train_gamma": config.train_gamma,
        "form": form_of(config.constraint),
        "n_seeds": len(entry["search_seeds"]),
        **split_column(entry),
        "winner": entry["winner"],
        "why": entry["why"],
        "proposal": entry["proposal"],
        "n_proposals_finished": entry["proposals"]["finished"],
        **{f"n_{outcome}": count for outcome, count in entry["outcomes"].items()},
        "vacuous": entry["vacuous"],
        "matched_capacity": entry["matched_capacity"],
        "codes": "; ".join(entry.get("codes") or []),
        "selection_biased": entry["gain"]["selection_biased"],
        "tolerance": entry["tolerance"],
        "demanded_descent": entry["demanded_descent"],
        "least_descent": entry["least_descent"],
        "edges": "; ".join(entry["edges"]) or None,
    }
    mean = f"mean_{config.facts.metric.key}"
    by_layer = layer_columns(config.facts.metric) if config.facts.metric.higher_is_better else {}
    of_arm = {mean: "ood_mean", **_OF_ARM, **{f"{c}_by_layer": key for c, key in by_layer.items()}}
    for arm in ARMS:
        values = entry[arm] or {}
        row |= {f"{arm}_{column}": _cell(values.get(key)) for column, key in of_arm.items()}
    del row["unconstrained_missing_share_relaxed_by_layer"]  # without multipliers there is no slack
    measured = entry["constrained"] or entry["unconstrained"] or {}
    row["ood_auc_range"] = listed(measured.get("ood_range"))
    row["ood_auc_step"] = measured.get("ood_step")
    row[f"gain_{mean}"] = entry["gain"].get("ood_mean")
    row["gain_held_out_loss"] = entry["gain"].get("held_out_loss")
    row["gain_ood_auc"] = entry["gain"].get("ood_auc")
    for name in _measured_references(config.facts.metric, entry):
        values = entry["references"].get(name, {})
        row[f"{name}_{mean}"] = values.get("ood_mean")
        row[f"{name}_ood_auc"] = values.get("ood_auc")
        row[f"{name}_held_out_loss"] = values.get("held_out_loss")
    return row | _block_columns(config, entry)


def _cell(value: Json) -> Json:
    return listed(value) if isinstance(value, list) else value


def _block_columns(config: ArmConfig, entry: Mapping[str, Json]) -> Row:
    """Means over the seen gammas, the unseen gammas, and every family's severities (unseen)."""
    row: Row = {
        "seen_gammas": listed(seen_gammas(config)),
        "unseen_gammas": listed(unseen_gammas(config)),
    }
    metric, everywhere = config.facts.metric, shift_references(config.facts)
    mean, shifts = f"mean_{metric.key}", config.shifts
    references = _measured_references(metric, entry)
    measured: dict[str, tuple[Mapping[str, Json], str]] = {
        **{arm: (entry[arm] or {}, f"{arm}_{{}}_{mean}") for arm in ARMS},
        "gain": (entry["gain"], f"gain_{{}}_{mean}"),
        **{n: (entry["references"].get(n, {}), f"{n}_{{}}_{mean}") for n in references},
    }
    for who, (values, column) in measured.items():
        row[column.format("seen")] = values.get("seen_mean")
        row[column.format("unseen")] = values.get("unseen_mean")
        for shift in shifts if who not in references or who in everywhere else ():
            row[column.format(f"unseen_{shift}")] = shift_mean(values, shift)
    return row


def _shift_blocks(config: ArmConfig, entry: Mapping[str, Json]) -> list[list[Row]]:
    """Per shift and per what is seen of it, a row for every severity."""
    gammas = (("seen", seen_gammas(config)), ("unseen", unseen_gammas(config)))
    row = partial(_shift_row, config.facts, entry)
    blocks = [[row(block, GAUSSIAN, g) for g in grid] for block, grid in gammas]
    blocks += [
        [row("unseen", shift, s) for s in FAMILIES[shift].severities]
        for shift in FAMILIES
        if shift in config.shifts
    ]
    return [block for block in blocks if block]


def _shift_row(
    facts: TaskFacts, entry: Mapping[str, Json], block: str, shift: str, severity: float
) -> Row:
    def score(values: Mapping[str, Json]) -> float | None:
        by_shift = {GAUSSIAN: values.get("scores"), **values.get("shifts", {})}
        found: float | None = (by_shift.get(shift) or {}).get(at)
        return found

    at = gamma_key(severity) if shift == GAUSSIAN else severity_key(severity)
    key = facts.metric.key
    ours, theirs = (score(entry[arm] or {}) for arm in ARMS)
    return {
        **pair_columns(entry),
        "vacuous": entry["vacuous"],
        "matched_capacity": entry["matched_capacity"],
        "codes": "; ".join(entry.get("codes") or []),
        "selection_biased": entry["gain"]["selection_biased"],
        "block": block,
        "shift": shift,
        "severity": severity,
        "unit": facts.noise_unit if shift == GAUSSIAN else FAMILIES[shift].unit,
        f"constrained_{key}": ours,
        f"unconstrained_{key}": theirs,
        f"gain_{key}": None if ours is None or theirs is None else facts.metric.gain(ours, theirs),
        **{
            f"{name}_{key}": score(entry["references"].get(name, {}))
            for name in _measured_references(facts.metric, entry)
        },
    }


def _measured_references(metric: Metric, entry: Mapping[str, Json]) -> list[str]:
    """The predictors without training that stand beside a setting; all while none is measured."""
    return [n for n in metric.references if n in entry["references"] or not entry["references"]]


def _mean_of(block: Sequence[Row], column: str) -> float | None:
    """The mean over a block; None where a value is missing: absence is never left out."""
    values: list[Json] = [row.get(column) for row in block]
    return None if None in values else fmean(values)


# --- texts ----------------------------------------------------------------------------------------


def _shift_text(block: Sequence[Row]) -> str:
    shift: str = block[0]["shift"].replace("_", " ")
    if block[0]["shift"] != GAUSSIAN:
        return shift
    ends = dict.fromkeys((block[0]["severity"], block[-1]["severity"]))
    return f"{shift} {' to '.join(map(gamma_key, ends))}"
