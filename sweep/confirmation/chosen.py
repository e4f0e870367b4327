"""Choice of what is confirmed, and the sweep that trains it beside its controls.

A confirmation is a stored sweep of its own whose proposals are listed: in every setting the
constrained arm that the search chose, then its controls, all beside one unconstrained arm for each
fresh seed. So its arms train, resume, go to a cluster and are tracked as any sweep's.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from math import comb, fsum
from statistics import fmean

from search_spaces import catalog
from search_spaces.space import SearchSpace, Setting
from sweep.confirmation.controls import CONTROLS, Fields, Searched, control_of
from sweep.confirmation.measures import Measures, measures_of, sign_of
from sweep.confirmation.plan import (
    CONSTRAINED,
    FIRST_SEED,
    MEASURES,
    SEEDS,
    Measure,
    Plan,
    PlannedSetting,
    families,
    family_of,
)
from sweep.results.sweep_view import SettingView, SweepView, load_sweep
from sweep.statistics.design import Design
from sweep.study import advice
from sweep.study.arms import arms_of_proposal, baselines
from sweep.study.definition import Definition
from sweep.study.lock import driver_of
from sweep.study.registration import Say, resolved
from trainables.code_version import code_version
from trainables.config.arm import FIRST_NAMES, ArmConfig
from trainables.config.test_conditions import unseen_gammas
from trainables.errors import InvalidValue, Misuse
from trainables.plain import Json, with_names
from trainables.records.arm_record import ArmRecord
from trainables.records.objects import ObjectStore

Read = Callable[[str], ArmRecord | None]  # the record of a signature
MOST_REASONS = 3  # settings whose lack of a winner a message explains
JITTER = 0.01  # of the start of networks that have no random one, over their weights' rms


@dataclass(frozen=True)
class Wanted:
    """What a confirmation is asked for."""

    name: str  # of the confirmation
    design: Callable[[Mapping[str, tuple[str, ...]]], Design]  # of families of settings
    patterns: Sequence[str] = ()  # of settings; none: all
    proposals: Mapping[str, int] = field(default_factory=dict)  # in the place of winners
    controls: tuple[str, ...] = ()
    seeds: int = SEEDS
    until_decided: bool = False
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
        goes_on = f"`{advice.command('resume', name, storage=objects.root)}` continues it."
        if driver is not None:
            goes_on = f"It is driven by {driver}: wait for its end."
        raise Misuse(f"{name} is not finished, so that its winners may change. {goes_on}")
    return view


def has_ended(search: SweepView) -> bool:
    """Whether a search has made all its proposals, or retired a setting, and every arm is final."""
    wanted = search.definition.space.proposals_of
    return all(
        all(arm.is_final for arm in one.arms)
        and (len(one.proposals) >= wanted(one.setting) or one.setting.name in search.retired)
        for one in search.settings
    )


def resolved_fresh(definition: Definition, *, say: Say) -> Definition:
    """Resolved, the dev split drawn by the seed as well where the data allow it."""
    try:
        drawn = definition.space.with_base({"data.split_by_seed": True})
        return resolved(replace(definition, space=drawn), say=say)
    except InvalidValue as error:
        if "split_by_seed" not in str(error):
            raise
        say(
            "every seed holds out the same training data as dev: these data have a dev split of "
            "their own, or too few clips to draw another. Confirmation goes on."
        )
        return resolved(definition, say=say)


def confirmation_name(search: str) -> str:
    """How the first confirmation of a sweep is called."""
    return f"{search}.confirmation"


def tuning_name(search: str, control: str) -> str:
    """How the sweep is called that tunes a control of a search."""
    return f"{search}.{control}"


def tuning_of(search: Definition, control: str, points: Mapping[str, Fields]) -> Definition | None:
    """The search that gives a control as many tries as the constrained side had; None: no knobs.

    On the same seeds and data, in the settings that are confirmed. Those that differ in their
    constraint alone share it, unless the control reads the constraint: the first is searched.

    Args:
        search: the sweep that is confirmed.
        control: its name.
        points: by setting, the point that is confirmed.
    """
    base = search.space.base
    ranges_of = control_of(control).ranges
    if ranges_of is None:
        return None
    fields = _fields_of(control, base)
    if fields is None:
        return None
    shared = ranges_of(base)
    settings: dict[str, Setting] = {}
    for setting in search.space.settings:
        if setting.name not in points:
            continue
        most = search.space.proposals_of(setting)
        at = points[setting.name] if control_of(control).at_point else {}
        key = setting.name if at else repr(sorted(_primal(setting).items()))
        if key not in settings or most > (settings[key].n_proposals or 0):
            kept = settings.get(key, setting)
            config = base.with_fields(setting.fields)
            own = ranges_of(config)
            own_fields = (_fields_of(control, config) or {}).items()
            reset = {name: value for name, value in own_fields if name in kept.fields}
            ranges = {name: values for name, values in own.items() if values != shared[name]}
            settings[key] = Setting(kept.name, {**kept.fields, **reset, **at}, most, ranges)
    space = replace(
        search.space,
        summary=f"{control} of {search.name}",
        n_proposals=max(
            [search.space.n_proposals, *(s.n_proposals or 0 for s in settings.values())]
        ),
        base=base.with_fields(fields),
        settings=tuple(settings.values()),
        ranges=shared,
    )
    return Definition(tuning_name(search.name, control), space, search.mlflow_uri)


def _fields_of(control: str, config: ArmConfig) -> Fields | None:
    """What a control that is tuned sets beside arms of this configuration."""
    record = ArmRecord(signature=config.signature(), config=config)
    return control_of(control).fields(Searched(config, record))


def tuned_point(
    tuning: SweepView, plain: Setting, *, at_point: bool, may_lack: bool = False
) -> Fields | None:
    """The values that a control's own search found for a setting, or one that shares its search.

    Raises:
        Misuse: it found none, unless it ``may_lack`` one: then None.
    """
    for view in tuning.settings:
        same = _primal(view.setting) == _primal(plain)
        if view.setting.name == plain.name or (same and not at_point):
            shown = view.chosen.winner
            if shown is not None:
                return dict(shown.point)
            if may_lack:
                return None
            raise Misuse(
                f"{tuning.definition.name} has no winner in setting {view.setting.name}: "
                f"{view.chosen.why}. Leave that control out with --controls."
            )
    raise Misuse(f"{tuning.definition.name} does not search setting {plain.name}.")


def _primal(setting: Setting) -> Fields:
    return {n: v for n, v in setting.fields.items() if not n.startswith("constraint.")}


def chosen_proposals(view: SweepView, wanted: Wanted) -> dict[str, tuple[int, bool]]:
    """By setting the number of the proposal to confirm, and whether it was named by hand.

    Raises:
        UnknownName, Misuse: no setting or proposal matches, or there is none to confirm.
    """
    named = wanted.proposals
    names = [one.setting.name for one in view.settings]
    kept = catalog.matching(names, wanted.patterns, view.definition.name)
    for setting in named:
        view.definition.space.setting(setting)  # UnknownName
    found: dict[str, tuple[int, bool]] = {}
    for one in view.settings:
        name = one.setting.name
        if name in named:
            found[name] = named[name], True
        elif name in kept and one.chosen.winner is not None:
            found[name] = one.chosen.winner.number, False
    if not found:
        why = [f"{s.setting.name}: {s.chosen.why}" for s in view.settings if s.setting.name in kept]
        more = [f"and {len(why) - MOST_REASONS} more settings"] * (len(why) > MOST_REASONS)
        raise Misuse(
            f"{view.definition.name} has no winner to confirm"
            + (" in these settings" if wanted.patterns else "")
            + ": "
            + "; ".join([*why[:MOST_REASONS], *more])
            + ". Search on, or name what to confirm all the same: --proposal SETTING=NUMBER."
        )
    return found


def planned(
    view: SweepView, wanted: Wanted, tuned: Mapping[str, SweepView], read: Read
) -> tuple[Plan, Definition]:
    """The plan of a confirmation and the sweep that trains it.

    Args:
        view: the finished search.
        wanted: what is asked for.
        tuned: by control, its finished search.
        read: the record of a signature.
    """

    @cache  # of baselines and winners more than once
    def measured(signature: str) -> Measures:
        record = read(signature)
        if record is None or record.evaluation is None:
            return {}
        return measures_of(record.config, record.evaluation)

    space = view.definition.space
    by_name = {one.setting.name: one for one in view.settings}
    settings: list[Setting] = []
    rows: list[PlannedSetting] = []
    for name, (number, is_named) in chosen_proposals(view, wanted).items():
        setting = by_name[name].setting
        point = _point(by_name[name], number)
        searched = _searched(view.definition, setting, number, point, read)
        points: dict[str, Fields] = {CONSTRAINED: dict(point)}
        for control in wanted.controls:
            fields = control_of(control).fields(searched)
            if fields is not None:
                own: Fields | None = {}
                if control in tuned:
                    at_point = control_of(control).at_point
                    own = tuned_point(
                        tuned[control], setting, at_point=at_point, may_lack=wanted.may_lack
                    )
                if own is not None:
                    points[control] = {**point, **fields, **own}
        settings.append(
            Setting(
                name,
                {**setting.fields, **fresh_start(searched.config)},
                points=points,
                least_descent=setting.least_descent,
            )
        )
        rows.append(
            PlannedSetting(
                name=name,
                family=family_of(searched.config),
                proposal=number,
                chosen="named" if is_named else "winner",
                point=point,
                search_gain=_gain(view.definition, by_name[name], number, measured),
                equal_tries=_equal_tries(
                    view.definition, by_name[name], measured, tested_measure(space)
                ),
            )
        )
    design = wanted.design(families({row.name: row.family for row in rows}))
    taken = taken_seeds(space) | set(wanted.used_seeds)
    seeds = free_seeds(wanted.first_seed, wanted.seeds, taken)
    confirmation = replace(
        space,
        base=space.base.with_fields(FRESH),
        summary=f"confirmation of {view.definition.name}",
        settings=tuple(settings),
        ranges={},
        search_seeds=seeds,
        selected_seeds=(),
        sampler="random",
        phase="confirmation",
    )
    plan = Plan(
        name=wanted.name,
        search=view.definition.name,
        settings=tuple(rows),
        controls=tuple(c for c in CONTROLS if any(c in setting.points for setting in settings)),
        trained=digest_of(confirmation),
        measure=tested_measure(space),
        design=design,
        seeds=seeds,
        until_decided=wanted.until_decided,
        code=code_version(),
    )
    return plan, Definition(wanted.name, confirmation, view.definition.mlflow_uri)


# What a confirmation changes of every arm, the plain ones too: the test split is read, the last
# iterate is judged, and no early sign ends an arm.
FRESH: Fields = {"measured_on": "test", "early_stop": False}


def fresh_start(config: ArmConfig) -> Fields:
    """What makes a seed draw the start of a network whose start is otherwise fixed."""
    return {"model.start_jitter": JITTER} if config.model.spec.fixed_start else {}


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


def tested_measure(space: SearchSpace) -> Measure:
    """The mean over unseen test gammas where every setting has some, else over all."""
    runs = [space.run(setting, {}, seed=0) for setting in space.settings]
    return "unseen_mean" if all(map(unseen_gammas, runs)) else "mean_over_gammas"


def digest_of(space: SearchSpace) -> str:
    """12 hex digits of everything that is trained but for its seeds and where its data lie."""
    plain = with_names(space.to_json(), FIRST_NAMES)
    plain["base"]["data"]["folder"] = plain["search_seeds"] = None
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:12]


def points_of(view: SweepView, wanted: Wanted) -> dict[str, Fields]:
    """By setting the point that is confirmed."""
    by_name = {one.setting.name: one for one in view.settings}
    chosen = chosen_proposals(view, wanted).items()
    return {name: _point(by_name[name], number) for name, (number, _) in chosen}


def _point(view: SettingView, number: int) -> Fields:
    for proposal in view.proposals:
        if proposal.number == number:
            return dict(proposal.point)
    raise InvalidValue(
        f"setting {view.setting.name} has proposals "
        f"{', '.join(str(p.number) for p in view.proposals)}, got {number}."
    )


def _searched(
    search: Definition, setting: Setting, number: int, point: Mapping[str, Json], read: Read
) -> Searched:
    arm = arms_of_proposal(search, setting.name, number, point)[0]
    record = read(arm.signature)
    if record is None or record.evaluation is None:
        status = "gone" if record is None else record.status
        raise Misuse(
            f"proposal {number} of setting {setting.name} cannot be confirmed: its arm "
            f"{arm.signature} is {status}. Name another one with --proposal."
        )
    return Searched(arm.config, record)


def _gain(
    search: Definition, view: SettingView, number: int, measured: Callable[[str], Measures]
) -> dict[Measure, float]:
    """What the search saw of a proposal, mean over its seeds, > 0 better than plain training."""
    sign = sign_of(search.space.run(view.setting, {}, seed=0))
    arms = arms_of_proposal(search, view.setting.name, number, _point(view, number))
    ours = [measured(arm.signature) for arm in arms]
    theirs = [measured(arm.signature) for arm in baselines(search, view.setting.name)]
    pairs = list(zip(ours, theirs, strict=True))
    return {
        measure: fmean(sign * (our[measure] - their[measure]) for our, their in pairs)
        for measure in MEASURES
        if all(measure in our and measure in their for our, their in pairs)
    }


def equal_tries(ours: Sequence[float], theirs: Sequence[float]) -> dict[str, Json] | None:
    """The best of some tries less the best of as many plain seeds, as the paper compares them.

    Of each side as many count as the smaller one has, in the mean over every way to draw them: the
    best of more tries is better by luck alone. None where a side has none.

    >>> equal_tries([1.0, 2.0, 2.0, 6.0], [2.0, 3.0])
    {'gain': 1.0, 'tries': 2}
    """
    tries = min(len(ours), len(theirs))
    if not tries:
        return None
    return {"gain": best_of(ours, tries) - best_of(theirs, tries), "tries": tries}


def best_of(values: Sequence[float], count: int) -> float:
    """The largest of so many of these values, in the mean over every way to draw them.

    >>> best_of([6.0, 1.0, 2.0, 2.0], 2)
    4.0
    """
    # the i-th smallest is the largest of those draws whose others are all below it
    ways = [comb(below, count - 1) / comb(len(values), count) for below in range(len(values))]
    return fsum(share * value for share, value in zip(ways, sorted(values), strict=True))


def _equal_tries(
    search: Definition, view: SettingView, measured: Callable[[str], Measures], measure: Measure
) -> dict[str, Json] | None:
    name, sign = view.setting.name, sign_of(search.space.run(view.setting, {}, seed=0))
    tries = [
        arm for p in view.proposals for arm in arms_of_proposal(search, name, p.number, p.point)
    ]
    ours, theirs = (
        [sign * of[measure] for arm in arms if measure in (of := measured(arm.signature))]
        for arms in (tries, baselines(search, name))
    )
    return equal_tries(ours, theirs)
