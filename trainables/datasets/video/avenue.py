"""CUHK Avenue, as published (.avi files) or as numbered frame folders.

Source: Lu, Shi, Jia, Abnormal Event Detection at 150 FPS in MATLAB, ICCV 2013; frame folders as in
Liu, Luo, Lian, Gao, CVPR 2018.
"""

from __future__ import annotations

from trainables.datasets.video.layouts import EXTRACTED, Published, layouts_of

_VIDEOS = ("training_videos", "testing_videos")
_SORTED = ("training/training_videos", "testing/testing_videos")
_FILES = (_VIDEOS, _SORTED, ("training/videos", "testing/videos"))
DATA_SET = Published(
    folders=("Avenue Dataset", "Avenue_Dataset", "avenue", "CUHK_Avenue"),
    layouts=(
        *layouts_of(_FILES, r"(\d+)", "01.avi", videos=True),
        *layouts_of((*EXTRACTED, _VIDEOS, _SORTED), r"(\d+)", "01"),
    ),
    expected=(
        "Give a folder that is or contains Avenue Dataset/training_videos/01.avi and "
        "Avenue Dataset/testing_videos/01.avi (as published), or avenue/training/frames/01/000.jpg "
        "and avenue/testing/frames/01/000.jpg."
    ),
).data_set()
