"""PURE: the tables of a sweep, from the entries of ``views.best``: every column, and a short form.

The short form shows what a reader compares, with notes.
What is infeasible is marked, never hidden. No bold and no star: a search alone confirms nothing.
What training or selection looked at (seen) and what it did not (unseen) never share a column, but
for the mean over all test gammas, which says so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from search_spaces.space import SearchSpace
from sweep.score_entries import ARMS, COSTS, shift_mean
from sweep.table_formats import NOTHING, Row, Table, number
from sweep.verdict_text import (
    bias_text,
    difference_header,
    listed,
    share_text,
    verdict_columns,
    verdict_legend,
    verdict_notes,
)
from trainables.config import ConstraintConfig, RunConfig, field_names
from trainables.primal_dual import Scales, reference_share
from trainables.shifts import (
    FAMILIES,
    gamma_key,
    seen_gammas,
    severity_key,
    unseen_gammas,
)
from trainables.task_facts import (
    Metric,
    TaskFacts,
    reference_label,
    shift_references,
    shifts_of,
)

Json = Any
GAUSSIAN = "gaussian"
UNMATCHED = "†"  # beside a setting whose arms differ in what they can fit


def results_table(space: SearchSpace, entries: Sequence[Mapping[str, Json]]) -> Table:
    """Both arms of every setting's winner, or of its closest pair, beside the references."""
    rows = [_results_row(_config(space, entry), entry) for entry in entries]
    facts = space.base.facts
    label, mean = facts.metric.label, f"mean_{facts.metric.key}"
    difference = f"difference_{mean}"
    shown = [
        ("setting", [_setting_text(row) for row in rows]),
        ("pair", [_pair_text(row) for row in rows]),
        (f"constrained {label}", [number(row[f"constrained_{mean}"], ".3f") for row in rows]),
        (f"unconstrained {label}", [number(row[f"unconstrained_{mean}"], ".3f") for row in rows]),
        (difference_header(rows), [number(r[difference], "+.3f") for r in rows]),
        *(
            (f"{block}: {arm}", [number(r[f"{arm}_{block}_{mean}"], ".3f") for r in rows])
            for block in ("seen", "unseen")
            for arm in ARMS
        ),
        ("missing share", [share_text(row, "constrained") for row in rows]),
        ("units that meet it", [number(r["constrained_units_met"], ".0%") for r in rows]),
        ("descent asked", [number(row["demanded_descent"], ".2f") for row in rows]),
        ("unconstrained missing share", [share_text(row, "unconstrained") for row in rows]),
        ("useful", [_yes(row["constrained_useful"]) for row in rows]),
        *(
            (f"{reference_label(n)} {label}", [number(r[f"{n}_{mean}"], ".3f") for r in rows])
            for n in facts.metric.shown
        ),
        ("seeds", [str(row["n_seeds"]) for row in rows]),
    ]
    notes = [
        f"{label}: mean over all test gammas, seen and unseen, and over the search seeds, on dev "
        f"{facts.samples}, in {facts.metric.unit}; {facts.metric.direction}.",
        _seen_and_unseen(facts),
        *reference_notes(facts.metric),
        *verdict_legend(space.tolerance),
        f"difference: constrained minus unconstrained{bias_text(rows, facts.samples)}.",
        *(
            f"{row['setting']}: no winner: {row['why'].rstrip('.')}."
            for row in rows
            if not row["winner"]
        ),
        *verdict_notes(rows, entries),
        *_unmatched_note(rows),
    ]
    return Table("results", "Constrained and unconstrained arms", rows, shown, notes)


def _seen_and_unseen(facts: TaskFacts) -> str:
    return (
        "seen: the mean over the test gammas that training or selection looked at, up to "
        f"train gamma + {facts.near_shift:.2f}, or the next one where none lies in that range; "
        "unseen: the mean over what neither looked at. Only what is unseen speaks of OOD "
        "robustness."
    )


