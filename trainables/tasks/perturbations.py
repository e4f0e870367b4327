"""Perturbations of inputs, from draws keyed by purpose (``random_keys.py``)."""

from __future__ import annotations

import functools
import io
import math

import numpy as np
import torch
from torch import Tensor

from trainables.config.test_conditions import family_of
from trainables.errors import require


def gaussian(inputs: Tensor, sigma: float | Tensor, generator: torch.Generator) -> Tensor:
    """``inputs`` plus independent normal noise of std ``sigma``, in the inputs' own unit.

    The draw is made on the generator's device in the inputs' dtype; ``sigma`` 0 returns the inputs
    unchanged. It may be one for each sample of the inputs, [B]; these are not looked at.
    """
    if isinstance(sigma, Tensor):
        sigma = sigma.reshape(-1, *[1] * (inputs.ndim - 1))
    else:
        require(sigma >= 0, "sigma", sigma, "at least 0")
        if sigma == 0:
            return inputs
    noise = torch.randn(
        inputs.shape, generator=generator, device=generator.device, dtype=inputs.dtype
    )
    return noise.mul_(sigma).add_(inputs)


# --- shifts beside Gaussian noise -----------------------------------------------------------------
#
# A shift disturbs frames *in addition to* the Gaussian noise of training, in the order of a camera
# (docs/decisions/0028): blur, light and what covers the lens reach the sensor, so they come before
# its noise; lost pixels and lost frames come after. Compression comes before it as well, as of a
# stored video that is sent later. A severity of 0 changes nothing.


def before_noise(
    frames: Tensor, shift: str, severity: float, std: float, generator: torch.Generator
) -> Tensor:
    """Clean frames [T, H, W] of a window as they reach the sensor: disturbed by ``shift``, or not.

    Pixels are in [0, 1], and may exceed 1 where they are made brighter. ``std`` is that of the
    clean training pixels. The same generator at a higher severity covers what a lower one did.

    Raises:
        UnknownName: there is no such family.
        InvalidValue: the severity is negative, a fraction above 1, or above 100 percent.
    """
    family_of(shift)
    require(severity >= 0, "severity", severity, "at least 0")
    if shift == "blur":
        return gaussian_blur(frames, severity / 100 * frames.shape[-1])
    if shift == "compression":
        return compressed(frames, severity)
    if shift == "occlusion":
        return occluded(frames, severity, generator)
    return frames + severity * std if shift == "brightness" else frames


def after_noise(inputs: Tensor, shift: str, severity: float, generator: torch.Generator) -> Tensor:
    """One window [..., T, D] as it is received: with lost pixels or lost frames, or unchanged.

    All of the window comes in one call: a lost frame is lost in every patch. The same generator
    at a higher severity disturbs what the lower one did, and more.

    Raises:
        UnknownName: there is no such family.
        InvalidValue: the severity is negative, or a fraction above 1.
    """
    family_of(shift)
    require(severity >= 0, "severity", severity, "at least 0")
    if shift == "salt_and_pepper":
        return salt_and_pepper(inputs, severity, generator)
    return lost_frames(inputs, severity, generator) if shift == "frame_drop" else inputs


def gaussian_blur(frames: Tensor, sigma: float) -> Tensor:
    """Frames [..., H, W] under a Gaussian kernel of std ``sigma`` pixels, mirrored at the edges.

    Separable, cut off at 4 sigma; a frame's mean is kept. Equals SciPy's ``gaussian_filter``.
    """
    require(sigma >= 0, "sigma", sigma, "at least 0")
    if sigma == 0:
        return frames
    rows_HH, columns_WW = (
        _blur_matrix(size, sigma).to(frames.device, frames.dtype) for size in frames.shape[-2:]
    )
    return rows_HH @ frames @ columns_WW.T


@functools.lru_cache(maxsize=16)
def _blur_matrix(size: int, sigma: float) -> Tensor:
    """The blur of ``size`` pixels in a row as a matrix, float64; every row sums to 1."""
    reach = int(4 * sigma + 0.5)
    offsets = torch.arange(-reach, reach + 1)
    weights = torch.exp(-0.5 * (offsets.double() / sigma).square())
    sources = (torch.arange(size)[:, None] + offsets) % (2 * size)
    sources = torch.where(sources < size, sources, 2 * size - 1 - sources)  # 1 0 | 0 1 2 ...
    matrix = torch.zeros(size, size, dtype=torch.float64)
    return matrix.scatter_add_(1, sources, (weights / weights.sum()).expand(size, -1))


def compressed(frames: Tensor, lost: float) -> Tensor:
    """Frames [T, H, W] in [0, 1] on the CPU, each as read from a JPEG of quality 100 - ``lost``.

    Qualities are whole numbers; ``lost`` is rounded to one.
    """
    require(lost <= 100, "severity", lost, "at most 100")
    if lost == 0:
        return frames
    from PIL import Image

    read = []
    for frame in frames.mul(255).round().to(torch.uint8).numpy():
        file = io.BytesIO()
        Image.fromarray(frame).save(file, "JPEG", quality=round(100 - lost))
        read.append(torch.from_numpy(np.array(Image.open(file))))
    return torch.stack(read).to(frames.dtype) / 255


def occluded(frames: Tensor, fraction: float, generator: torch.Generator) -> Tensor:
    """Frames [T, H, W] with a black square over about ``fraction`` of each, at one place in all.

    Its side is a whole number of pixels, 1 or more.
    """
    require_fraction(fraction)
    if fraction == 0:
        return frames
    height, width = frames.shape[-2:]
    side = min(max(round(math.sqrt(fraction * height * width)), 1), height, width)
    down, right = torch.rand(2, generator=generator, device=generator.device).tolist()
    top, left = int(down * (height - side + 1)), int(right * (width - side + 1))
    covered = frames.clone()
    covered[..., top : top + side, left : left + side] = 0
    return covered


def salt_and_pepper(inputs: Tensor, fraction: float, generator: torch.Generator) -> Tensor:
    """Every pixel, with probability ``fraction`` / 2 each, black (0) or white (1)."""
    require_fraction(fraction)
    draw = torch.rand(inputs.shape, generator=generator, device=generator.device)
    black, white = draw < fraction / 2, draw >= 1 - fraction / 2
    return inputs.masked_fill(black.to(inputs.device), 0).masked_fill(white.to(inputs.device), 1)


def lost_frames(inputs: Tensor, fraction: float, generator: torch.Generator) -> Tensor:
    """Sequences [..., T, D] in which frames after the first are lost with probability ``fraction``.

    In place of a lost frame stands the last one received, noise and all, as decoders conceal it.
    """
    require_fraction(fraction)
    frames = torch.arange(inputs.shape[-2])
    draw = torch.rand(len(frames), generator=generator, device=generator.device).cpu()
    received = (draw >= fraction) | (frames == 0)
    shown = torch.where(received, frames, 0).cummax(0).values
    return inputs.index_select(-2, shown.to(inputs.device))


def require_fraction(fraction: float) -> None:
    """Refuse what is no fraction of the pixels, frames, tokens or letters."""
    require(0 <= fraction <= 1, "a fraction", fraction, "in [0, 1]")
