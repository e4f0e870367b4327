"""Video denoising: the co-located patch over T consecutive frames, disturbed by Gaussian noise.

A sample is T tokens of patch_size squared grey pixels in [0, 1]. The loss of a prediction is the
sum of squares over the patch's pixels, averaged over the T tokens. Noise has sigma = gamma x std,
std one scalar over the clean training pixels (docs/method.md, The task).

Shape suffixes: B batch, T frames, D pixels of a patch, S frame_size.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainables.config import RunConfig
from trainables.datasets.clips import Pixels, StoredClip, VideoClips
from trainables.datasets.video import load_video
from trainables.errors import InvalidValue, UnknownName
from trainables.primal_dual import Scales
from trainables.tasks.base import Batch
from trainables.tasks.perturbations import gaussian, keyed_generator

Indices = NDArray[np.int64]
SPLITS = ("train", "dev", "test")
_UNITS_PER_CUDA_BATCH = 8  # fewer, larger launches; on a CPU one unit already fills the caches


@dataclass(frozen=True)
class Patches:
    """A split's frames, from which sequences of co-located patches are cut."""

    grid: NDArray[np.uint8]  # [N, rows, patch, columns, patch]: a view of the memory-mapped frames
    frames: int  # T

    @property
    def positions(self) -> int:
        """Patches per frame."""
        return int(self.grid.shape[1] * self.grid.shape[3])

    def cut(self, starts_B: Indices, positions_B: Indices) -> Pixels:
        """The patch at each position over T frames from each start: [B, T, D], 0..255."""
        rows_B, columns_B = np.divmod(positions_B, self.grid.shape[3])
        frames_BT = starts_B[:, None] + np.arange(self.frames)
        pixels = self.grid[frames_BT, rows_B[:, None], :, columns_B[:, None], :]
        return pixels.reshape(len(starts_B), self.frames, -1)