def reference_notes(metric: Metric) -> list[str]:
    """Which linear filter knows what."""
    if "wiener_train" not in metric.shown:
        return []
    return [
        "Wiener: the best linear filter of a patch, fitted anew at every test gamma, so it knows "
        "the noise; Wiener (train): fitted at train gamma alone, as the models are."
    ]


def _unmatched_note(rows: Sequence[Row]) -> list[str]:
    if all(row["matched_capacity"] for row in rows):
        return []
    return [
        f"{UNMATCHED} unmatched capacity: the unconstrained arm has one dictionary where the "
        "constrained one has one per layer, so the difference is not that of constraining alone."
    ]


def shifts_table(space: SearchSpace, entries: Sequence[Mapping[str, Json]]) -> Table:
    """Every test condition alone (CSV), and in blocks of a shift's seen or unseen severities.

    A block shows the mean over its severities, which have equal weight.
    """
    blocks = [block for entry in entries for block in _shift_blocks(_config(space, entry), entry)]
    rows = [row for block in blocks for row in block]
    firsts = [block[0] for block in blocks]
    facts = space.base.facts
    label, key = facts.metric.label, facts.metric.key
    shown = [
        ("setting", [_setting_text(row) for row in firsts]),
        ("pair", [_pair_text(row) for row in firsts]),
        ("block", [row["block"] for row in firsts]),
        ("shift", [row["shift"].replace("_", " ") for row in firsts]),
        ("severities", [_severities_text(block) for block in blocks]),
        *(
            (header, [number(_mean_of(block, column), form) for block in blocks])
            for header, column, form in (
                (f"constrained {label}", f"constrained_{key}", ".3f"),
                (f"unconstrained {label}", f"unconstrained_{key}", ".3f"),
                (difference_header(rows), f"difference_{key}", "+.3f"),
                *(
                    (f"{reference_label(name)} {label}", f"{name}_{key}", ".3f")
                    for name in facts.metric.references
                    if name in (*shift_references(facts), *facts.metric.shown)
                ),
            )
        ),
    ]
    used = [s for s in FAMILIES if any(row["shift"] == s for row in firsts)]
    notes = [
        f"{label}: mean over the severities and the search seeds, on dev {facts.samples}, in "
        f"{facts.metric.unit}; {facts.metric.direction}.",
        _seen_and_unseen(facts),
        f"{GAUSSIAN}: severities are test gammas, {facts.noise_unit}.",
        *(f"{s.replace('_', ' ')}: {FAMILIES[s].unit}." for s in used),
    ]
    if used:
        notes += [
            "shifts other than gaussian come on top of Gaussian noise at train gamma, and have "
            "entered neither training nor selection"
            + ("; Identity is the disturbed input itself." if facts.has_identity else "."),
        ]
    notes += [
        *reference_notes(facts.metric),
        f"difference: constrained minus unconstrained{bias_text(firsts, facts.samples)}.",
        *_unmatched_note(firsts),
    ]
    return Table("shifts", "Seen and unseen shifts", rows, shown, notes, texts=5)


def hyperparameters_table(space: SearchSpace, entries: Sequence[Mapping[str, Json]]) -> Table:
    """What the pairs of the results table were trained with, as plain values."""
    rows = [_hyperparameters_row(space, entry) for entry in entries]
    columns = (
        ("alpha", "alpha"),
        ("dual lr", "dual_lr"),
        ("resilience", "resilience"),
        ("reference", "reference"),
        ("reference loss", "reference_loss"),
        ("unit", "reference_unit"),
        ("scale", "scale"),
        ("form", "form"),
        ("dual optimiser", "dual_optimizer"),
        ("warm-up", "warmup_steps"),
        ("primal lr", "primal_lr"),
        ("steps", "steps"),
        ("batch", "batch_size"),
    )
    shown = [
        ("setting", [_setting_text(row) for row in rows]),
        *((header, [_value_text(row[column]) for row in rows]) for header, column in columns),
    ]
    searched = ", ".join(name.removeprefix("constraint.") for name in space.ranges)
    fewer = any(space.proposals_of(s) < space.n_proposals for s in space.settings)
    notes = [
        f"searched: {searched or 'nothing'}; {'up to ' * fewer}{space.n_proposals} proposals a "
        f"setting by {space.sampler}, seed {space.sampler_seed}; search seeds "
        f"{', '.join(map(str, space.search_seeds))}.",
        *(
            f"{r['setting']}: {'closest pair, no winner' if r['alpha'] else 'no finished pair'}."
            for r in rows
            if not r["winner"]
        ),
        *_also_notes(rows),
        *_unmatched_note(rows),
    ]
    return Table("hyperparameters", "Hyperparameters of the pairs", rows, shown, notes)


