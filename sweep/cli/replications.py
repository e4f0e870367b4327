"""Replications, `sweep confirm --replications`: planned, trained and shown."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from functools import partial

from sweep.api import training
from sweep.cli.options import named_here, print_json
from sweep.cli.spaces import estimated
from sweep.cli.sweep_options import Place
from sweep.cli.text.done import print_done
from sweep.confirmation.chosen import (
    Wanted,
    confirmation_name,
    finished_search,
    has_ended,
    plan_confirmation,
    points_of,
    resolve_fresh,
)
from sweep.confirmation.controls import parse_controls
from sweep.confirmation.plan import (
    ReplicationsPlan,
    load_plan,
    load_replications,
    planned_seeds,
    put_plan,
    refuse_other_plan,
)
from sweep.confirmation.replications import (
    TUNED,
    arms_of_a_replication,
    has_winner,
    plan_replications,
    refuse_other_search,
    replication_search,
    replication_tuning,
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
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore

_PLANNING = ("patterns", "rule", "error", "smallest_effect", "until_decided")


@dataclass(frozen=True)
class Replications:
    """A request for replications of a search."""

    search: str
    wanted: Wanted  # ``seeds``: how many replications; its design has no smallest effect yet
    smallest_effect: float | None
    place: Place
    executor: Executor
    accept_code: bool
    notify: str | None


def refuse_beside_replications(
    name: str, replications: int, proposals: Sequence[str], controls: str, budget: Budget
) -> None:
    """Raise for options of this command line that make no sense with ``--replications``."""
    if replications < 2:
        raise InvalidValue(
            f"--replications must be at least 2, got {replications}: one has no spread to judge "
            "by. Give ten or more: `--dry-run` prints the power."
        )
    if proposals:
        raise Misuse(
            "--replications chooses the winners of each by a search of its own, got --proposal "
            f"{proposals[0]} of {name}. Leave --proposal out; or --replications, to confirm that "
            "proposal."
        )
    if parse_controls(controls) not in ((), (TUNED,)):
        raise Misuse(
            f"--replications compares with {TUNED} alone, got --controls {controls}. Leave "
            "--controls out; a confirmation without --replications has the other controls."
        )
    if budget:
        raise Misuse(
            f"--replications trains many sweeps, got {' '.join(budget.options)}, which limits one. "
            "Leave it out: Ctrl-C ends them, and the same command continues."
        )
    if named_here("seeds"):
        raise Misuse(
            "--replications trains each on one fresh seed, got --seeds as well. Leave --seeds out: "
            f"their number is --replications {replications}."
        )


def confirm_replications(request: Replications, *, dry_run: bool, as_json: bool) -> None:
    """Train what is missing of the replications, one after another, and show their table."""
    again = ["confirm", request.search, "--replications", str(request.wanted.seeds)]
    if named_here("called"):
        again += ["--name", request.wanted.name.removesuffix(".replications")]
    again += request.executor.options
    again += ["--accept-code"] * request.accept_code
    if request.executor.where != "local":
        again += ["--where", request.executor.where]
    if request.place.slurm is not None:
        raise Misuse(
            "--replications drives many sweeps one after another, so it runs where they train, "
            f"got --address {request.place.slurm}. Give it within a job of your own: `sbatch "
            f"--wrap '{advice.command(*again, storage=request.place.storage)}'`, with the cores "
            "and GPUs that its arms need."
        )
    if request.place.address is not None:
        raise Misuse(
            "--replications drives many sweeps one after another, so it runs where they train, "
            f"got --address {request.place.address}. Give it on the cluster's head: `ray exec "
            f"CLUSTER_YAML 'sweep {' '.join(again[:4])} --where cluster'`; without --address (and "
            "SWEEP_ADDRESS) it trains here."
        )
    objects = open_store(request.place.storage)
    find_sweep(objects, request.search)
    search, plan = _planned(objects, request)
    if dry_run:
        _show_plan(search, plan, as_json=as_json)
        return
    plan = put_plan(objects, plan)
    with redirect_stdout(sys.stderr):  # of every part; on standard output the one table
        _train_all(objects, search, plan, request, advice.command(*again, storage=objects.root))
    from sweep.confirmation.replicated import summarize_replications  # scipy

    entry = summarize_replications(objects, search, plan)
    if as_json:
        print_json(entry.to_json())
        return
    from sweep.cli.text.replications import print_replicated

    print_replicated(entry)


def _planned(objects: ObjectStore, request: Replications) -> tuple[Definition, ReplicationsPlan]:
    """The search and the plan: the stored one, unless something else is asked for."""
    name, count = request.wanted.name, request.wanted.seeds
    plan = load_replications(objects, name)
    if plan is not None and plan.search != request.search:
        raise Misuse(f"{name} repeats {plan.search}, not {request.search}. Give another --name.")
    if plan is not None and plan.count != count:
        raise Misuse(
            f"{name} is planned with {plan.count} replications, got --replications {count}, and "
            f"its plan stays as it is. Give --replications {plan.count} to go on with it, or "
            "another --name: its table says that the same test data were read before."
        )
    search = finished_search(objects, request.search).definition
    if plan is not None and not any(map(named_here, _PLANNING)):
        refuse_other_search(search, plan)
        return search, plan
    effect = request.smallest_effect
    if effect is None:
        effect = search.space.base.facts.metric.smallest_effect

    def design(families: Mapping[str, tuple[str, ...]]) -> Design:
        return replace(request.wanted.design(families), smallest_effect=effect)

    own = name if plan is None else plan.name  # of a plan that an earlier version stored: its own
    used = planned_seeds(objects, search.name, but=own)
    wanted = replace(request.wanted, name=own, design=design, used_seeds=used)
    given = plan_replications(search, wanted)
    if plan is None:
        return search, given
    refuse_other_plan(plan, given)
    return search, plan


def _train_all(
    objects: ObjectStore,
    search: Definition,
    plan: ReplicationsPlan,
    request: Replications,
    again: str,
) -> None:
    from sweep.confirmation.replicated import is_decided  # scipy, statsmodels: two seconds

    for number in range(1, plan.count + 1):
        if plan.until_decided and is_decided(objects, search, plan):
            note(f"every family is decided after {number - 1} of {plan.count} replications")
            return
        try:
            _train_replication(objects, search, plan, number, request)
        except SystemExit:
            note(f"replication {number} of {plan.count} is unfinished. `{again}` continues all.")
            raise


def _train_replication(
    objects: ObjectStore,
    search: Definition,
    plan: ReplicationsPlan,
    number: int,
    request: Replications,
) -> None:
    """Train what is missing of one replication."""
    own = plan.replication(number)
    name = confirmation_name(own)
    chosen = load_plan(objects, name)
    if chosen is None or not objects.exists(definition_name(name)):
        view = _searched(objects, replication_search(search, plan, number), request)
        if not has_winner(objects, own):
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
        tuning = replication_tuning(view.definition, points_of(view, wanted))
        tuned = {TUNED: _searched(objects, tuning, request)}
        chosen, definition = plan_confirmation(view, wanted, tuned, ArmStore(objects).record)
        definition = resolve_fresh(definition)
        put_plan(objects, chosen)
        registered(objects, definition, named=(), say=note)
    definition = load_definition(objects, name)
    if all_judged(objects, definition):
        return
    refuse_second_driver(objects, name)
    code = _train(objects, definition, request)
    if not all_judged(objects, definition):  # arms that failed count
        raise SystemExit(code or 1)


def _searched(objects: ObjectStore, definition: Definition, request: Replications) -> SweepView:
    """A search of a replication, trained to its end."""
    if objects.exists(definition_name(definition.name)):
        view = load_sweep(objects, definition.name, "pairs")
        if has_ended(view):
            return view
    there = registered(objects, resolved(definition, say=note), named=(), say=note)
    refuse_second_driver(objects, there.name)
    if code := _train(objects, there, request):
        raise SystemExit(code)
    return load_sweep(objects, there.name, "pairs")


def _train(objects: ObjectStore, definition: Definition, request: Replications) -> int:
    return training.train(
        objects, definition, request.executor, on_done=partial(print_done, objects),
        accept_code=request.accept_code, notify=request.notify,
    )  # fmt: skip


def _show_plan(search: Definition, plan: ReplicationsPlan, *, as_json: bool) -> None:
    """Print the plan before anything is trained: tests, power and cost."""
    arms, hours = arms_of_a_replication(search, plan), _hours(search, plan)
    if as_json:
        counts = {"arms_of_a_replication": arms, "arms": plan.count * sum(arms.values())}
        print_json({**plan.to_json(), "digest": plan.digest, **counts, "hours": hours})
        return
    from sweep.cli.text.replications import print_replications_plan  # scipy

    print_replications_plan(plan, arms, hours, search.space.base.facts.metric.unit)


def _hours(search: Definition, plan: ReplicationsPlan) -> float | None:
    """Wall time of all replications on this machine, within a factor of 2; None: not known."""
    first = replication_search(search, plan, 1)
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
