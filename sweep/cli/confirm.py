"""The verb `sweep confirm`: winners trained again on fresh seeds, and tested."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import nullcontext, redirect_stdout
from dataclasses import replace
from functools import partial
from typing import cast, get_args

import click

from search_spaces import catalog
from search_spaces.space import SearchSpace
from sweep.api import training
from sweep.api.tuning import tuned_searches
from sweep.cli.cluster import notify_option, send_stored
from sweep.cli.options import (
    accept_code_option,
    console,
    given_storage,
    json_option,
    name_argument,
    named_here,
    only_option,
    print_json,
    renamed_option,
)
from sweep.cli.replications import Replications, confirm_replications, refuse_beside_replications
from sweep.cli.spaces import estimated, print_cost
from sweep.cli.sweep_options import Place, collected
from sweep.cli.text.done import print_done
from sweep.cluster import ask
from sweep.confirmation.chosen import (
    Wanted,
    confirmation_name,
    finished_search,
    plan_confirmation,
    resolve_fresh,
)
from sweep.confirmation.controls import CONTROLS, parse_controls
from sweep.confirmation.plan import (
    MEASURES,
    SEEDS,
    Measure,
    Plan,
    load_plan,
    planned_seeds,
    put_plan,
    replications_name,
)
from sweep.executors.executor import Executor
from sweep.render.terminal import Paragraph, table
from sweep.results.sweep_view import SweepView
from sweep.run.budget import Budget
from sweep.statistics.design import Design, Rule
from sweep.study import advice
from sweep.study.advice import note
from sweep.study.definition import Definition, definition_name, load_definition
from sweep.study.opening import find_sweep, open_store
from sweep.study.registration import refuse_second_driver, registered
from trainables.errors import InvalidValue, Misuse
from trainables.records.arms import ArmStore

_PLANNING = ("patterns", "proposals", "controls", "seeds", "rule", "error", "smallest_effect",
             "until_decided", "measure")  # fmt: skip


@click.command()
@name_argument
@only_option
@click.option(
    "--proposal",
    "proposals",
    multiple=True,
    metavar="SETTING=NUMBER",
    help="Confirm this candidate of a setting instead of its winner. Repeatable.",
)
@click.option(
    "--controls",
    default="none",
    show_default=True,
    metavar="A,B|decisive|all|none",
    help=f"Controls to train with every pair: {', '.join(CONTROLS)}. Some are tuned "
    "before they train (docs/confirmation.md).",
)
@click.option(
    "--seeds",
    type=click.IntRange(min=2),
    default=SEEDS,
    show_default=True,
    metavar="N",
    help="Fresh seeds, at most.",
)
@click.option(
    "--replications",
    type=int,
    metavar="K",
    help="Repeat the tuning of both arms K times in independent searches, and test the K tuned "
    "winners on one fresh seed each. Not with --seeds, --controls, --proposal or budgets.",
)
@renamed_option("--studies", "--replications")
@click.option(
    "--rule",
    type=click.Choice(get_args(Rule)),
    default="looks",
    show_default=True,
    help="looks: test after 10 and after all seeds (alpha spending); any_time: after every seed "
    "(e-values); fixed: once, after all. Five seeds cannot give significance at error 0.05.",
)
@click.option(
    "--measure",
    type=click.Choice([name for name in MEASURES if name != "ood_auc"]),
    help="What is tested: unseen_mean (the default, where there are unseen test gammas), "
    "anytime_mean (every layer read as the output), or another mean.",
)
@click.option(
    "--until-decided",
    is_flag=True,
    help="Stop at the first test at which every comparison is decided.",
)
@click.option(
    "--error",
    type=click.FloatRange(0, 0.5, min_open=True, max_open=True),
    default=0.05,
    show_default=True,
    metavar="P",
    help="Largest probability that the table has a false claim.",
)
@click.option(
    "--smallest-effect",
    type=float,
    metavar="X",
    help="Smallest difference of interest, in the metric's unit: smaller ones are equivalent. "
    "Default: 0.2 grey levels, 0.01 of accuracy.",
)
@click.option(
    "--name",
    "called",
    metavar="NAME",
    help="Name of the confirmation. Default: NAME.confirmation, or NAME.replications.",
)
@click.option(
    "--dry-run", is_flag=True, help="Print the plan, its power and its cost, and train nothing."
)
@click.option("--plan-only", is_flag=True, hidden=True)  # on a cluster's head, for a laptop
@collected(place=Place)
@collected(executor=Executor, budget=Budget)
@accept_code_option
@notify_option
@json_option
def confirm(
    name: str,
    patterns: Sequence[str],
    proposals: Sequence[str],
    controls: str,
    seeds: int,
    replications: int | None,
    rule: str,
    measure: Measure | None,
    until_decided: bool,
    error: float,
    smallest_effect: float | None,
    called: str | None,
    dry_run: bool,
    plan_only: bool,
    place: Place,
    executor: Executor,
    budget: Budget,
    accept_code: bool,
    notify: str | None,
    as_json: bool,
) -> None:
    """Train the winners of a finished sweep on fresh seeds, and test them on the test split.

    What is compared and how is stored before anything is trained: a plan, which cannot be changed.
    Run it again to continue. `sweep best NAME.confirmation` only shows the table, `sweep export`
    writes it.
    """
    design = partial(Design.planned, rule=cast(Rule, rule), error=error)
    if replications is not None:
        refuse_beside_replications(name, replications, proposals, controls, budget)
        wanted = Wanted(
            name=replications_name((called or name).removesuffix(".replications")),
            design=partial(design, seeds=replications),
            patterns=patterns,
            seeds=replications,
            until_decided=until_decided,
            measure=measure,
        )
        request = Replications(name, wanted, smallest_effect, place, executor, accept_code, notify)
        confirm_replications(request, dry_run=dry_run, as_json=as_json)
        return
    own = called or confirmation_name(name)
    if place.address is not None:
        if as_json and not dry_run:
            table_words = ("best", own, "--json")
            later = advice.command(*table_words, storage=given_storage(), address=place.address)
            raise Misuse(
                "--json prints the table, which a cluster has later, got --address "
                f"{place.address}. Leave --json out here; `{later}` prints it."
            )
        there = ["--dry-run", *["--json"] * as_json] if dry_run else ["--plan-only"]
        words = ["confirm", name, *_given_words(), *there]
        answer = ask.output_of(ask.request_answer(place.address, given_storage(), *words))
        if dry_run:
            click.echo(answer, nl=False)
        elif answer.strip():  # else its head has printed what is missing
            send_stored(place.address, own, executor, notify, budget, accept_code=accept_code)
        return
    objects = open_store(place.storage)
    budget.refuse_without_gpu(find_sweep(objects, name).space)
    plan = load_plan(objects, own)
    if plan is not None and plan.search != name:
        raise Misuse(f"{own} confirms {plan.search}, not {name}. Give another --name.")
    is_stored = objects.exists(definition_name(own))
    if plan is None and is_stored:
        raise Misuse(f"{own} is another sweep. Give the confirmation another --name.")
    if plan is None or not is_stored or any(map(named_here, _PLANNING)):
        view = finished_search(objects, name)
        if smallest_effect is None:
            smallest_effect = view.definition.space.base.facts.metric.smallest_effect
        wanted = Wanted(
            name=own,
            design=partial(design, seeds=seeds, smallest_effect=smallest_effect),
            patterns=patterns,
            proposals=_numbers(proposals),
            controls=parse_controls(controls),
            seeds=seeds,
            until_decided=until_decided,
            measure=measure,
            used_seeds=planned_seeds(objects, name, but=own),
        )
        tuned = tuned_searches(
            objects, view, wanted, executor, budget, on_done=partial(print_done, objects),
            accept_code=accept_code, may_train=not (dry_run or plan_only or place.slurm),
        )  # fmt: skip
        if tuned is None:
            return
        plan, definition = plan_confirmation(view, wanted, tuned, ArmStore(objects).record)
        _note_what_is_left_out(view, plan, definition, wanted)
        if not dry_run:
            definition = resolve_fresh(definition)
            plan = put_plan(objects, plan)
            space = replace(definition.space, search_seeds=plan.first_seeds)
            definition = registered(objects, replace(definition, space=space), named=(), say=note)
    else:
        definition = load_definition(objects, own)
    if dry_run:
        _show_plan(plan, definition.space, as_json=as_json)
        return
    if plan_only:
        click.echo(own)
        return
    if place.slurm is not None:
        send_stored(place.slurm, own, executor, notify, budget, accept_code=accept_code)
        return
    refuse_second_driver(objects, own)
    with redirect_stdout(sys.stderr) if as_json else nullcontext():
        code = training.train(
            objects, definition, executor, on_done=partial(print_done, objects),
            accept_code=accept_code, budget=budget, notify=notify,
        )  # fmt: skip
    if as_json:
        from sweep.confirmation.comparisons import summarize_confirmation  # scipy

        print_json(summarize_confirmation(objects, load_definition(objects, own), plan).to_json())
    raise SystemExit(code)


def _numbers(texts: Sequence[str]) -> dict[str, int]:
    """``--proposal SETTING=NUMBER``, repeated."""
    numbers: dict[str, int] = {}
    for text in texts:
        setting, _, number = text.rpartition("=")
        if not setting or not number.isdecimal():
            raise InvalidValue(f"--proposal must be SETTING=NUMBER, got {text!r}.")
        if setting in numbers:
            raise InvalidValue(
                f"--proposal must name one proposal of a setting, got {numbers[setting]} and "
                f"{number} of {setting}. Confirm the other one by another --name."
            )
        numbers[setting] = int(number)
    return numbers


def _note_what_is_left_out(
    view: SweepView, plan: Plan, definition: Definition, wanted: Wanted
) -> None:
    """Note settings without a winner, controls that a network lacks, infeasible proposals."""
    planned_ones = {one.name: one for one in plan.settings}
    kept = catalog.matching([s.setting.name for s in view.settings], wanted.patterns, plan.search)
    for one in view.settings:
        name = one.setting.name
        if name in planned_ones:
            number = planned_ones[name].proposal
            outcome = next((r.outcome for r in one.results if r.number == number), "open")
            if outcome != "feasible":
                note(f"proposal {number} of {name}, which is named, was {outcome} in the search.")
        elif name in kept:
            note(f"{name} is left out: {one.chosen.why}.")
    for setting in definition.space.settings:
        for control in wanted.controls:
            if control not in setting.points:
                note(f"{setting.name} has no control {control}.")


def _show_plan(plan: Plan, space: SearchSpace, *, as_json: bool) -> None:
    """Print the plan before anything is trained: tests, power and cost."""
    arms = catalog.arm_count(space)
    if as_json:
        cost, why_none = estimated(space)
        estimate = {"not_counted": why_none} if cost is None else cost.to_json()
        print_json({**plan.to_json(), "digest": plan.digest, "arms": arms, "estimate": estimate})
        return
    from sweep.cli.text.power import print_power, tests_text  # scipy

    out, unit = console(), space.base.facts.metric.unit
    settings = advice.counted(len(plan.settings), "setting")
    out.print(f"[bold]{plan.name}[/bold]: {settings} of {plan.search}")
    rows = [
        {
            "setting": one.name,
            "proposal": f"{one.proposal} ({one.chosen})",
            "family": one.family,
            "in search": f"{one.search_gain.get(plan.measure, float('nan')):+.3f}",
        }
        for one in plan.settings
    ]
    out.print(table(rows, right=("in search",)))
    out.print(
        Paragraph(
            f"In search: {MEASURES[plan.measure]}, in {unit}; above 0 the "
            "constrained network was better, on the data that selected it."
        )
    )
    kinds = ", ".join(("constrained", "unconstrained", *plan.controls))
    out.print(
        Paragraph(
            f"{len(plan.seeds)} fresh seeds from {plan.seeds[0]}, {arms} arms at most, {kinds}. "
            f"{tests_text(plan.design, 'seeds', unit)}"
        )
    )
    print_power(plan.design, [len(plan.seeds)])
    print_cost(*estimated(space))


def _given_words() -> list[str]:
    """The planning options of this command line, as words of another."""
    context = click.get_current_context()
    words: list[str] = []
    for parameter in context.command.params:
        name = str(parameter.name)
        if name not in (*_PLANNING, "called") or not named_here(name):
            continue
        option, value = parameter.opts[0], context.params[name]
        is_flag = isinstance(parameter, click.Option) and parameter.is_flag
        values = value if parameter.multiple else [value]
        words += [option] if is_flag else [w for one in values for w in (option, str(one))]
    return words
