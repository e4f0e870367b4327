"""Definition of a sweep: a name and a resolved search space.

With an order-free sampler the sweep is a function of it.

sweeps/NAME/definition.json        put once; a different definition under the same name is refused
sweeps/NAME/extension-<n>.json     more proposals or seeds, asked for later; the most of all counts
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

from search_spaces.space import HOW_IT_RUNS, SearchSpace
from sweep.errors import NameTaken, OtherVersion
from sweep.study.advice import command, resume
from sweep.study.training_versions import (
    UNKNOWN,
    describe_renamed,
    judged_by_setting,
    version_of_arms,
)
from trainables.config import arm
from trainables.errors import (
    InvalidValue,
    RemovedOption,
    SweepError,
    UnknownName,
    cause_of,
    missing_plugin,
)
from trainables.plain import Json, Plain, StoredPlain
from trainables.records.objects import ObjectStore


@dataclass(frozen=True)
class Definition(StoredPlain):
    """One sweep: settings x proposals x search seeds."""

    name: str
    space: SearchSpace  # resolved: the data fingerprint is filled in
    mlflow_uri: str | None = None  # where it is tracked; not compared; None: below the storage root
    training_version: int = field(default_factory=lambda: arm.TRAINING_VERSION)
    # ^ that its arms are signed with; older stores do not hold it, and it is derived from the arms

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", self.name):
            raise InvalidValue(
                "a sweep's name must be at most 100 letters, digits, '.', '_' and '-', and start "
                f"with a letter or digit, got {self.name!r}."
            )

    def name_of(self, config: arm.ArmConfig) -> str:
        """The signature of one of its arms; where that is not known, the one it has now."""
        return config.signature(self.training_version or None)

    def extended(
        self, *, n_proposals: int | None = None, search_seeds: tuple[int, ...] | None = None
    ) -> Definition:
        """The same sweep with more proposals or seeds; fewer are refused."""
        space = self.space
        if n_proposals is not None:
            if n_proposals < space.n_proposals:
                raise InvalidValue(
                    f"{self.name} already asks for {space.n_proposals} proposals a setting, "
                    f"got {n_proposals}: it can only grow."
                )
            space = replace(space, n_proposals=n_proposals)
        if search_seeds is not None:
            if not set(search_seeds) >= set(space.search_seeds):
                raise InvalidValue(
                    f"{self.name} already trains seeds {list(space.search_seeds)}, "
                    f"got {list(search_seeds)}: seeds can only be added."
                )
            added = tuple(s for s in search_seeds if s not in space.search_seeds)
            space = replace(space, search_seeds=space.search_seeds + added)
        return replace(self, space=space)


def folder(name: str) -> str:
    """The folder of a sweep's own objects below the storage root."""
    return f"sweeps/{name}"


def definition_name(name: str) -> str:
    """The name of the object that holds a sweep's definition."""
    return f"{folder(name)}/definition.json"


def put_definition(objects: ObjectStore, definition: Definition) -> Definition:
    """Store the definition, or attach to the equal one that is there. Returns what the store holds.

    Raises NameTaken, with the difference, when the name belongs to another definition.
    """
    content = json.dumps(definition.to_json(), sort_keys=True).encode()
    objects.put_once(definition_name(definition.name), content)
    stored = load_definition(objects, definition.name)
    # Compared with what is stored and not with what was put: a rival may have been first.
    difference = list(_differences(_compared(stored.space), _compared(definition.space)))
    if difference:
        raise NameTaken(
            f"a sweep named {definition.name!r} exists with a different definition:\n"
            + "\n".join(f"  {line}" for line in difference)
            + _way_out(difference, resume(definition.name, objects.root))
        )
    return stored


def _way_out(difference: Sequence[str], again: str) -> str:
    if all("data.fingerprint:" in line for line in difference):
        return (
            "\nThe data have changed since. Restore them to continue the stored one with "
            f"`{again}`, or choose another --name for a sweep on these."
        )
    return f"\nChoose another --name, or continue the stored one with `{again}`."


def run_as(stored: Definition, given: SearchSpace, *, named: Collection[str]) -> Definition:
    """The stored sweep, run this time as ``given`` says in the fields that the user ``named``."""
    how = {name: getattr(given, name) for name in HOW_IT_RUNS if name in named}
    return replace(stored, space=replace(stored.space, **how)) if how else stored


def put_extension(objects: ObjectStore, extended: Definition) -> None:
    """Store a grown definition under the next free extension number; earlier ones stay."""
    grown = _Size(extended.space.n_proposals, extended.space.search_seeds)
    content = json.dumps(grown.to_json(), sort_keys=True).encode()
    below, number = folder(extended.name), len(_extensions(objects, extended.name))
    # put_once returns what is stored: other content means that a rival took the number.
    while objects.put_once(f"{below}/extension-{number:04d}.json", content) != content:
        number += 1


