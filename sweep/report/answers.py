"""Answers of a sweep's networks to instructions, in AlpacaEval's fields."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click
from rich.console import Console
from rich.progress import track

from sweep.study import advice
from sweep.study.pairs import Pair
from trainables.errors import BadData, Failure, Misuse
from trainables.machine import file_locks
from trainables.machine.atomic_files import remove_temporary_files, write_atomically
from trainables.records.arm_record import ArmRecord
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore

if TYPE_CHECKING:  # torch
    from trainables.predictors.answerer import Answerer
    from trainables.tasks.base import Prompt

HELD_OUT = 100  # prompts at most, unless --count is given


class Answer(NamedTuple):
    """An answer to an instruction, in the fields of AlpacaEval's model outputs."""

    dataset: str
    instruction: str
    output: str
    generator: str


@dataclass(frozen=True)
class Instruction:
    """A task in words, which some have an input for."""

    text: str
    context: str = ""  # the input
    dataset: str = ""

    @property
    def judged_text(self) -> str:
        """The instruction and its input, as a judge reads them."""
        return f"{self.text}\n\n{self.context}" if self.context else self.text


def read_instructions(path: Path) -> list[Instruction]:
    """The instructions of a JSON file: a list of objects, as AlpacaEval's own set is.

    Raises:
        BadData: it is no such list, or has an instruction twice, which a judge cannot distinguish.
    """
    wanted = "It must be a JSON list of objects with `instruction`, and `input` where there is one."
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadData(f"--prompts {path} cannot be read: {error}. {wanted}") from error
    if not isinstance(rows, list) or not rows:
        raise BadData(f"--prompts {path} holds no list of instructions. {wanted}")
    instructions: dict[str, tuple[int, Instruction]] = {}
    for number, row in enumerate(rows):
        values = row if isinstance(row, dict) else {}
        text, context = values.get("instruction"), values.get("input") or ""
        if not isinstance(text, str) or not isinstance(context, str) or not text.strip():
            raise BadData(f"row {number} of --prompts {path} has no instruction. {wanted}")
        instruction = Instruction(text, context, str(values.get("dataset", "")))
        first, _ = instructions.setdefault(instruction.judged_text, (number, instruction))
        if first != number:
            raise BadData(
                f"rows {first} and {number} of --prompts {path} are the same instruction. Leave "
                "one out."
            )
    return [instruction for _, instruction in instructions.values()]


def set_name(path: Path | None, instructions: Sequence[Instruction]) -> str:
    """Name of a set of instructions: that of its file, and a hash of its content."""
    if path is None:
        return "held-out"
    content = json.dumps([[i.text, i.context] for i in instructions])
    return f"{path.stem}-{hashlib.sha256(content.encode()).hexdigest()[:8]}"


def arms_of(pair: Pair) -> tuple[ArmRecord, ArmRecord]:
    """Both arms of a pair. Misuse where the baseline did not finish, so that it has no network."""
    baseline = pair.unconstrained
    if baseline is None or baseline.evaluation is None:
        raise Misuse(
            f"the baseline of {pair.constrained.signature} has no network: leave its setting "
            "out with --only."
        )
    return pair.constrained, baseline


def require_weights(objects: ObjectStore, name: str, pairs: Sequence[Pair]) -> None:
    """Raise Failure where the weights of an arm are not in the store."""
    store = ArmStore(objects)
    signatures = dict.fromkeys(record.signature for pair in pairs for record in arms_of(pair))
    missing = [signature for signature in signatures if not store.has_weights(signature)]
    if missing:
        export = advice.command("export", name, storage=objects.root)
        raise Failure(
            f"the weights of {', '.join(missing)} are not below {objects.root}: a sweep keeps "
            "those of the arms that win when it ends, and of plain arms. Train it again: "
            f"`{export} --out DIR`, then `sweep run` on its configuration there, with a --storage "
            "of its own; or leave its setting out with --only."
        )


