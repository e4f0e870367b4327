"""PURE: the tables of a sweep, from the entries of ``views.best``, as CSV, Markdown and LaTeX.

CSV has every column in full precision; Markdown and LaTeX show what a reader compares, with notes.
What is infeasible is marked, never hidden. No bold and no star: a search alone confirms nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from search_spaces.space import SearchSpace
from trainables.config import ConstraintConfig, RunConfig, field_names
from trainables.primal_dual import TOLERANCE, Scales, reference_share

if TYPE_CHECKING:
    import pandas

Json = Any
Row = dict[str, Json]  # one setting: a plain value by column, None where there is none
REFERENCES = ("identity", "constant", "wiener", "wiener_temporal")
NOTHING = "—"


@dataclass(frozen=True)
class Table:
    """A table; ``shown`` is its short form, (header, one text per row), with ``notes`` below."""

    name: str
    caption: str
    rows: list[Row]
    shown: list[tuple[str, list[str]]]
    notes: list[str]


def results_table(space: SearchSpace, entries: Sequence[Mapping[str, Json]]) -> Table:
    """Both arms of every setting's winner, or of its closest pair, beside the references."""
    rows = [_results_row(_config(space, entry), entry) for entry in entries]
    shown = [
        ("setting", [row["setting"] for row in rows]),
        ("pair", [_pair_text(row) for row in rows]),
        ("constrained RMSE", [_number(row["constrained_mean_rmse"], ".3f") for row in rows]),
        ("unconstrained RMSE", [_number(row["unconstrained_mean_rmse"], ".3f") for row in rows]),
        ("difference (selection-biased)", [_number(r[_DIFFERENCE], "+.3f") for r in rows]),
        ("missing share", [_share_text(row, "constrained") for row in rows]),
        ("unconstrained missing share", [_share_text(row, "unconstrained") for row in rows]),
        ("useful", [_yes(row["constrained_useful"]) for row in rows]),
        *(
            (f"{n.capitalize()} RMSE", [_number(r[f"{n}_mean_rmse"], ".3f") for r in rows])
            for n in ("identity", "wiener")
        ),
        ("seeds", [str(row["n_seeds"]) for row in rows]),
    ]
    notes = [
        "RMSE: mean over the test gammas and the search seeds, on dev clips, in grey levels; "
        "lower is better.",
        "missing share: worst layer and seed, held out at train gamma; "
        f"feasible up to {TOLERANCE:.2f}.",
        "difference: constrained minus unconstrained of a pair that was selected on these clips, "
        "so it is selection-biased and carries no interval; fresh seeds must confirm it.",
        *(f"{row['setting']}: no winner: {row['why']}." for row in rows if not row["winner"]),
        *(_VACUOUS.format(row["setting"]) for row in rows if row["vacuous"]),
    ]
    return Table("results", "Constrained and unconstrained arms", rows, shown, notes)


_DIFFERENCE = "difference_mean_rmse_selection_biased"
_VACUOUS = "{}: vacuous: the unconstrained arm meets the constraint by itself."


