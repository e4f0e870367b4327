"""The verb `sweep spaces`: settings, ranges, arms after sharing, estimated cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click
from rich.markup import escape

from search_spaces import catalog
from search_spaces.effects.idle import idle_ranges
from search_spaces.effects.passes import passes, passes_text
from search_spaces.paper import text as paper_text
from search_spaces.paper import video as paper_video
from search_spaces.paper.departures import departures
from search_spaces.paper.published import protocol
from search_spaces.paper.spaces import twin
from search_spaces.space import Choice, LogDecay, LogReach, Range, SearchSpace, Setting
from sweep.cli.options import complete_spaces, console, json_option, print_json
from sweep.cli.sweep_options import SpaceOptions, collected
from sweep.glossary import model_text
from sweep.render.table import NOTHING
from sweep.render.terminal import table
from sweep.study.advice import counted
from trainables.errors import Misuse, list_first
from trainables.plain import Json
from trainables.registry.built_in import MODELS

if TYPE_CHECKING:
    from sweep.cost.estimate import Estimate

# What the paper reports, by the name of the setting.
COMPARISONS = {c.setting: c for c in (*paper_video.COMPARISONS, *paper_text.COMPARISONS)}


@click.command()
@click.argument("name", metavar="[NAME]", required=False, shell_complete=complete_spaces)
@collected(options=SpaceOptions)
@click.option("--gpu", metavar="GPU", help="Estimate the cost on this GPU (h100), not on this CPU.")
@json_option
def spaces(
    name: str | None,
    options: SpaceOptions,
    gpu: str | None,
    as_json: bool,
) -> None:
    """List search spaces, or show one: settings, ranges, arms, cost.

    NAME is a built-in space, a .py or .json file, or an exported configuration. The cost is an
    estimate, from timing a few steps of each network size on this CPU, or from counted operations
    for a GPU.
    """
    if name is None:
        if options or gpu:
            raise Misuse("--set, --only, --full and --gpu apply to one space: give NAME.")
        _list(as_json)
        return
    space = options.space_of(name)
    cost, why_none = estimated(space, gpu)
    if as_json:
        print_json(
            {
                **space.to_json(),
                "arms": catalog.arm_count(space),
                "unconstrained_arms": len(catalog.unconstrained_arms(space)),
                "warnings": idle_ranges(space),
                "first_proposals": {
                    s.name: space.listed(s, 0) or space.default_point(s) for s in space.settings
                },
                "passes": {
                    s.name: passes(space.base.with_fields(s.fields)) for s in space.settings
                },
                "published": {s.name: _published(s) for s in space.settings},
                "differs": _unlike(space),
                "estimate": {"not_counted": why_none} if cost is None else cost.to_json(),
            }
        )
        return
    print_space(space)
    print_cost(cost, why_none)
    _print_confirmation(space, cost)


def estimated(space: SearchSpace, gpu: str | None = None) -> tuple[Estimate | None, str]:
    """Estimated cost of a space; or None, and the reason."""
    from sweep.cost.counted_work import NotCounted  # loads torch
    from sweep.cost.estimate import estimate
    from sweep.cost.gpus import gpu_called

    try:
        return estimate(space, None if gpu is None else gpu_called(gpu) or gpu.lower()), ""
    except NotCounted as error:
        return None, str(error)


def _list(as_json: bool) -> None:
    spaces = [catalog.find(name).space for name in catalog.space_names()]
    entries: list[dict[str, Json]] = [
        {
            "name": space.name,
            "summary": space.summary,
            "settings": len(space.settings),
            "proposals": space.n_proposals,
            "seeds": len(space.search_seeds),
            "arms": catalog.arm_count(space),
        }
        for space in spaces
    ]
    if as_json:
        print_json(entries)
        return
    rows = [{key: str(value) for key, value in entry.items()} for entry in entries]
    numbers = ("settings", "proposals", "seeds", "arms")
    console().print(table(rows, right=numbers, unbroken=("name",), below="summary"))


def _published(setting: Setting) -> dict[str, Json] | None:
    paper = COMPARISONS.get(setting.name)
    if paper is None:
        return None
    return {
        "source": paper.source,
        paper.key: {"constrained": paper.constrained, "unconstrained": paper.unconstrained},
        "doubts": list(paper.doubts),
    }


def print_space(space: SearchSpace) -> None:
    """Print settings, ranges and arms of a space, and where it differs from the paper's."""
    out = console()
    seeds = ", ".join(map(str, space.search_seeds))
    plain = len(catalog.unconstrained_arms(space))
    constrained = catalog.arm_count(space) - plain
    out.print(f"[bold]{space.name}[/bold]: {escape(space.summary)}")
    numbers = set(map(space.proposals_of, space.settings))
    most = "up to " * (len(numbers) > 1) + counted(max(numbers), "proposal")
    out.print(
        f"{counted(len(space.settings), 'setting')} x {most} by {space.sampler}, "
        f"{space.phase} seeds {seeds}: {constrained} constrained and {plain} unconstrained arms "
        f"(shared ones are trained once) of {_steps(space)} steps."
    )
    out.print(escape(passes_text(space)))
    for line in _models(space):
        out.print(escape(line))
    out.print()
    compared = [COMPARISONS[s.name] for s in space.settings if s.name in COMPARISONS]
    rows = [
        {
            "setting": s.name,
            "also sets": _also_sets(s) or NOTHING,
            "proposals": str(space.proposals_of(s)),
            **({"published": _published_text(s.name)} if compared else {}),
        }
        for s in space.settings
    ]
    out.print(table(rows, right=("proposals",), unbroken=("setting", "published")))
    if compared:
        out.print(
            f"published: {compared[0].measure} of the constrained and the unconstrained model in "
            f"{compared[0].source}; ! is doubtful, for reasons that --json has."
            + " !! certainly or probably requires more descent than can exist."
            * any(paper.asks_too_much for paper in compared)
        )
    for line in _unlike(space):
        out.print(escape(line))
    points = [
        {"setting": setting.name, "point": name, "sets": _listed(values) or NOTHING}
        for setting in space.settings
        for name, values in setting.points.items()
    ]
    if points:
        out.print()
        out.print(table(points, unbroken=("setting", "point")))
    if space.ranges:
        out.print()
        ranges = [
            (name, text, where, _first_text(space, name, settings))
            for name in space.ranges
            for text, where, settings in _ranges_by_setting(space, name)
        ]
        differ = any(where for _, _, where, _ in ranges)
        rows = [
            {"searched": name, "range": text, **({"in": where} if differ else {}), "first": first}
            for name, text, where, first in ranges
        ]
        out.print(table(rows, right=("first",), unbroken=("searched",)))
        if any("(" in first for _, _, _, first in ranges):
            out.print("first: in the unit of the range; in brackets, the value that a run gets.")
        for warning in idle_ranges(space):
            out.print(f"[yellow]![/yellow] {escape(warning)}")