@dataclass(frozen=True)
class Questions:
    """Instructions for the networks of a sweep, and the folder of their answers."""

    folder: Path
    instructions: Sequence[Instruction] | None  # None: held-out ones
    count: int | None
    longest: int  # tokens of an answer at most
    all_needed: bool  # no instruction may be left out
    warn: Callable[[str], None] = field(default_factory=lambda: cache(advice.note))  # each once

    def write_lists(
        self, objects: ObjectStore, record: ArmRecord, setting: str, gammas: Sequence[float]
    ) -> dict[float, list[Answer]]:
        """Write one arm's answers, a list for each noise level, with a bar; the answers."""
        from trainables.predictors.answerer import Answerer

        config = record.config
        weights = ArmStore(objects).weights(record.signature)
        assert weights is not None  # see require_weights
        arm = Answerer(config, weights)
        prompts = self._prompts(arm, config.data.name)
        answers = {}
        for gamma in gammas:
            name = f"{config.arm}-g{gamma:g}"
            path = self.folder / setting / f"seed{config.seed}" / f"{name}.json"
            generator = f"{setting}-{name}-{self.longest}-{record.signature}"
            label = f"{setting} seed {config.seed} {config.arm} gamma {gamma:g}"
            written = write_answers(path, generator, prompts, gamma, arm, self.longest)
            bar = track(written, label, total=len(prompts), console=Console(stderr=True))
            answers[gamma] = list(bar)
            click.echo(str(path))
        return answers

    def _prompts(self, arm: Answerer, data: str) -> list[tuple[Instruction, Prompt]]:
        """Instructions as a judge reads them, and their prompts."""
        if self.instructions is None:
            prompts = arm.held_out(self.count or HELD_OUT)
            if self.count and len(prompts) < self.count:
                self.warn(
                    f"only {len(prompts)} held-out prompts exist (--count {self.count}): using all."
                )
            return [(Instruction(p.text.strip(), dataset=data), p) for p in prompts]
        given = self.instructions[: self.count]
        tokenized = arm.of_texts([(i.text, i.context) for i in given])
        fitting = [(i, p) for i, p in zip(given, tokenized, strict=True) if p is not None]
        if len(fitting) < len(given):
            too_long = f"{len(given) - len(fitting)} of {len(given)} prompts fill data.max_length"
            if self.all_needed or not fitting:
                raise Misuse(f"{too_long}, which leaves no room for an answer: give shorter ones.")
            self.warn(f"{too_long}: they are left out.")
        return fitting


def write_answers(
    path: Path,
    generator: str,
    prompts: Sequence[tuple[Instruction, Prompt]],
    gamma: float,
    arm: Answerer,
    longest: int,
) -> Iterator[Answer]:
    """Answer the prompts and yield the answers in their order.

    They are kept in a list that only grows; answers that it has are not computed again.

    Args:
        path: of the list.
        generator: identifies this arm, noise level and length in the list.
        prompts: every instruction as it is to be judged, and its prompt.
        gamma: noise on all tokens, in standard deviations of the word embeddings.
        arm: the network.
        longest: most tokens of an answer.

    Raises:
        Misuse: the list has answers of another arm or length, or is no list.
    """
    kept = {answer.instruction: answer for answer in _kept_answers(path, generator)}
    for instruction, prompt in prompts:
        if instruction.judged_text not in kept:
            output = arm.answer(prompt, gamma, longest).written
            answer = Answer(instruction.dataset, instruction.judged_text, output, generator)
            kept[instruction.judged_text] = answer
            rows = [one._asdict() for one in kept.values()]
            text = json.dumps(rows, indent=1, ensure_ascii=False) + "\n"
            remove_temporary_files(path)  # of a call that was killed; the folder's lock is held
            write_atomically(path, text.encode())
        yield kept[instruction.judged_text]


def _kept_answers(path: Path, generator: str) -> list[Answer]:
    """The answers of earlier calls."""
    if not path.exists():
        return []
    try:
        answers = [Answer(**row) for row in json.loads(path.read_text(encoding="utf-8"))]
        others = {one.generator for one in answers} - {generator}
    except (OSError, ValueError, TypeError) as error:
        raise Misuse(f"{path} is no list of answers ({error}). Remove it.") from error
    if others:
        raise Misuse(
            f"{path} has answers of {', '.join(sorted(others))}, and these are of {generator} "
            "(setting, arm, noise, --longest, the arm's signature). Give another --out."
        )
    return answers


@contextmanager
def sole_writer(folder: Path) -> Iterator[None]:
    """Make a folder of answers, and keep it to this process, which holds its lists in memory.

    The kernel drops the lock however the process ends; where it has no locks nothing is kept.

    Raises:
        Misuse: it cannot be made, or another process has it.
    """
    with ExitStack() as stack:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            stack.enter_context(file_locks.held(folder / ".answers.lock"))
        except BlockingIOError as error:
            raise Misuse(
                f"another `sweep answers` writes to {folder} now. Wait for its end, or give "
                "another --out."
            ) from error
        except OSError as error:
            raise Misuse(f"--out {folder} cannot be made: {error}. Give another folder.") from error
        yield