def hyperparameters_table(space: SearchSpace, entries: Sequence[Mapping[str, Json]]) -> Table:
    """What the pairs of the results table were trained with, as plain values."""
    rows = [_hyperparameters_row(space, entry) for entry in entries]
    columns = (
        ("setting", "setting"),
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
    shown = [(header, [_value_text(row[column]) for row in rows]) for header, column in columns]
    searched = ", ".join(name.removeprefix("constraint.") for name in space.ranges)
    notes = [
        f"searched: {searched or 'nothing'}; {space.n_proposals} proposals a setting by "
        f"{space.sampler}, seed {space.sampler_seed}; search seeds "
        f"{', '.join(map(str, space.search_seeds))}.",
        *(f"{r['setting']}: closest pair, no winner." for r in rows if not r["winner"]),
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
    }
    for arm in ("constrained", "unconstrained"):
        values = entry[arm] or {}
        row |= {
            f"{arm}_mean_rmse": values.get("ood_mean"),
            f"{arm}_objective": values.get("objective"),
            f"{arm}_held_out_loss": values.get("held_out_loss"),
            f"{arm}_feasible": values.get("feasible"),
            f"{arm}_useful": values.get("useful"),
            f"{arm}_worst_missing_share": values.get("worst_missing_share"),
            f"{arm}_worst_layer": values.get("worst_layer"),
            f"{arm}_missing_share_by_layer": _listed(values.get("missing_share")),
            f"{arm}_missing_share_training_by_layer": _listed(values.get("missing_share_training")),
            f"{arm}_missing_share_relaxed_by_layer": _listed(values.get("missing_share_relaxed")),
            f"{arm}_signature": values.get("signature"),
        }
    row[_DIFFERENCE] = entry["difference"].get("ood_mean")
    row["difference_held_out_loss_selection_biased"] = entry["difference"].get("held_out_loss")
    for name in REFERENCES:
        values = entry["references"].get(name, {})
        row[f"{name}_mean_rmse"] = values.get("ood_mean")
        row[f"{name}_held_out_loss"] = values.get("held_out_loss")
    return row


def _hyperparameters_row(space: SearchSpace, entry: Mapping[str, Json]) -> Row:
    """Every field of the run; those of the constraint first and without their section's name."""
    row: Row = {
        "setting": entry["setting"],
        "winner": entry["winner"],
        "proposal": entry["proposal"],
    }
    measured = entry["constrained"] is not None
    config = _config(space, entry)
    names = [n for n in field_names() if n not in ("seed", "data.folder", "test_gammas")]
    names.sort(key=lambda n: not n.startswith("constraint."))
    for name in names:
        column = name.removeprefix("constraint.").replace(".", "_")
        row[column] = config.value_of(name) if measured else None
    return row | {
        "reference_loss_absolute": _reference_loss(config.constraint, entry["constrained"]),
        "form": _form(config.constraint),
        "test_gammas": _listed(config.test_gammas),
        "searched": " ".join(space.ranges),
        "search_seeds": _listed(space.search_seeds),
        "n_proposals": space.n_proposals,
        "sampler": space.sampler,
        "sampler_seed": space.sampler_seed,
        "tolerance": TOLERANCE,
    }


def _reference_loss(
    constraint: ConstraintConfig | None, arm: Mapping[str, Json] | None
) -> float | None:
    """f0 in the task's own unit of loss, whatever unit the configuration states it in."""
    if constraint is None or arm is None or arm["scales"] is None:
        return None
    scales = Scales(**arm["scales"])
    return reference_share(constraint, scales) * scales.constant_loss


def _form(constraint: ConstraintConfig | None) -> str:
    return "Lagrangian" if constraint is None or constraint.grad_through_previous else "detached"


# --- texts ----------------------------------------------------------------------------------------


def _pair_text(row: Row) -> str:
    if row["proposal"] is None:
        return "none finished"
    text = "winner" if row["winner"] else "closest, no winner"
    return f"{text}, vacuous" if row["vacuous"] else text


def _share_text(row: Row, arm: str) -> str:
    share = row[f"{arm}_worst_missing_share"]
    if share is None:
        return NOTHING
    if row[f"{arm}_feasible"]:
        return f"{share:.2f}"
    return f"{share:.2f} infeasible (layer {row[f'{arm}_worst_layer']})"


def _number(value: float | None, form: str) -> str:
    return NOTHING if value is None else format(value, form)


def _value_text(value: Json) -> str:
    if value is None:
        return NOTHING
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _yes(value: bool | None) -> str:
    return NOTHING if value is None else "yes" if value else "no"


def _listed(values: Sequence[float] | None) -> str | None:
    return None if values is None else " ".join(map(repr, values))


# --- formats --------------------------------------------------------------------------------------


def frame(table: Table) -> pandas.DataFrame:
    """All columns, as a data frame of plain objects."""
    import pandas

    return pandas.DataFrame(table.rows, dtype=object)


def to_csv(table: Table) -> str:
    """Every column in full precision; an empty cell is a value that is not there."""
    return frame(table).to_csv(index=False, lineterminator="\n")


def to_markdown(table: Table) -> str:
    r"""The short form as a GitHub table, with its notes.

    >>> print(to_markdown(Table("t", "Two", [], [("a|b", ["x*"]), ("n", ["1"])], ["a note."])))
    | a\|b | n |
    |---|---|
    | x\* | 1 |
    <BLANKLINE>
    * a note.
    <BLANKLINE>
    """
    lines = [
        _markdown_line([header for header, _ in table.shown]),
        "|" + "---|" * len(table.shown),
        *(_markdown_line(cells) for cells in _cells(table)),
    ]
    notes = [f"* {_markdown(note)}" for note in table.notes]
    return "\n".join([*lines, "", *notes, ""])


def to_latex(table: Table) -> str:
    r"""The short form as a LaTeX table; needs the packages booktabs and graphicx.

    >>> table = Table("t", "T", [], [("s", ["a_b"]), ("d", ["-0.5"])], [])
    >>> print(to_latex(table).splitlines()[9])
    a\_b & $-0.5$ \\
    """
    header = " & ".join(_latex(header) for header, _ in table.shown)
    body = [" & ".join(_latex_cell(cell) for cell in cells) + r" \\" for cells in _cells(table)]
    notes = [rf"\par\footnotesize {_latex(note)}" for note in table.notes]
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{_latex(table.caption)}}}",
            rf"\label{{tab:{table.name}}}",
            r"\resizebox{\linewidth}{!}{%",
            rf"\begin{{tabular}}{{{'l' * min(2, len(table.shown))}{'r' * (len(table.shown) - 2)}}}",
            r"\toprule",
            rf"{header} \\",
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}}",
            *notes,
            r"\end{table}",
            "",
        ]
    )


def _cells(table: Table) -> list[tuple[str, ...]]:
    return list(zip(*(cells for _, cells in table.shown), strict=True))


def _markdown_line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(map(_markdown, cells)) + " |"


def _markdown(text: str) -> str:
    for character in "\\|*<":
        text = text.replace(character, "\\" + character)
    return text.replace("\n", " ")


_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",
    "—": "---",
    "\n": " ",
}


def _latex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)


def _latex_cell(text: str) -> str:
    """A number in math mode, so that its minus is one."""
    try:
        float(text)
    except ValueError:
        return _latex(text)
    return f"${text}$"
