"""Table of hyperparameters that every setting's pair was trained with. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from search_spaces.space import SearchSpace
from sweep.render.table import NOTHING, Row, Table, shown_of
from sweep.results.summary import ArmSummary, SettingSummary
from sweep.results.tables.columns import HEADED, SettingLine, config_of, form_of, summary_notes
from sweep.results.verdict_text import listed
from trainables.config.arm import ArmConfig, ConstraintConfig, field_names
from trainables.plain import Json
from trainables.primal_dual.constraints import Scales, reference_fraction


def hyperparameters_table(space: SearchSpace, summaries: Sequence[SettingSummary]) -> Table:
    """Hyperparameters of the pairs in the results table, as plain values."""
    rows = [_hyperparameters_row(space, summary) for summary in summaries]
    columns = {
        header: value_texts([row[column] for row in rows]) for header, column in _TRAINED.items()
    }
    shared = {
        header: cells[0]
        for header, cells in columns.items()
        if header not in _SEARCHED and len(set(cells)) == 1 and len(cells) > 1
    }
    shown = [
        *shown_of(HEADED, [SettingLine(summary) for summary in summaries]),
        *((header, cells) for header, cells in columns.items() if header not in shared),
    ]
    searched = ", ".join(name.removeprefix("constraint.") for name in space.ranges)
    numbers = set(map(space.proposals_of, space.settings))
    most = "up to " * (len(numbers) > 1)
    notes = [
        f"searched: {searched or 'nothing'}; {most}{max(numbers)} proposals a setting by "
        f"{space.sampler}, seed {space.sampler_seed}; {space.phase} seeds "
        f"{', '.join(map(str, space.search_seeds))}.",
        *(f"all alike: {alike}." for alike in [", ".join(map(" ".join, shared.items()))] if alike),
        *_also_notes(rows),
        *summary_notes(summaries),
    ]
    caption = "Hyperparameters of the pairs"
    # Fields that no setting sets: those of other tasks and models, and options that are off.
    configs = [config_of(space, summary) for summary in summaries]
    default, empty = _DEFAULT, (None, "", ())
    unset = [n for n in _FIELDS if default.value_of(n) in empty]
    idle = {column_of(n) for n in unset if all(c.value_of(n) in empty for c in configs)}
    idle |= {
        column_of(n) for n in _IF_SET if all(c.value_of(n) == default.value_of(n) for c in configs)
    }
    idle |= set() if space.ranges else {"searched"}
    kept = [{name: value for name, value in row.items() if name not in idle} for row in rows]
    return Table("hyperparameters", caption, kept, shown, notes, texts=3, headed=3)


_DEFAULT = ArmConfig(constraint=ConstraintConfig())
_SEARCHED = ("alpha", "dual lr", "resilience")  # columns even where all settings have one value


_TRAINED = {  # header: column of CSV
    "alpha": "alpha",
    "dual lr": "dual_lr",
    "resilience": "resilience",
    "reference": "reference",
    "reference_loss": "reference_loss",
    "unit": "reference_unit",
    "scale": "scale",
    "form": "form",
    "dual optimiser": "dual_optimizer",
    "warm-up": "warmup_steps",
    "primal lr": "primal_lr",
    "steps": "steps",
    "batch": "batch_size",
}


def _hyperparameters_row(space: SearchSpace, summary: SettingSummary) -> Row:
    """Every field of the run; those of the constraint first and without their section's name."""
    row: Row = {
        "setting": summary.setting,
        "winner": summary.winner,
        "proposal": summary.proposal,
        "not_binding": summary.not_binding,
        "matched_capacity": summary.matched_capacity,
    }
    measured = summary.constrained is not None
    config = config_of(space, summary)
    for name in _FIELDS:
        value = config.value_of(name) if measured else None
        if measured and value is None and _DEFAULT.value_of(name) is not None:
            value = "none"  # off, and not: of another task
        row[column_of(name)] = _cell(value)
    return row | {
        "model": config.model.name,
        "model_variant": config.model.variant,
        "reference_loss_absolute": reference_loss(
            config.constraint, scales_of(summary.constrained)
        ),
        "form": form_of(config.constraint),
        "test_gammas": listed(config.test_gammas),
        "searched": " ".join(space.ranges),
        "search_seeds": listed(space.search_seeds),
        "n_proposals": space.proposals_of(space.setting(summary.setting)),
        "sampler": space.sampler,
        "sampler_seed": space.sampler_seed,
        "tolerance": space.tolerance,
    }