# --- rows -----------------------------------------------------------------------------------------


def _config(space: SearchSpace, entry: Mapping[str, Json]) -> RunConfig:
    """The constrained run of an entry; the setting's default one while nothing is finished."""
    if entry["constrained"] is not None:
        return RunConfig.from_json(entry["constrained"]["config"])
    return space.run(space.setting(entry["setting"]), {}, seed=space.search_seeds[0])


def _results_row(config: RunConfig, entry: Mapping[str, Json]) -> Row:
    row: Row = {
        "setting": entry["setting"],
        "data": config.data.name,
        "model": config.model.name,
        "model_variant": config.model.variant,
        "layers": config.model.layers,
        "train_gamma": config.train_gamma,
        "form": _form(config.constraint),
        "n_seeds": len(entry["search_seeds"]),
        "winner": entry["winner"],
        "why": entry["why"],
        "proposal": entry["proposal"],
        "n_proposals_finished": entry["proposals"]["finished"],
        **{f"n_{outcome}": count for outcome, count in entry["outcomes"].items()},
        "vacuous": entry["vacuous"],
        "matched_capacity": entry["matched_capacity"],
        "selection_biased": entry["difference"]["selection_biased"],
        "tolerance": entry["tolerance"],
        "demanded_descent": entry["demanded_descent"],
        "least_descent": entry["least_descent"],
        "edges": "; ".join(entry["edges"]) or None,
    }
    mean = f"mean_{config.facts.metric.key}"
    for arm in ARMS:
        values = entry[arm] or {}
        row |= {
            f"{arm}_{mean}": values.get("ood_mean"),
            f"{arm}_ood_auc": values.get("ood_auc"),
            f"{arm}_objective": values.get("objective"),
            f"{arm}_held_out_loss": values.get("held_out_loss"),
            f"{arm}_feasible": values.get("feasible"),
            f"{arm}_useful": values.get("useful"),
            f"{arm}_worst_missing_share": values.get("worst_missing_share"),
            f"{arm}_worst_layer": values.get("worst_layer"),
            f"{arm}_first_layer": values.get("first_layer"),
            f"{arm}_missing_share_by_layer": listed(values.get("missing_share")),
            f"{arm}_missing_share_training_by_layer": listed(values.get("missing_share_training")),
            f"{arm}_missing_share_relaxed_by_layer": listed(values.get("missing_share_relaxed")),
            **verdict_columns(arm, values),
            f"{arm}_signature": values.get("signature"),
            **{f"{arm}_{cost}": values.get(cost) for cost in COSTS},
            **_by_layer(config.facts.metric, arm, values),
        }
    measured = entry["constrained"] or entry["unconstrained"] or {}
    row["ood_auc_range"] = listed(measured.get("ood_range"))
    row["ood_auc_step"] = measured.get("ood_step")
    row[f"difference_{mean}"] = entry["difference"].get("ood_mean")
    row["difference_held_out_loss"] = entry["difference"].get("held_out_loss")
    for name in config.facts.metric.references:
        values = entry["references"].get(name, {})
        row[f"{name}_{mean}"] = values.get("ood_mean")
        row[f"{name}_held_out_loss"] = values.get("held_out_loss")
    return row | _block_columns(config, entry)


