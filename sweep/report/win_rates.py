"""Win rates: how often a judge prefers the answers of one arm to the other's.

The judge is an annotator of the package alpaca_eval (github.com/tatsu-lab/alpaca_eval; Dubois et
al., 2024, arXiv 2404.04475, for length-controlled win rates), which is imported here alone, and
only with --judge.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import logging
import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from sweep.report.answers import Answer
from trainables.errors import BadData, Failure, InvalidValue, Misuse
from trainables.machine.atomic_files import atomic_file, write_atomically

JUDGED_AT_ONCE = 10  # and then kept
RATED_BY = ("setting", "seed", "gamma", "judge", "prompts", "longest", "asked")


@dataclass(frozen=True)
class WinRate:
    """Preferences of a judge in percent of the judged answers; equal ones are half a win."""

    equal: int  # answers of both arms, which need no judge
    judged: int  # those, and the others whose judgement is a preference
    win_rate: float
    standard_error: float
    length_controlled: float | None = None  # the estimate for answers of one length
    lc_standard_error: float | None = None


@dataclass(frozen=True, kw_only=True)
class PairRate(WinRate):
    """Win rate of a pair at one noise level: a row of win_rates.csv."""

    setting: str
    seed: int
    gamma: float
    judge: str
    prompts: str  # name of their set
    longest: int
    n_prompts: int
    constrained_characters: float  # mean length of an answer
    unconstrained_characters: float


def write_rates(path: Path, rates: Sequence[PairRate]) -> None:
    """Add the rates to those of earlier calls; one that is measured again replaces the old one."""
    rows: list[dict[str, Any]] = [{**asdict(rate), "asked": rate.n_prompts} for rate in rates]
    for row in rows:
        del row["n_prompts"]
    columns = dict.fromkeys((*RATED_BY, *rows[0]))
    if path.exists():
        with path.open(encoding="utf-8", newline="") as stream:
            rows = [*csv.DictReader(stream), *rows]
    table = io.StringIO(newline="")
    writer = csv.DictWriter(table, columns)
    writer.writeheader()
    writer.writerows({tuple(str(row[name]) for name in RATED_BY): row for row in rows}.values())
    write_atomically(path, table.getvalue().encode())


class Judge:
    """An annotator of alpaca_eval."""

    def __init__(self, config: str, folder: Path, *, length_controlled: bool = False) -> None:
        """Find it, before any network answers.

        Args:
            config: the name of one of its configurations, or a YAML file that is one.
            folder: where its judgements are kept, so that none is paid for twice, in a file for
                each content of a configuration and its templates.
            length_controlled: report the length-controlled win rate, too. It is defined for
                AlpacaEval's own instructions in their order; it downloads their difficulties.

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
        built_in = Path(alpaca_eval.__file__).parent / "evaluators_configs"
        given = Path(config).expanduser()
        file = given.resolve() if given.is_file() else built_in / config / "configs.yaml"
        try:
            with _quiet():
                self._annotator = _annotator(str(file))
            templates = [one.prompt_template for one in self._annotator.annotators.values()]
            content = json.dumps([file.read_text(encoding="utf-8"), *templates])
        except Exception as error:  # the package raises plain ones
            raise InvalidValue(
                f"--judge {config} is no annotator of alpaca_eval ({_describe(error)}). Give the "
                "YAML file of one, with the full paths of its templates, or the name of a folder "
                f"in {built_in}, like weighted_alpaca_eval_gpt4_turbo."
            ) from error
        digest = hashlib.sha256(content.encode()).hexdigest()[:8]
        self.name = f"{given.stem if given.is_file() else config}-{digest}"
        folder.mkdir(parents=True, exist_ok=True)
        kept = folder / f"judged-{self.name}.json"
        try:
            self._annotator.keep_in(kept)
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise BadData(
                f"the judgements in {kept} cannot be read ({_describe(error)}). Remove the file, "
                "to have its answers judged again."
            ) from error

    def compare(self, constrained: Sequence[Answer], baseline: Sequence[Answer]) -> WinRate:
        """Win rate of the constrained arm's answers over those of its baseline, prompt by prompt.

        Raises:
            Failure: the judge did not answer, or the difficulties could not be downloaded.
        """
        pairs = list(zip(constrained, baseline, strict=True))
        assert all(ours.instruction == other.instruction for ours, other in pairs)
        equal = sum(ours.output == other.output for ours, other in pairs)
        with _quiet():
            judgements = self._judge(constrained, baseline)
            usable = [
                one
                for one in judgements
                if one["preference"] is not None and math.isfinite(one["preference"])
            ]
            if len(usable) <= equal < len(pairs):
                raise Failure(
                    f"the judge {self.name} got {len(pairs) - equal} pairs of answers, and no "
                    "reply names the one that it prefers: look at its template and its parser."
                )
            rate = self._metrics.get_winrate(usable)
            if self._length_controlled:
                rate = self._control_length(judgements)
        plain = WinRate(equal, rate["n_total"], rate["win_rate"], rate["standard_error"])
        if not self._length_controlled:
            return plain
        controlled, error = rate["length_controlled_winrate"], rate["lc_standard_error"]
        return replace(plain, length_controlled=controlled, lc_standard_error=error)

    def _judge(self, constrained: Sequence[Answer], baseline: Sequence[Answer]) -> Any:
        try:
            return self._annotator.annotate_head2head(
                outputs_1=[answer._asdict() for answer in baseline],
                outputs_2=[answer._asdict() for answer in constrained],
                chunksize=JUDGED_AT_ONCE,
            )
        except Exception as error:
            raise Failure(
                f"the judge failed: {_describe(error)}. The answers are kept, and all judgements "
                f"but the last {JUDGED_AT_ONCE} at most: run the same command to continue."
            ) from error

    def _control_length(self, judgements: Any) -> Any:
        try:
            return self._metrics.get_length_controlled_winrate(judgements, save_weights_dir=None)
        except Exception as error:
            raise Failure(
                f"no length-controlled win rate: {_describe(error)}. It needs "
                "AlpacaEval's instructions in their own order, and their difficulties from the Hub "
                "(tatsu-lab/alpaca_eval, df_gamed.csv). Without --length-controlled the plain rate "
                "is written."
            ) from error


def _annotator(config: str) -> Any:
    """An annotator of alpaca_eval that keeps its judgements in a file of ours.

    Two faults are mended: under pandas 3 preferences must be read as floats, since a tie is 1.5 and
    the file may have integers alone; and failed judgements, kept as -1, are requested again.
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
    """Silence the package, which logs every request, and warnings about newer libraries."""
    root = logging.getLogger()
    level = root.level
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            root.setLevel(logging.CRITICAL)
            yield
    finally:
        root.setLevel(level)  # the import lowers it


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".rstrip(".")
