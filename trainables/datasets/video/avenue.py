"""CUHK Avenue, as published (.avi files) or as numbered frame folders.

Source: Lu, Shi, Jia, Abnormal Event Detection at 150 FPS in MATLAB, ICCV 2013; frame folders as in
Liu, Luo, Lian, Gao, CVPR 2018.
"""

from __future__ import annotations

from trainables.config.arm import DataConfig
from trainables.datasets.layouts import Layout, Published, Split, list_published
from trainables.datasets.video.clips import RawVideo
from trainables.registry import DataSetSpec

_IMAGES = (".jpg", ".jpeg", ".png")
_PUBLISHED = Published(
    folders=("Avenue Dataset", "Avenue_Dataset", "avenue"),
    layouts=(
        Layout(
            Split("training_videos", r"(\d+)", "01.avi", (".avi",), videos=True),
            Split("testing_videos", r"(\d+)", "01.avi", (".avi",), videos=True),
        ),
        Layout(
            Split("training/frames", r"(\d+)", "01", _IMAGES),
            Split("testing/frames", r"(\d+)", "01", _IMAGES),
        ),
    ),
    expected=(
        "Give a folder that is or contains Avenue Dataset/training_videos/01.avi and "
        "Avenue Dataset/testing_videos/01.avi (as published), or avenue/training/frames/01/000.jpg "
        "and avenue/testing/frames/01/000.jpg."
    ),
)


def list_clips(data: DataConfig) -> RawVideo:
    """Find the clips in ``data.folder``. BadData for every way a folder can be wrong."""
    return list_published(data, _PUBLISHED)


DATA_SET = DataSetSpec(list=list_clips, folders=_PUBLISHED.folders)
