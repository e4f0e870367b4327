"""Start points of a search: listed points that its user gives.

A point is given as values of fields, or as a run whose values of the searched fields are taken.
What is searched and not given comes from the setting's default point. Of a field whose range is
stated on its effect, the effect comes from there, or from the run that is taken.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from search_spaces.effects.by_effect import EFFECT, effect_of, is_within, moved, stated
from search_spaces.ranges import Choice, Range, ends_of
from search_spaces.settings import require_own
from search_spaces.space import SearchSpace, Setting
from trainables.config.arm import ArmConfig
from trainables.errors import InvalidValue, Misuse, list_first
from trainables.plain import Json

Given = Mapping[str, Json] | ArmConfig
EVERY = ""  # in the place of a setting's name


@dataclass(frozen=True)
class Start:
    """Start points that one option gives, by name of setting, or for EVERY one."""

    source: str  # as it was given
    points: Mapping[str, Given]


def with_start_points(
    space: SearchSpace, starts: Sequence[Start], *, say: Callable[[str], None]
) -> SearchSpace:
    """The space whose settings list these points, each once, before those that they list already.

    Args:
        space: what is to be searched.
        starts: points, in their order; a start without one for a setting leaves it as it is.
        say: gets a sentence for each point that lies outside the ranges.

    Raises:
        UnknownName: there is no such field.
        InvalidValue: a value is not allowed, or the arms of a setting must share it.
        Misuse: a start has a point for none of the settings.
    """
    names = [s.name for s in space.settings]
    for start in starts:
        if EVERY not in start.points and not set(names) & start.points.keys():
            raise Misuse(
                f"--start-from {start.source} has winners of {list_first(start.points, 6)}, and "
                f"{space.name} has the settings {list_first(names, 6)}: none is the same. Name one "
                f"for all of them: --start-from {start.source}:{next(iter(start.points))}."
            )
    settings = tuple(_started(space, setting, starts) for setting in space.settings)
    started = replace(space, settings=settings)  # which refuses a point that is no run
    for before, setting in zip(space.settings, settings if space.ranges else (), strict=False):
        for name, point in setting.points.items():
            if name not in before.points and (where := list(outside(space, setting, point))):
                say(
                    f"{name} of {setting.name} lies outside of what is searched: "
                    f"{'; '.join(where)}. It is trained, and the search learns nothing from it."
                )
    return started


def _started(space: SearchSpace, setting: Setting, starts: Sequence[Start]) -> Setting:
    given_points = (start.points.get(setting.name, start.points.get(EVERY)) for start in starts)
    points: list[dict[str, Json]] = []
    for given in given_points:
        point = None if given is None else point_of(space, setting, given)
        if point is not None and point not in points:
            points.append(point)
    names = (f"start-{number}" for number in range(len(setting.points) + len(points)))
    free = (name for name in names if name not in setting.points)
    named = dict(zip(free, points, strict=False))
    return replace(setting, points={**named, **setting.points})


def point_of(space: SearchSpace, setting: Setting, given: Given) -> dict[str, Json]:
    """The complete point: a value of every searched field, and of what else is given."""
    ranges = space.ranges_of(setting)
    if isinstance(given, ArmConfig):
        if not ranges:
            raise Misuse(f"{space.name} searches no field, so it can start from no other run.")
        return _taken(space, setting, ranges, given)
    for name in given:
        require_own(name, "a start point")
    first = space.coordinates_of(setting, space.default_point(setting))
    return space.point_of(setting, first, given)


def _taken(
    space: SearchSpace, setting: Setting, ranges: Mapping[str, Range], run: ArmConfig
) -> dict[str, Json]:
    """The values of the searched fields that do here what those of a run do there.

    Where nobody can count what they do there, the values stay.
    """
    point = {name: run.value_of(name) for name in ranges}
    for name in stated(ranges):
        with suppress(InvalidValue):
            effect = effect_of(run, name, point[name])
            point[name] = moved(space.effect_run(setting, point), name, point[name], effect)
    return point


def outside(space: SearchSpace, setting: Setting, point: Mapping[str, Json]) -> Iterator[str]:
    """Phrases for the values of a point that no search of the setting can reach."""
    ranges, run = space.ranges_of(setting), space.effect_run(setting, point)
    for name, value in point.items():
        values = ranges.get(name)
        if values is None:
            yield f"{name} is not searched"
        elif not is_within(run, name, value, values):
            between = " or " if isinstance(values, Choice) else " to "
            is_now, searched = str(value), between.join(map(str, ends_of(values)))
            if stated({name: values}):
                searched = f"a {EFFECT[name]} of {searched}"
                with suppress(InvalidValue):  # an effect that cannot be counted is left out
                    effect = effect_of(run, name, value)
                    is_now = f"{value} ({EFFECT[name]} {effect:.3g})"
            yield f"{name} is {is_now}, searched is {searched}"


def parse_point(text: str) -> dict[str, Json]:
    """``--point field=value,field=value``; values are JSON, else plain text.

    >>> parse_point("constraint.alpha=0.2,constraint.resilience_form=slack,shifts=[1,2]")
    {'constraint.alpha': 0.2, 'constraint.resilience_form': 'slack', 'shifts': [1, 2]}
    """
    point: dict[str, Json] = {}
    for part in re.split(r",\s*(?=[A-Za-z_][\w.]*=)", text):
        name, equals, value = part.partition("=")
        if not equals or not name or name in point:
            raise InvalidValue(
                f"--point must be field=value,field=value with each field once, got {text!r}."
            )
        try:
            point[name] = json.loads(value)
        except ValueError:
            point[name] = value
    return point