def _unlike(space: SearchSpace) -> list[str]:
    """The paper's own space of these models, and how the first proposals differ from it.

    Of a built-in space: a file of one's own does not claim to be the paper's.
    """
    if space.name not in catalog.space_names():
        return []
    settings: dict[str, list[str]] = {}  # by departure
    twins: dict[str, None] = {}
    for setting in space.settings:
        point = space.listed(setting, 0) or space.default_point(setting)
        run = space.run(setting, point, seed=space.search_seeds[0])
        reasons = departures(run) if run.model.name in MODELS else ()
        for reason in (*reasons, *(protocol(run),) * (setting.name in COMPARISONS)):
            settings.setdefault(reason, []).append(setting.name)
        twins |= dict.fromkeys({twin(run)} - {"", space.name})
    count = len(space.settings)
    return [
        *[f"These models as the paper describes them: {', '.join(twins)}."] * bool(twins),
        *(
            f"differs: {reason}." + f" In {list_first(names, 1)}." * (len(names) < count)
            for reason, names in settings.items()
        ),
    ]


def _ranges_by_setting(space: SearchSpace, name: str) -> list[tuple[str, str, Sequence[Setting]]]:
    """Ranges of a searched field, each with its settings; '' in their place where all share it."""
    searched: dict[str, list[Setting]] = {}
    for setting in space.settings:
        searched.setdefault(_range_text(space.ranges_of(setting)[name]), []).append(setting)
    return [
        (text, list_first([s.name for s in settings], 1) if len(searched) > 1 else "", settings)
        for text, settings in searched.items()
    ]


def _models(space: SearchSpace) -> list[str]:
    """Models and variants that are trained, and where they depart from the paper's."""
    runs = [space.run(setting, {}, seed=space.search_seeds[0]) for setting in space.settings]
    models = dict.fromkeys((run.model.name, run.model.variant) for run in runs)
    departures = paper_video.DEPARTURES
    return [
        f"model: {model_text(*model)}" + (f". {departures[model]}." if model in departures else "")
        for model in models
    ]


def _steps(space: SearchSpace) -> str:
    steps = sorted({space.base.with_fields(s.fields).steps for s in space.settings})
    return f"{steps[0]}" if len(steps) == 1 else f"{steps[0]} to {steps[-1]}"


def _listed(fields: Mapping[str, Json]) -> str:
    return ", ".join(
        f"{name.removeprefix('constraint.')}={value}" for name, value in fields.items()
    )


def _published_text(setting: str) -> str:
    """Both models' values, marked where there are doubts."""
    paper = COMPARISONS.get(setting)
    if paper is None:
        return NOTHING
    mark = " !!" if paper.asks_too_much else " !" if paper.doubts else ""
    return f"{paper.constrained:.3f} {paper.unconstrained:.3f}{mark}"


