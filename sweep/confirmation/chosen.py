"""Choice of what is confirmed, and the sweep that trains it beside its controls.

A confirmation is a stored sweep of its own whose proposals are listed: in every setting the
constrained arm that the search chose and its controls, with one unconstrained arm a fresh seed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from math import comb, fsum
from statistics import fmean

from search_spaces import catalog
from search_spaces.space import SearchSpace, Setting
from sweep.confirmation.controls import CONTROLS, Control, Fields, Searched, control_of
from sweep.confirmation.measures import Measures, measures_of, planned_measure, sign_of
from sweep.confirmation.plan import (
    CONSTRAINED,
    FIRST_SEED,
    MEASURES,
    SEEDS,
    EqualTries,
    Measure,
    Plan,
    PlannedSetting,
    families,
    family_of,
)
from sweep.results.sweep_view import SettingView, SweepView, load_sweep
from sweep.statistics.design import Design
from sweep.study import advice
from sweep.study.arms import Arm, arms_of_proposal, baselines
from sweep.study.definition import Definition
from sweep.study.lock import driver_of
from sweep.study.proposals import StoredProposal
from sweep.study.registration import resolved
from trainables.code_version import code_version
from trainables.config.arm import ArmConfig
from trainables.config.renamed import FIRST_NAMES
from trainables.errors import InvalidValue, Misuse
from trainables.plain import with_names
from trainables.records.arm_record import ArmRecord
from trainables.records.objects import ObjectStore

Read = Callable[[str], ArmRecord | None]  # the record of a signature
MOST_REASONS = 3  # settings whose lack of a winner a message explains
JITTER = 0.01  # of the start of networks that have no random one, over their weights' rms


@dataclass(frozen=True)
class Wanted:
    """A request for a confirmation."""

    name: str  # of the confirmation
    design: Callable[[Mapping[str, tuple[str, ...]]], Design]  # of families of settings
    patterns: Sequence[str] = ()  # of settings; none: all
    proposals: Mapping[str, int] = field(default_factory=dict)  # in the place of winners
    controls: tuple[str, ...] = ()
    seeds: int = SEEDS
    until_decided: bool = False
    measure: Measure | None = None  # that is tested; None: ``planned_measure``
    first_seed: int = FIRST_SEED
    used_seeds: Collection[int] = ()  # of other confirmations of the same search
    may_lack: bool = False  # a control whose search has no winner in a setting is left out there


def finished_search(objects: ObjectStore, name: str) -> SweepView:
    """A search whose winners stand; Misuse for one that goes on, and for a confirmation."""
    view = load_sweep(objects, name, "pairs")
    if view.definition.space.phase == "confirmation":
        raise Misuse(f"{name} is a confirmation itself. Give the sweep that it confirms.")
    if not has_ended(view):
        driver = driver_of(objects, name)
        goes_on = f"It is driven by {driver}: wait for its end."
        if driver is None:
            goes_on = f"`{advice.command('resume', name, storage=objects.root)}` continues it."
        raise Misuse(f"{name} is not finished, so that its winners may change. {goes_on}")
    return view


def has_ended(search: SweepView) -> bool:
    """True if a search has made all proposals of each unretired setting, and all arms are final."""
    wanted = search.definition.space.proposals_of
    return all(
        all(arm.is_final for arm in one.arms)
        and (len(one.proposals) >= wanted(one.setting) or one.setting.name in search.retired)
        for one in search.settings
    )


def resolve_fresh(definition: Definition) -> Definition:
    """Resolve it with the dev split drawn by the seed as well, where the data allow that."""
    try:
        drawn = definition.space.with_base({"data.split_by_seed": True})
        return resolved(replace(definition, space=drawn), say=advice.note)
    except InvalidValue as error:
        if "split_by_seed" not in str(error):
            raise
        advice.note(
            "every seed holds out the same training data as dev: these data have a dev split of "
            "their own, or too few clips to draw another. Confirmation goes on."
        )
        return resolved(definition, say=advice.note)


def confirmation_name(search: str) -> str:
    """The name of the first confirmation of a sweep."""
    return f"{search}.confirmation"


def tuning_name(search: str, control: str) -> str:
    """The name of the sweep that tunes a control of a search."""
    return f"{search}.{control}"


def tuning_of(search: Definition, control: str, points: Mapping[str, Fields]) -> Definition | None:
    """The search that gives a control as many tries as the constrained side had; None: no knobs.

    On the same seeds and data, in the settings that are confirmed. Those that differ in their
    constraint alone share it, unless the control reads the constraint: the first is searched.
    ``points``: by setting, the point that is confirmed.
    """
    base, tuned = search.space.base, control_of(control)
    fields = _fields_of(tuned, base)
    if tuned.ranges is None or fields is None:
        return None
    shared = tuned.ranges(base)
    settings: dict[str, Setting] = {}
    for setting in search.space.settings:
        if setting.name not in points:
            continue
        most = search.space.proposals_of(setting)
        point = points[setting.name] if tuned.at_point else {}
        key = setting.name if point else repr(sorted(_primal(setting).items()))
        if key not in settings or most > (settings[key].n_proposals or 0):
            kept = settings.get(key, setting)
            config = base.with_fields(setting.fields)
            own_fields = (_fields_of(tuned, config) or {}).items()
            reset = {name: value for name, value in own_fields if name in kept.fields}
            own = tuned.ranges(config).items()
            ranges = {name: values for name, values in own if values != shared[name]}
            settings[key] = Setting(kept.name, {**kept.fields, **reset, **point}, most, ranges)
    proposals = [search.space.n_proposals, *(s.n_proposals or 0 for s in settings.values())]
    space = replace(
        search.space,
        summary=f"{control} of {search.name}",
        n_proposals=max(proposals),
        base=base.with_fields(fields),
        settings=tuple(settings.values()),
        ranges=shared,
    )
    return Definition(tuning_name(search.name, control), space, search.mlflow_uri)


def _fields_of(control: Control, config: ArmConfig) -> Fields | None:
    """Fields that a control that is tuned sets in arms of this configuration."""
    return control.fields(Searched(config, ArmRecord(signature=config.signature(), config=config)))


def _tuned_point(
    tuning: SweepView, plain: Setting, control: Control, *, may_lack: bool
) -> Fields | None:
    """The values that a control's own search found for a setting, or one that shares its search.

    None where it found none and ``may_lack`` one; else that raises Misuse.
    """
    for view in tuning.settings:
        is_shared = not control.at_point and _primal(view.setting) == _primal(plain)
        if view.setting.name != plain.name and not is_shared:
            continue
        winner = view.chosen.winner
        if winner is None and not may_lack:
            raise Misuse(
                f"{tuning.definition.name} has no winner in setting {view.setting.name}: "
                f"{view.chosen.why}. Leave that control out with --controls."
            )
        return None if winner is None else dict(winner.point)
    raise Misuse(f"{tuning.definition.name} does not search setting {plain.name}.")


def _primal(setting: Setting) -> Fields:
    return {n: v for n, v in setting.fields.items() if not n.startswith("constraint.")}


def chosen_proposals(view: SweepView, wanted: Wanted) -> dict[str, StoredProposal]:
    """By setting the proposal to confirm: the named one, or the winner.

    Raises:
        UnknownName, Misuse: no setting or proposal matches, or there is none to confirm.
    """
    by_name = {one.setting.name: one for one in view.settings}
    kept = catalog.matching(list(by_name), wanted.patterns, view.definition.name)
    for setting in wanted.proposals:
        view.definition.space.setting(setting)  # UnknownName
    winners = {name: by_name[name].chosen.winner for name in kept}
    numbers = {name: winner.number for name, winner in winners.items() if winner is not None}
    numbers |= wanted.proposals
    if not numbers:
        why = [f"{name}: {one.chosen.why}" for name, one in by_name.items() if name in kept]
        more = [f"and {len(why) - MOST_REASONS} more settings"] * (len(why) > MOST_REASONS)
        raise Misuse(
            f"{view.definition.name} has no winner to confirm"
            f"{' in these settings' * bool(wanted.patterns)}: "
            f"{'; '.join([*why[:MOST_REASONS], *more])}. Search on, or name what to confirm all "
            "the same: --proposal SETTING=NUMBER."
        )
    return {name: _proposal(by_name[name], numbers[name]) for name in by_name if name in numbers}


def plan_confirmation(
    view: SweepView, wanted: Wanted, tuned: Mapping[str, SweepView], read: Read
) -> tuple[Plan, Definition]:
    """The plan of a confirmation, and the sweep that trains it; ``tuned``: searches by control."""

    @cache  # baselines and winners are measured more than once
    def measured(signature: str) -> Measures:
        record = read(signature)
        if record is None or record.evaluation is None:
            return {}
        return measures_of(record.config, record.evaluation)

    search, space = view.definition, view.definition.space
    measure = planned_measure(space, wanted.measure)
    by_name = {one.setting.name: one for one in view.settings}
    settings: list[Setting] = []
    rows: list[PlannedSetting] = []
    for name, proposal in chosen_proposals(view, wanted).items():
        setting, point = by_name[name].setting, dict(proposal.point)
        arms = arms_of_proposal(search, name, proposal.number, point)
        searched = _searched(arms[0], read)
        points: dict[str, Fields] = {CONSTRAINED: point}
        for kind in wanted.controls:
            control = control_of(kind)
            fields, own = control.fields(searched), None
            if fields is not None and kind in tuned:
                own = _tuned_point(tuned[kind], setting, control, may_lack=wanted.may_lack)
            if fields is not None and (kind not in tuned or own is not None):
                points[kind] = {**point, **fields, **(own or {})}
        kept = dict(setting.fields)
        if searched.config.model.spec.fixed_start:
            kept["model.start_jitter"] = JITTER  # so that a seed draws its start
        settings.append(replace(setting, fields=kept, points=points, n_proposals=None, ranges={}))
        rows.append(
            PlannedSetting(
                name=name,
                family=family_of(searched.config),
                proposal=proposal.number,
                chosen="named" if name in wanted.proposals else "winner",
                point=point,
                search_gain=_gain(arms, baselines(search, name), measured),
                equal_tries=_equal_tries(search, by_name[name], measured, measure),
            )
        )
    taken = {*taken_seeds(space), *wanted.used_seeds}
    seeds = free_seeds(wanted.first_seed, wanted.seeds, taken)
    confirmation = replace(
        space,
        base=space.base.with_fields(FRESH),
        summary=f"confirmation of {search.name}",
        settings=tuple(settings),
        ranges={},
        search_seeds=seeds,
        selected_seeds=(),
        sampler="random",
        phase="confirmation",
    )
    plan = Plan(
        name=wanted.name,
        search=search.name,
        settings=tuple(rows),
        controls=tuple(c for c in CONTROLS if any(c in setting.points for setting in settings)),
        trained=digest_of(confirmation),
        measure=measure,
        design=wanted.design(families({row.name: row.family for row in rows})),
        seeds=seeds,
        until_decided=wanted.until_decided,
        code=code_version(),
    )
    return plan, Definition(wanted.name, confirmation, search.mlflow_uri)


# Fields of every arm of a confirmation, the plain ones too: the test split is read, the last
# iterate is judged, and no early sign ends an arm.
FRESH: Fields = {"measured_on": "test", "early_stop": False}


def taken_seeds(space: SearchSpace) -> set[int]:
    """Seeds by which a search chose, or what it was made from was chosen."""
    return {*space.search_seeds, *space.selected_seeds}


def free_seeds(first: int, count: int, taken: Collection[int]) -> tuple[int, ...]:
    """So many seeds from ``first`` on, but those that are taken.

    >>> free_seeds(1000, 3, {1001})
    (1000, 1002, 1003)
    """
    seeds = range(first, first + count + len(taken))
    return tuple(seed for seed in seeds if seed not in taken)[:count]


def digest_of(space: SearchSpace) -> str:
    """12 hex digits of everything that is trained but for its seeds and where its data lie."""
    # Under the names that the fields had first: digests of stored plans stay as they are.
    plain = with_names(space.to_json(), FIRST_NAMES)
    plain["base"]["data"]["folder"] = plain["search_seeds"] = None
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:12]


def points_of(view: SweepView, wanted: Wanted) -> dict[str, Fields]:
    """By setting the point that is confirmed."""
    return {name: dict(one.point) for name, one in chosen_proposals(view, wanted).items()}


def _proposal(view: SettingView, number: int) -> StoredProposal:
    for proposal in view.proposals:
        if proposal.number == number:
            return proposal
    raise InvalidValue(
        f"setting {view.setting.name} has proposals "
        f"{', '.join(str(p.number) for p in view.proposals)}, got {number}."
    )


def _searched(arm: Arm, read: Read) -> Searched:
    record = read(arm.signature)
    if record is None or record.evaluation is None:
        status = "gone" if record is None else record.status
        raise Misuse(
            f"proposal {arm.proposal} of setting {arm.setting} cannot be confirmed: its arm "
            f"{arm.signature} is {status}. Name another one with --proposal."
        )
    return Searched(arm.config, record)


Measured = Callable[[str], Measures]  # by signature


def _gain(arms: list[Arm], plain: list[Arm], measured: Measured) -> dict[Measure, float]:
    """The gain of a proposal over plain training in the search, mean over its seeds."""
    sign = sign_of(arms[0].config)
    each, others = ([measured(arm.signature) for arm in side] for side in (arms, plain))
    pairs = list(zip(each, others, strict=True))
    return {
        measure: fmean(sign * (ours[measure] - other[measure]) for ours, other in pairs)
        for measure in MEASURES
        if all(measure in ours and measure in other for ours, other in pairs)
    }


def equal_tries(tries: Sequence[float], plain: Sequence[float]) -> EqualTries | None:
    """The best of some tries less the best of as many plain seeds, as the paper compares them.

    Of each side as many count as the smaller one has, in the mean over every way to draw them: the
    best of more tries is better by luck alone. None where a side has none.

    >>> equal_tries([1.0, 2.0, 2.0, 6.0], [2.0, 3.0])
    EqualTries(gain=1.0, tries=2)
    """
    count = min(len(tries), len(plain))
    if not count:
        return None
    return EqualTries(gain=best_of(tries, count) - best_of(plain, count), tries=count)


def best_of(values: Sequence[float], count: int) -> float:
    """The largest of so many of these values, in the mean over every way to draw them.

    >>> best_of([6.0, 1.0, 2.0, 2.0], 2)
    4.0
    """
    # the i-th smallest is the largest of those draws whose others are all below it
    ways = [comb(below, count - 1) / comb(len(values), count) for below in range(len(values))]
    return fsum(share * value for share, value in zip(ways, sorted(values), strict=True))


def _equal_tries(
    search: Definition, view: SettingView, measured: Measured, measure: Measure
) -> EqualTries | None:
    name, sign = view.setting.name, sign_of(search.space.run(view.setting, {}, seed=0))

    def scores(arms: Iterable[Arm]) -> list[float]:
        every = [measured(arm.signature) for arm in arms]
        return [sign * measures[measure] for measures in every if measure in measures]

    by_proposal = (arms_of_proposal(search, name, p.number, p.point) for p in view.proposals)
    tries = [arm for arms in by_proposal for arm in arms]
    return equal_tries(scores(tries), scores(baselines(search, name)))
