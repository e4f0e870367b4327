"""Win rates: how often a judge prefers the answers of one arm to the other's.

The lists of answers have the fields of AlpacaEval's model outputs, and the judge is one of its
annotators, by the package alpaca_eval (github.com/tatsu-lab/alpaca_eval; Dubois et al., 2024,
arXiv 2404.04475, for length-controlled win rates). It is imported here alone, when it is asked for.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainables.errors import BadData, Failure, InvalidValue, Misuse
from trainables.machine import file_locks
from trainables.machine.atomic_files import (
    atomic_file,
    remove_left_overs,
    write_atomically,
)

if TYPE_CHECKING:
    from trainables.predictor import Answerer
    from trainables.tasks.base import Prompt

Row = dict[str, str]  # an answer in AlpacaEval's fields
JUDGED_AT_ONCE = 10  # and then kept


@dataclass(frozen=True)
class Instruction:
    """An instruction that the networks answer."""

    text: str
    context: str = ""  # its input, of which some have one
    dataset: str = ""

    @property
    def judged_text(self) -> str:
        """As a judge reads it."""
        return f"{self.text}\n\n{self.context}" if self.context else self.text


@dataclass(frozen=True)
class WinRate:
    """Verdict of a judge on two lists, in percent of those judged; a tie is half a win."""

    equal: int  # answers of both arms, which need no judge
    judged: int  # those, and the others of which the judge said what it prefers
    win_rate: float
    standard_error: float
    length_controlled: float | None = None  # what it would be, were answers of one length
    lc_standard_error: float | None = None


def read_instructions(path: Path) -> list[Instruction]:
    """The instructions of a JSON file: a list of objects, as AlpacaEval's own set is.

    Raises:
        BadData: it is none, or names an instruction twice, which the judge would not tell apart.
    """
    wanted = "It must be a JSON list of objects with `instruction`, and `input` where there is one."
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadData(f"--prompts {path} cannot be read: {error}. {wanted}") from error
    if not isinstance(rows, list) or not rows:
        raise BadData(f"--prompts {path} holds no list of instructions. {wanted}")
    instructions = []
    for number, row in enumerate(rows):
        given = row if isinstance(row, dict) else {}
        text, context = given.get("instruction"), given.get("input") or ""
        if not isinstance(text, str) or not isinstance(context, str) or not text.strip():
            raise BadData(f"row {number} of --prompts {path} has no instruction. {wanted}")
        instructions.append(Instruction(text, context, str(given.get("dataset", ""))))
    seen: dict[str, int] = {}
    for number, instruction in enumerate(instructions):
        first = seen.setdefault(instruction.judged_text, number)
        if first != number:
            raise BadData(
                f"rows {first} and {number} of --prompts {path} are the same instruction. Leave "
                "one out."
            )
    return instructions


def set_name(path: Path | None, instructions: Sequence[Instruction]) -> str:
    """Name of a set of instructions: its file's name and a hash of its content."""
    if path is None:
        return "held-out"
    made_of = json.dumps([[i.text, i.context] for i in instructions])
    return f"{path.stem}-{hashlib.sha256(made_of.encode()).hexdigest()[:8]}"


def write_answers(
    path: Path,
    generator: str,
    prompts: Sequence[tuple[Instruction, Prompt]],
    gamma: float,
    arm: Answerer,
    longest: int,
) -> Iterator[Row]:
    """Generate the answers to instructions, and yield them one by one, in their order.

    They are kept in a list that only grows: what it has is not generated again.

    Args:
        path: of the list.
        generator: name of this arm, noise level and length, unlike all others.
        prompts: every instruction as it is to be judged, and its prompt.
        gamma: noise on all tokens, in standard deviations of the word embeddings.
        arm: the network that answers.
        longest: tokens of an answer at most.

    Raises:
        Misuse: the list has answers of another arm or length, or is no list.
    """
    kept = {row["instruction"]: row for row in _there(path, generator)}
    for instruction, prompt in prompts:
        if instruction.judged_text not in kept:
            kept[instruction.judged_text] = {
                "dataset": instruction.dataset,
                "instruction": instruction.judged_text,
                "output": arm.answer(prompt, gamma, longest).written,
                "generator": generator,
            }
            _put(path, list(kept.values()))
        yield kept[instruction.judged_text]