class VideoDenoising:
    """The task of one run, as ``tasks/base.py`` asks."""

    def __init__(self, config: RunConfig, device: torch.device, dtype: torch.dtype) -> None:
        """Open the data set that ``config.data`` names; decode it if this machine never did.

        Raises:
            BadData, UnknownName, InvalidValue: as ``load_video``; or batch_size exceeds the
                training sequences.
        """
        self.device, self.dtype = device, dtype
        self.video: VideoClips = load_video(config.data)
        self.frames = config.data.frames  # T
        self.patch_size = config.data.patch_size
        self.patch_pixels = self.patch_size**2  # D
        self.std = self.video.std  # of the clean training pixels, in [0, 1]
        self.scales = _scales(config, self.std)
        self.train_units = self.units("train", config.eval_windows)
        self.dev_units = self.units("dev", config.eval_windows)
        self._config = config
        self._patches: dict[str, Patches] = {}
        self._train_starts = _starts(self.video.stored("train"), self.frames, config.data.stride)
        self.train_sequences = len(self._train_starts) * self._split("train").positions
        # the incomplete batch is dropped
        self.steps_per_epoch = self.train_sequences // config.batch_size
        if self.steps_per_epoch == 0:
            raise InvalidValue(
                f"batch_size must be at most {self.train_sequences}, the number of training "
                f"sequences, got {config.batch_size}. Give a smaller batch_size or data.stride."
            )
        self._order: tuple[int, Tensor] = (-1, torch.empty(0))

    def train_batch(self, step: int) -> Batch:
        """The batch of primal step ``step`` >= 0: a function of (seed, step) and nothing else.

        Every epoch visits the training sequences in a new keyed order. On CUDA nothing waits for
        the device.
        """
        config = self._config
        epoch, k = divmod(step, self.steps_per_epoch)
        chosen_B = self._epoch_order(epoch)[k * config.batch_size : (k + 1) * config.batch_size]
        targets = self._on_device(self.clean_train_sequences(chosen_B.numpy()))
        generator = keyed_generator(self.device, config.seed, "train_noise", step)
        return Batch(gaussian(targets, config.train_gamma * self.std, generator), targets)

    def clean_train_sequences(self, indices_B: Indices) -> Pixels:
        """Clean training sequences by index (window x positions + position): [B, T, D], 0..255."""
        patches = self._split("train")
        windows_B, positions_B = np.divmod(indices_B, patches.positions)
        return patches.cut(self._train_starts[windows_B], positions_B)

    def held_out(self, split: str, gamma: float, draw: int) -> Iterator[Batch]:
        """Batches over the units of ``split`` ("train", "dev" or "test"), perturbed at ``gamma``.

        A unit is a window of T frames with all its patches; windows do not overlap.
        The noise is keyed by (split, unit, gamma, draw) and by neither the training seed nor the
        model, so both arms of a pair, every proposal and the linear references are judged on the
        same draws: their differences carry no noise of the measurement. It is drawn on the CPU in
        float32, so the device and dtype do not change it.
        """
        units = self._unit_names(split)
        at_once = _UNITS_PER_CUDA_BATCH if self.device.type == "cuda" else 1
        for first in range(0, len(units), at_once):
            chosen = range(first, min(first + at_once, len(units)))
            yield self._unit_batch(split, units, chosen, gamma, draw)

    def units(self, split: str, at_most: int) -> tuple[str, ...]:
        """Names ("clip08:0010": clip, first frame) of at most ``at_most`` evenly chosen windows."""
        clips = self.video.stored(_known(split))
        names = [
            f"{c.name}:{t:04d}"
            for c in clips
            for t in range(0, c.length - self.frames + 1, self.frames)
        ]
        if len(names) <= at_most:
            return tuple(names)
        # The middle of each of at_most equal stretches: all clips, the same for every seed.
        return tuple(names[(2 * i + 1) * len(names) // (2 * at_most)] for i in range(at_most))

    @cached_property
    def test_units(self) -> tuple[str, ...]:
        """Names of the units of the test split, which is opened for confirmation only."""
        return self.units("test", self._config.eval_windows)

    def loss(self, prediction: Tensor, targets: Tensor) -> Tensor:
        """Sum of squares over the patch, averaged over the T tokens: [B] from two of [B, T, D]."""
        return (prediction - targets).square().sum(-1).mean(-1)

    def metric(self, mean_loss: float) -> float:
        """RMSE in grey levels (0..255) from a mean loss; lower is better."""
        return 255.0 * math.sqrt(mean_loss / self.patch_pixels)

    def _unit_names(self, split: str) -> tuple[str, ...]:
        if _known(split) == "test":
            return self.test_units
        return self.train_units if split == "train" else self.dev_units

    def _unit_batch(
        self, split: str, units: Sequence[str], chosen: range, gamma: float, draw: int
    ) -> Batch:
        patches = self._split(split)
        first_frames = _first_frames(self.video.stored(split))
        positions = np.arange(patches.positions)
        inputs, targets = [], []
        for name in (units[i] for i in chosen):
            clip, start = name.rsplit(":", 1)
            starts_B = np.full(len(positions), first_frames[clip] + int(start))
            clean = _unit_interval(
                torch.from_numpy(patches.cut(starts_B, positions)), torch.float32
            )
            noise = keyed_generator("cpu", split, name, float(gamma), draw)
            inputs.append(gaussian(clean, gamma * self.std, noise))
            targets.append(clean)
        return Batch(
            torch.cat(inputs).to(self.device, self.dtype),
            torch.cat(targets).to(self.device, self.dtype),
            tuple(i for i in chosen for _ in positions),
        )

    def _split(self, split: str) -> Patches:
        if split not in self._patches:
            frames, patch = self.video.stacked(split), self.patch_size
            side = frames.shape[1] // patch
            self._patches[split] = Patches(
                frames.reshape(-1, side, patch, side, patch), self.frames
            )
        return self._patches[split]

    def _epoch_order(self, epoch: int) -> Tensor:
        if self._order[0] != epoch:
            generator = keyed_generator("cpu", self._config.seed, "order", epoch)
            self._order = (epoch, torch.randperm(self.train_sequences, generator=generator))
        return self._order[1]

    def _on_device(self, pixels: Pixels) -> Tensor:
        batch = torch.from_numpy(pixels)
        if self.device.type == "cuda":  # from pinned memory the copy does not block
            batch = batch.pin_memory().to(self.device, non_blocking=True)
        return _unit_interval(batch, self.dtype)


def _unit_interval(pixels: Tensor, dtype: torch.dtype) -> Tensor:
    return pixels.to(dtype).div_(255)


def _scales(config: RunConfig, std: float) -> Scales:
    """f_c and the identity's loss, constants of the training split, in the task's unit."""
    gamma = config.train_gamma or min(g for g in config.test_gammas if g > 0)
    energy = config.data.patch_size**2 * std**2
    return Scales(constant_loss=energy, identity_loss=energy * gamma**2)


def _starts(clips: tuple[StoredClip, ...], frames: int, stride: int) -> Indices:
    """Where windows start in the stacked split: every ``stride`` frames of a clip."""
    first = _first_frames(clips)
    starts = [np.arange(0, c.length - frames + 1, stride) + first[c.name] for c in clips]
    return np.concatenate(starts)


def _first_frames(clips: tuple[StoredClip, ...]) -> dict[str, int]:
    """Where each clip begins in the stacked split."""
    first = np.cumsum([0] + [c.length for c in clips])
    return {c.name: int(f) for c, f in zip(clips, first, strict=False)}


def _known(split: str) -> str:
    if split not in SPLITS:
        raise UnknownName.of("split", split, SPLITS)
    return split
