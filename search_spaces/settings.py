"""Settings of a search space: fields, ranges of their own, listed points."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Self, cast

from search_spaces.ranges import Range, is_finite, is_whole, range_from_json
from trainables.config.arm import ArmConfig, field_of
from trainables.config.fields import NamedFields, Untyped, check_ruled
from trainables.errors import InvalidValue, require
from trainables.plain import Json, Plain

Points = Mapping[str, Mapping[str, Json]]  # name -> values of fields of ArmConfig, in their order

LONGEST_NAME = 150  # of spaces, settings and points: files' names have at most 255
# What both arms of a pair, and all proposals of a setting, are measured by, or on.
_SHARED = (
    "task", "seed", "device", "train_gamma", "test_gammas", "shifts",
    "eval_windows", "eval_draws", "score_draws", "measured_on",
    "model.name", "model.checkpoint", "model.checkpoint_fingerprint",
)  # fmt: skip


IS_MAPPING = Untyped(lambda value: isinstance(value, Mapping), "a mapping of fields to ranges")
_IS_COUNT = Untyped(
    lambda value: value is None or (is_whole(value) and value >= 1),
    "a whole number from 1 up, or null for as many as the space's",
)
_IS_SHARE = Untyped(
    lambda value: is_finite(value) and 0 <= value < 1, "a fraction of f0 from 0 up and below 1"
)


@dataclass(frozen=True)
class Setting(NamedFields, Plain):
    """One comparison of a results table: what it changes in the space's base run."""

    name: str
    fields: Mapping[str, Json]
    n_proposals: Annotated[int | None, _IS_COUNT] = None  # at most so many of the space's
    # In the place of the space's.
    ranges: Annotated[Mapping[str, Range], IS_MAPPING] = field(default_factory=dict)
    # The fraction of f0 that a winner must be asked to remove, all layers together; see
    # ``constraints.demanded_descent``. 0: whatever it asks for.
    least_descent: Annotated[float, _IS_SHARE] = 0.0
    # Proposals that are given, by name, before any that are searched: each what it changes in the
    # setting's run. A point may set fields of the primal run, too; the baseline stays that of the
    # setting.
    points: Points = field(default_factory=dict)

    def fixes(self, name: str) -> bool:
        """True where this field of the run is set here, or by a listed point."""
        return any(name in fields for fields in (self.fields, *self.points.values()))

    def point_name(self, number: int) -> str | None:
        """The name of a listed proposal; None where it is searched."""
        return list(self.points)[number] if number < len(self.points) else None

    def to_json(self) -> dict[str, Json]:
        """Plain values that ``from_json`` turns back into an equal setting."""
        # a list, since JSON objects are stored with their names sorted
        points = [{"name": name, "fields": dict(point)} for name, point in self.points.items()]
        return super().to_json() | {"points": points}

    @classmethod
    def from_json(cls, plain: Mapping[str, Json]) -> Self:
        """The setting that ``to_json`` wrote; a file may also list its points as a mapping."""
        points = plain.get("points", ())
        if not isinstance(points, Mapping):
            points = {point["name"]: dict(point["fields"]) for point in points}
        given = {"ranges": ranges_from_json(plain), "points": points}
        return super().from_json({**plain, **given})


def short_names(settings: Sequence[str]) -> dict[str, str]:
    """Names of settings without the words that all of them begin with.

    >>> short_names(["ped2-ut-L3-g0.15", "ped2-ut-L3-g0.15-detached", "ped2-ut-L5-g0.15"])
    {'ped2-ut-L3-g0.15': 'L3-g0.15', 'ped2-ut-L3-g0.15-detached': 'L3-g0.15-detached', \
'ped2-ut-L5-g0.15': 'L5-g0.15'}
    """
    words = [name.split("-") for name in settings]
    if len(words) < 2:
        return {name: name for name in settings}
    columns = itertools.takewhile(
        lambda column: len(set(column)) == 1, zip(*(w[:-1] for w in words), strict=False)
    )
    shared = len(list(columns))
    return {name: "-".join(w[shared:]) for name, w in zip(settings, words, strict=True)}


def names_within(settings: Sequence[str], width: int) -> dict[str, str]:
    """Full names where the longest has at most ``width`` characters, else a sign before short ones.

    >>> names_within(["ped2-ut-L3", "ped2-ut-L5"], 8)
    {'ped2-ut-L3': '…L3', 'ped2-ut-L5': '…L5'}
    """
    if max(map(len, settings)) <= width:
        return {name: name for name in settings}
    short = short_names(settings)
    return {name: text if text == name else f"…{text}" for name, text in short.items()}


def ranges_from_json(plain: Mapping[str, Json]) -> dict[str, Range]:
    """The ranges of a space or setting, from its plain values."""
    return {name: range_from_json(name, r) for name, r in plain.get("ranges", {}).items()}


def require_own(name: str, where: str) -> None:
    """Raise unless the field may differ between the proposals of a setting and its baseline.

    Raises:
        UnknownName: there is no such field.
        InvalidValue: all arms of a setting must share it.
    """
    if field_of(name) in _SHARED or name.startswith("data."):
        noise = name == "train_gamma"
        raise InvalidValue(
            f"{where} may not set {name}: all arms of a setting share it, since it decides what "
            "they are measured on or compared by. "
            + (
                "Noise in training alone is train_gamma_low and train_gamma_high."
                if noise
                else "Put it into `settings` or `base`."
            )
        )


