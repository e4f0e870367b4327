"""Table of results, arranged as the paper's Tables 3 and 4. Pure.

A row is a model, a depth and a train gamma; data sets stand beside each other, each with its
constrained and its unconstrained number. On request the published numbers stand below ours. The
same arrangement holds a search and a confirmation, which alone sets anything in bold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from search_spaces.paper.comparison import Comparison
from search_spaces.paper.published import not_alike, published
from search_spaces.space import SearchSpace
from sweep.glossary import model_text
from sweep.render.table import NOTHING, Bold, Column, Row, Table, number
from sweep.results.aggregates import ARMS
from sweep.results.summary import SettingSummary
from sweep.results.tables.columns import UNMATCHED, config_of, model_notes, seeds_text
from sweep.results.verdict_text import code_notes, counted_notes
from trainables.config.arm import ArmConfig
from trainables.plain import Json

HERE, PAPER = "here", "paper"  # whose numbers a line has
INFEASIBLE, UNDECIDED, NO_WINNER, NOT_ALIKE = "✗", "?", "°", "‡"
Place = tuple[Json, ...]
_PLACE = ("model", "model_variant", "layers", "train_gamma", "setting", "numbers")


@dataclass(frozen=True)
class Line:
    """One number of each arm of one setting, where the paper's tables have its place."""

    setting: str
    config: ArmConfig
    layers: int
    numbers: str  # whose they are, or over which test gammas: a line of its own
    measure: str  # what they are, for programs
    constrained: float | None
    unconstrained: float | None
    marks: str = ""  # behind the constrained number
    gain: float | None = None  # above 0 the constrained network is better
    low: float | None = None
    high: float | None = None
    outcome: str = ""  # of a confirmation: better, worse, or what is not claimed
    seeds: int | None = None
    codes: Sequence[str] = ()  # that trained its arms


# --- results --------------------------------------------------------------------------------------


def paper_results_table(
    space: SearchSpace, summaries: Sequence[SettingSummary], *, beside_paper: bool = False
) -> Table:
    """Both arms of every setting's winner, or of its closest pair, as Tables 3 and 4 have them."""
    facts = space.base.facts
    of_area = facts.reads_texts
    lines = [_line(space, summary) for summary in summaries]
    what = f"area under {facts.metric.label} over" if of_area else f"mean {facts.metric.label} over"
    notes = [
        f"{what} all test gammas, seen and unseen, mean over {seeds_text(space)}, on "
        f"{space.base.measured_on} {facts.samples}; {facts.metric.direction}. L: layers; gamma: "
        "train gamma.",
        "Nothing is bold: pairs are selected on these data, and only a confirmation on fresh seeds "
        "says better or worse.",
        *mark_notes([one.marks for one in lines if one.constrained is not None], SEARCH_MARKS),
        *counted_notes(summaries),
    ]
    return results_arranged(lines, notes, beside_paper=beside_paper)


def results_arranged(lines: Sequence[Line], notes: Sequence[str], *, beside_paper: bool) -> Table:
    """Lines at their places, those of one setting below each other."""
    unmatched = {line.setting for line in lines if not line.config.matched_capacity}
    every = [*lines, *_published_lines(lines)] if beside_paper else list(lines)
    data_sets = list(dict.fromkeys(line.config.data.name for line in every))
    names = _names(lines)
    places: dict[Place, dict[str, Line]] = {}
    for setting in dict.fromkeys(names.values()):
        for line in (one for one in every if names[one.setting] == setting):
            place = (*setting, line.numbers)
            places.setdefault(place, {})[line.config.data.name] = line
    rows = [_row(place, by_data, data_sets) for place, by_data in places.items()]
    has_gain = any(line.gain is not None for line in every)
    models = [
        model_text(str(place[0]), str(place[1]))
        + UNMATCHED * any(line.setting in unmatched for line in by_data.values())
        for place, by_data in places.items()
    ]
    labels = [
        ("L", [str(place[2] or NOTHING) for place in places]),
        ("gamma", [f"{place[3]:.2f}" for place in places]),
        ("setting", [str(place[4]) for place in places]),
        ("numbers", [str(place[5]) for place in places]),
    ]
    kept = [(head, cells) for head, cells in labels if head in ("L", "gamma") or len({*cells}) > 1]
    shown = [("model", models), *kept]
    for data in data_sets:
        cells = [by_data.get(data) for by_data in places.values()]
        shown += [
            (f"{data}: {column.header}", [column.cell(c) if c else NOTHING for c in cells])
            for column in _COLUMNS[: 4 if has_gain else 2]
        ]
    of_paper = _paper_notes(lines) if beside_paper else []
    configs = [line.config for line in lines]
    of_models = model_notes((c.model.name, c.model.variant, c.matched_capacity) for c in configs)
    notes = [
        *notes,
        *code_notes({line.setting: line.codes for line in lines}),
        *(note for note in of_models if not any(note in other for other in of_paper)),
        *of_paper,
    ]
    caption = "Constrained and unconstrained, in the paper's arrangement"
    return Table("paper_results", caption, rows, shown, notes, texts=1 + len(kept), headed=1)


# What stands below a data set; the last two in a confirmation alone.
_COLUMNS: Sequence[Column[Line]] = (
    Column("constrained", lambda line: _marked(line)),
    Column("unconstrained", lambda line: line.unconstrained, ".3f"),
    Column("gain", lambda line: _gain_text(line)),
    Column("interval", lambda line: _interval_text(line)),
)


def _marked(line: Line) -> str:
    return number(line.constrained, ".3f") + line.marks * (line.constrained is not None)


def _gain_text(line: Line) -> str:
    plain = number(line.gain, "+.3f")
    return Bold(plain) if line.outcome in ("better", "worse") else plain


