"""Definition of a sweep: a name and a resolved search space.

With an order-free sampler the sweep is a function of it.

sweeps/NAME/definition.json        put once; a different definition under the same name is refused
sweeps/NAME/extension-<n>.json     more proposals or seeds, asked for later; the most of all counts
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from search_spaces.space import HOW_IT_RUNS, SearchSpace
from sweep.errors import NameTaken, OtherVersion
from sweep.study.advice import command, resume
from trainables.config import arm
from trainables.config.renamed import renamed
from trainables.errors import (
    InvalidValue,
    RemovedOption,
    SweepError,
    UnknownName,
    cause_of,
    missing_plugin,
)
from trainables.plain import Json
from trainables.records.objects import ObjectStore

UNKNOWN = 0  # of a training version: arms have names that no version gives them now


@dataclass(frozen=True)
class Definition:
    """One sweep: settings x proposals x search seeds."""

    name: str
    space: SearchSpace  # resolved: the data fingerprint is filled in
    mlflow_uri: str | None = None  # where it is tracked; not compared; None: below the storage root
    training_version: int = field(default_factory=lambda: arm.TRAINING_VERSION)
    # ^ that its arms are signed with; older stores do not hold it, and it is derived from the arms

    def __post_init__(self) -> None:
        """Refuse names that are no plain folder name."""
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", self.name):
            raise InvalidValue(
                "a sweep's name must be at most 100 letters, digits, '.', '_' and '-', and start "
                f"with a letter or digit, got {self.name!r}."
            )

    def to_json(self) -> dict[str, Json]:
        """Plain values that ``from_json`` turns back into an equal definition."""
        return {**vars(self), "space": self.space.to_json()}

    @classmethod
    def from_json(cls, plain: Mapping[str, Json]) -> Definition:
        """The definition that ``to_json`` wrote."""
        return cls(**{**plain, "space": SearchSpace.from_json(plain["space"])})

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
    difference = list(_differences(_compared(stored), _compared(definition)))
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
    grown = {
        "n_proposals": extended.space.n_proposals,
        "search_seeds": list(extended.space.search_seeds),
    }
    content = json.dumps(grown, sort_keys=True).encode()
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
            trained = _renamed(objects, definition)
        remove = command("rm", name, storage=objects.root)
        raise OtherVersion(
            f"{name} was trained {trained}: its results cannot be read or continued here, and "
            "nothing was changed. Read them with the release that trained them. Or run its space "
            "anew under another --name: arms that train to the same numbers are taken as they are. "
            f"`{remove}` deletes it."
        )
    return definition


def _renamed(objects: ObjectStore, definition: Definition) -> str:
    """Text on a sweep whose arms have other names now: what trained it, how many, and why."""
    judged = list(_named_by(objects, definition))
    of_before = [faults for version, faults in judged if version == UNKNOWN]
    faults = sorted({fault for faults in of_before for fault in faults})
    why = "; ".join(arm.MENDED[fault] for fault in faults) or (
        "a computed gamma, such as 0.1 + 0.2, was not taken for 0.3, or a default was another"
    )
    return (
        f"by an earlier release, and {len(of_before)} of its {len(judged)} judged proposals train "
        f"to other numbers since ({why})"
    )


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
        definition = replace(definition, training_version=_version_of_arms(objects, definition))
    sizes = [(definition.space.n_proposals, definition.space.search_seeds)]
    for extension in _extensions(objects, name):
        grown = objects.get_value(f"{folder(name)}/{extension}", _grown)
        if grown is not None:
            sizes.append(grown)
    seeds = dict.fromkeys(seed for _, search_seeds in sizes for seed in search_seeds)
    return definition.extended(
        n_proposals=max(n_proposals for n_proposals, _ in sizes), search_seeds=tuple(seeds)
    )


def state_without_reading(error: SweepError) -> str:
    """The state of a sweep that cannot be read, from the error that reading it raised."""
    if missing_plugin(error) is not None:
        return "needs a plug-in"
    return "damaged" if cause_of(error, RemovedOption) is None else "other version"


def _version_of_arms(objects: ObjectStore, definition: Definition) -> int:
    """The version that signed a sweep's arms, where its definition does not store it.

    Verdicts name the arms. Before there is any, the unconstrained arms may be there, which other
    sweeps share; without these as well it is this version, since no arm can be missed.
    """
    space = definition.space
    named_by = {version for version, _ in _named_by(objects, definition)}
    if named_by:
        return named_by.pop() if len(named_by) == 1 else UNKNOWN
    plain = [
        space.run(setting, {}, seed=seed).unconstrained()
        for setting in space.settings
        for seed in space.search_seeds
    ]
    here = (v for v in _versions() if any(objects.names(f"arms/{c.signature(v)}") for c in plain))
    return next(here, arm.TRAINING_VERSION)


def _versions() -> range:
    """Training versions, the newest first."""
    return range(arm.TRAINING_VERSION, 0, -1)


def _named_by(objects: ObjectStore, definition: Definition) -> Iterator[tuple[int, list[str]]]:
    """The version that gives the arms of each verdict their names, and their mended faults."""
    space = definition.space
    for verdict in _verdicts(objects, definition.name):
        try:
            setting, point = space.setting(verdict.setting), renamed(verdict.point)
            configs = [space.run(setting, point, seed=seed) for seed in space.search_seeds]
        except (SweepError, LookupError, TypeError, AttributeError):  # no verdict of these days
            continue
        signed = (v for v in _versions() if verdict.arms & {c.signature(v) for c in configs})
        yield next(signed, UNKNOWN), configs[0].mended()


def judged_arms(objects: ObjectStore, name: str) -> set[str]:
    """Signatures of the constrained arms that verdicts of a sweep name, of whichever version."""
    return {signature for verdict in _verdicts(objects, name) for signature in verdict.arms}


class _Verdict(NamedTuple):
    setting: str
    point: dict[str, Json]
    arms: set[str]  # signatures


def _verdicts(objects: ObjectStore, name: str) -> Iterator[_Verdict]:
    """Every stored verdict that names arms, whichever version stored it."""
    below = f"{folder(name)}/proposals"
    for setting in objects.names(below):
        stored = objects.get_derived(f"{below}/{setting}/judged.json", dict[str, Json]) or {}
        for one in stored.values():
            ends = (one.get("outcome") or {}).get("arms") if isinstance(one, dict) else None
            if ends:
                yield _Verdict(setting, one.get("point"), {end["signature"] for end in ends})


def sweep_names(objects: ObjectStore) -> list[str]:
    """Every sweep below this root."""
    return [n for n in objects.names("sweeps") if "definition.json" in objects.names(folder(n))]


def _extensions(objects: ObjectStore, name: str) -> list[str]:
    return [n for n in objects.names(folder(name)) if n.startswith("extension-")]


def _grown(plain: Mapping[str, Json]) -> tuple[int, tuple[int, ...]]:
    return int(plain["n_proposals"]), tuple(int(seed) for seed in plain["search_seeds"])


def _compared(definition: Definition) -> dict[str, Json]:
    """The fields that two definitions may not differ in: no places, no sizes, not how it runs."""
    plain = definition.space.to_json()
    for name in HOW_IT_RUNS:
        plain.pop(name, None)
    del (
        plain["base"]["data"]["folder"],
        plain["n_proposals"],
        plain["search_seeds"],
        plain["summary"],
    )
    plain["settings"] = {s.pop("name"): {**s.pop("fields"), **s} for s in plain["settings"]}
    fingerprint = "model.checkpoint_fingerprint"  # stands for where a checkpoint lies
    in_base = plain["base"]["model"].get("checkpoint_fingerprint", "")
    if in_base:
        del plain["base"]["model"]["checkpoint"]
    for fields in plain["settings"].values():
        fields.pop("data.folder", None)
        if fields.get(fingerprint, in_base):
            fields.pop("model.checkpoint", None)
    return plain


def _differences(stored: Json, given: Json, path: str = "") -> Iterator[str]:
    if isinstance(stored, dict) and isinstance(given, dict):
        for key in sorted({*stored, *given}):
            yield from _differences(
                stored.get(key), given.get(key), f"{path}.{key}" if path else key
            )
    elif stored != given:
        yield f"{path}: stored {stored!r}, given {given!r}"
