"""UCSD Anomaly Detection, Ped1 and Ped2, as published or as numbered frames.

Test/Test017/142.tif of Ped1 is truncated in the archive v1p2 itself: no copy of it is better. The
frame before stands in its place, wherever that file is damaged or was left out.

Source: Mahadevan, Li, Bhalodia, Vasconcelos, CVPR 2010; frame folders as in Liu, Luo, Lian, Gao,
CVPR 2018.
"""

from __future__ import annotations

from dataclasses import replace

from trainables.datasets.video.layouts import (
    EXTRACTED,
    IMAGES,
    TIFF,
    Layout,
    Published,
    Split,
    layouts_of,
)
from trainables.registry import DataSetSpec

# Ground truth (Test001_gt) lies beside the test clips and is none.
_CLIP = r"(?:Train|Test)?(\d+)"
_ORIGINAL = Layout(
    Split("Train", _CLIP, "Train001", (TIFF, IMAGES)),
    Split("Test", _CLIP, "Test001", (TIFF, IMAGES)),
)


_FLAWED = {"UCSDped1": ((17, 142),)}


def _data_set(original: str, frames: str) -> DataSetSpec:
    expected = (
        f"Give a folder that is or contains {original}/Train/Train001/001.tif and "
        f"{original}/Test/Test001/001.tif (as published), or {frames}/training/frames/01/000.jpg "
        f"and {frames}/testing/frames/01/000.jpg."
    )
    return Published(
        folders=(
            *(original, f"UCSD_Anomaly_Dataset.v1p2/{original}", frames),
            *(f"UCSD_Anomaly_Dataset/{original}", f"UCSD_{frames}"),
        ),
        layouts=tuple(
            replace(layout, test=replace(layout.test, flawed=_FLAWED.get(original, ())))
            for layout in (_ORIGINAL, *layouts_of(EXTRACTED, _CLIP, "01"))
        ),
        expected=expected,
    ).data_set()


PED1, PED2 = _data_set("UCSDped1", "ped1"), _data_set("UCSDped2", "ped2")
