"""Data sets written by the tests themselves, in the layouts they are published in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import av
import numpy as np
from PIL import Image

from trainables.datasets.video.clips import Pixels

HEIGHT, WIDTH = 48, 64
Films = dict[str, list[Pixels]]  # frames by the name of the clip that shows them


def noise(*key: int) -> Pixels:
    """A frame that no other key gives."""
    return np.random.default_rng(key).integers(0, 256, (HEIGHT, WIDTH), dtype=np.uint8)


def scene(i: int) -> Pixels:
    """A frame that every codec keeps: soft shapes that move slowly, 30..225."""
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    wave = np.sin((x + 2 * i) / 9.0) + np.cos((y - i) / 7.0)
    return np.rint(127.5 + 48 * wave).astype(np.uint8)


def as_frame(pixels: Pixels, pixel_format: str) -> av.VideoFrame:
    """A frame of the given format that holds exactly ``pixels`` wherever the format can."""
    if pixel_format == "gray":
        return av.VideoFrame.from_ndarray(pixels, format="gray")
    if pixel_format.startswith("yuv"):  # luma as it is, no colour
        frame = av.VideoFrame(WIDTH, HEIGHT, pixel_format)
        for i, plane in enumerate(frame.planes):
            rows = np.full((plane.height, plane.line_size), 128, np.uint8)
            if i == 0:
                rows[:, :WIDTH] = pixels
            plane.update(rows.tobytes())
        return frame
    rgb = av.VideoFrame.from_ndarray(np.repeat(pixels[:, :, None], 3, axis=2), format="rgb24")
    return rgb.reformat(format=pixel_format)


def write_video(
    path: Path,
    frames: Sequence[Pixels],
    codec: str = "ffv1",
    pixel_format: str = "gray",
    options: dict[str, str] | None = None,
    times: Sequence[int] | None = None,
    title: str = "",
) -> Path:
    """A video file of 25 frames per second; by default every pixel is kept."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as container:
        container.metadata["title"] = title
        shown = (as_frame(pixels, pixel_format) for pixels in frames)
        at = range(len(frames)) if times is None else times
        add_film(container, codec, pixel_format, timed(shown, at), options)
    return path


def add_film(
    container: av.container.OutputContainer,
    codec: str,
    pixel_format: str,
    frames: Iterable[av.VideoFrame],
    options: dict[str, str] | None = None,
) -> None:
    """A whole film of 25 frames per second; no other stream can be added after it."""
    stream = container.add_stream(codec, rate=25, options=options or {})
    stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, pixel_format
    for frame in frames:
        container.mux(stream.encode(frame))
    container.mux(stream.encode())


def timed(frames: Iterable[av.VideoFrame], times: Iterable[int]) -> Iterator[av.VideoFrame]:
    """The frames, to be shown at these multiples of 1/25 second."""
    for frame, time in zip(frames, times, strict=True):
        frame.pts = time
        yield frame


def write_frames(folder: Path, frames: Sequence[Pixels], name: str = "{:03d}.png") -> Path:
    """A folder of numbered image files."""
    folder.mkdir(parents=True)
    first = 1 if name.endswith(".tif") else 0
    for i, pixels in enumerate(frames):
        Image.fromarray(pixels).save(folder / name.format(i + first))
    return folder


@dataclass(frozen=True)
class Layout:
    """One way in which one data set lies on disk."""

    data_set: str
    folder: str  # its usual name
    train: Films
    test: Films
    write_clip: Callable[[Path, str, str, list[Pixels]], None]  # root, split, clip, frames
    decodes_video: bool

    def write(self, root: Path) -> Path:
        """Every clip, with what else lies in such folders."""
        for split, films in (("train", self.train), ("test", self.test)):
            for name, frames in films.items():
                self.write_clip(root, split, name, frames)
        (root / ".DS_Store").write_bytes(b"")
        (root / "README.txt").write_text("what this is")
        return root


def films(split: int, lengths: dict[str, int]) -> Films:
    return {
        name: [noise(split, number, i) for i in range(length)]
        for number, (name, length) in enumerate(lengths.items())
    }


_TRAIN = films(0, {"clip01": 6, "clip02": 5, "clip04": 7, "clip10": 6})
_TEST = films(1, {"clip01": 5, "clip03": 6})
_CAMPUS_TRAIN = films(0, {"01_001": 6, "01_010": 5, "02_001": 7, "10_002": 6})
_CAMPUS_TEST = films(1, {"01_0014": 5, "03_0031": 6})
_OWN_TRAIN = films(0, {"walk1": 6, "walk2": 5, "walk10": 7, "yard": 6})
_OWN_TEST = films(1, {"zoo 1": 5, "zoo 2": 6})  # a quarter of all, and the last by name


def _ucsd_original(root: Path, split: str, clip: str, frames: list[Pixels]) -> None:
    name = split.capitalize()
    write_frames(root / name / f"{name}{int(clip[4:]):03d}", frames, "{:03d}.tif")
    if split == "test":
        write_frames(root / name / f"{name}{int(clip[4:]):03d}_gt", frames[:1], "{:03d}.bmp")


def _numbered_folders(root: Path, split: str, clip: str, frames: list[Pixels]) -> None:
    write_frames(root / f"{split}ing" / "frames" / clip.removeprefix("clip"), frames)


def _avenue_videos(root: Path, split: str, clip: str, frames: list[Pixels]) -> None:
    write_video(root / f"{split}ing_videos" / f"{clip.removeprefix('clip')}.avi", frames)


def _campus(root: Path, split: str, clip: str, frames: list[Pixels]) -> None:
    if split == "train":
        write_video(root / "training" / "videos" / f"{clip}.avi", frames)
    else:
        write_frames(root / "testing" / "frames" / clip, frames)


def _own(root: Path, split: str, clip: str, frames: list[Pixels]) -> None:
    if clip == "walk2":
        write_frames(root / clip, frames, "shot {:d}.bmp")
    else:
        write_video(root / f"{clip}{'.mkv' if clip == 'yard' else '.avi'}", frames)


def _own_divided(root: Path, split: str, clip: str, frames: list[Pixels]) -> None:
    _own(root / split, split, clip, frames)


LAYOUTS = {
    "ucsd_ped1 as published": Layout("ucsd_ped1", "UCSDped1", _TRAIN, _TEST, _ucsd_original, False),
    "ucsd_ped2 as published": Layout("ucsd_ped2", "UCSDped2", _TRAIN, _TEST, _ucsd_original, False),
    "ucsd_ped2 as frames": Layout("ucsd_ped2", "ped2", _TRAIN, _TEST, _numbered_folders, False),
    "cuhk_avenue as published": Layout(
        "cuhk_avenue", "Avenue Dataset", _TRAIN, _TEST, _avenue_videos, True
    ),
    "cuhk_avenue as frames": Layout(
        "cuhk_avenue", "avenue", _TRAIN, _TEST, _numbered_folders, False
    ),
    "shanghaitech as published": Layout(
        "shanghaitech", "shanghaitech", _CAMPUS_TRAIN, _CAMPUS_TEST, _campus, True
    ),
    "shanghaitech as frames": Layout(
        "shanghaitech", "ShanghaiTech", _CAMPUS_TRAIN, _CAMPUS_TEST, _numbered_folders, False
    ),
    "clips in one folder": Layout("clips", "clips", _OWN_TRAIN, _OWN_TEST, _own, True),
    "clips divided": Layout("clips", "clips", _OWN_TRAIN, _OWN_TEST, _own_divided, True),
}