def _cell(value: Json) -> Json:
    """A field's value in a cell: lists and own options as text."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {one}" for name, one in value.items())
    return " ".join(map(str, value)) if isinstance(value, tuple) else value


_IF_SET = (  # options without a column of their own where no setting sets them
    "constraint.warmup_epochs",
    "constraint.dual_kp",
    "constraint.dual_penalty",
    "constraint.inner_tokens",
    "constraint.inner_layers",
    "constraint.weights_by",
    "constraint.supervision",
    "constraint.supervision_decay",
    "constraint.penalty",
    "constraint.replayed_weights",
    "train_gamma_low",
    "train_gamma_high",
    "score_draws",
    "measured_on",
    "data.split_by_seed",
    "data.shuffle_by",
    "model.start_jitter",
    "model.own",
)
_ALSO = (  # fields that say how a pair was trained and that the short form leaves to a note
    "constraint.dual_signal",
    "constraint.signal_clip",
    "constraint.resilience_form",
    "constraint.dual_every",
    "constraint.dual_every_unit",
    "weight_ema",
    "decay_fraction",
    "grad_clip",
    "early_stop",
    "dtype",
    "model.checkpoint",
    "model.atoms_per_side",
    "model.threshold",
    "model.lora_rank",
    *_IF_SET,
)


def _also_notes(rows: Sequence[Row]) -> list[str]:
    """Values that are not defaults and have no column, once for all settings that share them."""
    plain = _DEFAULT
    settings: dict[str, list[str]] = {}
    for row in rows:
        if row["alpha"] is None:  # nothing was measured
            continue
        also = [
            f"{column_of(name)} {value_text(row[column_of(name)])}"
            for name in _ALSO
            if row[column_of(name)] not in (plain.value_of(name), "")
        ]
        if also:
            settings.setdefault(", ".join(also), []).append(row["setting"])
    return [f"{', '.join(names)}: also {also}." for also, names in settings.items()]


# ``form`` is what a reader calls the whole: see ``form_of``.
_COLUMNS = {"constraint.form": "constraint_form", "model.name": "model"}
_NOT_SHOWN = ("seed", "data.folder", "test_gammas")
_FIELDS = sorted(  # those of the constraint first
    (name for name in (*field_names(), "model.own") if name not in _NOT_SHOWN),
    key=lambda name: not name.startswith("constraint."),
)


def column_of(field: str) -> str:
    """The CSV column of a field of ArmConfig."""
    return _COLUMNS.get(field) or field.removeprefix("constraint.").replace(".", "_")


def scales_of(arm: ArmSummary | None) -> Scales | None:
    """The scales of an arm; None while nothing is measured."""
    return Scales(**arm.scales) if arm and arm.scales else None  # type: ignore[arg-type]


def reference_loss(constraint: ConstraintConfig | None, scales: Scales | None) -> float | None:
    """f0 in the task's own unit of loss, whatever unit the configuration states it in."""
    if constraint is None or scales is None:
        return None
    return reference_fraction(constraint, scales) * scales.constant_loss


def value_texts(values: Sequence[Json]) -> list[str]:
    """The cells of a column: numbers of about one size have equally many decimals, all measured.

    >>> value_texts([0.1058, 0.09359, None, 1.0]), value_texts([5e-05, 0.003])
    (['0.1058', '0.0936', '—', '1.0000'], ['5e-05', '0.003'])
    """
    texts = list(map(value_text, values))
    numbers = [text for text, value in zip(texts, values, strict=True) if isinstance(value, float)]
    sizes = [abs(float(text)) for text in numbers if float(text)]
    if any("e" in text for text in numbers) or max(sizes, default=1) > 1e3 * min(sizes, default=1):
        return texts
    decimals = max((len(text.partition(".")[2]) for text in numbers), default=0)
    return [
        f"{value:.{decimals}f}" if isinstance(value, float) else text
        for text, value in zip(texts, values, strict=True)
    ]


def value_text(value: Json) -> str:
    """A cell: three digits of a number, a dash where there is none."""
    if value is None:
        return NOTHING
    return f"{value:.3g}" if isinstance(value, float) else str(value)
