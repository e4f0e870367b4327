"""Table of hyperparameters, arranged as the paper's Tables 1, 2 and 5. Pure.

A block is a data set and a model; below it stands a row for every depth and train gamma, with a
column for every value that the paper reports or this sweep searched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from search_spaces.paper import text, video
from search_spaces.paper.published import model_of
from search_spaces.space import SearchSpace
from sweep.glossary import in_brief
from sweep.render.table import NOTHING, Row, Table, number
from sweep.results.names import model_text
from sweep.results.summary import SettingSummary
from sweep.results.tables.columns import config_of, seeds_text
from sweep.results.tables.hyperparameters import column_of, reference_loss, scales_of, value_texts
from sweep.results.tables.paper_results import (
    HERE,
    PAPER,
    SEARCH_MARKS,
    mark_notes,
    marks_of,
    own_names,
)
from trainables.config.arm import ArmConfig
from trainables.primal_dual.constraints import Scales

F0 = "constraint.reference_loss"
_HEADERS = {  # field: header; the first four are the paper's
    "constraint.alpha": "alpha",
    F0: "f0",
    "constraint.dual_lr": "dual lr",
    "constraint.resilience": "resilience",
}
_COLUMNS = {F0: "reference_loss_absolute"}


@dataclass(frozen=True)
class Trained:
    """Hyperparameters of a setting's constrained arm."""

    setting: str
    config: ArmConfig
    scales: Scales | None = None  # turn f0 into the task's unit; None: nothing is measured
    marks: str = ""  # as of ``marks_of``
    is_there: bool = True  # else nothing was trained: no value is shown

    @property
    def block(self) -> tuple[str, str]:
        """The data set and the model."""
        return self.config.data.name, model_text(self.config.model.name, self.config.model.variant)


def trained_pairs(space: SearchSpace, summaries: Sequence[SettingSummary]) -> list[Trained]:
    """The winner or the closest pair of every setting."""
    return [
        Trained(
            one.setting,
            config_of(space, one),
            scales_of(one.constrained),
            marks_of(one) if one.constrained else "",
            is_there=one.constrained is not None,
        )
        for one in summaries
    ]


def paper_hyperparameters_table(
    space: SearchSpace, trained: Sequence[Trained], *, beside_paper: bool = False
) -> Table:
    """Hyperparameters of every setting; on request the published values end each block.

    Args:
        space: the sweep's, or that of a confirmation.
        trained: a setting each.
        beside_paper: with the values of Tables 1 and 2.
    """
    own = (setting.ranges for setting in space.settings)
    searched = [*dict.fromkeys(name for ranges in (space.ranges, *own) for name in ranges)]
    fields = [*_HEADERS, *(name for name in searched if name not in _HEADERS)]
    rows: list[Row] = []
    for block in dict.fromkeys(one.block for one in trained):
        inside = [one for one in trained if one.block == block]
        rows += [_row(one, fields) for one in inside]
        rows += _published_rows(inside[0], fields) if beside_paper else []
    called = own_names({one.setting: one.config for one in trained})
    labels = {
        "L": [str(row["layers"] or NOTHING) for row in rows],
        "gamma": [number(row["train_gamma"], ".2f") for row in rows],
        "setting": [called.get(row["setting"], "") for row in rows],
        "numbers": [row["numbers"] for row in rows],
    }
    labels = {h: cells for h, cells in labels.items() if h in ("L", "gamma") or len({*cells}) > 1}
    shown = [
        ("data set", [row["data"] for row in rows]),
        ("model", [model_text(row["model"], row["model_variant"]) for row in rows]),
        *labels.items(),
        *((header_of(name), _texts(rows, name)) for name in fields),
    ]
    notes = [
        f"L: layers; gamma: train gamma; {in_brief('alpha', 'f0')}, in the task's own unit.",
        f"searched: {', '.join(map(header_of, searched)) or 'nothing'}; {seeds_text(space)}.",
        *mark_notes([one.marks for one in trained], SEARCH_MARKS),
        *(_published_notes(trained) if beside_paper else ()),
    ]
    caption = "Hyperparameters, in the paper's arrangement"
    texts = 2 + len(labels)
    return Table("paper_hyperparameters", caption, rows, shown, notes, texts=texts, headed=2)


def header_of(field: str) -> str:
    """The header of a field of ArmConfig."""
    return _HEADERS.get(field, column_of(field).replace("_", " "))


def _row(one: Trained, fields: Sequence[str]) -> Row:
    config = one.config
    values = {name: config.value_of(name) if one.is_there else None for name in fields}
    values[F0] = reference_loss(config.constraint, one.scales) if one.is_there else None
    return {
        "data": config.data.name,
        "model": config.model.name,
        "model_variant": config.model.variant,
        "layers": config.model.layers,
        "train_gamma": config.train_gamma,
        "setting": one.setting,
        "numbers": HERE,
        "marks": one.marks or None,
        **{_COLUMNS.get(name, column_of(name)): value for name, value in values.items()},
    }


def _texts(rows: Sequence[Row], field: str) -> list[str]:
    """A column; marks stand behind alpha, the value that a constraint is known by."""
    plain = value_texts([row[_COLUMNS.get(field, column_of(field))] for row in rows])
    if field != "constraint.alpha":
        return plain
    return [text + (row["marks"] or "") for text, row in zip(plain, rows, strict=True)]


# --- the published values -------------------------------------------------------------------------


def _best(config: ArmConfig) -> video.BestValues | text.BestValues | None:
    """The paper's values for this model, and on texts for this data set; None: it has none."""
    model = model_of(config)
    if config.facts.reads_texts:
        return text.BEST.get((model, config.data.name))
    return video.BEST.get(model) if config.data.name in video.DATA_SETS else None


def _published_rows(one: Trained, fields: Sequence[str]) -> list[Row]:
    best = _best(one.config)
    if best is None:
        return []
    row = {**_row(one, fields), "setting": None, "numbers": PAPER, "marks": None}
    row |= dict.fromkeys(_COLUMNS.get(name, column_of(name)) for name in fields)
    row |= {"layers": getattr(best, "layers", None), "alpha": best.alpha}
    row |= {"train_gamma": getattr(best, "train_gamma", None)}
    return [row | {_COLUMNS[F0]: best.reference_loss}]


def _published_notes(trained: Sequence[Trained]) -> Iterator[str]:
    """Where published values are from, and in what unit; which blocks have none."""
    firsts = list({one.block: one for one in trained}.values())
    for best in dict.fromkeys(map(_best, (one.config for one in firsts))):
        if isinstance(best, video.BestValues):
            yield (
                f"{PAPER}: {video.VideoComparison.source.split(',')[0]}, Table 1: one search per "
                f"model, for every setting; f0: {best.loss_unit}; what else it prints is lost."
            )
        elif best is not None:
            yield (
                f"{PAPER}: {text.TextComparison.source.split(',')[0]}, Table 2: the best of five "
                "runs; f0 in nats; the powers of ten of the dual lr and resilience are lost."
            )
    missing = [", ".join(one.block) for one in firsts if _best(one.config) is None]
    if missing:
        yield f"not in the paper's tables of hyperparameters: {'; '.join(missing)}."
