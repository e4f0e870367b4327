"""UCSD Anomaly Detection, Ped1 and Ped2, as published or as numbered frames.

Source: Mahadevan, Li, Bhalodia, Vasconcelos, CVPR 2010; frame folders as in Liu, Luo, Lian, Gao,
CVPR 2018.
"""

from __future__ import annotations

from trainables.config.arm import DataConfig
from trainables.datasets.layouts import Layout, Published, Split, list_published
from trainables.datasets.video.clips import RawVideo
from trainables.registry import DataSetSpec

_TIFF = (".tif", ".tiff")
_IMAGES = (".jpg", ".jpeg", ".png")
# Ground truth (Test001_gt) lies beside the test clips and is none.
_LAYOUTS = (
    Layout(
        Split("Train", r"(?:Train|Test)(\d+)", "Train001", _TIFF),
        Split("Test", r"(?:Train|Test)(\d+)", "Test001", _TIFF),
    ),
    Layout(
        Split("training/frames", r"(\d+)", "01", _IMAGES),
        Split("testing/frames", r"(\d+)", "01", _IMAGES),
    ),
)
_FOLDERS = {
    "ucsd_ped1": ("UCSDped1", "UCSD_Anomaly_Dataset.v1p2/UCSDped1", "ped1"),
    "ucsd_ped2": ("UCSDped2", "UCSD_Anomaly_Dataset.v1p2/UCSDped2", "ped2"),
}


def list_clips(data: DataConfig) -> RawVideo:
    """Find the clips of ``data.name`` in ``data.folder``, which is its folder or contains it.

    A clip is called by its number ("clip08") in either layout. Raises BadData for every way a
    folder can be wrong.
    """
    original, _, frames = folders = _FOLDERS[data.name]
    expected = (
        f"Give a folder that is or contains {original}/Train/Train001/001.tif and "
        f"{original}/Test/Test001/001.tif (as published), or {frames}/training/frames/01/000.jpg "
        f"and {frames}/testing/frames/01/000.jpg."
    )
    return list_published(data, Published(folders, _LAYOUTS, expected))


PED1, PED2 = (DataSetSpec(list=list_clips, folders=folders) for folders in _FOLDERS.values())
