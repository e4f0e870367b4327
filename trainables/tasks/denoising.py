"""Base of the denoising tasks: clips, splits, windows, keyed noise and batches.

A task is a subclass that says what one sample is: how a window of T frames is cut into samples, and
how they are given to a model. Pixels are grey, in [0, 1]; noise has sigma = gamma x std, std one
scalar over the clean training pixels (docs/method.md, The task).

Shape suffixes: B samples, T frames of a window, S frame_size, D pixels of a patch, N frames or
samples, P positions (patches of a frame).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainables.config.arm import ArmConfig
from trainables.config.mended import IDENTITY_GAMMA
from trainables.datasets.by_split import split_named
from trainables.datasets.video.clips import Pixels, VideoClips
from trainables.datasets.video.load import load_video
from trainables.primal_dual.constraints import Scales
from trainables.random_keys import keyed_generator
from trainables.tasks.base import Batch
from trainables.tasks.held_out_units import TaskOfUnits, evenly, split_seed
from trainables.tasks.kept_batches import KeptBatches
from trainables.tasks.perturbations import after_noise, before_noise, gaussian

Indices = NDArray[np.int64]
# (name of the unit, its clean window [T, S, S]) -> its disturbed samples, as ``samples_of`` cuts
Disturbance = Callable[[str, Tensor], Tensor]

UNITS_PER_CUDA_BATCH = 4  # fewer, larger launches; on a CPU one unit already fills the caches


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


class Denoising(TaskOfUnits):
    """The part of a run's task, as ``tasks/base.py`` asks, that does not depend on the sample."""

    serves_any_constraint = True  # another arm's may stand in the place of one's own
    scales: Scales
    train_sequences: int  # training samples that an epoch visits
    shows_time: bool  # whether a sample is a sequence, so that a filter over T frames is fair

    def __init__(self, config: ArmConfig, device: torch.device, dtype: torch.dtype) -> None:
        """Open the data set that ``config.data`` names; decode it if this machine never did.

        Raises:
            BadData, UnknownName, InvalidValue: as ``load_video``; or batch_size exceeds the
                training samples.
        """
        super().__init__(config, device, dtype)
        self.video: VideoClips = load_video(config.data, split_seed(config))
        self.notes = self.video.notes
        self.frames = config.data.frames  # T
        self.patch_size = config.data.patch_size
        self.patch_pixels = self.patch_size**2  # D
        self.std = self.video.std  # of the clean training pixels, in [0, 1]
        self.identity_gamma = config.train_gamma or IDENTITY_GAMMA  # the identity's loss is there
        self._patches: dict[str, Patches] = {}
        self._kept = KeptBatches()
        self.train_sequences = self._count_training_samples()
        also = " or data.stride" * self.shows_time
        self._count(self.train_sequences, f"Give a smaller batch_size{also}.")
        self._order: tuple[int, Tensor] = (-1, torch.empty(0))

    # --- what a sample is -------------------------------------------------------------------------

    @abstractmethod
    def _count_training_samples(self) -> int:
        """Number of training samples."""

    @abstractmethod
    def clean_train_samples(self, indices_B: Indices) -> Pixels:
        """Clean training samples by index: [B, ...], 0..255."""

    @abstractmethod
    def samples_of(self, window_TSS: Tensor) -> Tensor:
        """The samples [B, ...] that a window of grey frames is cut into; noise is drawn on them."""

    def as_given(self, samples: Tensor) -> Tensor:
        """Grey samples in the shape that a model takes and returns: as they are."""
        return samples

    @abstractmethod
    def loss(self, prediction: Tensor, targets: Tensor) -> Tensor:
        """Per-sample loss of one prediction, [B], in the task's own unit."""

    @abstractmethod
    def metric(self, mean_score: float) -> float:
        """RMSE in grey levels (0..255) from a mean loss; lower is better."""

    def scores(self, prediction: Tensor, targets: Tensor, losses: Tensor) -> Tensor:
        """The losses: RMSE follows from their mean."""
        return losses

    def unchanged_losses(self, batch: Batch) -> Tensor:
        """Losses of the disturbed frames as they are."""
        assert isinstance(batch.inputs, Tensor)
        return self.loss(batch.inputs, batch.targets)

    # --- what the linear references ask -----------------------------------------------------------

    @property
    @abstractmethod
    def squares_per_loss(self) -> int:
        """Divisor of a sample's sum of squared errors over grey pixels in its loss."""

    @abstractmethod
    def patches_in(self, given: Tensor) -> Tensor:
        """The grey patches of samples as given to a model: [B, patches, D]."""

    def reference_sequences(self) -> int:
        """Number of clean training sequences that ``clean_reference_sequences`` knows."""
        return self.train_sequences

    def clean_reference_sequences(self, indices_B: Indices) -> Pixels:
        """Clean training sequences of patches that filters are fitted to: [B, T, D], 0..255."""
        return self.clean_train_samples(indices_B)

    # --- batches ----------------------------------------------------------------------------------

    def train_batch(self, step: int) -> Batch:
        """The batch of primal step ``step`` >= 0: a function of (seed, step) and nothing else.

        Every epoch visits the training samples in a new keyed order. On CUDA nothing waits for
        the device.
        """
        config = self._config
        epoch, k = divmod(step, self.steps_per_epoch)
        chosen_B = self._epoch_order(epoch)[k * config.batch_size : (k + 1) * config.batch_size]
        clean = self._on_device(self.clean_train_samples(chosen_B.numpy()))
        generator = keyed_generator(self.device, config.seed, "train_noise", step)
        gammas = self._training_gammas(step, len(clean))
        # On the device, so that nothing is copied: GPUs draw other numbers, and signatures have it.
        noisy = gaussian(clean, gammas * self.std, generator)
        return Batch(self.as_given(noisy), self.as_given(clean))

    def held_out(self, split: str, gamma: float, draw: int) -> Iterator[Batch]:
        """Batches over the units of ``split`` ("train", "dev" or "test"), perturbed at ``gamma``.

        A unit is a window of T frames with all its samples; windows do not overlap.
        The noise is keyed by (split, unit, gamma, draw) and by neither the training seed nor the
        model, so both arms of a pair, every proposal and the linear references are judged on the
        same draws: their differences carry no noise of the measurement. It is drawn on the CPU in
        float32, so the device and dtype do not change it.
        """

        def noisy(unit: str, window_TSS: Tensor) -> Tensor:
            noise = keyed_generator("cpu", split, unit, float(gamma), draw)
            return gaussian(self.samples_of(window_TSS), gamma * self.std, noise)

        return self._batches(("held out", split, float(gamma), draw), split, noisy)

    def shifted(self, split: str, shift: str, severity: float, draw: int) -> Iterator[Batch]:
        """Batches as ``held_out`` at train_gamma, disturbed by ``shift``; targets stay clean.

        The noise is that of ``held_out``, so that a severity of 0 gives its very numbers. What a
        shift draws is keyed alike, by (split, unit, shift, draw) and not by the severity: more is
        the same and more.

        Raises UnknownName and InvalidValue as ``perturbations.before_noise`` and ``after_noise``.
        """
        gamma = self._config.train_gamma

        def received(unit: str, window_TSS: Tensor) -> Tensor:
            noise = keyed_generator("cpu", split, unit, float(gamma), draw)
            places = keyed_generator("cpu", split, unit, shift, draw)
            scene = before_noise(window_TSS, shift, severity, self.std, places)
            noisy = gaussian(self.samples_of(scene), gamma * self.std, noise)
            return after_noise(noisy, shift, severity, places)

        return self._batches(("shifted", split, shift, severity, draw), split, received)

    def _batches(self, key: Hashable, split: str, disturbance: Disturbance) -> Iterator[Batch]:
        """Batches as ``disturbed``, which stay on a GPU where there is room."""
        if self.device.type != "cuda":
            return self.disturbed(split, disturbance)
        return self._kept.batches(key, lambda: self.disturbed(split, disturbance))

    def disturbed(self, split: str, disturbance: Disturbance) -> Iterator[Batch]:
        """Batches over the units of ``split``, each window disturbed by ``disturbance``.

        It is called once per unit, on the CPU, with pixels in float32.
        """
        units = self._unit_names(split)
        at_once = UNITS_PER_CUDA_BATCH if self.device.type == "cuda" else 1
        for first in range(0, len(units), at_once):
            chosen = units[first : first + at_once]
            windows = [self.window(split, unit) for unit in chosen]
            inputs = [disturbance(*both) for both in zip(chosen, windows, strict=True)]
            yield Batch(
                self._joined(inputs),
                self._targets(split, first, windows),
                tuple(i for i, samples in enumerate(inputs, first) for _ in range(len(samples))),
            )

    def window(self, split: str, unit: str) -> Tensor:
        """The clean frames of a unit, [T, S, S] in [0, 1], float32 on the CPU."""
        clip, start = unit.rsplit(":", 1)
        first = self.video.first_frames(split)[clip] + int(start)
        grid, side = self._split(split).grid, self.video.frame_size
        frames = np.array(grid[first : first + self.frames]).reshape(-1, side, side)
        return unit_interval(torch.from_numpy(frames), torch.float32)

    # --- units ------------------------------------------------------------------------------------

    def units(self, split: str, at_most: int) -> tuple[str, ...]:
        """Names ("clip08:0010": clip, first frame) of at most ``at_most`` evenly chosen windows."""
        clips = self.video.stored(split_named(split))
        names = [f"{c.name}:{t:04d}" for c in clips for t in c.starts(self.frames, self.frames)]
        return evenly(names, at_most)  # of all clips, the same for every seed

    def _split(self, split: str) -> Patches:
        if split not in self._patches:
            frames, patch = self.video.stacked(split), self.patch_size
            side = frames.shape[1] // patch
            grid = frames.reshape(-1, side, patch, side, patch)
            self._patches[split] = Patches(grid, self.frames)
        return self._patches[split]

    def _epoch_order(self, epoch: int) -> Tensor:
        if self._order[0] != epoch:
            generator = keyed_generator("cpu", self._config.seed, "order", epoch)
            self._order = (epoch, self._shuffled(generator))
        return self._order[1]

    def _shuffled(self, generator: torch.Generator) -> Tensor:
        """The training samples in a random order."""
        return torch.randperm(self.train_sequences, generator=generator)

    def _on_device(self, pixels: Pixels) -> Tensor:
        return unit_interval(self._moved(torch.from_numpy(pixels)), self.dtype)

    def _targets(self, split: str, first: int, windows: list[Tensor]) -> Tensor:
        """Clean samples of the windows of a split from ``first`` on."""

        def made() -> Tensor:
            return self._joined([self.samples_of(window) for window in windows])

        return self._kept.targets((split, first), made) if self.device.type == "cuda" else made()

    def _joined(self, samples: list[Tensor]) -> Tensor:
        return self.as_given(self._moved(torch.cat(samples)).to(self.dtype))


def unit_interval(pixels: Tensor, dtype: torch.dtype) -> Tensor:
    """Grey levels 0..255 as numbers in [0, 1]."""
    return pixels.to(dtype).div_(255)


def cut_into_patches(frames_NSS: Tensor, patch_size: int) -> Tensor:
    """Every patch of every frame, row by row: [N, positions, D] from [N, S, S], or [N, S, S']."""
    count, rows, columns = len(frames_NSS), *(side // patch_size for side in frames_NSS.shape[1:])
    grid = frames_NSS.reshape(count, rows, patch_size, columns, patch_size)
    return grid.transpose(2, 3).reshape(count, rows * columns, patch_size**2)


def joined_patches(patches_NPD: Tensor, height: int, width: int) -> Tensor:
    """The frames that ``cut_into_patches`` cut: [N, height, width]."""
    count, patch = len(patches_NPD), math.isqrt(patches_NPD.shape[-1])
    grid = patches_NPD.reshape(count, height // patch, width // patch, patch, patch)
    return grid.transpose(2, 3).reshape(count, height, width)
