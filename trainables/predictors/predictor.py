"""A finished arm's network as a function of arrays or of texts.

What a network takes is given in the form a user has it in: windows of grey frames where it takes
patches, texts where it takes tokens, else its own input. Its batches are those of the evaluation,
so that predictions are, too.

Shape suffixes: N inputs, B batch, T frames or tokens, H and W sides of a frame, C classes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from trainables.build import build_model, inference_device, parameter_dtype, placed
from trainables.config.arm import TRAINING_VERSION, ArmConfig
from trainables.datasets.text.examples import Example
from trainables.datasets.text.tokenizer import Tokenizer, encode, load_tokenizer
from trainables.errors import InvalidValue, Misuse, require
from trainables.layer_losses import layer_predictions
from trainables.predictors.predictor_folder import ARM, WEIGHTS
from trainables.primal_dual.constraints import Scales
from trainables.tasks.base import Batch, Tokens, autocast_of
from trainables.tasks.denoising import cut_into_patches, joined_patches
from trainables.training import from_bytes

if TYPE_CHECKING:
    import pandas

TEXT, PAIR, LABEL, SCORE = "text", "pair", "label", "score_"  # columns; scores by class
_TEXTS_AT_ONCE = 64


@dataclass
class _KnownTask:
    """Facts of the arm's task that a network needs before training, as stored."""

    scales: Scales
    classes: int
    vocabulary: int


@dataclass
class _Precision:
    dtype: torch.dtype
    autocast: torch.dtype | None


def form_of(config: ArmConfig) -> str:
    """Description of the inputs and outputs of a run's predictor."""
    facts, data = config.facts, config.data
    if facts.reads_texts:
        return (
            f"Takes a table with a column `{TEXT}`, and of pairs `{PAIR}`; returns the likeliest "
            f"`{LABEL}` and each class's probability, `{SCORE}NAME`."
        )
    if _takes_windows(config):
        return (
            f"Takes noisy windows [N, {data.frames}, H, W] of {data.frames} grey frames, pixels in "
            f"[0, 1], H and W multiples of {data.patch_size}; returns them denoised."
        )
    sides = ", ".join(map(str, facts.sample_shape(data)))
    return f"Takes an array [N, {sides}], of video pixels in [0, 1]; returns the prediction."


def _takes_windows(config: ArmConfig) -> bool:
    """True if arrays are windows of grey frames, of which the network takes patches."""
    shape = config.facts.sample_shape(config.data)
    return shape == (config.data.frames, config.data.patch_size**2)


