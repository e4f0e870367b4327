"""Configuration of the data: which ones, and how samples are made of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from trainables.config.fields import Positive, Rule, Section, at_least


@dataclass(frozen=True, kw_only=True)
class DataConfig(Section):
    """The data of a run, and how samples are made of them (docs/method.md, The task).

    A task reads its own part of these fields (its facts' ``data``); the others must keep their
    defaults.
    """

    name: str = "photographs"  # a data set of registry/built_in.py, or a plug-in's
    folder: str | None = None  # where its files lie; a place, not part of the signature
    frame_size: int = 160  # frames are scaled to frame_size x frame_size grey pixels
    patch_size: Positive[int] = 16  # a token is one patch: patch_size squared pixels
    frames: Positive[int] = 10  # T: a sequence is the same patch over T consecutive frames
    stride: Positive[int] = 5  # frames between the starts of two training windows
    shuffle_by: Literal["sequence", "window"] = "sequence"
    # ^ what an epoch visits in a random order: sequences, or windows with all their patches
    dev_fraction: Annotated[float, Rule(lambda fraction: 0 < fraction < 1, "in (0, 1)")] = 0.25
    # ^ of the training clips (text: groups): held out as dev, rounded up
    split_by_seed: bool = False  # whether the run's seed draws dev; the test split is the same
    max_clips: Annotated[int | None, at_least(2)] = None  # the first of each split; None: all
    max_length: Annotated[int, Rule(lambda n: 4 <= n <= 8192, "in 4..8192")] = 256
    # ^ text: tokens of a sample, special ones included; longer ones are cut
    max_items: Annotated[int | None, at_least(2)] = None  # text: samples of a split; None: all
    template: Literal["alpaca", "plain"] = "alpaca"  # instructions: what a prompt is made by
    fingerprint: str = ""  # hash of the pixels or texts; filled in when the data are resolved

    def _check(self) -> None:
        self.require(
            self.frame_size > 0 and self.frame_size % self.patch_size == 0,
            "frame_size",
            f"a positive multiple of patch_size {self.patch_size}",
        )
