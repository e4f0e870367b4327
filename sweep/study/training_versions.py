"""Training versions that signed a sweep's arms, by the verdicts that name them.

Functions take the folder of the sweep's proposals, with ``judged.json`` of every setting, whichever
version wrote it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from search_spaces.space import SearchSpace
from trainables.config import arm
from trainables.config.mended import MENDED
from trainables.config.renamed import renamed
from trainables.errors import SweepError
from trainables.plain import Json, Plain
from trainables.records.objects import ObjectStore

UNKNOWN = 0  # arms have names that no version gives them now


@dataclass(frozen=True)
class _ArmEnd(Plain):
    signature: str


@dataclass(frozen=True)
class _Outcome(Plain):
    arms: Sequence[_ArmEnd] | None = None


@dataclass(frozen=True)
class _JudgedProposal(Plain):
    """The part of a judged proposal that every version has stored."""

    point: Mapping[str, Json] | None = None
    outcome: _Outcome | None = None

    @property
    def arms(self) -> set[str]:
        """Signatures of its constrained arms."""
        ends = self.outcome.arms if self.outcome else None
        return {end.signature for end in ends or ()}


def version_of_arms(objects: ObjectStore, space: SearchSpace, proposals: str) -> int:
    """The version that signed a sweep's arms, where its definition does not store it.

    Verdicts name the arms. Before there is any, the unconstrained arms may be there, which other
    sweeps share; without these as well it is this version, since no arm can be missed.
    """
    named_by = {version for version, _ in _named_by(objects, space, proposals)}
    if named_by:
        return named_by.pop() if len(named_by) == 1 else UNKNOWN
    plain = [
        space.run(setting, {}, seed=seed).unconstrained()
        for setting in space.settings
        for seed in space.search_seeds
    ]
    here = (v for v in _versions() if any(objects.names(f"arms/{c.signature(v)}") for c in plain))
    return next(here, arm.TRAINING_VERSION)


def describe_renamed(objects: ObjectStore, space: SearchSpace, proposals: str) -> str:
    """Text on a sweep whose arms have other names now: what trained it, how many, and why."""
    judged = list(_named_by(objects, space, proposals))
    of_before = [names for version, names in judged if version == UNKNOWN]
    names = sorted({name for of_one in of_before for name in of_one})
    why = "; ".join(MENDED[name] for name in names) or (
        "a computed gamma, such as 0.1 + 0.2, was not taken for 0.3, or a default was another"
    )
    return (
        f"by an earlier release, and {len(of_before)} of its {len(judged)} judged proposals train "
        f"to other numbers since ({why})"
    )


def judged_by_setting(
    objects: ObjectStore, proposals: str
) -> Iterator[tuple[str, _JudgedProposal]]:
    """Every judged proposal that names arms, with its setting."""
    for setting in objects.names(proposals):
        stored = objects.get_derived(f"{proposals}/{setting}/judged.json", dict[str, Json]) or {}
        # Each by itself: one that is damaged must not hide the arms of the others from `sweep rm`.
        judged = [
            _JudgedProposal.from_json(one) for one in stored.values() if isinstance(one, dict)
        ]
        yield from ((setting, one) for one in judged if one.arms)


def _versions() -> range:
    """Training versions, the newest first."""
    return range(arm.TRAINING_VERSION, 0, -1)


def _named_by(
    objects: ObjectStore, space: SearchSpace, proposals: str
) -> Iterator[tuple[int, list[str]]]:
    """The version that gives the arms of each verdict their names, and what was mended of them."""
    for name, judged in judged_by_setting(objects, proposals):
        if judged.point is None:
            continue
        try:
            setting, point = space.setting(name), renamed(judged.point)
            configs = [space.run(setting, point, seed=seed) for seed in space.search_seeds]
        except (SweepError, LookupError, TypeError, AttributeError):  # no verdict of these days
            continue
        signed = (v for v in _versions() if judged.arms & {c.signature(v) for c in configs})
        yield next(signed, UNKNOWN), configs[0].mended()
