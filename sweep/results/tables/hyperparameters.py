"""Table of hyperparameters that every setting's pair was trained with. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from search_spaces.space import SearchSpace
from sweep.results.tables.columns import config_of, departure_notes, form_of, headed, unmatched_note
from sweep.results.tables.formats import NOTHING, Row, Table
from sweep.results.verdict_text import listed
from trainables.config.arm import ConstraintConfig, RunConfig, field_names
from trainables.plain import Json
from trainables.primal_dual.constraints import Scales, reference_share


def hyperparameters_table(space: SearchSpace, entries: Sequence[Mapping[str, Json]]) -> Table:
    """What the pairs of the results table were trained with, as plain values."""
    rows = [_hyperparameters_row(space, entry) for entry in entries]
    columns = {
        header: [_value_text(row[column]) for row in rows] for header, column in _TRAINED.items()
    }
    shared = {
        header: cells[0]
        for header, cells in columns.items()
        if header not in _SEARCHED and len(set(cells)) == 1 and len(cells) > 1
    }
    shown = [
        *headed(rows),
        *((header, cells) for header, cells in columns.items() if header not in shared),
    ]
    searched = ", ".join(name.removeprefix("constraint.") for name in space.ranges)
    fewer = any(space.proposals_of(s) < space.n_proposals for s in space.settings)
    notes = [
        f"searched: {searched or 'nothing'}; {'up to ' * fewer}{space.n_proposals} proposals a "
        f"setting by {space.sampler}, seed {space.sampler_seed}; search seeds "
        f"{', '.join(map(str, space.search_seeds))}.",
        *(f"all alike: {alike}." for alike in [", ".join(map(" ".join, shared.items()))] if alike),
        *_also_notes(rows),
        *departure_notes(rows),
        *unmatched_note(rows),
    ]
    caption = "Hyperparameters of the pairs"
    idle = _idle([config_of(space, entry) for entry in entries])
    idle |= set() if space.ranges else {"searched"}
    whole = [{name: value for name, value in row.items() if name not in idle} for row in rows]
    return Table("hyperparameters", caption, whole, shown, notes, texts=3, headed=3)


def _idle(configs: Sequence[RunConfig]) -> set[str]:
    """Columns of fields that no setting sets: those of other tasks and models, and options off."""
    empty = (None, "", ())
    return {_column(n) for n in _FIELDS if all(c.value_of(n) in empty for c in configs)}


_SEARCHED = ("alpha", "dual lr", "resilience")  # columns even where all settings have one value


_TRAINED = {  # header: column of CSV
    "alpha": "alpha",
    "dual lr": "dual_lr",
    "resilience": "resilience",
    "reference": "reference",
    "reference loss": "reference_loss",
    "unit": "reference_unit",
    "scale": "scale",
    "form": "form",
    "dual optimiser": "dual_optimizer",
    "warm-up": "warmup_steps",
    "primal lr": "primal_lr",
    "steps": "steps",
    "batch": "batch_size",
}


def _hyperparameters_row(space: SearchSpace, entry: Mapping[str, Json]) -> Row:
    """Every field of the run; those of the constraint first and without their section's name."""
    first = ("setting", "winner", "proposal", "vacuous", "matched_capacity")
    row: Row = {name: entry[name] for name in first}
    measured = entry["constrained"] is not None
    config = config_of(space, entry)
    for name in _FIELDS:
        value = config.value_of(name) if measured else None
        row[_column(name)] = " ".join(value) if isinstance(value, tuple) else value
    return row | {
        "model": config.model.name,
        "model_variant": config.model.variant,
        "reference_loss_absolute": _reference_loss(config.constraint, entry["constrained"]),
        "form": form_of(config.constraint),
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


_COLUMNS = {"constraint.form": "constraint_form", "model.name": "model"}
_NOT_SHOWN = ("seed", "data.folder", "test_gammas")
_FIELDS = sorted(  # those of the constraint first
    (name for name in field_names() if name not in _NOT_SHOWN),
    key=lambda name: not name.startswith("constraint."),
)


def _column(field: str) -> str:
    return _COLUMNS.get(field) or field.removeprefix("constraint.").replace(".", "_")


def _reference_loss(
    constraint: ConstraintConfig | None, arm: Mapping[str, Json] | None
) -> float | None:
    """f0 in the task's own unit of loss, whatever unit the configuration states it in."""
    if constraint is None or arm is None or arm["scales"] is None:
        return None
    scales = Scales(**arm["scales"])
    return reference_share(constraint, scales) * scales.constant_loss


def _value_text(value: Json) -> str:
    if value is None:
        return NOTHING
    return f"{value:.3g}" if isinstance(value, float) else str(value)
