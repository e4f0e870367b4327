"""Win rates: how often a judge prefers the answers of one arm to the other's.

The lists of answers have the fields of AlpacaEval's model outputs, and the judge is one of its
annotators, by the package alpaca_eval (github.com/tatsu-lab/alpaca_eval; Dubois et al., 2024,
arXiv 2404.04475, for length-controlled win rates). It is imported here alone, when it is asked for.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainables.errors import BadData, Failure, InvalidValue, Misuse

if TYPE_CHECKING:
    from trainables.predictor import Asked
    from trainables.tasks.base import Prompt

Row = dict[str, str]  # an answer in AlpacaEval's fields
KEPT_EVERY = 10  # answers, after which the list on disk is whole again


@dataclass(frozen=True)
class Instruction:
    """What is to be answered."""

    text: str
    context: str = ""  # its input, of which some have one
    dataset: str = ""

    @property
    def whole(self) -> str:
        """As a judge reads it."""
        return f"{self.text}\n\n{self.context}" if self.context else self.text


@dataclass(frozen=True)
class WinRate:
    """What a judge says of two lists, in percent of the instructions; a tie is half a win."""

    instructions: int
    win_rate: float
    standard_error: float
    length_controlled: float | None = None  # what it would be, were answers of one length
    lc_standard_error: float | None = None

    def row(self) -> dict[str, float]:
        """Its numbers by name, without those that were not asked for."""
        return {name: value for name, value in asdict(self).items() if value is not None}


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
    found = []
    for number, row in enumerate(rows):
        given = row if isinstance(row, dict) else {}
        text, context = given.get("instruction"), given.get("input") or ""
        if not isinstance(text, str) or not isinstance(context, str) or not text.strip():
            raise BadData(f"row {number} of --prompts {path} has no instruction. {wanted}")
        found.append(Instruction(text, context, str(given.get("dataset", ""))))
    seen: dict[str, int] = {}
    for number, instruction in enumerate(found):
        first = seen.setdefault(instruction.whole, number)
        if first != number:
            raise BadData(
                f"rows {first} and {number} of --prompts {path} are the same instruction. Leave "
                "one out."
            )
    return found


def write_answers(
    path: Path,
    generator: str,
    asked: Sequence[tuple[Instruction, Prompt]],
    gamma: float,
    arm: Asked,
    longest: int,
) -> Iterator[Row]:
    """Write a list of answers, and yield them one by one; what is there stays.

    Args:
        path: of the list; one of the same generator is gone on with.
        generator: what tells this arm, noise level and length from all others.
        asked: every instruction as it is to be judged, and its prompt.
        gamma: noise on all tokens, in standard deviations of the word embeddings.
        arm: who is asked.
        longest: tokens of an answer at most.
    """
    rows = _there(path, generator, [instruction for instruction, _ in asked])
    yield from rows
    for instruction, prompt in asked[len(rows) :]:
        rows.append({
            "dataset": instruction.dataset,
            "instruction": instruction.whole,
            "output": arm.answer(prompt, gamma, longest).written,
            "generator": generator,
        })  # fmt: skip
        if len(rows) % KEPT_EVERY == 0 or len(rows) == len(asked):
            _put(path, rows)
        yield rows[-1]


def _there(path: Path, generator: str, asked: Sequence[Instruction]) -> list[Row]:
    """The answers of an earlier call, as far as they are to the same instructions."""
    try:
        rows: list[Row] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    same = [
        row.get("generator") == generator and row.get("instruction") == instruction.whole
        for row, instruction in zip(rows, asked, strict=False)
    ]
    return rows[: (*same, False).index(False)]


def _put(path: Path, rows: list[Row]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    os.replace(temporary, path)


class Judge:
    """An annotator of alpaca_eval."""

    def __init__(self, config: str, kept: Path, *, length_controlled: bool = False) -> None:
        """Find it before anything is asked.

        Args:
            config: the name of one of its configurations, or a YAML file that is one.
            kept: a file of what was judged already, which is not paid for again.
            length_controlled: whether the length-controlled win rate is wanted. It is defined for
                AlpacaEval's own instructions in their order, whose difficulties are downloaded.

        Raises:
            Misuse: alpaca_eval is not installed.
            InvalidValue: it has no such configuration.
        """
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # pkg_resources is deprecated
                import alpaca_eval
        except ImportError as error:
            raise Misuse(
                f"--judge needs the package alpaca_eval, which is not installed as a whole "
                f"({error}): pip install 'descent-sweep[judge]', or "
                "pip install 'alpaca_eval>=0.6.6,<0.7' 'setuptools<81'."
            ) from error
        self._package: Any = alpaca_eval
        self._length_controlled = length_controlled
        kept.parent.mkdir(parents=True, exist_ok=True)
        file = Path(config).expanduser()
        found = str(file.resolve()) if file.is_file() else config
        try:
            self._annotator = _annotator(found, kept)
        except Exception as error:  # the package raises plain ones
            known = Path(alpaca_eval.__file__).parent / "evaluators_configs"
            raise InvalidValue(
                f"--judge {config} is no annotator of alpaca_eval ({error}). Give the YAML file of "
                f"one, or the name of a folder in {known}, like weighted_alpaca_eval_gpt4_turbo."
            ) from error

    def compare(self, ours: Sequence[Row], theirs: Sequence[Row]) -> WinRate:
        """How often ``ours`` win over ``theirs``, which answer the same instructions.

        Raises:
            Failure: the judge could not be asked, or the difficulties not be downloaded.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the package is older than the libraries it calls
            found = self._judged(ours, theirs)
            rate = self._package.metrics.get_winrate(found)
            if not self._length_controlled:
                return WinRate(rate["n_total"], rate["win_rate"], rate["standard_error"])
            rate = self._controlled(found)
        return WinRate(
            rate["n_total"],
            rate["win_rate"],
            rate["standard_error"],
            rate["length_controlled_winrate"],
            rate["lc_standard_error"],
        )

    def _judged(self, ours: Sequence[Row], theirs: Sequence[Row]) -> Any:
        try:
            return self._annotator.annotate_head2head(outputs_1=list(theirs), outputs_2=list(ours))
        except Exception as error:
            raise Failure(
                f"the judge failed: {_said(error)}. The answers are kept, and "
                "what was judged so far: the same command goes on."
            ) from error

    def _controlled(self, found: Any) -> Any:
        try:
            return self._package.metrics.get_length_controlled_winrate(found, save_weights_dir=None)
        except Exception as error:
            raise Failure(
                f"no length-controlled win rate: {_said(error)}. It needs "
                "AlpacaEval's instructions in their own order, and their difficulties from the Hub "
                "(tatsu-lab/alpaca_eval, df_gamed.csv). Without --length-controlled the plain rate "
                "is written."
            ) from error


def _annotator(config: str, kept: Path) -> Any:
    """alpaca_eval's, for pandas 3, which writes no 1.5 for a tie into a file's whole numbers."""
    from alpaca_eval.annotators import PairwiseAnnotator

    class Annotator(PairwiseAnnotator):  # type: ignore[misc]  # the package ships no types
        def load_(self, path: Any = None) -> None:
            super().load_(path)
            if self.df_annotations is not None:
                whole = self.df_annotations[self.annotation_key]
                self.df_annotations[self.annotation_key] = whole.astype(float)

    return Annotator(annotators_config=config, caching_path=kept)


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".rstrip(".")