def _there(path: Path, generator: str) -> list[Row]:
    """The answers of earlier calls."""
    if not path.exists():
        return []
    try:
        rows: list[Row] = json.loads(path.read_text(encoding="utf-8"))
        others = {row["generator"] for row in rows if row["instruction"]} - {generator}
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise Misuse(f"{path} is no list of answers ({error}). Remove it.") from error
    if others:
        raise Misuse(
            f"{path} has answers of {', '.join(sorted(others))}, and these are of {generator} "
            "(setting, arm, noise, --longest, the arm's signature). Give another --out."
        )
    return rows


def _put(path: Path, rows: list[Row]) -> None:
    text = json.dumps(rows, indent=1, ensure_ascii=False) + "\n"
    remove_left_overs(path)  # of a call that was killed; the folder's lock is held
    write_atomically(path, text.encode())


@contextmanager
def sole_writer(folder: Path) -> Iterator[None]:
    """Keep a folder of answers to this process, which holds in memory what it will write there.

    The kernel gives it free however the process ends; where it has no locks nothing is kept.

    Raises:
        Misuse: another process has it.
    """
    with ExitStack() as stack:
        try:
            stack.enter_context(file_locks.held(folder / ".answers.lock"))
        except BlockingIOError as error:
            raise Misuse(
                f"another `sweep answers` writes to {folder} now. Wait for its end, or give "
                "another --out."
            ) from error
        yield


