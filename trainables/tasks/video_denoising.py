"""Video denoising: one patch over T consecutive frames, with Gaussian noise.

A sample is T tokens of patch_size squared grey pixels in [0, 1]. The loss of a prediction is the
sum of squares over the patch's pixels, averaged over the T tokens (docs/method.md, The task).

Shape suffixes: B batch, T frames, D pixels of a patch, S frame_size.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from trainables.config.arm import ArmConfig
from trainables.datasets.video.clips import Pixels
from trainables.primal_dual.constraints import Scales
from trainables.tasks.base import References
from trainables.tasks.denoising import Denoising, Indices, cut_into_patches
from trainables.tasks.linear_references import linear_references


class VideoDenoising(Denoising):
    """The task of one run, as ``tasks/base.py`` asks."""

    sample_name = "sequences"
    shows_time = True

    def __init__(self, config: ArmConfig, device: torch.device, dtype: torch.dtype) -> None:
        """Open a run as ``Denoising`` does; scales are those of a whole patch."""
        super().__init__(config, device, dtype)
        energy = self.patch_pixels * self.std**2
        self.scales = Scales(constant_loss=energy, identity_loss=energy * self.identity_gamma**2)

    def _count_training_samples(self) -> int:
        data = self._config.data
        self._train_starts = self.video.window_starts("train", self.frames, data.stride)
        return len(self._train_starts) * self._split("train").positions

    def _shuffled(self, generator: torch.Generator) -> Tensor:
        if self._config.data.shuffle_by == "sequence":
            return super()._shuffled(generator)
        positions = self._split("train").positions
        windows = torch.randperm(len(self._train_starts), generator=generator)
        return (windows[:, None] * positions + torch.arange(positions)).flatten()

    def clean_train_samples(self, indices_B: Indices) -> Pixels:
        """Clean training sequences by index (window x positions + position): [B, T, D], 0..255."""
        patches = self._split("train")
        windows_B, positions_B = np.divmod(indices_B, patches.positions)
        return patches.cut(self._train_starts[windows_B], positions_B)

    def samples_of(self, window_TSS: Tensor) -> Tensor:
        """One sequence per position: [positions, T, D]."""
        return cut_into_patches(window_TSS, self.patch_size).transpose(0, 1).contiguous()

    def loss(self, prediction: Tensor, targets: Tensor) -> Tensor:
        """Sum of squares over the patch, averaged over the T tokens: [B] from two of [B, T, D]."""
        return (prediction - targets).square().sum(-1).mean(-1)

    def metric(self, mean_score: float) -> float:
        """RMSE in grey levels (0..255) from a mean loss; lower is better."""
        return 255.0 * math.sqrt(mean_score / self.patch_pixels)

    @property
    def squares_per_loss(self) -> int:
        """T: the loss is summed over pixels."""
        return self.frames

    def patches_in(self, given: Tensor) -> Tensor:
        """The sequence itself: [B, T, D]."""
        return given

    def references(self, split: str = "dev") -> References:
        """Scores of predictors that need no training, on the units of ``split``."""
        return linear_references(self._config, self, split)
