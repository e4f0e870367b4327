"""The option `sweep confirm --studies`: planned, trained and shown."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace

from sweep.cli.asked import Place
from sweep.cli.options import named_here, print_json
from sweep.cli.running import train
from sweep.cli.spaces import estimated
from sweep.confirmation.chosen import (
    Wanted,
    confirmation_name,
    finished_search,
    has_ended,
    planned,
    points_of,
    resolved_fresh,
)
from sweep.confirmation.controls import parse_controls
from sweep.confirmation.plan import (
    StudiesPlan,
    load_plan,
    load_studies,
    planned_seeds,
    put_plan,
)
from sweep.confirmation.studies import (
    TUNED,
    arms_of_a_study,
    found_winner,
    plan_of_studies,
    refuse_other_search,
    study_search,
    study_tuning,
)
from sweep.executors.executor import Executor
from sweep.results.sweep_view import SweepView, load_sweep
from sweep.run.budget import Budget
from sweep.statistics.design import Design
from sweep.study import advice
from sweep.study.advice import note
from sweep.study.arms import all_judged
from sweep.study.definition import Definition, definition_name, load_definition
from sweep.study.opening import find_sweep, open_store
from sweep.study.registration import refuse_second_driver, registered, resolved
from trainables.errors import InvalidValue, Misuse
from trainables.plain import Json
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore

_PLANNING = ("patterns", "rule", "error", "smallest_effect", "until_decided")


@dataclass(frozen=True)
class Studies:
    """What studies are asked for."""

    search: str
    wanted: Wanted  # ``seeds``: how many studies; its design has no smallest effect yet
    smallest_effect: float | None
    at: Place
    executor: Executor
    accept_code: bool
    notify: str | None


def refuse_beside_studies(
    name: str, studies: int, proposals: Sequence[str], controls: str, budget: Budget
) -> None:
    """Raise for options of this command line that make no sense with ``--studies``."""
    if studies < 2:
        raise InvalidValue(
            f"--studies must be at least 2, got {studies}: one study has no spread to judge by. "
            "Ten and more tell something: `--dry-run` prints the power."
        )
    if proposals:
        raise Misuse(
            f"--studies chooses the winners of every study by its own search, got --proposal "
            f"{proposals[0]} of {name}. Leave --proposal out, or --studies to confirm that one."
        )
    if parse_controls(controls) not in ((), (TUNED,)):
        raise Misuse(
            f"--studies compares with {TUNED} alone, got --controls {controls}. Leave --controls "
            "out; without --studies the other controls stand beside the pair."
        )
    if budget:
        raise Misuse(
            f"--studies trains many sweeps, got {' '.join(budget.options)}, which is of one sweep. "
            "Leave it out: Ctrl-C ends them, and the same command continues."
        )
    if named_here("seeds"):
        raise Misuse(
            "--studies has one fresh seed a study, got --seeds as well. Leave --seeds out: how "
            f"many there are is --studies {studies}."
        )


def confirm_studies(asked: Studies, *, dry_run: bool, as_json: bool) -> None:
    """Train what is missing of the studies, one after another, and show what they come to."""
    again = ["confirm", asked.search, "--studies", str(asked.wanted.seeds)]
    if named_here("called"):
        again += ["--name", asked.wanted.name.removesuffix(".studies")]
    again += asked.executor.options
    again += ["--accept-code"] * asked.accept_code
    if asked.executor.where != "local":
        again += ["--where", asked.executor.where]
    if asked.at.address is not None:
        raise Misuse(
            f"--studies drives many sweeps one after another, so it runs where they train, got "
            f"--address {asked.at.address}. Give it on the cluster's head: `ray exec CLUSTER_YAML "
            f"'sweep {' '.join(again[:4])} --where cluster'`; without --address (and SWEEP_ADDRESS)"
            " it trains here."
        )
    objects = open_store(asked.at.storage)
    find_sweep(objects, asked.search)
    search, plan = _planned(objects, asked)
    if dry_run:
        _show_plan(search, plan, as_json=as_json)
        return
    plan = put_plan(objects, plan)
    with redirect_stdout(sys.stderr):  # of every part; on standard output the one table
        _train_all(objects, search, plan, asked, advice.command(*again, storage=objects.root))
    from sweep.confirmation.studied import studied  # scipy, statsmodels: two seconds

    entry = studied(objects, search, plan)
    if as_json:
        print_json(entry.to_json())
        return
    from sweep.cli.text.studies import print_studied

    print_studied(entry)


def _planned(objects: ObjectStore, asked: Studies) -> tuple[Definition, StudiesPlan]:
    """The search and the plan: the stored one, unless something else is asked for."""
    name, count = asked.wanted.name, asked.wanted.seeds
    plan = load_studies(objects, name)
    if plan is not None and plan.search != asked.search:
        raise Misuse(f"{name} repeats {plan.search}, not {asked.search}. Give another --name.")
    if plan is not None and plan.count != count:
        raise Misuse(
            f"{name} is planned with {plan.count} studies, got --studies {count}, and its plan "
            f"stays as it is. Give --studies {plan.count} to go on with it, or another --name: "
            "its table says that the same test data were read before."
        )
    search = finished_search(objects, asked.search).definition
    if plan is not None and not any(map(named_here, _PLANNING)):
        refuse_other_search(search, plan)
        return search, plan
    effect = asked.smallest_effect
    if effect is None:
        effect = search.space.base.facts.metric.smallest_effect

    def design(families: Mapping[str, tuple[str, ...]]) -> Design:
        return replace(asked.wanted.design(families), smallest_effect=effect)

    used = planned_seeds(objects, search.name, but=name)
    given = plan_of_studies(search, replace(asked.wanted, design=design, used_seeds=used))
    return search, given if plan is None else put_plan(objects, given)


def _train_all(
    objects: ObjectStore, search: Definition, plan: StudiesPlan, asked: Studies, again: str
) -> None:
    from sweep.confirmation.studied import is_decided  # scipy, statsmodels: two seconds

    for number in range(1, plan.count + 1):
        if plan.until_decided and is_decided(objects, search, plan):
            note(f"every family is decided after {number - 1} of {plan.count} studies")
            return
        try:
            _train_study(objects, search, plan, number, asked)
        except SystemExit:
            note(f"study {number} of {plan.count} is not whole. `{again}` goes on with all.")
            raise


def _train_study(
    objects: ObjectStore, search: Definition, plan: StudiesPlan, number: int, asked: Studies
) -> None:
    """What is missing of one study; nothing, where it is whole."""
    own = plan.study(number)
    name = confirmation_name(own)
    chosen = load_plan(objects, name)
    if chosen is None or not objects.exists(definition_name(name)):
        view = _searched(objects, study_search(search, plan, number), asked)
        if not found_winner(objects, own):
            note(f"{own} has no feasible winner; it is scored as plain training")
            return
        wanted = Wanted(
            name=name,
            design=lambda families: replace(plan.design, families=dict(families)),
            controls=(TUNED,),
            seeds=1,
            first_seed=plan.seeds[number - 1],
            may_lack=True,
        )
        tuning = study_tuning(view.definition, points_of(view, wanted))
        tuned = {TUNED: _searched(objects, tuning, asked)}
        chosen, definition = planned(view, wanted, tuned, ArmStore(objects).record)
        definition = resolved_fresh(definition, say=note)
        put_plan(objects, chosen)
        registered(objects, definition, named=(), say=note)
    definition = load_definition(objects, name)
    if all_judged(objects, definition):
        return
    refuse_second_driver(objects, name)
    code = _train(objects, definition, asked)
    if not all_judged(objects, definition):  # arms that failed count
        raise SystemExit(code or 1)


def _searched(objects: ObjectStore, definition: Definition, asked: Studies) -> SweepView:
    """A search of a study, trained to its end."""
    if objects.exists(definition_name(definition.name)):
        view = load_sweep(objects, definition.name, "pairs")
        if has_ended(view):
            return view
    there = registered(objects, resolved(definition, say=note), named=(), say=note)
    refuse_second_driver(objects, there.name)
    if code := _train(objects, there, asked):
        raise SystemExit(code)
    return load_sweep(objects, there.name, "pairs")


def _train(objects: ObjectStore, definition: Definition, asked: Studies) -> int:
    return train(
        objects, definition, asked.executor, accept_code=asked.accept_code, notify=asked.notify
    )


def _show_plan(search: Definition, plan: StudiesPlan, *, as_json: bool) -> None:
    """What would be trained and tested, with which power and at what price, before anything is."""
    arms, hours = arms_of_a_study(search, plan), _hours(search, plan)
    entry: dict[str, Json] = {
        **plan.to_json(),
        "digest": plan.digest,
        "arms_of_a_study": arms,
        "arms": plan.count * sum(arms.values()),
        "hours": hours,
    }
    if as_json:
        print_json(entry)
        return
    from sweep.cli.text.studies import print_studies_plan  # scipy

    print_studies_plan(plan, entry, search.space.base.facts.metric.unit)


def _hours(search: Definition, plan: StudiesPlan) -> float | None:
    """Wall time of all studies on this machine, within a factor of 2; None: it cannot be told."""
    first = study_search(search, plan, 1)
    cost, why_none = estimated(first.space)
    if cost is None:
        note(f"no estimate: {why_none}")
        return None
    seconds = 3600 * cost.device_hours
    for setting in first.space.settings:
        plain, constrained = cost.seconds_per_arm[setting.name]
        tries = first.space.proposals_of(setting) * len(first.space.search_seeds)
        seconds += (tries + 2) * plain + constrained  # the tuned side, and the fresh seed
    return plan.count * seconds / 3600 / cost.workers