class Judge:
    """An annotator of alpaca_eval."""

    def __init__(self, config: str, folder: Path, *, length_controlled: bool = False) -> None:
        """Find it before anything is asked.

        Args:
            config: the name of one of its configurations, or a YAML file that is one.
            folder: where its judgements are kept, which are not paid for again: in a file for each
                configuration, by the content of it and of its templates.
            length_controlled: whether the length-controlled win rate is wanted. It is defined for
                AlpacaEval's own instructions in their order, whose difficulties are downloaded.

        Raises:
            Misuse: alpaca_eval is not installed.
            InvalidValue: it has no such configuration.
            BadData: the file of its judgements is damaged.
        """
        try:
            with _quiet():
                import alpaca_eval
        except ImportError as error:
            raise Misuse(
                f"--judge needs the package alpaca_eval, which is not fully installed "
                f"({error}): pip install 'descent-sweep[judge]', or "
                "pip install 'alpaca_eval>=0.6.6,<0.7' 'setuptools<81'."
            ) from error
        self._metrics: Any = alpaca_eval.metrics
        self._length_controlled = length_controlled
        named = Path(alpaca_eval.__file__).parent / "evaluators_configs"
        given = Path(config).expanduser()
        file = given.resolve() if given.is_file() else named / config / "configs.yaml"
        try:
            with _quiet():
                self._annotator = _annotator(str(file))
            templates = [one.prompt_template for one in self._annotator.annotators.values()]
            made_of = json.dumps([file.read_text(encoding="utf-8"), *templates])
        except Exception as error:  # the package raises plain ones
            raise InvalidValue(
                f"--judge {config} is no annotator of alpaca_eval ({_named(error)}). Give the YAML "
                "file of one, with the full paths of its templates, or the name of a folder in "
                f"{named}, like weighted_alpaca_eval_gpt4_turbo."
            ) from error
        digest = hashlib.sha256(made_of.encode()).hexdigest()[:8]
        self.name = f"{given.stem if given.is_file() else config}-{digest}"
        folder.mkdir(parents=True, exist_ok=True)
        kept = folder / f"judged-{self.name}.json"
        try:
            self._annotator.keep_in(kept)
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise BadData(
                f"the judgements in {kept} cannot be read ({_named(error)}). Remove the file; what "
                "it has is judged again."
            ) from error

    def compare(self, ours: Sequence[Row], baseline: Sequence[Row]) -> WinRate:
        """How often ``ours`` win over ``theirs``, which answer the same instructions.

        Raises:
            Failure: the judge could not be asked, or the difficulties not be downloaded.
        """
        assert [row["instruction"] for row in ours] == [row["instruction"] for row in baseline]
        equal = sum(a["output"] == b["output"] for a, b in zip(ours, baseline, strict=True))
        with _quiet():
            judged = self._judged(ours, baseline)
            preferred = [row for row in judged if _is_number(row["preference"])]
            if len(preferred) <= equal < len(ours):
                raise Failure(
                    f"the judge {self.name} got {len(ours) - equal} pairs of answers, and no reply "
                    "names the one that it prefers: look at its template and its parser."
                )
            rate = self._metrics.get_winrate(preferred)
            if not self._length_controlled:
                return WinRate(equal, rate["n_total"], rate["win_rate"], rate["standard_error"])
            rate = self._controlled(judged)
        return WinRate(
            equal,
            rate["n_total"],
            rate["win_rate"],
            rate["standard_error"],
            rate["length_controlled_winrate"],
            rate["lc_standard_error"],
        )

    def _judged(self, ours: Sequence[Row], baseline: Sequence[Row]) -> Any:
        try:
            return self._annotator.annotate_head2head(
                outputs_1=list(baseline), outputs_2=list(ours), chunksize=JUDGED_AT_ONCE
            )
        except Exception as error:
            raise Failure(
                f"the judge failed: {_named(error)}. The answers are kept, and all judgements but "
                f"the last {JUDGED_AT_ONCE} at most: the same command goes on."
            ) from error

    def _controlled(self, judged: Any) -> Any:
        try:
            return self._metrics.get_length_controlled_winrate(judged, save_weights_dir=None)
        except Exception as error:
            raise Failure(
                f"no length-controlled win rate: {_named(error)}. It needs "
                "AlpacaEval's instructions in their own order, and their difficulties from the Hub "
                "(tatsu-lab/alpaca_eval, df_gamed.csv). Without --length-controlled the plain rate "
                "is written."
            ) from error


def _annotator(config: str) -> Any:
    """alpaca_eval's, which keeps its judgements in a file once it is told which.

    Of pandas 3 it asks for floats, since a tie is 1.5 and a file has whole numbers. Judgements that
    failed it would keep as -1 for ever; they are asked for again.
    """
    from alpaca_eval.annotators import PairwiseAnnotator

    class Annotator(PairwiseAnnotator):  # type: ignore[misc]  # the package ships no types
        df_annotations: Any

        def keep_in(self, path: Path) -> None:
            self.caching_path = path
            self.load_()

        def load_(self, path: Any = None) -> None:
            super().load_(path)
            kept, key = self.df_annotations, self.annotation_key
            if kept is not None:
                kept = kept.assign(**{key: kept[key].astype(float)})
                self.df_annotations = kept[kept[key] != self.TMP_MISSING_ANNOTATION]

        def save(self, path: Any = None) -> None:
            with atomic_file(Path(path or self.caching_path)) as temporary:
                super().save(temporary)

    return Annotator(annotators_config=config, caching_path=None)


@contextmanager
def _quiet() -> Iterator[None]:
    """No word of the package, which tells of every request, nor of libraries newer than it."""
    root = logging.getLogger()
    level = root.level
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            root.setLevel(logging.CRITICAL)
            yield
    finally:
        root.setLevel(level)  # on being imported it asks for all there is


def _is_number(preference: float | None) -> bool:
    return preference is not None and math.isfinite(preference)


def _named(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".rstrip(".")
