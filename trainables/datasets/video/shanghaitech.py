"""ShanghaiTech Campus: .avi files and frame folders, or frame folders alone.

As published, training clips are .avi files and test clips folders of frames. A clip is called by
scene and number ("01_014"). Source: Luo, Liu, Gao, A Revisit of Sparse Coding Based Anomaly
Detection in Stacked RNN Framework, ICCV 2017.
"""

from __future__ import annotations

from trainables.config.arm import DataConfig
from trainables.datasets.layouts import Layout, Published, Split, list_published
from trainables.datasets.video.clips import RawVideo
from trainables.registry import DataSetSpec

_CLIP = r"(\d+)_(\d+)"
_IMAGES = (".jpg", ".jpeg", ".png")
_TEST = Split("testing/frames", _CLIP, "01_0014", _IMAGES)
_PUBLISHED = Published(
    folders=("shanghaitech", "ShanghaiTech"),
    layouts=(
        Layout(Split("training/videos", _CLIP, "01_001.avi", (".avi",), videos=True), _TEST),
        Layout(Split("training/frames", _CLIP, "01_001", _IMAGES), _TEST),
    ),
    expected=(
        "Give a folder that is or contains shanghaitech/training/videos/01_001.avi and "
        "shanghaitech/testing/frames/01_0014/000.jpg (as published); the training clips may also "
        "be frames, shanghaitech/training/frames/01_001/000.jpg."
    ),
)


def list_clips(data: DataConfig) -> RawVideo:
    """Find the clips in ``data.folder``. BadData for every way a folder can be wrong."""
    return list_published(data, _PUBLISHED)


DATA_SET = DataSetSpec(list=list_clips, folders=_PUBLISHED.folders)
