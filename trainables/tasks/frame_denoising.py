"""Frame denoising: whole frames one by one, for models that take an RGB image.

Clips, splits, units and keyed noise are those of video denoising; a sample is one frame of a unit's
window. Noise is added to the grey frame, which is then repeated in three equal channels. The loss
is the mean of squares over pixels and channels, so that the metric is RMSE in grey levels on the
same scale as video denoising's.

Shape suffixes: B batch, T frames of a window, S frame_size, D pixels of a patch.
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
from trainables.tasks.denoising import Denoising, Indices, Patches, cut_into_patches
from trainables.tasks.linear_references import linear_references

CHANNELS = 3


class FrameDenoising(Denoising):
    """The task of one run, as ``tasks/base.py`` asks."""

    sample_name = "frames"
    shows_time = False

    def __init__(self, config: ArmConfig, device: torch.device, dtype: torch.dtype) -> None:
        """Open a run as ``Denoising`` does; scales are those of one pixel, in [0, 1] squared."""
        super().__init__(config, device, dtype)
        self.scales = Scales(
            constant_loss=self.std**2, identity_loss=(self.std * self.identity_gamma) ** 2
        )

    def _count_training_samples(self) -> int:
        data = self._config.data
        if data.stride != type(data).__dataclass_fields__["stride"].default:
            every = f"data.stride {data.stride} does nothing: every training frame is a sample."
            self.notes = (*self.notes, every)
        self._train_frames = self.video.window_starts("train", 1, 1)
        return len(self._train_frames)

    def clean_train_samples(self, indices_B: Indices) -> Pixels:
        """Clean training frames by index, every one of them: [B, 1, S, S], 0..255."""
        side = self.video.frame_size
        return self._split("train").grid[self._train_frames[indices_B]].reshape(-1, 1, side, side)

    def samples_of(self, window_TSS: Tensor) -> Tensor:
        """One sample per frame: [T, 1, S, S]."""
        return window_TSS.unsqueeze(1)

    def as_given(self, samples: Tensor) -> Tensor:
        """The same grey levels as red, green and blue: [B, 3, S, S]."""
        return samples.expand(-1, CHANNELS, -1, -1)

    def loss(self, prediction: Tensor, targets: Tensor) -> Tensor:
        """Mean of squares over channels and pixels: [B] from two of [B, 3, S, S]."""
        return (prediction - targets).square().mean(dim=(1, 2, 3))

    def metric(self, mean_score: float) -> float:
        """RMSE in grey levels (0..255) from a mean loss; lower is better."""
        return 255.0 * math.sqrt(mean_score)

    @property
    def squares_per_loss(self) -> int:
        """S^2: the three channels are equal."""
        return self.video.frame_size**2

    def patches_in(self, given: Tensor) -> Tensor:
        """The patches of each frame: [B, positions, D]."""
        return cut_into_patches(given[:, 0], self.patch_size)

    def reference_sequences(self) -> int:
        """All patches of all training frames."""
        return self.train_sequences * self._split("train").positions

    def clean_reference_sequences(self, indices_B: Indices) -> Pixels:
        """Single patches by index (frame x positions + position): [B, 1, D]."""
        patches = self._split("train")
        frames_B, positions_B = np.divmod(indices_B, patches.positions)
        return Patches(patches.grid, 1).cut(self._train_frames[frames_B], positions_B)

    def references(self, split: str = "dev") -> References:
        """Scores of predictors that need no training, on the units of ``split``."""
        return linear_references(self._config, self, split)
