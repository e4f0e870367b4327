"""Start points of a search: listed points that its user gives.

A point is given as values of fields, or as a run whose values of the searched fields are taken.
What is searched and not given comes from the setting's default point; of a resilience whose range
is stated on its decay, the decay does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from search_spaces.ranges import Choice, LogDecay, ends_of, into
from search_spaces.settings import require_own
from search_spaces.space import SearchSpace, Setting
from trainables.config.arm import ArmConfig
from trainables.errors import InvalidValue, Misuse
from trainables.plain import Json

Given = Mapping[str, Json] | ArmConfig
EVERY = ""  # in the place of a setting's name


@dataclass(frozen=True)
class Start:
    """What one option says: of settings by name, or of EVERY one."""

    source: str  # as it was given
    points: Mapping[str, Given]


def with_start_points(
    space: SearchSpace, starts: Sequence[Start], *, say: Callable[[str], None]
) -> SearchSpace:
    """The space whose settings list these points, each once, before those that they list already.

    Args:
        space: what is to be searched.
        starts: points, in their order; a start without one for a setting leaves it as it is.
        say: told of points that lie outside of the ranges.

    Raises:
        UnknownName: there is no such field.
        InvalidValue: a value is not allowed, or the arms of a setting must share it.
        Misuse: a start has a point for none of the settings.
    """
    settings = [s.name for s in space.settings]
    for start in starts:
        if EVERY not in start.points and not set(settings) & start.points.keys():
            raise Misuse(
                f"--start-from {start.source} has winners of {_listed(start.points)}, and "
                f"{space.name} has the settings {_listed(settings)}: none is the same. Name one "
                f"for all of them: --start-from {start.source}:{next(iter(start.points))}."
            )
    return replace(space, settings=tuple(_started(space, s, starts, say) for s in space.settings))


def _started(
    space: SearchSpace, setting: Setting, starts: Sequence[Start], say: Callable[[str], None]
) -> Setting:
    found = (start.points.get(setting.name, start.points.get(EVERY)) for start in starts)
    points: list[dict[str, Json]] = []
    for given in found:
        point = None if given is None else point_of(space, setting, given)
        if point is not None and point not in points:
            points.append(point)
    names = (f"start-{number}" for number in range(len(setting.points) + len(points)))
    free = (name for name in names if name not in setting.points)
    named = dict(zip(free, points, strict=False))
    for name, point in named.items():
        if space.ranges and (where := list(outside(space, setting, point))):
            say(
                f"{name} of {setting.name} lies outside of what is searched: {'; '.join(where)}. "
                "It is trained, and the search learns nothing from it."
            )
    return replace(setting, points={**named, **setting.points})


def point_of(space: SearchSpace, setting: Setting, given: Given) -> dict[str, Json]:
    """The whole point: a value of every searched field, and of what else is given."""
    ranges = space.ranges_of(setting)
    if isinstance(given, ArmConfig):
        if not ranges:
            raise Misuse(f"{space.name} searches no field, so it can start from no other run.")
        return {name: given.value_of(name) for name in ranges}
    for name in given:
        require_own(name, "a start point")
    space.run(setting, given, seed=space.search_seeds[0])  # refused before it is reckoned with
    plain = {n: v for n, v in given.items() if not isinstance(ranges.get(n), LogDecay | None)}
    coordinates = space.coordinates_of(setting, space.default_point(setting))
    return {**space.point_of(setting, {**coordinates, **plain}), **given}


def outside(space: SearchSpace, setting: Setting, point: Mapping[str, Json]) -> Iterator[str]:
    """What of a point no search of the setting comes to, in words."""
    ranges = space.ranges_of(setting)
    for name, value in point.items():
        values = ranges.get(name)
        if values is None:
            yield f"{name} is not searched"
        elif not isinstance(values, LogDecay) and into(values, value) != value:
            ends = " or ".join if isinstance(values, Choice) else " to ".join
            yield f"{name} is {value}, searched is {ends(map(str, ends_of(values)))}"


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


def _listed(values: Iterable[str]) -> str:
    shown = list(values)
    return ", ".join(shown[:6]) + f" and {len(shown) - 6} more" * (len(shown) > 6)
