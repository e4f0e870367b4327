"""Table of hyperparameters, arranged as the paper's Tables 1, 2 and 5. Pure.

A block is a data set and a model; below it stands a row for every depth and train gamma, with a
column for every value that the paper reports or this sweep searched.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from search_spaces.paper import text, video
from search_spaces.paper.spaces import model_of
from search_spaces.space import SearchSpace
from sweep.glossary import brief, model_text
from sweep.render.table import NOTHING, Column, Table, rows_of, shown_of
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
from trainables.plain import Json
from trainables.primal_dual.constraints import Scales

ALPHA, F0 = "constraint.alpha", "constraint.reference_loss"
_HEADERS = {  # field: header; the first four are the paper's
    ALPHA: "alpha",
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


@dataclass(frozen=True)
class Line:
    """A line of the table: the values of a setting's constrained arm, or the published ones."""

    data: str
    model: str
    variant: str
    layers: int | None
    train_gamma: float | None
    setting: str | None  # None: published
    numbers: str  # whose they are
    marks: str
    values: Mapping[str, Json]  # by field


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
    lines: list[Line] = []
    for block in dict.fromkeys(one.block for one in trained):
        inside = [one for one in trained if one.block == block]
        lines += [_line(one, fields) for one in inside]
        lines += _published_lines(inside[0], fields) if beside_paper else []
    called = own_names({one.setting: one.config for one in trained})
    names = [called.get(line.setting or "", "") for line in lines]
    columns: list[Column[Line]] = [
        Column("data set", lambda line: line.data, name="data"),
        Column("model", lambda line: model_text(line.model, line.variant), name=""),
        Column("", lambda line: line.model, name="model"),
        Column("", lambda line: line.variant, name="model_variant"),
        Column("L", lambda line: line.layers, lambda layers: str(layers or NOTHING), name="layers"),
        Column("gamma", lambda line: line.train_gamma, ".2f", name="train_gamma"),
        Column("", lambda line: line.setting, name="setting"),
        Column(
            "setting" * (len({*names}) > 1),
            lambda line: called.get(line.setting or "", ""),
            name="",
        ),
        Column(
            "numbers" * (len({line.numbers for line in lines}) > 1),
            lambda line: line.numbers,
            name="numbers",
        ),
        Column("", lambda line: line.marks or None, name="marks"),
        *(column for field in fields for column in _value_columns(field, lines)),
    ]
    rows, shown = rows_of(columns, lines), shown_of(columns, lines)
    notes = [
        f"L: layers; gamma: train gamma; {brief('alpha', 'f0')}, in the task's own unit.",
        f"searched: {', '.join(map(header_of, searched)) or 'nothing'}; {seeds_text(space)}.",
        *mark_notes([one.marks for one in trained], SEARCH_MARKS),
        *(_published_notes(trained) if beside_paper else ()),
    ]
    caption = "Hyperparameters, in the paper's arrangement"
    texts = len(shown) - len(fields)
    return Table("paper_hyperparameters", caption, rows, shown, notes, texts=texts, headed=2)


def header_of(field: str) -> str:
    """The header of a field of ArmConfig."""
    return _HEADERS.get(field, column_of(field).replace("_", " "))


def _line(one: Trained, fields: Sequence[str]) -> Line:
    config = one.config
    values = {name: config.value_of(name) if one.is_there else None for name in fields}
    values[F0] = reference_loss(config.constraint, one.scales) if one.is_there else None
    return Line(
        data=config.data.name,
        model=config.model.name,
        variant=config.model.variant,
        layers=config.model.layers,
        train_gamma=config.train_gamma,
        setting=one.setting,
        numbers=HERE,
        marks=one.marks,
        values=values,
    )


def _value_columns(field: str, lines: Sequence[Line]) -> Iterator[Column[Line]]:
    """A field in CSV and in the short form, where marks stand behind alpha."""
    values = [line.values[field] for line in lines]
    texts = dict(zip(values, value_texts(values), strict=True))
    is_marked = field == ALPHA
    yield Column("", lambda line: line.values[field], name=_COLUMNS.get(field, column_of(field)))
    yield Column(
        header_of(field), lambda line: texts[line.values[field]] + line.marks * is_marked, name=""
    )


# --- the published values -------------------------------------------------------------------------


def _best(config: ArmConfig) -> video.BestValues | text.BestValues | None:
    """The paper's values for this model, and on texts for this data set; None: it has none."""
    model = model_of(config)
    if config.facts.reads_texts:
        return text.BEST.get((model, config.data.name))
    return video.BEST.get(model) if config.data.name in video.DATA_SETS else None


def _published_lines(one: Trained, fields: Sequence[str]) -> list[Line]:
    best = _best(one.config)
    if best is None:
        return []
    values = {**dict.fromkeys(fields), ALPHA: best.alpha, F0: best.reference_loss}
    layers, gamma = getattr(best, "layers", None), getattr(best, "train_gamma", None)
    line = replace(_line(one, fields), setting=None, numbers=PAPER, marks="", values=values)
    return [replace(line, layers=layers, train_gamma=gamma)]


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
