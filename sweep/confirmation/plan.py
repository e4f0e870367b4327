"""Plan of a confirmation, or of replications: stored before anything trains.

    sweeps/NAME/plan.json      beside the definition of the confirmation NAME; the first one counts
    sweeps/NAME.replications/replications.json    of the replications of a search NAME

Its digest stands below every table, and so does whatever departs from it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, Self, TypeVar

from sweep.errors import NameTaken
from sweep.results.aggregates import ARMS
from sweep.statistics.design import Design
from sweep.study.advice import note
from sweep.study.definition import folder, sweep_names
from trainables.config.arm import ArmConfig
from trainables.config.renamed import FIRST_NAMES, renamed
from trainables.errors import UnreadableObject
from trainables.plain import LATER, Json, Plain, StoredPlain, with_names
from trainables.records.objects import ObjectStore

CONSTRAINED: str
UNCONSTRAINED: str
CONSTRAINED, UNCONSTRAINED = ARMS  # the listed point that is confirmed, and its baseline
# What is compared, on the test split: the first one is tested.
Measure = Literal[
    "unseen_mean", "seen_mean", "shift_mean", "mean_over_gammas", "ood_auc", "anytime_mean"
]
MEASURES: Mapping[Measure, str] = {
    "unseen_mean": "mean over the test gammas beyond what training or selection looked at",
    "seen_mean": "mean over the test gammas that training or selection looked at",
    "shift_mean": "mean over the shifts other than Gaussian noise and their severities",
    "mean_over_gammas": "mean over all test gammas",
    "ood_auc": "area over all test gammas",
    "anytime_mean": "mean over the layers, each read as the output, at the train gamma",
}
MEAN: Measure = "mean_over_gammas"
_FIRST_MEAN = "ood_mean"  # its name in plans of earlier versions, whose digests stay
SEEDS = 10  # of a confirmation, unless another number is asked for
FIRST_STAGE = 3  # seeds before the first look of a plan that may look at any time
FIRST_SEED = 1000  # of confirmations; seeds of the search are passed over
_REPLICATIONS = ".replications"
_STUDIES = ".studies"  # the same in stores of earlier versions, whose sweeps are .study-N
P = TypeVar("P", bound="Plan")


@dataclass(frozen=True, slots=True, kw_only=True)
class EqualTries(Plain):
    """The gain of the best of some tries over the best of as many plain seeds, in the search."""

    gain: float
    tries: int


@dataclass(frozen=True)
class PlannedSetting(StoredPlain):
    """One setting: the proposal that is confirmed, and what the search saw of it."""

    name: str
    family: str  # data set and network: what is tested first, its settings after it
    proposal: int  # of the search
    chosen: Literal["winner", "named"]
    point: Mapping[str, Json]
    search_gain: Mapping[Measure, float]  # > 0 better, on the data that selected it
    best_of_search: float | None = None
    # ^ in plans of before ``equal_tries``: the best of all tries against the best of fewer plain
    #   seeds, over all gammas; shown nowhere, since more tries win by luck alone
    equal_tries: EqualTries | None = field(default=None, metadata=LATER)


@dataclass(frozen=True)
class Plan(StoredPlain):
    """Everything that a reader must know to have been decided before the test split was read."""

    FILE: ClassVar[str] = "plan.json"
    name: str
    search: str  # the sweep whose winners are confirmed
    settings: tuple[PlannedSetting, ...]
    controls: tuple[str, ...]
    measure: Measure  # that is tested; the others are reported beside it
    design: Design
    seeds: tuple[int, ...]  # fresh ones, as many as are trained at most
    code: str  # version of this project
    trained: str = ""  # a hash of every arm's configuration, the controls' and their tuning's
    until_decided: bool = False  # trained look by look, and no further than to a decision
    # What stands for an arm that diverged, was stopped or failed: the best constant prediction's
    # score on the test split.
    worst_score: str = "constant prediction"

    @classmethod
    def from_json(cls, plain: Mapping[str, Json]) -> Self:
        """The plan that ``to_json`` wrote."""
        plan = super().from_json(with_names(renamed(plain), {_FIRST_MEAN: MEAN}))
        return replace(plan, measure=MEAN) if plan.measure == _FIRST_MEAN else plan

    @property
    def first_seeds(self) -> tuple[int, ...]:
        """Seeds that are trained before the first decision; all, where none is waited for."""
        if not self.until_decided:
            return self.seeds
        return self.seeds[: self.design.looks[0] if self.design.looks else FIRST_STAGE]

    def more_seeds(self, count: int) -> tuple[int, ...]:
        """The seeds of the next stage, after ``count`` of them; empty: there is none."""
        if count >= len(self.seeds):
            return ()
        later = [look for look in self.design.looks if look > count]
        return self.seeds[: later[0] if later else count + 1]

    @property
    def digest(self) -> str:
        """12 hex digits that name it: a hash of everything in it."""
        plain = with_names(self.to_json(), {**FIRST_NAMES, MEAN: _FIRST_MEAN})
        measure = _FIRST_MEAN if self.measure == MEAN else self.measure
        text = json.dumps(plain | {"measure": measure}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


@dataclass(frozen=True)
class ReplicationsPlan(Plan):
    """The plan of replications: each tunes both sides anew and compares the winners.

    The unit is the replication: ``seeds`` has the fresh seed of each, in the order that they count.
    ``settings`` is empty, since no replication has chosen yet; ``design`` names them.
    """

    FILE: ClassVar[str] = "replications.json"
    n_proposals: int = 0  # tries of each side in a setting; some settings ask for fewer
    search_seeds: tuple[tuple[int, ...], ...] = ()  # of each replication; no two share one
    sampler_seeds: tuple[int, ...] = ()
    no_winner: str = "constrained: plain's own network; plain: constant prediction"

    @property
    def count(self) -> int:
        """Number of replications, at most."""
        return len(self.seeds)

    @property
    def kind(self) -> str:
        """The word for one of them in names and summaries, which what is trained is hashed with."""
        return "study" if self.name.endswith(_STUDIES) else "replication"

    def replication(self, number: int) -> str:
        """The name of the search of replication 1, 2, ..., with which its other sweeps' begin."""
        return f"{self.name.rpartition('.')[0]}.{self.kind}-{number}"


