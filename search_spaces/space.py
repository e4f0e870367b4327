"""Search space: a base configuration, settings to compare in, ranges to search.

Plain typed values; a space names fields of ArmConfig, so a typo fails where it is written and not
after an hour on a GPU. Nothing here imports torch, Ray, Optuna or MLflow.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Literal, Self, cast, get_args

from search_spaces.effects.by_effect import RESILIENCE as RESILIENCE
from search_spaces.effects.by_effect import STATED, effect_of, is_within, moved, stated, with_effect
from search_spaces.ranges import Choice as Choice
from search_spaces.ranges import LogDecay as LogDecay
from search_spaces.ranges import LogReach as LogReach
from search_spaces.ranges import LogUniform as LogUniform
from search_spaces.ranges import Range as Range
from search_spaces.ranges import Uniform as Uniform
from search_spaces.ranges import ends_of, into, is_finite, is_whole
from search_spaces.settings import (
    IS_MAPPING,
    ranges_from_json,
    require_constraint_alone,
    require_kinds,
    require_metric,
    require_names,
    require_own,
    require_phase,
    require_ranges,
)
from search_spaces.settings import Setting as Setting
from trainables.config.arm import ArmConfig, ConstraintConfig, field_of
from trainables.config.constraint import TOLERANCE
from trainables.config.fields import NamedFields, Untyped, at_least, check_ruled
from trainables.config.renamed import renamed
from trainables.errors import InvalidValue, UnknownName, require
from trainables.plain import Json, StoredPlain

Sampler = Literal["tpe", "random", "quasi_random", "gp"]
SAMPLERS: tuple[Sampler, ...] = ("tpe", "random", "quasi_random", "gp")
# Points before a model is trusted, the default point included; Optuna's 10 are whole sweeps.
STARTUP = 3
ORDER_FREE: tuple[Sampler, ...] = ("random", "quasi_random")  # the k-th point depends on no outcome
Phase = Literal["search", "confirmation"]
HOW_IT_RUNS = ("gpus_per_arm", "stall_after_s")  # fields of a space that no number depends on


# Fields of the constraint that are allowed or not together: every corner of their ranges is tried.
_JOINT = tuple(
    f"constraint.{name}"
    for name in (
        "alpha", "dual_kp", "dual_lr", "dual_optimizer", "dual_penalty", "resilience",
        "resilience_form", "warmup_epochs", "warmup_steps",
    )
)  # fmt: skip


_IS_TEXT = Untyped(lambda text: isinstance(text, str), "text")
_IS_RUN = Untyped(lambda run: isinstance(run, ArmConfig), "an ArmConfig")
_ARE_SETTINGS = Untyped(
    lambda given: isinstance(given, list | tuple) and all(isinstance(s, Setting) for s in given),
    "a tuple of Setting, like (Setting(...),)",
)
_ARE_SEEDS = Untyped(
    lambda seeds: isinstance(seeds, list | tuple) and all(map(is_whole, seeds)),
    "a list of whole numbers",
)
_IS_TOLERANCE = Untyped(
    lambda share: is_finite(share) and 0 <= share < 1,
    "a fraction of the demanded descent from 0 up and below 1",
    "at 1 a layer that removes nothing would be feasible.",
)
_IS_GPU_SHARE = Untyped(
    lambda share: share == "measured" or (is_finite(share) and 0.01 <= share <= 1),
    "a share of one GPU from 0.01 to 1, or 'measured'",
    "an arm trains on one GPU at most.",
)
_IS_PATIENCE = Untyped(lambda value: is_finite(value) and value > 0, "a positive number")


@dataclass(frozen=True, kw_only=True)
class SearchSpace(NamedFields, StoredPlain):
    """A base run, its settings, the ranges, and how much of them to try."""

    name: Annotated[str, _IS_TEXT]
    base: Annotated[ArmConfig, _IS_RUN]  # its constraint is the first proposal of every setting
    settings: Annotated[tuple[Setting, ...], _ARE_SETTINGS]
    summary: Annotated[str, _IS_TEXT] = ""  # one line for `sweep spaces`
    ranges: Annotated[Mapping[str, Range], IS_MAPPING] = field(default_factory=dict)
    n_proposals: Annotated[int, at_least(1)] = 8
    search_seeds: Annotated[tuple[int, ...], _ARE_SEEDS] = (0, 1)
    sampler: Sampler = "tpe"
    sampler_seed: Annotated[int, Untyped(is_whole, "a whole number")] = 0
    phase: Phase = "search"  # confirmation: fresh seeds of listed points, perhaps on the test split
    # The missing share that is still feasible; no number changes.
    tolerance: Annotated[float, _IS_TOLERANCE] = TOLERANCE
    # Seeds whose pairs were chosen by their scores elsewhere: of a configuration that is run again.
    selected_seeds: tuple[int, ...] = ()
    # How its arms are run. Not part of what is trained: numbers do not depend on it.
    # Share of a GPU; measured: by memory.
    gpus_per_arm: Annotated[float | Literal["measured"], _IS_GPU_SHARE] = 1.0
    stall_after_s: Annotated[float, _IS_PATIENCE] = 3600.0  # silent for so long, an arm hangs

    def __post_init__(self) -> None:
        """Check types and names and build every setting once, so that a wrong space fails here."""
        check_ruled(self)
        for name in ("settings", "search_seeds"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        for setting in self.settings:
            require_kinds(setting)
        require_ranges("ranges", self.ranges)
        self._check_text()
        fits = re.fullmatch(r"[a-z][a-z0-9_]*", self.name) is not None
        require(fits, "a search space's name", self.name, "lower_case_words")
        require_names(self.name, [s.name for s in self.settings])
        if self.base.constraint is None:
            raise InvalidValue(
                f"search space {self.name}: base.constraint must be given; "
                "it is the first proposal."
            )
        for name, known in (("phase", get_args(Phase)), ("sampler", SAMPLERS)):
            if getattr(self, name) not in known:
                raise UnknownName.among(name, str(getattr(self, name)), known)
        seeds = self.search_seeds
        differ = len(set(seeds)) == len(seeds) > 0 and min(seeds) >= 0
        require(differ, "search_seeds", list(seeds), "different whole numbers from 0 up")
        for name, values in self.ranges.items():
            if not field_of(name).startswith("constraint."):
                require_own(name, "a range")
            self._check_range(name, values)
        tried: set[tuple[Json, ...]] = set()
        for setting in self.settings:
            for name, values in setting.ranges.items():
                if name not in self.ranges:
                    raise InvalidValue(
                        f"ranges of setting {setting.name} may replace those of the space "
                        f"({', '.join(self.ranges) or 'none'}), got {name!r}."
                    )
                self._check_range(name, values)
            config = self.run(setting, {}, seed=self.search_seeds[0])
            where = f"search space {self.name}, setting {setting.name}"
            require_metric(where, self.base, config)
            points = [self.listed(setting, number) or {} for number in range(len(setting.points))]
            require_phase(where, self.phase, self.base, config, points)
            require_constraint_alone(self.ranges, config)
            self._check_points(setting)
            ranges = tuple(self.ranges_of(setting).values())
            joint = (config.constraint, config.model.layers, config.steps, repr(ranges))
            if joint not in tried:
                self._check_corners(setting, config)
                tried.add(joint)

    def _check_points(self, setting: Setting) -> None:
        """Refuse a listed point that is no valid run."""
        for number, name in enumerate(setting.points):
            try:
                self.run(setting, self.listed(setting, number) or {}, seed=self.search_seeds[0])
            except InvalidValue as error:
                raise InvalidValue(
                    f"search space {self.name}: point {name} of setting {setting.name}: {error}"
                ) from error

    def _check_text(self) -> None:
        try:  # a lone half of a surrogate pair can be neither printed nor stored
            json.dumps(self.to_json(), ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise InvalidValue(
                f"search space {self.name!r}: every text must be valid Unicode, got "
                f"{error.object[error.start : error.end]!r}. Take that character out."
            ) from error

    def _check_range(self, name: str, values: Range) -> None:
        if type(values) in STATED:
            if name != STATED[type(values)]:
                raise InvalidValue(
                    f"search space {self.name}: {type(values).__name__} is a range of "
                    f"{STATED[type(values)]}, got one of {name}. Give it Uniform, LogUniform or "
                    "Choice."
                )
            return  # its values follow from a whole run: every corner is tried
        for end in ends_of(values):
            try:
                self.base.with_fields({name: end})
            except InvalidValue as error:
                raise InvalidValue(
                    f"search space {self.name}: range of {name} reaches a value that is not "
                    f"allowed: {error}"
                ) from error

    def _check_corners(self, setting: Setting, config: ArmConfig) -> None:
        """Try every corner of the ranges that only together are allowed or not, in one setting."""
        constraint = cast(ConstraintConfig, config.constraint)  # of the base: checked before
        ranges = {n: r for n, r in self.ranges_of(setting).items() if n in _JOINT}
        for ends in itertools.product(*map(ends_of, ranges.values())):
            corner = dict(zip(ranges, ends, strict=True))
            try:
                values = _fields(self.point_of(setting, corner))
                replace(config, constraint=replace(constraint, **values))
            except InvalidValue as error:
                text = ", ".join(f"{name} = {value!r}" for name, value in _fields(corner).items())
                raise InvalidValue(
                    f"search space {self.name}: in setting {setting.name} the ranges reach a point "
                    f"that is not allowed, {text}: {error} Narrow one of these ranges."
                ) from error

    def ranges_of(self, setting: Setting) -> dict[str, Range]:
        """The ranges that one setting searches: the space's, or its own in their place."""
        return {name: setting.ranges.get(name, values) for name, values in self.ranges.items()}

    def point_of(
        self,
        setting: Setting,
        coordinates: Mapping[str, Json],
        given: Mapping[str, Json] | None = None,
    ) -> dict[str, Json]:
        """The point at these coordinates of a setting's ranges, as plain values of fields.

        Values of fields in ``given``, searched or not, stand, and others follow from them.
        """
        point = {**coordinates, **(given or {})}
        by_effect = [n for n in stated(self.ranges_of(setting)) if n not in (given or {})]
        known = {name: value for name, value in point.items() if name not in by_effect}
        for name in by_effect:
            run = self.effect_run(setting, known)
            point[name] = known[name] = with_effect(run, name, coordinates[name])
        return point

    def effect_run(self, setting: Setting, values: Mapping[str, Json]) -> ArmConfig:
        """The setting's run with these values: a resilience that follows from a decay is 0 in it.

        Raises InvalidValue where no run has these values, whatever resilience follows.
        """
        fields, name = {**setting.fields, **values}, "constraint.resilience_form"
        form = fields.get(name, self.base.value_of(name))
        if form == "decay" and RESILIENCE in stated(self.ranges_of(setting)):
            fields[RESILIENCE] = 0.0
        return self.base.with_fields(fields)

    def coordinates_of(self, setting: Setting, point: Mapping[str, Json]) -> dict[str, Json]:
        """The coordinates of a point in the ranges of a setting: the inverse of ``point_of``."""
        ranges = self.ranges_of(setting)
        coordinates = {name: point[name] for name in ranges}
        if not stated(ranges):
            return coordinates
        key = repr((setting.fields, setting.ranges, point))
        if key not in self._effects:  # 0.3 ms, and a sampler needs all points at every proposal
            run = self.effect_run(setting, point)
            self._effects[key] = {
                name: into(ranges[name], effect_of(run, name, point[name]))
                for name in stated(ranges)
            }
        return coordinates | self._effects[key]

    @cached_property
    def _effects(self) -> dict[str, dict[str, Json]]:
        """Cache of coordinates by effect; a key holds everything that they follow from."""
        return {}

    def proposals_of(self, setting: Setting) -> int:
        """The number of proposals of this setting: the space's, unless it asks for fewer.

        Never fewer than its listed points, and without ranges no others.
        """
        listed, most = len(setting.points), setting.n_proposals
        if listed and not self.ranges:
            return listed
        return max(self.n_proposals if most is None else min(most, self.n_proposals), listed)

    @property
    def independent_proposals(self) -> int:
        """The number of first proposals that depend on no outcome, and so may come early."""
        return self.n_proposals if self.sampler in ORDER_FREE else STARTUP

    def points_tried(self, setting: Setting) -> int:
        """The number of different points among the proposals: one where there is no choice."""
        return self.proposals_of(setting) if self.ranges or setting.points else 1

    def listed(self, setting: Setting, number: int) -> dict[str, Json] | None:
        """The point of a listed proposal, with the base's value of what else is searched."""
        if number >= len(setting.points):
            return None
        config = self.base.with_fields(setting.fields)
        rest = {name: config.value_of(name) for name in self.ranges}
        return rest | dict(list(setting.points.values())[number])

    def sets(self, setting: Setting, number: int) -> tuple[str, ...]:
        """The fields that a proposal sets, and in which it may differ from its baseline."""
        return tuple(self.listed(setting, number) or self.ranges)

    def draws_losses(self, setting: Setting) -> bool:
        """True when constrained arms may train on draws of tokens or layers of their own."""
        ranges, base = self.ranges_of(setting), self.base.with_fields(setting.fields).constraint
        searched = any(f"constraint.{n}" in ranges for n in ("inner_tokens", "inner_layers"))
        return searched or (base is not None and base.draws_losses)

    def is_in_box(self, setting: Setting, point: Mapping[str, Json]) -> bool:
        """True when a point sets exactly the searched fields, each within its range."""
        ranges = self.ranges_of(setting)
        if set(point) != set(ranges):
            return False
        run = self.effect_run(setting, point)
        return all(is_within(run, n, point[n], values) for n, values in ranges.items())

    def run(self, setting: Setting, point: Mapping[str, Json], *, seed: int) -> ArmConfig:
        """The constrained run of one proposal in one setting with one seed."""
        return self.base.with_fields({**setting.fields, **point, "seed": seed})

    def default_point(self, setting: Setting) -> dict[str, Json]:
        """The base's own values of the searched fields, moved into their ranges.

        It is proposal 0 of a setting without listed points.
        """
        config = self.base.with_fields(setting.fields)
        ranges = self.ranges_of(setting)
        point = {
            n: into(r, config.value_of(n)) for n, r in ranges.items() if n not in stated(ranges)
        }
        for name in stated(ranges):
            run, own = self.effect_run(setting, point), config.value_of(name)
            nearest = into(ranges[name], effect_of(run, name, own))
            point[name] = moved(run, name, own, nearest)
        return {name: point[name] for name in ranges}

    def setting(self, name: str) -> Setting:
        """The setting with this name, or UnknownName."""
        for setting in self.settings:
            if setting.name == name:
                return setting
        raise UnknownName.among("setting", name, [s.name for s in self.settings])

    def with_base(self, values: Mapping[str, Json]) -> SearchSpace:
        """The same space with fields of its base replaced (``--set field=value``).

        A field that a setting fixes or a range searches cannot be set: the setting or range would
        win in silence.
        """
        for name in values:
            if name in self.ranges:
                raise InvalidValue(
                    f"{name} is searched in {self.name}, so it cannot be set. --point "
                    f"{name}=VALUE tries a value first; ranges are those of a space file."
                )
            fixed = [s.name for s in self.settings if s.fixes(name)]
            if fixed:
                texts = name == "data.name" and self.base.facts.reads_texts
                other = " Give other texts with --data hf:NAME." * texts
                is_part = len(fixed) < len(self.settings)
                these = f"{len(fixed)} of the {len(self.settings)}" if is_part else "the"
                raise InvalidValue(
                    f"{name} is fixed by {these} settings of {self.name}"
                    f"{f' (the first is {fixed[0]})' * is_part}, so it cannot be set for all "
                    f"of them; --only keeps some, a space file has its own.{other}"
                )
        return replace(self, base=self.base.with_fields(values))

    @classmethod
    def from_json(cls, plain: Mapping[str, Json]) -> Self:
        """The space that ``to_json`` wrote."""
        missing = [n for n in ("name", "base", "settings") if n not in plain]
        if missing:
            raise InvalidValue(
                f"a search space needs {', '.join(missing)}; got {', '.join(plain) or 'nothing'}."
            )
        return super().from_json({**renamed(plain), "ranges": ranges_from_json(plain)})


def _fields(point: Mapping[str, Json]) -> dict[str, Json]:
    return {name.removeprefix("constraint."): value for name, value in point.items()}
