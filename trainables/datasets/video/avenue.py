"""CUHK Avenue, as published (.avi files) or as numbered frame folders.

Source: Lu, Shi, Jia, Abnormal Event Detection at 150 FPS in MATLAB, ICCV 2013; frame folders as in
Liu, Luo, Lian, Gao, CVPR 2018.
"""

from __future__ import annotations

from trainables.datasets.layouts import NUMBERED_FRAMES, Layout, Published, Split

DATA_SET = Published(
    folders=("Avenue Dataset", "Avenue_Dataset", "avenue"),
    layouts=(
        Layout(
            Split("training_videos", r"(\d+)", "01.avi", (".avi",), videos=True),
            Split("testing_videos", r"(\d+)", "01.avi", (".avi",), videos=True),
        ),
        NUMBERED_FRAMES,
    ),
    expected=(
        "Give a folder that is or contains Avenue Dataset/training_videos/01.avi and "
        "Avenue Dataset/testing_videos/01.avi (as published), or avenue/training/frames/01/000.jpg "
        "and avenue/testing/frames/01/000.jpg."
    ),
).data_set()
