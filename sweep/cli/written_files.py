"""The verbs that write a sweep's files: export, report and answers."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.progress import track

from search_spaces import catalog
from sweep.cli.asked import Place, collected
from sweep.cli.options import (
    console,
    given_storage,
    name_argument,
    only_option,
    open_sweep,
    storage_option,
    tell_that_it_is_here,
)
from sweep.cli.reading import run_ids
from sweep.cli.upkeep import ON_HEAD
from sweep.cluster import ask
from sweep.study import advice
from sweep.study.advice import note
from sweep.study.lock import driver_of
from sweep.study.opening import find_sweep, open_store
from trainables.errors import Failure, Misuse
from trainables.plain import Json
from trainables.records.arms import ArmStore

if TYPE_CHECKING:
    from sweep.results.win_rates import Instruction, Judge
    from sweep.study.pairs import Pair
    from trainables.predictor import Asked
    from trainables.records.arm_record import ArmRecord
    from trainables.records.objects import ObjectStore
    from trainables.tasks.base import Prompt

WIN_RATES, JUDGED = "win_rates.csv", "judged.json"
HELD_OUT = 100  # prompts, unless --count says more or fewer
ALPACA_EVAL = 805  # instructions of its set
ARMS = ("constrained", "unconstrained")


@click.command("export")
@name_argument
@click.option(
    "--out", required=True, metavar="DIR",
    help="Where to write: a new folder, or one with an earlier export, which is replaced.",
)  # fmt: skip
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Write a configuration also of the closest pair where a setting has no winner.",
)
@click.option(
    "--published",
    "beside_paper",
    is_flag=True,
    help="Put the paper's published numbers into the tables that are arranged as its own.",
)
@collected(at=Place)
def export_(name: str, out: str, everything: bool, beside_paper: bool, at: Place) -> None:
    """Write tables (CSV, Markdown, LaTeX), configurations that re-run exactly, and a manifest."""
    from sweep.confirmation.files import files_of
    from sweep.results.export import export, write_files

    folder_out = Path(out).expanduser().resolve()
    if at.address is not None:
        words = ["--all"] * everything + ["--published"] * beside_paper
        there = ask.asked(at.address, given_storage(), "export", name, *words)
        ask.said(there)
        texts = {file: content.decode() for file, content in there.contents().items()}
        for file in write_files(folder_out, name, texts):
            click.echo(str(folder_out / file))
        return
    objects = open_store(at.storage)
    read = ArmStore(objects).record
    is_confirmation = find_sweep(objects, name).space.phase == "confirmation"
    if is_confirmation:
        read = cache(read)  # for the manifest and the table
    _, view = open_sweep(at.storage, name, record=read)
    ids = run_ids(objects, view.definition)
    instead = None
    if is_confirmation:
        instead = files_of(objects, view.definition, read, beside_paper=beside_paper)
    files = export(
        view, ids, folder_out, read=read, everything=everything, beside_paper=beside_paper,
        instead=instead,
    )  # fmt: skip
    for file in files:
        click.echo(str(folder_out / file))
    if is_confirmation:
        return
    closest = [s.setting.name for s in view.settings if not s.chosen.winner and s.chosen.shown]
    nothing = [s.setting.name for s in view.settings if not s.chosen.shown]
    if closest and not everything:
        note(
            f"no configuration for {', '.join(closest)}: no winner. --all writes the closest "
            "pair's."
        )
    if nothing:
        note(f"no configuration for {', '.join(nothing)}: no finished pair.")


@click.command("report")
@name_argument
@click.option(
    "--out", metavar="DIR",
    help="Where to write; a report that is there is replaced. Default: NAME-report.",
)  # fmt: skip
@click.option("--page", "page_alone", is_flag=True, help="Write the page, and no figure beside it.")
@click.option(
    "--figure", "figures", multiple=True, metavar="KEY",
    help="Write this figure alone, as PDF and PNG, like layers or progress; repeatable.",
)  # fmt: skip
@only_option
@collected(at=Place)
def report_(
    name: str,
    out: str | None,
    page_alone: bool,
    figures: tuple[str, ...],
    patterns: tuple[str, ...],
    at: Place,
) -> None:
    """Write a page that opens from disk: what was found, tables, figures (PDF and PNG).

    Of a sweep that still runs it says how far it is. Of a confirmation: its plan and comparisons.
    """
    from sweep.report.report import FORMATS, PAGE, Reported, figure_files, report, write_files

    if page_alone and figures:
        raise Misuse("--page writes the page alone and --figure figures alone: give one of them.")
    folder = Path(out or f"{name}-report").expanduser().resolve()
    if at.address is not None:
        words = [word for pattern in patterns for word in ("--only", pattern)]
        words += [word for key in figures for word in ("--figure", key)]
        words += ["--page"] * page_alone
        there = ask.asked(at.address, given_storage(), "report", name, *words)
        ask.said(there)
        files = write_files(folder, name, there.contents())
    else:
        objects, view = open_sweep(at.storage, name)
        sweep = Reported(
            objects,
            view,
            run_ids(objects, view.definition),
            ArmStore(objects).record,
            patterns,
            is_running=driver_of(objects, name) is not None,
        )
        if figures:
            files = figure_files(sweep, folder, figures)
        else:
            files = report(sweep, folder, formats=() if page_alone else FORMATS)
    for file in files if figures else [PAGE]:
        click.echo(str(folder / file))


@click.command("answers")
@name_argument
@click.option("--out", required=True, metavar="DIR", help="Where to write; what is there stays.")
@click.option(
    "--prompts", "file", metavar="FILE", type=click.Path(path_type=Path),
    help="Instructions to answer, as AlpacaEval's alpaca_eval.json has them; default: held-out "
    "ones of the sweep's own data.",
)  # fmt: skip
@click.option(
    "--count", type=click.IntRange(min=1), metavar="N",
    help=f"Answer N of them; default: all of FILE, or {HELD_OUT} held-out ones.",
)  # fmt: skip
@click.option(
    "--gamma", "gammas", multiple=True, type=click.FloatRange(min=0.0), metavar="G",
    help="Noise on all tokens, written ones too; repeatable. Default: 0 and train_gamma.",
)  # fmt: skip
@click.option(
    "--longest", type=click.IntRange(min=1), default=128, show_default=True, metavar="N",
    help="Tokens of an answer at most.",
)  # fmt: skip
@click.option(
    "--judge", metavar="CONFIG",
    help="Have an annotator of the package alpaca_eval compare the arms: its name or YAML file.",
)  # fmt: skip
@click.option(
    "--length-controlled", is_flag=True,
    help="Also AlpacaEval's length-controlled win rate; of its own instructions alone.",
)  # fmt: skip
@only_option
@storage_option
def answers_(
    name: str,
    out: str,
    file: Path | None,
    count: int | None,
    gammas: tuple[float, ...],
    longest: int,
    judge: str | None,
    length_controlled: bool,
    patterns: tuple[str, ...],
    storage: str,
) -> None:
    """Have both arms of the winners answer prompts, and a judge say which it prefers.

    Writes a list of answers for every setting, seed, arm and noise level, in the fields of
    AlpacaEval's model outputs; with --judge also win_rates.csv. Stopped or called again, it goes
    on: what was answered or judged is not asked for twice.
    """
    from sweep.results.win_rates import Judge, read_instructions

    tell_that_it_is_here(ON_HEAD)
    if length_controlled and not (judge and file):
        raise Misuse(
            "--length-controlled needs --judge, and --prompts with AlpacaEval's own instructions."
        )
    objects, view = open_sweep(storage, name)
    space = view.definition.space
    if space.phase == "confirmation":
        raise Misuse(f"{name} is a confirmation: ask the winners of the sweep that it confirms.")
    if not space.base.facts.answers:
        raise Misuse(f"networks of {name} write no answers: its task is {space.base.task}.")
    kept = catalog.matching([s.setting.name for s in view.settings], patterns, name)
    settings = [s for s in view.settings if s.setting.name in kept]
    won = {s.setting.name: s.chosen.winner for s in settings if s.chosen.winner is not None}
    if not won:
        why = advice.command("best", name, storage=objects.root)
        raise Misuse(f"{name} has no winner to ask: `{why}` says why.")
    without = [setting for setting in kept if setting not in won]
    if without:
        note(f"nothing of {', '.join(without)}: no winner, whose weights are kept alone.")
    instructions = None if file is None else read_instructions(file)
    if instructions is not None:
        if length_controlled and len(instructions) != ALPACA_EVAL:
            raise Misuse(
                f"--length-controlled is defined for AlpacaEval's {ALPACA_EVAL} instructions, "
                f"whose difficulties are known by place; {file} has {len(instructions)}."
            )
        instructions = instructions[:count]
    folder = Path(out).expanduser().resolve()
    judging = None
    if judge is not None:
        judging = Judge(judge, folder / JUDGED, length_controlled=length_controlled)
    rates: list[dict[str, Json]] = []
    for setting, winner in won.items():
        for pair in winner.pairs:
            place = folder / setting / f"seed{pair.constrained.config.seed}"
            levels = sorted(set(gammas or (0.0, pair.constrained.config.train_gamma)))
            for record in _arms(pair):
                asked = _write(
                    objects, record, place, setting, instructions, count, levels, longest
                )
                if length_controlled and asked < len(instructions or ()):
                    raise Misuse("--length-controlled needs an answer to every instruction.")
            if judging is not None:
                for gamma in levels:
                    rates.append(_rate(judging, place, setting, pair, gamma))
                    _put_rates(folder / WIN_RATES, rates)
    if rates:
        _print_rates(rates)
        click.echo(str(folder / WIN_RATES))


def _arms(pair: Pair) -> Iterator[ArmRecord]:
    """Both arms, whose networks are asked one after the other."""
    plain = pair.unconstrained
    if plain is None or plain.evaluation is None:
        raise Misuse(
            f"the unconstrained arm beside {pair.constrained.signature} has no network: leave its "
            "setting out with --only."
        )
    yield from (pair.constrained, plain)


def _write(
    objects: ObjectStore,
    record: ArmRecord,
    place: Path,
    setting: str,
    instructions: Sequence[Instruction] | None,
    count: int | None,
    gammas: Sequence[float],
    longest: int,
) -> int:
    """Write one arm's answers, a list for each noise level; how many a list has."""
    from sweep.results.win_rates import write_answers
    from trainables.predictor import Asked

    config = record.config
    weights = ArmStore(objects).weights(record.signature)
    if weights is None:
        raise Failure(
            f"the weights of arm {record.signature} are not below {objects.root}: a sweep keeps "
            "those of the arms that win when it ends, and this one won later."
        )
    arm = Asked(config, weights)
    asked = _asked(arm, instructions, count, config.data.name)
    for gamma in gammas:
        path = _path(place, config.arm, gamma)
        generator = f"{setting}-{config.arm}-g{gamma:g}-{longest}-{record.signature}"
        label = f"{setting} seed {config.seed} {config.arm} gamma {gamma:g}"
        rows = write_answers(path, generator, asked, gamma, arm, longest)
        for _ in track(rows, label, total=len(asked), console=Console(stderr=True)):
            pass
        click.echo(str(path))
    return len(asked)


