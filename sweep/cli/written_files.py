"""The verbs that write a sweep's files: export, report and answers."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.progress import track

from sweep.cli.options import (
    console,
    given_storage,
    name_argument,
    newest_argument,
    only_option,
    open_sweep,
    storage_option,
    tell_that_it_is_here,
    winners_of,
)
from sweep.cli.reading import meant, run_ids
from sweep.cli.sweep_options import Place, collected
from sweep.cli.upkeep import ON_HEAD
from sweep.cluster import ask
from sweep.study import advice
from sweep.study.advice import note
from sweep.study.lock import driver_of
from sweep.study.opening import find_sweep, open_store
from trainables.errors import Failure, InvalidValue, Misuse
from trainables.machine.atomic_files import write_atomically
from trainables.plain import Json
from trainables.records.arms import ArmStore

if TYPE_CHECKING:
    from sweep.report.win_rates import Instruction, Row
    from sweep.study.pairs import Pair
    from trainables.predictor import Answerer
    from trainables.records.arm_record import ArmRecord
    from trainables.records.objects import ObjectStore
    from trainables.tasks.base import Prompt

WIN_RATES = "win_rates.csv"
RATED_BY = ("setting", "seed", "gamma", "judge", "prompts", "longest", "asked")
HELD_OUT = 100  # prompts at most, unless --count says others
ALPACA_EVAL = 805  # instructions of its set


@click.command("export")
@newest_argument
@click.option(
    "--out", required=True, metavar="DIR",
    help="Folder to write to: a new one, or one with an earlier export. That is replaced unless it "
    "holds more.",
)  # fmt: skip
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Also write the closest pair of settings without a winner.",
)
@click.option(
    "--published",
    "beside_paper",
    is_flag=True,
    help="Add the paper's published numbers to the tables in its layout.",
)
@click.option("--replace", is_flag=True, help="Replace an earlier export even if it holds more.")
@collected(at=Place)
def export_(
    name: str | None, out: str, everything: bool, beside_paper: bool, replace: bool, at: Place
) -> None:
    """Write tables (CSV, Markdown, LaTeX), configurations that re-run exactly, and a manifest.

    Default NAME: the newest sweep.
    """
    from sweep.confirmation.stages import files_of
    from sweep.results.export import export, write_files

    name = meant(name, at)
    folder_out = Path(out).expanduser().resolve()
    if at.address is not None:
        words = ["--all"] * everything + ["--published"] * beside_paper
        there = ask.request_answer(at.address, given_storage(), "export", name, *words)
        ask.output_of(there)
        texts = {file: content.decode() for file, content in there.contents().items()}
        for file in write_files(folder_out, name, texts, replace=replace):
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
        instead=instead, replace=replace,
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
@collected(at=Place)
def report_(
    name: str | None,
    out: str | None,
    page_alone: bool,
    figures: tuple[str, ...],
    replace: bool,
    patterns: tuple[str, ...],
    at: Place,
) -> None:
    """Write an HTML report with findings, tables and figures (PDF and PNG).

    The report of a running sweep shows its progress; that of a confirmation, its plan and
    comparisons. Default NAME: the newest sweep.
    """
    from sweep.report.report import FORMATS, PAGE, Reported, figure_files, report, write_files

    if page_alone and figures:
        raise Misuse("--page writes the page alone and --figure figures alone: give one of them.")
    name = meant(name, at)
    folder = Path(out or f"{name}-report").expanduser().resolve()
    if at.address is not None:
        words = [word for pattern in patterns for word in ("--only", pattern)]
        words += [word for key in figures for word in ("--figure", key)]
        words += ["--page"] * page_alone
        there = ask.request_answer(at.address, given_storage(), "report", name, *words)
        ask.output_of(there)
        files = write_files(folder, name, there.contents(), replace=replace)
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
            formats = () if page_alone else FORMATS
            files = report(sweep, folder, formats=formats, replace=replace)
    for file in files if figures else [PAGE]:
        click.echo(str(folder / file))


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
    help=f"Number of instructions. Default: all of FILE, or at most {HELD_OUT} held-out ones.",
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
    from sweep.report.win_rates import Judge, read_instructions, set_name, sole_writer

    if not all(map(math.isfinite, gammas)):
        raise InvalidValue(f"--gamma must be finite, got {', '.join(map(str, gammas))}.")
    tell_that_it_is_here(ON_HEAD)
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
    _require_weights(objects, name, [record for _, pair in pairs for record in _arms(pair)])
    instructions = None if file is None else read_instructions(file)
    if instructions is not None and length_controlled and len(instructions) != ALPACA_EVAL:
        raise Misuse(
            f"--length-controlled is defined for AlpacaEval's {ALPACA_EVAL} instructions, whose "
            f"difficulties are known by place; {file} has {len(instructions)}."
        )
    folder = Path(out).expanduser().resolve()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Misuse(f"--out {folder} cannot be made: {error}. Give another folder.") from error
    click.get_current_context().with_resource(sole_writer(folder))
    judging = None
    if judge is not None:
        judging = Judge(judge, folder, length_controlled=length_controlled)
    prompts = set_name(file, instructions or ())
    asking = Asking(folder / prompts, instructions, count, longest, all_needed=length_controlled)
    rates: list[dict[str, Json]] = []
    for setting, pair in pairs:
        levels = sorted(set(gammas or (0.0, pair.constrained.config.train_gamma)))
        ours, theirs = (asking.answers(objects, r, setting, levels) for r in _arms(pair))
        for gamma in levels if judging is not None else ():
            assert judging is not None
            found = judging.compare(ours[gamma], theirs[gamma])
            if found.judged < len(ours[gamma]):
                missing = len(ours[gamma]) - found.judged
                note(f"{missing} answers were not judged: the same command asks for them again.")
            rates.append({
                "setting": setting,
                "seed": pair.constrained.config.seed,
                "gamma": gamma,
                "judge": judging.name,
                "prompts": prompts,
                "longest": longest,
                "asked": len(ours[gamma]),
                **asdict(found),
                "constrained_characters": _mean_length(ours[gamma]),
                "unconstrained_characters": _mean_length(theirs[gamma]),
            })  # fmt: skip
            _put_rates(folder / WIN_RATES, rates)
    if rates:
        _print_rates(rates)
        click.echo(str(folder / WIN_RATES))


def _arms(pair: Pair) -> tuple[ArmRecord, ArmRecord]:
    """Both arms, whose networks are asked one after the other."""
    plain = pair.unconstrained
    if plain is None or plain.evaluation is None:
        raise Misuse(
            f"the baseline of {pair.constrained.signature} has no network: leave its setting "
            "out with --only."
        )
    return pair.constrained, plain


def _require_weights(objects: ObjectStore, name: str, records: Sequence[ArmRecord]) -> None:
    """Failure, before anything is asked, where an arm's weights are not there."""
    store = ArmStore(objects)
    missing = [s for s in dict.fromkeys(r.signature for r in records) if not store.has_weights(s)]
    if missing:
        export = advice.command("export", name, storage=objects.root)
        raise Failure(
            f"the weights of {', '.join(missing)} are not below {objects.root}: a sweep keeps "
            "those of the arms that win when it ends, and of plain arms. Train it again: "
            f"`{export} --out DIR`, then `sweep run` on its configuration there, with a --storage "
            "of its own; or leave its setting out with --only."
        )