def _by_layer(metric: Metric, arm: str, values: Mapping[str, Json]) -> Row:
    """Losses and the metric of every layer at train gamma, where the metric is no function of them.

    Read off each layer by the shared readout, and by a probe of its own.
    """
    if not metric.higher_is_better:
        return {}
    columns = {
        "loss": "layer_losses",
        metric.key: "layer_scores",
        "probe_loss": "probe_losses",
        f"probe_{metric.key}": "probe_scores",
    }
    return {f"{arm}_{name}_by_layer": listed(values.get(key)) for name, key in columns.items()}


def _block_columns(config: RunConfig, entry: Mapping[str, Json]) -> Row:
    """Means over the seen gammas, the unseen gammas, and every family's severities (unseen)."""
    row: Row = {
        "seen_gammas": listed(seen_gammas(config)),
        "unseen_gammas": listed(unseen_gammas(config)),
    }
    metric, everywhere = config.facts.metric, shift_references(config.facts)
    mean = f"mean_{metric.key}"
    shifts = dict.fromkeys((*shifts_of(metric), *config.facts.shifts))
    measured = {
        **{arm: (entry[arm] or {}, f"{arm}_{{}}_{mean}") for arm in ARMS},
        "difference": (entry["difference"], f"difference_{{}}_{mean}"),
        **{n: (entry["references"].get(n, {}), f"{n}_{{}}_{mean}") for n in metric.references},
    }
    for who, (values, column) in measured.items():
        row[column.format("seen")] = values.get("seen_mean")
        row[column.format("unseen")] = values.get("unseen_mean")
        for shift in shifts if who not in metric.references or who in everywhere else ():
            row[column.format(f"unseen_{shift}")] = shift_mean(values, shift)
    return row


def _shift_blocks(config: RunConfig, entry: Mapping[str, Json]) -> list[list[Row]]:
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
        if shift == GAUSSIAN:
            scores, at = values.get("scores"), gamma_key(severity)
        else:
            scores, at = values.get("shifts", {}).get(shift), severity_key(severity)
        found: float | None = (scores or {}).get(at)
        return found

    key = facts.metric.key
    ours, theirs = (score(entry[arm] or {}) for arm in ARMS)
    return {
        "setting": entry["setting"],
        "winner": entry["winner"],
        "proposal": entry["proposal"],
        "n_seeds": len(entry["search_seeds"]),
        "vacuous": entry["vacuous"],
        "matched_capacity": entry["matched_capacity"],
        "selection_biased": entry["difference"]["selection_biased"],
        "block": block,
        "shift": shift,
        "severity": severity,
        "unit": facts.noise_unit if shift == GAUSSIAN else FAMILIES[shift].unit,
        f"constrained_{key}": ours,
        f"unconstrained_{key}": theirs,
        f"difference_{key}": None if ours is None or theirs is None else ours - theirs,
        **{
            f"{name}_{key}": score(entry["references"].get(name, {}))
            for name in facts.metric.references
        },
    }


def _mean_of(block: Sequence[Row], column: str) -> float | None:
    """The mean over a block; None where a value is missing: absence is never left out."""
    values = [row[column] for row in block]
    return None if None in values else math.fsum(values) / len(values)