def _asked(
    arm: Asked, instructions: Sequence[Instruction] | None, count: int | None, data: str
) -> list[tuple[Instruction, Prompt]]:
    """What is answered: instructions as a judge reads them, and their prompts."""
    from sweep.results.win_rates import Instruction

    if instructions is None:
        prompts = arm.held_out(count or HELD_OUT)
        return [(Instruction(p.text.strip(), dataset=data), p) for p in prompts]
    made = arm.of_texts([(i.text, i.context) for i in instructions])
    fit = [(i, p) for i, p in zip(instructions, made, strict=True) if p is not None]
    if len(fit) < len(instructions):
        left_out = len(instructions) - len(fit)
        note(f"{left_out} of {len(instructions)} prompts fill data.max_length: they are left out.")
    if not fit:
        raise Misuse("no prompt leaves room for an answer in data.max_length: give shorter ones.")
    return fit


def _path(place: Path, arm: str, gamma: float) -> Path:
    return place / f"{arm}-g{gamma:g}.json"


def _rate(judge: Judge, place: Path, setting: str, pair: Pair, gamma: float) -> dict[str, Json]:
    """A row of win_rates.csv."""
    texts = [_path(place, arm, gamma).read_text(encoding="utf-8") for arm in ARMS]
    ours, theirs = (json.loads(text) for text in texts)
    found = judge.compare(ours, theirs)
    row: dict[str, Json] = {
        "setting": setting,
        "seed": pair.constrained.config.seed,
        "gamma": gamma,
        **found.row(),
    }
    for arm, rows in zip(ARMS, (ours, theirs), strict=True):
        row[f"{arm}_characters"] = sum(len(r["output"]) for r in rows) / len(rows)
    return row


def _put_rates(path: Path, rates: Sequence[dict[str, Json]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as stream:
        table = csv.DictWriter(stream, list(rates[0]))
        table.writeheader()
        table.writerows(rates)


def _print_rates(rates: Sequence[dict[str, Any]]) -> None:
    from sweep.cli.text.table import table

    rows = []
    for rate in rates:
        row = {
            "setting": rate["setting"],
            "seed": str(rate["seed"]),
            "gamma": f"{rate['gamma']:g}",
            "asked": str(rate["instructions"]),
            "win rate": f"{rate['win_rate']:.1f} ± {rate['standard_error']:.1f}",
        }
        if "length_controlled" in rate:
            row["of one length"] = (
                f"{rate['length_controlled']:.1f} ± {rate['lc_standard_error']:.1f}"
            )
        rows.append(row)
    click.echo("How often the judge prefers the constrained arm's answer, in % (a tie is half):")
    console().print(table(rows, right=("seed", "gamma", "asked", "win rate", "of one length")))