def require_name(what: str, name: object) -> None:
    """Raise InvalidValue unless the name may be that of a file."""
    fits = isinstance(name, str) and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name)
    allowed = "letters, digits, '.', '_' and '-', the first a letter or digit"
    require(bool(fits), what, name, allowed)


def require_short_names(space: str, settings: Sequence[Setting]) -> None:
    """Raise InvalidValue where a name is too long for a file with what is written behind it.

    Only new spaces are checked: stored sweeps may have longer names.
    """
    for what, names in (
        ("a search space's name", [space]),
        ("a setting's name", [setting.name for setting in settings]),
        ("a point's name", [name for setting in settings for name in setting.points]),
    ):
        for name in names:
            require(len(name) <= LONGEST_NAME, what, name, f"at most {LONGEST_NAME} characters")


def require_names(space: str, settings: Sequence[str]) -> None:
    """Raise InvalidValue unless the settings of a space have names that differ."""
    if not settings:
        raise InvalidValue(f"search space {space}: at least one setting is needed, got none.")
    if len(set(settings)) != len(settings):
        raise InvalidValue(f"search space {space}: setting names must differ, got {settings}.")
    for name in settings:
        require_name("a setting's name", name)


def require_kinds(setting: Setting) -> None:
    """Raise InvalidValue for a field of a setting that is of another kind than it must be."""
    name, fields = cast(tuple[Json, Json], (setting.name, setting.fields))
    if not isinstance(name, str) or not isinstance(fields, Mapping):
        raise InvalidValue(f"a setting must have a name and a mapping of fields, got {setting!r}.")
    check_ruled(setting, lambda field: f"{field} of setting {name!r}")
    require_ranges(f"ranges of setting {name!r}", setting.ranges)
    require_points(name, setting.points)


def require_ranges(what: str, ranges: Mapping[str, Json]) -> None:
    """Raise InvalidValue unless these are ranges."""
    for name, values in ranges.items():
        if not isinstance(values, Range):
            raise InvalidValue(
                f"{what}: that of {name} must be Uniform(low, high), LogUniform(low, high), "
                "LogDecay(low, high), LogReach(low, high) or Choice((one, another)), got "
                f"{values!r}."
            )


def require_points(setting: str, points: Json) -> None:
    """Raise InvalidValue unless ``points`` are a mapping of names to mappings of fields.

    Raises UnknownName where there is no field of that name.
    """
    what = f"points of setting {setting!r}"
    require(isinstance(points, Mapping), what, points, "a mapping of names to mappings of fields")
    for name, values in points.items():
        require_name(f"the name of a point of setting {setting!r}", name)
        whose = f"point {name} of setting {setting}"
        require(isinstance(values, Mapping), whose, values, "a mapping of fields to values")
        for own in values:
            require(isinstance(own, str), f"a field of {whose}", own, "text")
            require_own(cast(str, own), whose)


def require_constraint_alone(ranges: Mapping[str, Range], config: ArmConfig) -> None:
    """Refuse a searched primal field where pairs are to differ in the constraint alone."""
    primal = [name for name in ranges if not name.startswith("constraint.")]
    if primal and config.value_of("constraint.weights_by") != "last_layer":
        raise InvalidValue(
            f"ranges may name fields of the constraint, got {primal[0]!r}: with a searched primal "
            "field a pair would differ in more than the constraint. Put it into `settings` or "
            "`base`; tuned plain training has constraint.weights_by 'last_layer'."
        )


def require_metric(where: str, base: ArmConfig, config: ArmConfig) -> None:
    """Refuse a setting with a metric of its own: tables have one column for it."""
    expected, got = base.facts.metric, config.facts.metric
    if expected != got:
        raise InvalidValue(
            f"{where}: all settings must report the metric of base, {expected.label} "
            f"({base.task}), got {got.label} ({config.task}). Make a space of each."
        )


def require_phase(
    where: str, phase: str, base: ArmConfig, config: ArmConfig, points: Sequence[Mapping[str, Json]]
) -> None:
    """Refuse a search on the test split, and a confirmation whose arms may end early."""
    on = config.measured_on
    if on != base.measured_on:
        raise InvalidValue(
            f"{where}: measured_on must be that of base, {base.measured_on!r}, got {on!r}."
        )
    if phase == "search" and on == "test":
        raise InvalidValue(
            f"{where}: measured_on must be 'dev' in a search, got 'test': what is chosen by scores "
            "of the test split says nothing of new data. `sweep confirm` measures a search's "
            "winners on it, on fresh seeds."
        )
    if config.data.split_by_seed and on != "test":
        raise InvalidValue(
            f"{where}: data.split_by_seed needs measured_on 'test', got {on!r}: seeds that are "
            "measured on other dev units cannot be judged by their mean."
        )
    early = config.early_stop or any(point.get("early_stop", False) for point in points)
    if phase == "confirmation" and early:
        raise InvalidValue(
            f"{where}: early_stop must be false in a confirmation, got true: every seed counts "
            "with its result, in both arms."
        )