@dataclass(frozen=True)
class Asking:
    """What networks are asked, and where their answers go."""

    folder: Path
    instructions: Sequence[Instruction] | None  # None: held-out ones
    count: int | None
    longest: int
    all_needed: bool  # no instruction may be left out
    told: set[str] = field(default_factory=set)

    def answers(
        self, objects: ObjectStore, record: ArmRecord, setting: str, gammas: Sequence[float]
    ) -> dict[float, list[Row]]:
        """One arm's answers by noise level, kept in a list for each."""
        from sweep.report.win_rates import write_answers
        from trainables.predictor import Answerer

        config = record.config
        weights = ArmStore(objects).weights(record.signature)
        assert weights is not None  # looked for before
        arm = Answerer(config, weights)
        asked = self._asked(arm, config.data.name)
        found = {}
        for gamma in gammas:
            named = f"{config.arm}-g{gamma:g}"
            path = self.folder / setting / f"seed{config.seed}" / f"{named}.json"
            generator = f"{setting}-{named}-{self.longest}-{record.signature}"
            label = f"{setting} seed {config.seed} {config.arm} gamma {gamma:g}"
            rows = write_answers(path, generator, asked, gamma, arm, self.longest)
            shown = track(rows, label, total=len(asked), console=Console(stderr=True))
            found[gamma] = list(shown)
            click.echo(str(path))
        return found

    def _asked(self, arm: Answerer, data: str) -> list[tuple[Instruction, Prompt]]:
        """Instructions as a judge reads them, and their prompts."""
        from sweep.report.win_rates import Instruction

        if self.instructions is None:
            prompts = arm.held_out(self.count or HELD_OUT)
            if self.count and len(prompts) < self.count:
                self._note(
                    f"only {len(prompts)} held-out prompts exist (--count {self.count}): using all."
                )
            return [(Instruction(p.text.strip(), dataset=data), p) for p in prompts]
        given = self.instructions[: self.count]
        made = arm.of_texts([(i.text, i.context) for i in given])
        fit = [(i, p) for i, p in zip(given, made, strict=True) if p is not None]
        if len(fit) < len(given):
            left_out = f"{len(given) - len(fit)} of {len(given)} prompts fill data.max_length"
            if self.all_needed or not fit:
                raise Misuse(f"{left_out}, which leaves no room for an answer: give shorter ones.")
            self._note(f"{left_out}: they are left out.")
        return fit

    def _note(self, text: str) -> None:
        """Once, and not for every arm."""
        if text not in self.told:
            self.told.add(text)
            note(text)