def _interval_text(line: Line) -> str:
    if line.low is None or line.high is None:
        return NOTHING
    return f"{line.low:+.3f} to {line.high:+.3f}"


def _row(place: Place, by_data: Mapping[str, Line], data_sets: Sequence[str]) -> Row:
    row: Row = dict(zip(_PLACE, place, strict=True))
    row["measure"] = next(line.measure for line in by_data.values())
    for data in data_sets:
        line = by_data.get(data)
        row |= {f"{data}_{arm}": line and getattr(line, arm) for arm in ARMS}
        row[f"{data}_marks"] = (line and line.marks) or None
        if any(one.outcome for one in by_data.values()):
            columns = ("gain", "low", "high", "outcome", "seeds")
            row |= {f"{data}_{name}": line and getattr(line, name) for name in columns}
    return row


def _names(lines: Sequence[Line]) -> dict[str, Place]:
    """The place of every setting."""
    places = {one.setting: place_of(one.config) for one in lines}
    own = own_names({one.setting: one.config for one in lines})
    return {name: (*place[1:], own[name]) for name, place in places.items()}


def place_of(config: ArmConfig) -> Place:
    """Where the paper's tables have a configuration: data set, model, depth, train gamma."""
    model = config.model
    return config.data.name, model.name, model.variant, model.layers, config.train_gamma


def own_names(configs: Mapping[str, ArmConfig]) -> dict[str, str]:
    """Short names of settings that share a place; '' where a setting is alone.

    >>> own_names({"imdb-ut-L3-g0": ArmConfig(), "imdb-ut-L3-g0-detached": ArmConfig()})
    {'imdb-ut-L3-g0': '', 'imdb-ut-L3-g0-detached': 'detached'}
    """
    shared: dict[Place, list[str]] = {}
    for name, config in configs.items():
        shared.setdefault(place_of(config), []).append(name)
    own_by_setting = dict.fromkeys(configs, "")
    for names in (several for several in shared.values() if len(several) > 1):
        words = [name.split("-") for name in names]
        common = set(words[0]).intersection(*words)
        own = ["-".join(word for word in name if word not in common) for name in words]
        own_by_setting |= zip(names, own if len({*own}) == len(own) else names, strict=True)
    return own_by_setting


def _line(space: SearchSpace, summary: SettingSummary) -> Line:
    ours, plain = (summary.arm(arm) for arm in ARMS)
    config = config_of(space, summary)
    is_area = paper_measure(config) == "ood_auc"
    return Line(
        setting=summary.setting,
        config=config,
        layers=config.model.layers,
        numbers=HERE,
        measure="ood_auc" if is_area else f"mean_{config.facts.metric.key}",
        constrained=ours.ood_auc if is_area else ours.mean_over_gammas,
        unconstrained=plain.ood_auc if is_area else plain.mean_over_gammas,
        marks=marks_of(summary),
        codes=summary.codes,
    )


def paper_measure(config: ArmConfig) -> str:
    """The measure in the paper's tables: for texts the area, else the mean."""
    return "ood_auc" if config.facts.reads_texts else "mean_over_gammas"


def marks_of(summary: SettingSummary) -> str:
    """Behind a number of the constrained arm: what keeps it from being a feasible winner's."""
    ours = summary.arm("constrained")
    if not ours.feasible:
        return INFEASIBLE
    return UNDECIDED * (ours.certificate != "feasible") + NO_WINNER * (not summary.winner)


SEARCH_MARKS = {
    INFEASIBLE: "infeasible: no proposal met the constraint, this is the closest",
    UNDECIDED: "feasible by its mean, but other held-out units could turn the verdict",
    NO_WINNER: "feasible and no winner: not binding, no better than trivial predictors, or asking "
    "for too little descent",
}


def mark_notes(marks: Sequence[str], legend: Mapping[str, str]) -> list[str]:
    """The meaning of the marks that are used."""
    used = [f"{mark} {meaning}" for mark, meaning in legend.items() if mark in "".join(marks)]
    return [f"{'; '.join(used)}."] if used else []


# --- the published numbers ------------------------------------------------------------------------


def _published_lines(lines: Sequence[Line]) -> list[Line]:
    """Below the settings that the paper has, too: its numbers, marked where the two differ."""
    return [
        Line(
            line.setting,
            line.config,
            line.layers,
            PAPER,
            one.key,
            one.constrained,
            one.unconstrained,
            marks=NOT_ALIKE if not_alike(line.config, one) else "",
        )
        for line, one in _compared(lines)
    ]


def _paper_notes(lines: Sequence[Line]) -> list[str]:
    """Where published numbers are from, and what is not alike, each once with its settings."""
    compared = _compared(lines)
    sources = {one.source: one.measure for _, one in compared}
    why: dict[str, list[str]] = {}
    for line, one in compared:
        for reason in not_alike(line.config, one):
            why.setdefault(reason, []).append(line.setting)
    where = {
        reason: "everywhere" if len(names) == len(compared) else ", ".join(names)
        for reason, names in why.items()
    }
    missing = {line.setting: None for line in lines if published(line.config) is None}
    return [
        *(
            f"{PAPER}: {source}, {measure}, on its own test split, noise and unknown seeds."
            for source, measure in sources.items()
        ),
        *(f"{NOT_ALIKE} {names}: {reason}." for reason, names in where.items()),
        *([f"not in the paper: {', '.join(missing)}."] if missing else []),
    ]


def _compared(lines: Sequence[Line]) -> list[tuple[Line, Comparison]]:
    """A line of each setting that the paper has, too, and what it prints."""
    firsts = {line.setting: line for line in reversed(lines)}
    pairs = [(line, published(line.config)) for line in reversed(firsts.values())]
    return [(line, one) for line, one in pairs if one is not None]