def load_definition(objects: ObjectStore, name: str) -> Definition:
    """The stored definition with its extensions.

    Raises:
        UnknownName: there is no such sweep.
        OtherVersion: its arms are of another training version, so that none would be found.
    """
    definition = definition_of_any_version(objects, name)
    version = definition.training_version
    if version != arm.TRAINING_VERSION:
        trained = (
            f"by training version {version} of descent-sweep, and this is version "
            f"{arm.TRAINING_VERSION}, which trains to other numbers"
        )
        if version == UNKNOWN:
            trained = describe_renamed(objects, definition.space, _proposals(name))
        remove = command("rm", name, storage=objects.root)
        raise OtherVersion(
            f"{name} was trained {trained}: its results cannot be read or continued here, and "
            "nothing was changed. Read them with the release that trained them. Or run its space "
            "anew under another --name: arms that train to the same numbers are taken as they are. "
            f"`{remove}` deletes it."
        )
    return definition


def definition_of_any_version(objects: ObjectStore, name: str) -> Definition:
    """The stored definition, whichever training version its arms are of; no result may be read."""
    stored = objects.get_value(
        definition_name(name),
        lambda plain: (Definition.from_json(plain), "training_version" in plain),
    )
    if stored is None:
        raise UnknownName.among("sweep", name, sweep_names(objects))
    definition, has_version = stored
    if not has_version:
        version = version_of_arms(objects, definition.space, _proposals(name))
        definition = replace(definition, training_version=version)
    sizes = [_Size(definition.space.n_proposals, definition.space.search_seeds)]
    for extension in _extensions(objects, name):
        grown = objects.get_value(f"{folder(name)}/{extension}", _Size.from_json)
        if grown is not None:
            sizes.append(grown)
    seeds = dict.fromkeys(seed for size in sizes for seed in size.search_seeds)
    most = max(size.n_proposals for size in sizes)
    return definition.extended(n_proposals=most, search_seeds=tuple(seeds))


def state_without_reading(error: SweepError) -> str:
    """The state of a sweep that cannot be read, from the error that reading it raised."""
    if missing_plugin(error) is not None:
        return "needs a plug-in"
    return "damaged" if cause_of(error, RemovedOption) is None else "other version"


def judged_arms(objects: ObjectStore, name: str) -> set[str]:
    """Signatures of the constrained arms that verdicts of a sweep name, of whichever version."""
    judged = judged_by_setting(objects, _proposals(name))
    return {signature for _, one in judged for signature in one.arms}


def _proposals(name: str) -> str:
    return f"{folder(name)}/proposals"


@dataclass(frozen=True)
class _Size(Plain):
    """The part of a definition that an extension replaces."""

    n_proposals: int
    search_seeds: tuple[int, ...]


def sweep_names(objects: ObjectStore) -> list[str]:
    """Every sweep below this root."""
    return [n for n in objects.names("sweeps") if "definition.json" in objects.names(folder(n))]


def _extensions(objects: ObjectStore, name: str) -> list[str]:
    return [n for n in objects.names(folder(name)) if n.startswith("extension-")]


def _compared(space: SearchSpace) -> Json:
    """The fields that two definitions may not differ in: no places, no sizes, not how it runs."""
    left_out = {"base.data.folder", "n_proposals", "search_seeds", "summary", *HOW_IT_RUNS}
    in_base = space.base.model.checkpoint_fingerprint  # stands for where a checkpoint lies
    if in_base:
        left_out.add("base.model.checkpoint")
    settings = {}
    for one in space.settings:
        settings[one.name] = {**one.fields, **one.to_json()}
        names = ["name", "fields", "data.folder"]
        if one.fields.get("model.checkpoint_fingerprint", in_base):
            names.append("model.checkpoint")
        left_out |= {f"settings.{one.name}.{name}" for name in names}
    return _without(space.to_json() | {"settings": settings}, left_out)


def _without(plain: Json, names: Collection[str], path: str = "") -> Json:
    """The plain values without those whose dotted names are among ``names``."""
    if not isinstance(plain, dict):
        return plain
    kept = {name: value for name, value in plain.items() if path + name not in names}
    return {name: _without(value, names, f"{path}{name}.") for name, value in kept.items()}


def _differences(stored: Json, given: Json, path: str = "") -> Iterator[str]:
    if isinstance(stored, dict) and isinstance(given, dict):
        for key in sorted({*stored, *given}):
            yield from _differences(
                stored.get(key), given.get(key), f"{path}.{key}" if path else key
            )
    elif stored != given:
        yield f"{path}: stored {stored!r}, given {given!r}"