def _also_sets(setting: Setting) -> str:
    """Fields of a setting that are not part of its name."""
    fields = {name.removeprefix("constraint."): value for name, value in setting.fields.items()}
    words = setting.name.split("-")
    as_words = {
        "data.name": fields.get("data.name"),
        "model.layers": f"L{fields.get('model.layers')}",
        "train_gamma": f"g{fields.get('train_gamma', -1):g}",
    }
    named = {name for name, word in as_words.items() if word in words}
    if {"data.name", "train_gamma"} <= named:
        named |= {"model.name"} if len(words) > 2 else set()
        fields = {name: value for name, value in fields.items() if name not in named}
    return _listed(fields)


def _range_text(values: Range) -> str:
    if isinstance(values, Choice):
        return "one of " + ", ".join(map(str, values.values))
    kind = "log" if values.is_log else "uniform"
    effects: dict[type[Range], str] = {LogReach: "reach", LogDecay: "decay"}
    if type(values) in effects:
        kind += f", {effects[type(values)]} over the run"
    return f"{values.low:g} to {values.high:g}, {kind}"


def _first_text(space: SearchSpace, name: str, settings: Sequence[Setting]) -> str:
    """The first proposals' value; from the lowest to the highest where settings differ.

    If an effect is searched, its value, and in brackets that of the field which causes it.
    """
    points = {s.name: space.default_point(s) for s in settings}
    value = _span([point[name] for point in points.values()])
    effect = _span([space.coordinates_of(s, points[s.name])[name] for s in settings])
    return value if effect == value else f"{effect} ({value})"


def _span(values: Sequence[Json]) -> str:
    """The one value, or from the lowest to the highest.

    >>> _span([2000, 500]), _span([0.09912, 0.09912]), _span(["a", "b"])
    ('500 to 2000', '0.0991', 'a, b')
    """
    if not all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
        return ", ".join(dict.fromkeys(map(str, values)))
    low, high = (
        f"{value:g}" if isinstance(value, int) or value >= 100 else f"{value:.3g}"
        for value in (min(values), max(values))
    )
    return low if low == high else f"{low} to {high}"


def print_cost(cost: Estimate | None, why_none: str) -> None:
    """Print what ``estimated`` returned."""
    out = console()
    out.print()
    if cost is None:
        out.print(f"[yellow]No estimate[/yellow]: {escape(why_none)}.")
        return
    out.print(
        f"[bold]Estimate, within a factor of 2[/bold]: {hours_text(cost.device_hours)} of "
        f"{escape(cost.device)}, {hours_text(cost.wall_hours)} with "
        f"{counted(cost.workers, 'arm')} at a time; {cost.memory_gb:.1f} GB an arm."
    )
    if cost.memory_gb > cost.device_gb:
        out.print(
            f"[yellow]![/yellow] {cost.device} has {cost.device_gb:g} GB, too few for such an arm: "
            "choose a larger GPU, or train less of it at once (model.recompute, model.lora_rank, a "
            "larger accumulate, dtype=bfloat16, or --processes)."
        )
    out.print(f"Based on: {escape(cost.assumption)}.")
    rows: dict[tuple[str, str], list[str]] = {}
    for name, (plain, constrained) in cost.seconds_per_arm.items():
        rows.setdefault((_seconds(plain), _seconds(constrained)), []).append(name)
    shown = [
        {
            "an arm of": list_first(names, 1),
            "unconstrained": plain,
            "constrained": constrained,
        }
        for (plain, constrained), names in rows.items()
    ]
    out.print(table(shown, right=("unconstrained", "constrained")))


def _print_confirmation(space: SearchSpace, cost: Estimate | None) -> None:
    """Print power and cost of confirming a winner of every setting."""
    from sweep.cli.text.power import power_text  # scipy
    from sweep.confirmation.plan import SEEDS, families, family_of
    from sweep.statistics.design import Design

    runs = {setting.name: space.run(setting, {}, seed=0) for setting in space.settings}
    of_settings = families({name: family_of(run) for name, run in runs.items()})
    out = console()
    price = (
        "" if cost is None else f", {hours_text(cost.confirmation_hours(SEEDS))} at {SEEDS} seeds"
    )
    out.print(f"\n[bold]`sweep confirm` on fresh seeds[/bold] of a winner in each setting{price}.")
    out.print(power_text(Design.planned(of_settings, SEEDS), (5, SEEDS, 20)))


def hours_text(hours: float) -> str:
    """Minutes, one at least, or from an hour and a half hours.

    >>> hours_text(0.001), hours_text(0.2), hours_text(30)
    ('1 min', '12 min', '30 h')
    """
    return f"{max(60 * hours, 1):.0f} min" if hours < 1.5 else f"{hours:,.0f} h"


def _seconds(seconds: float) -> str:
    if seconds < 180:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:,.0f} min" if seconds < 5400 else hours_text(seconds / 3600)