def _hyperparameters_row(space: SearchSpace, entry: Mapping[str, Json]) -> Row:
    """Every field of the run; those of the constraint first and without their section's name."""
    row: Row = {
        "setting": entry["setting"],
        "winner": entry["winner"],
        "proposal": entry["proposal"],
        "matched_capacity": entry["matched_capacity"],
    }
    measured = entry["constrained"] is not None
    config = _config(space, entry)
    names = [n for n in field_names() if n not in ("seed", "data.folder", "test_gammas")]
    names.sort(key=lambda n: not n.startswith("constraint."))
    for name in names:
        column = _COLUMNS.get(name) or name.removeprefix("constraint.").replace(".", "_")
        value = config.value_of(name) if measured else None
        row[column] = " ".join(value) if isinstance(value, tuple) else value
    return row | {
        "reference_loss_absolute": _reference_loss(config.constraint, entry["constrained"]),
        "form": _form(config.constraint),
        "test_gammas": listed(config.test_gammas),
        "searched": " ".join(space.ranges),
        "search_seeds": listed(space.search_seeds),
        "n_proposals": space.proposals_of(space.setting(entry["setting"])),
        "sampler": space.sampler,
        "sampler_seed": space.sampler_seed,
        "tolerance": space.tolerance,
    }


# Columns of CSV that say how a pair was trained and that the short form leaves to a note.
_ALSO = {
    "dual_signal": "constraint.dual_signal",
    "signal_clip": "constraint.signal_clip",
    "resilience_form": "constraint.resilience_form",
    "dual_every": "constraint.dual_every",
    "dual_every_unit": "constraint.dual_every_unit",
    "violation_ema": "constraint.violation_ema",
    "alpha_ramp_steps": "constraint.alpha_ramp_steps",
    "weight_ema": "weight_ema",
    "decay_share": "decay_share",
    "grad_clip": "grad_clip",
    "early_stop": "early_stop",
    "dtype": "dtype",
    "model_checkpoint": "model.checkpoint",
    "model_atoms_per_side": "model.atoms_per_side",
    "model_threshold": "model.threshold",
}


def _also_notes(rows: Sequence[Row]) -> list[str]:
    """What is not at its default and has no column, once for all settings that share it."""
    plain = RunConfig(constraint=ConstraintConfig())
    settings: dict[str, list[str]] = {}
    for row in rows:
        if row["alpha"] is None:  # nothing was measured
            continue
        also = [
            f"{column} {_value_text(row[column])}"
            for column, name in _ALSO.items()
            if row[column] != plain.value_of(name)
        ]
        if also:
            settings.setdefault(", ".join(also), []).append(row["setting"])
    return [f"{', '.join(names)}: also {also}." for also, names in settings.items()]


# ``form`` is what a reader calls the whole: see ``_form``.
_COLUMNS = {"constraint.form": "constraint_form"}


def _reference_loss(
    constraint: ConstraintConfig | None, arm: Mapping[str, Json] | None
) -> float | None:
    """f0 in the task's own unit of loss, whatever unit the configuration states it in."""
    if constraint is None or arm is None or arm["scales"] is None:
        return None
    scales = Scales(**arm["scales"])
    return reference_share(constraint, scales) * scales.constant_loss


def _form(constraint: ConstraintConfig | None) -> str:
    is_ratio = constraint is not None and constraint.form == "ratio"
    is_detached = constraint is not None and not constraint.grad_through_previous
    return ", ".join(["ratio"] * is_ratio + ["detached"] * is_detached) or "Lagrangian"


# --- texts ----------------------------------------------------------------------------------------


def _setting_text(row: Row) -> str:
    name: str = row["setting"]
    return name if row["matched_capacity"] else f"{name}{UNMATCHED}"


def _severities_text(block: Sequence[Row]) -> str:
    severities = [row["severity"] for row in block]
    if block[0]["shift"] == GAUSSIAN:
        return " to ".join(map(gamma_key, dict.fromkeys((severities[0], severities[-1]))))
    return ", ".join(f"{s:g}" for s in severities)


def _pair_text(row: Row) -> str:
    if row["proposal"] is None:
        return "none finished"
    text = ["winner" if row["winner"] else "closest, no winner"]
    text += ["vacuous"] * row["vacuous"] + ["at an edge"] * bool(row.get("edges"))
    return ", ".join(text)


def _value_text(value: Json) -> str:
    if value is None:
        return NOTHING
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _yes(value: bool | None) -> str:
    return NOTHING if value is None else "yes" if value else "no"