class Predictor:
    """The network of one arm, on the GPU it was trained on the like of, else on the CPU."""

    def __init__(
        self, config: ArmConfig, model: nn.Module, classes: Sequence[str], tokenizer: Tokenizer
    ) -> None:
        """Take over a network with its weights; ``tokenizer`` is None where it takes no texts."""
        self.device = inference_device(config)
        self.config, self.classes = config, tuple(classes)
        self._model = placed(config, model, self.device).eval()
        self._precision = _Precision(parameter_dtype(config), autocast_of(config))
        self._tokenizer = tokenizer

    @classmethod
    def load(cls, folder: Path) -> Predictor:
        """Load the folder that ``write_predictor`` wrote.

        Raises:
            Misuse: another version of this package computes other numbers.
            UnknownName, BadData: a plug-in is not installed, or files are damaged.
        """
        arm = json.loads((folder / ARM).read_text(encoding="utf-8"))
        if arm["training_version"] != TRAINING_VERSION:
            raise Misuse(
                f"the model is of training version {arm['training_version']} of descent-sweep, and "
                f"version {TRAINING_VERSION} is installed, whose networks may compute other "
                "numbers. Install the release that registered it."
            )
        plain = arm["config"]
        if plain["model"]["checkpoint"] is not None:
            plain["model"]["checkpoint"] = str(folder / plain["model"]["checkpoint"])
        config = ArmConfig.from_json(plain)
        tokenizer = None
        if config.facts.reads_texts:
            tokenizer = load_tokenizer(str(config.model.checkpoint))
        task = _KnownTask(
            scales=Scales(**arm["scales"]),
            classes=len(arm["classes"]),
            vocabulary=0 if tokenizer is None else len(tokenizer),
        )
        model = build_model(config, task)
        content = (folder / WEIGHTS).read_bytes()
        model.load_state_dict(from_bytes(content, torch.device("cpu"))["model"])
        return cls(config, model, arm["classes"], tokenizer)

    # --- what it takes ----------------------------------------------------------------------------

    @property
    def reads_texts(self) -> bool:
        """True if it takes a table with the column ``text``, and maybe ``pair``; else an array."""
        return self._tokenizer is not None

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array that it takes; -1: any length."""
        if _takes_windows(self.config):
            return (-1, self.config.data.frames, -1, -1)
        return (-1, *self.config.facts.sample_shape(self.config.data))

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the arrays that it takes and returns."""
        return np.dtype(str(self._precision.dtype).removeprefix("torch."))

    def example(self) -> NDArray[Any] | pandas.DataFrame:
        """A small input of the right form."""
        if self.reads_texts:
            import pandas

            return pandas.DataFrame({TEXT: ["A film to see twice.", "Two hours of nothing."]})
        least = 2 * self.config.data.patch_size
        shape = (1, *(least if side < 0 else side for side in self.shape[1:]))
        ramp = np.linspace(0.25, 0.75, int(np.prod(shape)), dtype=self.dtype)
        return ramp.round(2).reshape(shape)

    # --- what it returns --------------------------------------------------------------------------

    def predict(
        self, inputs: Any, params: Mapping[str, Any] | None = None
    ) -> NDArray[Any] | pandas.DataFrame:
        """The prediction of a layer: the last, or ``params["layer"]`` of 0..L.

        Args:
            inputs: a table of texts, or an array of ``shape``, pixels in [0, 1].
            params: ``layer`` alone.

        Returns:
            Of texts a table with the likeliest ``label`` and the probability of every class, as
            ``score_NAME``. Of arrays one of the same shape: pixels, not clipped.
        """
        layers = self.config.model.layers
        layer = int((params or {}).get("layer", layers))
        require(0 <= layer <= layers, "layer", layer, f"from 0 to {layers}")
        with torch.inference_mode():
            if self.reads_texts:
                return self._of_texts(inputs, layer)
            return self._of_arrays(inputs, layer)

    def _of_arrays(self, inputs: Any, layer: int) -> NDArray[Any]:
        given = np.asarray(inputs, dtype=self.dtype)
        lengths = zip(given.shape, self.shape, strict=False)
        fits = given.ndim == len(self.shape) and all(w in (-1, n) for n, w in lengths)
        require(fits, "the input's shape", given.shape, f"{self.shape}, -1 for any length")
        if _takes_windows(self.config):
            return self._of_windows(given, layer)
        size = self.config.facts.samples_per_unit(self.config.data)
        parts = [given[first : first + size] for first in range(0, len(given), size)]
        predictions = [self._predicted(torch.tensor(part), layer) for part in parts]
        return np.concatenate(predictions) if predictions else given

    def _of_windows(self, windows_NTHW: NDArray[Any], layer: int) -> NDArray[Any]:
        """Predict one window at a time, as the evaluation does; sizes may differ from its own."""
        patch, sides = self.config.data.patch_size, windows_NTHW.shape[2:]
        fits = not any(side % patch for side in sides)
        require(fits, "the sides of frames", sides, f"multiples of {patch}", "pad or crop them")
        denoised = np.empty_like(windows_NTHW)
        for i, window_THW in enumerate(windows_NTHW):
            patches = cut_into_patches(torch.tensor(window_THW), patch)
            predicted = self._predicted(patches.transpose(0, 1).contiguous(), layer)
            frames = torch.from_numpy(predicted).transpose(0, 1)
            denoised[i] = joined_patches(frames, *sides).numpy()
        return denoised

    def _predicted(self, samples: Tensor, layer: int) -> NDArray[Any]:
        given = samples.to(self.device, self._precision.dtype)
        predictions = layer_predictions(self._model, self._precision, Batch(given, given))
        predicted: NDArray[Any] = cast(Tensor, predictions[layer]).cpu().numpy()
        return predicted

    def _of_texts(self, table: pandas.DataFrame, layer: int) -> pandas.DataFrame:
        import pandas

        pairs = table[PAIR].tolist() if PAIR in table.columns else [None] * len(table)
        texts = [Example(*both, 0, "") for both in zip(table[TEXT].tolist(), pairs, strict=True)]
        for column in (TEXT, PAIR)[: 1 + (PAIR in table.columns)]:
            if not all(isinstance(value, str) for value in table[column]):
                raise InvalidValue(f"every {column} must be a string; give '' for an empty one.")
        scores_NC = np.empty((len(texts), len(self.classes)))
        for rows, batch in self._batches(texts):
            predictions = layer_predictions(self._model, self._precision, batch)
            logits_BC = cast(Tensor, predictions[layer])
            scores_NC[rows] = torch.softmax(logits_BC.double(), dim=-1).cpu().numpy()
        labels = [self.classes[best] for best in scores_NC.argmax(axis=1)]
        scores = {f"{SCORE}{name}": scores_NC[:, i] for i, name in enumerate(self.classes)}
        return pandas.DataFrame({LABEL: labels, **scores}, index=table.index)

    def _batches(self, texts: Sequence[Example]) -> Iterator[tuple[list[int], Batch]]:
        """Rows and their tokens, those of like length together: padding enters no sum."""
        made = encode(self._tokenizer, texts, self.config.data.max_length)
        by_length = sorted(range(len(texts)), key=lambda row: len(made.ids[row]))
        for first in range(0, len(texts), _TEXTS_AT_ONCE):
            rows = by_length[first : first + _TEXTS_AT_ONCE]
            ids = self._padded([made.ids[row] for row in rows], self._tokenizer.pad_token_id)
            mask = self._padded([[1] * len(made.ids[row]) for row in rows], 0).bool()
            types = made.types
            types_BT = None if types is None else self._padded([types[row] for row in rows], 0)
            yield rows, Batch(Tokens(ids, mask, types_BT), ids)

    def _padded(self, rows: list[list[int]], filler: int) -> Tensor:
        longest = max(map(len, rows))
        filled = [row + [filler] * (longest - len(row)) for row in rows]
        return torch.tensor(filled, dtype=torch.int64, device=self.device)
