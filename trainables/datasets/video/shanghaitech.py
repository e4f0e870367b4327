"""ShanghaiTech Campus: .avi files and frame folders, or frame folders alone.

As published, training clips are .avi files and test clips folders of frames. A clip is called by
scene and number ("01_014"). Source: Luo, Liu, Gao, A Revisit of Sparse Coding Based Anomaly
Detection in Stacked RNN Framework, ICCV 2017.
"""

from __future__ import annotations

from trainables.datasets.video.layouts import (
    EXTRACTED,
    IMAGES,
    TIFF,
    Layout,
    Published,
    Split,
    layouts_of,
)

_CLIP = r"(\d+)_(\d+)"
_TEST = Split("testing/frames", _CLIP, "01_0014", (IMAGES, TIFF))
# Other tools convert the videos, whose codec some players lack, into a folder beside them.
_FOLDERS = (("training/videos", "testing/videos"), ("training/converted_videos", "testing/videos"))
_VIDEOS = layouts_of(_FOLDERS, _CLIP, "01_001.avi", videos=True)
DATA_SET = Published(
    folders=("shanghaitech", "ShanghaiTech", "shanghai", "shanghaitech_campus"),
    layouts=(
        *(Layout(both.train, _TEST) for both in _VIDEOS),
        *layouts_of(EXTRACTED, _CLIP, "01_001"),
        *_VIDEOS,
    ),
    expected=(
        "Give a folder that is or contains shanghaitech/training/videos/01_001.avi and "
        "shanghaitech/testing/frames/01_0014/000.jpg (as published); the training clips may also "
        "be frames, shanghaitech/training/frames/01_001/000.jpg."
    ),
).data_set()
