"""The verbs that write a sweep's files: export, report and answers."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from pathlib import Path

import click

from sweep.cli.options import (
    given_storage,
    name_argument,
    newest_argument,
    only_option,
    open_sweep,
    storage_option,
    tell_that_it_is_here,
    winners_of,
)
from sweep.cli.reading import name_or_newest, run_ids
from sweep.cli.sweep_options import Place, collected
from sweep.cluster import ask
from sweep.study.advice import note
from sweep.study.lock import driver_of
from sweep.study.opening import find_sweep, open_store
from trainables.errors import InvalidValue, Misuse
from trainables.records.arms import ArmStore

WIN_RATES = "win_rates.csv"
ALPACA_EVAL = 805  # instructions of its set


@click.command("export")
@newest_argument
@click.option(
    "--out", required=True, metavar="DIR",
    help="Folder to write to: a new one, or one with an earlier export. That is replaced unless it "
    "holds more.",
)  # fmt: skip
@click.option(
    "--all", "everything", is_flag=True,
    help="Also write, for settings without a winner, their closest pair.",
)  # fmt: skip
@click.option(
    "--published", "beside_paper", is_flag=True,
    help="Add the paper's published numbers to the tables in its layout.",
)  # fmt: skip
@click.option("--replace", is_flag=True, help="Replace an earlier export even if it holds more.")
@click.option(
    "--optuna", "journal", metavar="FILE",
    help="Also write a new FILE for optuna-dashboard: an Optuna journal of the finished proposals.",
)  # fmt: skip
@collected(place=Place)
def export_(
    name: str | None,
    out: str,
    everything: bool,
    beside_paper: bool,
    replace: bool,
    journal: str | None,
    place: Place,
) -> None:
    """Write tables (CSV, Markdown, LaTeX), configurations that re-run exactly, and a manifest.

    Default NAME: the newest sweep.
    """
    from sweep.confirmation.stages import files_of
    from sweep.results.export import export
    from sweep.results.export_folder import write_files

    name = name_or_newest(name, place)
    folder_out = Path(out).expanduser().resolve()
    journal_out = None if journal is None else _new_file(journal, beside=folder_out)
    if place.address is not None:
        if journal_out is not None:
            raise Misuse("--optuna reads the store itself: give --storage, without --address.")
        words = ["--all"] * everything + ["--published"] * beside_paper
        contents = _remote_files(place.address, "export", name, *words)
        texts = {file: content.decode() for file, content in contents.items()}
        for file in write_files(folder_out, name, texts, replace=replace):
            click.echo(str(folder_out / file))
        return
    objects = open_store(place.storage)
    read = ArmStore(objects).record
    is_confirmation = find_sweep(objects, name).space.phase == "confirmation"
    if is_confirmation:
        read = cache(read)  # for the manifest and the table
    _, view = open_sweep(place.storage, name, record=read)
    if journal_out is not None and is_confirmation:
        raise Misuse(f"{name} is a confirmation, which searches nothing: leave out --optuna.")
    ids = run_ids(objects, view.definition)
    files = export(
        view, ids, folder_out, read=read, everything=everything, beside_paper=beside_paper,
        instead=files_of(objects, view.definition, read, beside_paper=beside_paper)
        if is_confirmation else None, replace=replace,
    )  # fmt: skip
    for file in files:
        click.echo(str(folder_out / file))
    if is_confirmation:
        return
    if journal_out is not None:
        from sweep.study.sampler import write_journal

        observed = {one.setting.name: one.observations for one in view.settings}
        write_journal(journal_out, name, view.definition.space, observed)
        click.echo(str(journal_out))
    closest = [s.setting.name for s in view.settings if not s.chosen.winner and s.chosen.shown]
    nothing = [s.setting.name for s in view.settings if not s.chosen.shown]
    if closest and not everything:
        note(
            f"no configuration for {', '.join(closest)}: no winner. --all writes that of the "
            "closest pair."
        )
    if nothing:
        note(f"no configuration for {', '.join(nothing)}: no finished pair.")


def _new_file(name: str, *, beside: Path) -> Path:
    """The path of --optuna's file, which is new, in a folder that is there or can be made."""
    path = Path(name).expanduser().resolve()
    if path == beside or beside in path.parents:
        raise Misuse(f"{path} lies in --out, which holds the export alone. Give another place.")
    if path.exists():
        raise Misuse(f"{path} exists, and --optuna writes a new file. Give another name.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Misuse(f"--optuna cannot make the folder {path.parent}: {error}.") from error
    return path


def _remote_files(address: str, *words: str) -> Mapping[str, bytes]:
    """Files that a verb writes on a cluster's head, by name."""
    answer = ask.request_answer(address, given_storage(), *words)
    ask.output_of(answer)  # or its error
    return answer.contents()


@click.command("report")
@newest_argument
@click.option(
    "--out", metavar="DIR",
    help="Folder to write to. An earlier report is replaced unless it covers more arms. Default: "
    "NAME-report.",
)  # fmt: skip
@click.option(
    "--page", "page_alone", is_flag=True, help="Write the page only, without figure files."
)
@click.option(
    "--figure", "figures", multiple=True, metavar="KEY",
    help="Write only this figure (for example layers), as PDF and PNG. Repeatable.",
)  # fmt: skip
@click.option("--replace", is_flag=True, help="Replace a report even if it covers more arms.")
@only_option
@collected(place=Place)
def report_(
    name: str | None,
    out: str | None,
    page_alone: bool,
    figures: tuple[str, ...],
    replace: bool,
    patterns: tuple[str, ...],
    place: Place,
) -> None:
    """Write an HTML report with findings, tables and figures (PDF and PNG).

    The report of a running sweep shows its progress; that of a confirmation, its plan and
    comparisons. Default NAME: the newest sweep.
    """
    from sweep.report.drawing import FORMATS
    from sweep.report.report import PAGE, figure_files, report, write_files
    from sweep.report.source import Reported

    if page_alone and figures:
        raise Misuse("--page and --figure exclude each other: give one of them.")
    name = name_or_newest(name, place)
    folder = Path(out or f"{name}-report").expanduser().resolve()
    if place.address is not None:
        words = [word for pattern in patterns for word in ("--only", pattern)]
        words += [word for key in figures for word in ("--figure", key)]
        words += ["--page"] * page_alone
        contents = _remote_files(place.address, "report", name, *words)
        files = write_files(folder, name, contents, replace=replace)
    else:
        objects, view = open_sweep(place.storage, name)
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
            formats = () if page_alone else FORMATS
            files = report(sweep, folder, formats=formats, replace=replace)
    for file in files if figures else [PAGE]:
        click.echo(str(folder / file))
    if not figures:
        note("the page is one file with its figures inside, to be sent as it is.")


@click.command("answers")
@name_argument
@click.option(
    "--out", required=True, metavar="DIR", help="Folder to write to; files in it are kept."
)
@click.option(
    "--prompts", "file", metavar="FILE", type=click.Path(path_type=Path),
    help="Instructions to answer, in the format of AlpacaEval's alpaca_eval.json. Default: "
    "held-out ones of the sweep's data.",
)  # fmt: skip
@click.option(
    "--count", type=click.IntRange(min=1), metavar="N",
    help="Number of instructions. Default: all of FILE, or at most 100 held-out ones.",
)  # fmt: skip
@click.option(
    "--gamma", "gammas", multiple=True, type=click.FloatRange(min=0.0), metavar="G",
    help="Noise level on all tokens, generated ones included. Repeatable. Default: 0 and "
    "train_gamma.",
)  # fmt: skip
@click.option(
    "--longest", type=click.IntRange(min=1), default=128, show_default=True, metavar="N",
    help="Longest answer, in tokens.",
)  # fmt: skip
@click.option(
    "--judge", metavar="CONFIG",
    help="Annotator of the package alpaca_eval that compares the arms: its name or YAML file.",
)  # fmt: skip
@click.option(
    "--length-controlled", is_flag=True,
    help="Also print AlpacaEval's length-controlled win rate, for its own instructions only.",
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
    """Let both arms of the winners answer prompts; a judge can compare the answers.

    Writes a list of answers for every setting, seed, arm and noise level, in the fields of
    AlpacaEval's model outputs; with --judge also win_rates.csv. Run it again to continue: answers
    and judgements that exist are kept.
    """
    from sweep.cli.text.answers import print_rates
    from sweep.report import answers as written
    from sweep.report.win_rates import Judge, PairRate, write_rates

    if not all(map(math.isfinite, gammas)):
        raise InvalidValue(f"--gamma must be finite, got {', '.join(map(str, gammas))}.")
    tell_that_it_is_here()
    if length_controlled and (not (judge and file) or count):
        raise Misuse(
            "--length-controlled needs --judge, and --prompts with AlpacaEval's own instructions, "
            "all of them."
        )
    objects, view = open_sweep(storage, name)
    space = view.definition.space
    if not space.base.facts.answers:
        raise Misuse(f"networks of {name} write no answers: its task is {space.base.task}.")
    won = winners_of(objects, view, patterns, to="ask")
    pairs = [(setting, pair) for setting, winner in won.items() for pair in winner.pairs]
    written.require_weights(objects, name, [pair for _, pair in pairs])
    instructions = None if file is None else written.read_instructions(file)
    if instructions is not None and length_controlled and len(instructions) != ALPACA_EVAL:
        raise Misuse(
            f"--length-controlled is defined for AlpacaEval's {ALPACA_EVAL} instructions, whose "
            f"difficulties are identified by their position; {file} has {len(instructions)}."
        )
    folder = Path(out).expanduser().resolve()
    click.get_current_context().with_resource(written.sole_writer(folder))
    judging = Judge(judge, folder, length_controlled=length_controlled) if judge else None
    prompts = written.set_name(file, instructions or ())
    questions = written.Questions(
        folder / prompts, instructions, count, longest, all_needed=length_controlled
    )
    rates: list[PairRate] = []
    for setting, pair in pairs:
        levels = sorted(set(gammas or (0.0, pair.constrained.config.train_gamma)))
        constrained, baseline = (
            questions.write_lists(objects, record, setting, levels)
            for record in written.arms_of(pair)
        )
        for gamma in levels if judging else ():
            assert judging is not None
            answers = constrained[gamma], baseline[gamma]
            rate = judging.compare(*answers)
            if missing := len(answers[0]) - rate.judged:
                note(f"{missing} answers were not judged: run the same command to judge them.")
            lengths = [statistics.fmean(len(one.output) for one in rows) for rows in answers]
            rates.append(
                PairRate(
                    **asdict(rate), setting=setting, seed=pair.constrained.config.seed, gamma=gamma,
                    judge=judging.name, prompts=prompts, longest=longest, n_prompts=len(answers[0]),
                    constrained_characters=lengths[0], unconstrained_characters=lengths[1],
                )
            )  # fmt: skip
            write_rates(folder / WIN_RATES, rates)
    if rates:
        print_rates(rates)
        click.echo(str(folder / WIN_RATES))