def family_of(config: ArmConfig) -> str:
    """The family of a setting: what it trains on, and what."""
    return f"{config.data.name}, {config.model.name}"


def families(settings: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """The settings of each family, from the family of each setting, in their order.

    >>> families({"a-L3": "a, ut", "b-L3": "b, ut", "a-L5": "a, ut"})
    {'a, ut': ('a-L3', 'a-L5'), 'b, ut': ('b-L3',)}
    """
    members: dict[str, tuple[str, ...]] = {}
    for name, family in settings.items():
        members[family] = (*members.get(family, ()), name)
    return members


def put_plan(objects: ObjectStore, plan: P) -> P:
    """Store the plan, or attach to the equal one that is there; NameTaken for another one."""
    content = json.dumps(plan.to_json(), sort_keys=True).encode()
    name = f"{folder(plan.name)}/{plan.FILE}"
    there = plan.from_json(json.loads(objects.put_once(name, content)))
    refuse_other_plan(there, plan)
    return there


def refuse_other_plan(there: Plan, plan: Plan) -> None:
    """Raise NameTaken unless the stored plan is equal to this one."""
    if differences := _differences(there, plan):
        raise NameTaken(
            f"the confirmation {plan.name} has a plan already, and it stays as it is:\n"
            + "\n".join(f"  {line}" for line in differences)
            + "\nLeave these options out to go on with it, or give another --name: every table "
            "says which other confirmations read the same test data."
        )


def load_plan(objects: ObjectStore, name: str) -> Plan | None:
    """The plan of a confirmation; None where there is none."""
    return objects.get_value(f"{folder(name)}/{Plan.FILE}", Plan.from_json)


def planned_seeds(objects: ObjectStore, search: str, *, but: str) -> set[int]:
    """The fresh seeds of all confirmations and replications of a search but those of this name.

    A plan that cannot be read takes none, with a note: nothing else can be shown of it, either.
    """
    plans = [_readable(load_plan, objects, name) for name in sweep_names(objects) if name != but]
    kinds = (_REPLICATIONS, _STUDIES)
    names = [name for name in objects.names("sweeps") if name.endswith(kinds) and name != but]
    plans += [_readable(load_replications, objects, name) for name in names]
    of_search = [plan for plan in plans if plan is not None and plan.search == search]
    replications = [plan for plan in of_search if isinstance(plan, ReplicationsPlan)]
    searched = (seed for plan in replications for seeds in plan.search_seeds for seed in seeds)
    return {*searched, *(seed for plan in of_search for seed in plan.seeds)}


def _readable(
    load: Callable[[ObjectStore, str], Plan | None], objects: ObjectStore, name: str
) -> Plan | None:
    """A plan; None, and a note, where it cannot be read."""
    try:
        return load(objects, name)
    except UnreadableObject as error:
        note(f"the seeds of {name} may be taken again. {error}")
        return None


def replications_name(search: str) -> str:
    """The name of the first replications of a search, all of them together."""
    return f"{search}{_REPLICATIONS}"


def load_replications(objects: ObjectStore, name: str) -> ReplicationsPlan | None:
    """The plan of replications, or the one that an earlier version stored; None without any."""
    earlier = f"{name.removesuffix(_REPLICATIONS).removesuffix(_STUDIES)}{_STUDIES}"
    files = (f"{folder(name)}/{ReplicationsPlan.FILE}", f"{folder(earlier)}/studies.json")
    plans = (objects.get_value(file, ReplicationsPlan.from_json) for file in files)
    return next((plan for plan in plans if plan is not None), None)


def replications_of(objects: ObjectStore, confirmation: str) -> ReplicationsPlan | None:
    """The plan of the replications that a confirmation belongs to; None: it belongs to none."""
    parts = re.fullmatch(r"(.+)\.(replication|study)-(\d+)\.confirmation", confirmation)
    if parts is None:
        return None
    suffix = _STUDIES if parts[2] == "study" else _REPLICATIONS
    plan = load_replications(objects, f"{parts[1]}{suffix}")
    is_its = plan is not None and plan.kind == parts[2] and 0 < int(parts[3]) <= plan.count
    return plan if is_its else None


def _differences(there: Plan, given: Plan) -> list[str]:
    lines = []
    for option, value_of in _OPTIONS.items():
        before, now = value_of(there), value_of(given)
        if before != now:
            if option == "--seeds" and isinstance(given, ReplicationsPlan):
                option = "--replications"
            lines.append(f"{option}: planned {before}, requested {now}")
    planned = {one.name: one for one in there.settings}
    for one in given.settings:
        other = planned.pop(one.name, None)
        if other is None or (other.proposal, other.point) != (one.proposal, one.point):
            number = "none" if other is None else f"proposal {other.proposal}"
            lines.append(f"{one.name}: planned {number}, requested proposal {one.proposal}")
    lines += [f"{name}: planned, not requested" for name in planned]
    if not lines and there.trained != given.trained:
        lines = [f"what is trained: planned {there.trained}, requested {given.trained}"]
    return lines


# Values of a plan that options decide, as a message has them.
_OPTIONS: Mapping[str, Callable[[Plan], str]] = {
    "--seeds": lambda plan: f"{len(plan.seeds)}",
    "--controls": lambda plan: ",".join(plan.controls) or "none",
    "--only": lambda plan: ", ".join(sorted(plan.design.settings)),
    "--rule": lambda plan: plan.design.rule,
    "--error": lambda plan: f"{plan.design.error:g}",
    "--smallest-effect": lambda plan: str(plan.design.smallest_effect),
    "--until-decided": lambda plan: "yes" if plan.until_decided else "no",
    "proposals of a replication": lambda plan: f"{getattr(plan, 'n_proposals', 0)}",
}