def _mean_length(rows: Sequence[Row]) -> float:
    return sum(len(row["output"]) for row in rows) / len(rows)


def _put_rates(path: Path, rates: Sequence[dict[str, Json]]) -> None:
    """Write the rates beside those of other calls; of one that is measured again the new one."""

    def key(row: Mapping[str, Json]) -> tuple[str, ...]:
        return tuple(str(row[name]) for name in RATED_BY)

    rows = {}
    if path.exists():
        with path.open(encoding="utf-8", newline="") as stream:
            rows = {key(row): row for row in csv.DictReader(stream)}
    rows |= {key(row): row for row in rates}
    table = io.StringIO(newline="")
    writer = csv.DictWriter(table, list(rates[0]))
    writer.writeheader()
    writer.writerows(rows.values())
    write_atomically(path, table.getvalue().encode())


def _print_rates(rates: Sequence[dict[str, Any]]) -> None:
    from sweep.render.terminal import table

    rows = []
    for rate in rates:
        row = {
            "setting": rate["setting"],
            "seed": str(rate["seed"]),
            "gamma": f"{rate['gamma']:g}",
            "judged": str(rate["judged"]),
            "equal": str(rate["equal"]),
            "win rate": f"{rate['win_rate']:.1f} ± {rate['standard_error']:.1f}",
        }
        if rate["length_controlled"] is not None:
            row["of one length"] = (
                f"{rate['length_controlled']:.1f} ± {rate['lc_standard_error']:.1f}"
            )
        rows.append(row)
    click.echo("How often the judge prefers the constrained arm's answer, in % (equal ones: half).")
    click.echo("These are winners of one search: a hint, no confirmed result.")
    console().print(
        table(rows, right=("seed", "gamma", "judged", "equal", "win rate", "of one length"))
    )
