"""Decoder of clips stored as video files, frame by frame (PyAV).

The only place that knows PyAV. Grey is the video's own luma, spread to 0..255 where the file uses
16..235. With BT.601's matrix that is the number which Pillow's "L" computes from the frame's RGB
(0.299 R + 0.587 G + 0.114 B), within two levels of rounding. It takes whole numbers only, so every
machine makes the same pixels; the way over RGB would not, since the scaler's arithmetic differs
between processors. Files that store RGB go through Pillow's "L". Rotation tags and pixel aspect are
not applied.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from trainables.datasets.video.clips import Pixels
from trainables.datasets.video.frame_files import LARGEST_FRAME, scaled
from trainables.errors import BadData
from trainables.fetching.stand_ins import stand_in

if TYPE_CHECKING:  # imported where it is used: it costs 0.2 s that other data sets need not wait
    from av.container import InputContainer
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

VIDEO_SUFFIXES = (".avi", ".mp4", ".mov", ".mkv", ".webm")

# A file is what its content says. Only these containers are opened, and no other file or address
# that one may point to: a text file named .avi could otherwise be a playlist.
_OPTIONS = {
    "format_whitelist": "avi,matroska,webm,mov,mp4,m4a,3gp,3g2,mj2",
    "protocol_whitelist": "file",
    "max_pixels": str(LARGEST_FRAME),
}
# By how much a file may fall short of the length that it declares: headers are often a little off,
# and the last frame may have no duration.
_SHORT_FRAMES = Fraction(3, 2)
_SHORT_SHARE = Fraction(1, 100)

_ADVICE = (
    "Copy it again from the original archive, or leave that clip out of the folder. Where nothing "
    "better exists, keep what can still be seen: ffmpeg -i OLD -c:v ffv1 NEW.mkv"
)

# Formats of 8 bits whose first plane is luma, those that hold RGB, and those with luma in between.
_GREY = ("gray",)
_LUMA = (
    *("yuv420p", "yuv422p", "yuv444p", "yuv440p", "yuv411p", "yuv410p"),
    *("yuva420p", "yuva422p", "yuva444p", "nv12", "nv21", "nv16", "nv24"),
)
_FULL_LUMA = ("yuvj420p", "yuvj422p", "yuvj444p", "yuvj440p", "yuvj411p")
_RGB = (
    *("rgb24", "bgr24", "rgba", "bgra", "argb", "abgr", "rgb0", "bgr0", "0rgb", "0bgr"),
    *("gbrp", "gbrap", "pal8"),
)
_PACKED = ("yuyv422", "uyvy422", "yvyu422")
_LIMITED, _FULL = 1, 2  # VideoFrame.color_range; 0: not said

# Luma 16..235 to 0..255, rounded to the nearest.
_SPREAD: Pixels = np.clip(((np.arange(256) - 16) * 510 + 219) // 438, 0, 255).astype(np.uint8)


def decoder() -> str:
    """Versions of the decoder: part of the cache's key wherever video files are read."""
    import av

    return f"av {av.__version__}, ffmpeg {av.ffmpeg_version_info}"


def decode_video(path: Path, frame_size: int) -> Iterator[Pixels]:
    """Grey frames [S, S] scaled to ``frame_size``, in order; one frame is held at a time.

    Raises:
        BadData: the file is no video, is truncated or damaged, has frames of differing sizes, of
            more than ``LARGEST_FRAME`` pixels or of more than 8 bits, or ends before the length
            that it declares (Matroska and WebM need not declare one).
    """
    from PIL import Image

    try:
        for grey in _grey_frames(path):
            yield scaled(Image.fromarray(grey), frame_size)
    except BadData:
        raise
    # PyAV's own errors are many and not the only ones: damaged headers also end in ValueError,
    # IndexError, OverflowError or MemoryError.
    except Exception as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise _undecodable(path, reason) from error


def video_size(path: Path) -> tuple[int, int]:
    """Width and height that a video file declares; no frame is decoded."""
    import av

    with av.open(str(path), metadata_errors="replace", options=dict(_OPTIONS)) as container:
        stream = _video_stream(path, container)
        return stream.codec_context.width, stream.codec_context.height


def _grey_frames(path: Path) -> Iterator[Pixels]:
    import av

    size: tuple[int, int] | None = None
    length = packets = end = 0
    with av.open(str(path), metadata_errors="replace", options=dict(_OPTIONS)) as container:
        stream = _video_stream(path, container)
        for packet in container.demux(stream):
            if packet.dts is not None or packet.pts is not None:
                packets += 1
                start = (packet.dts if packet.pts is None else packet.pts) or 0
                end = max(end, start + (packet.duration or 0))
            if packet.is_corrupt:
                raise _undecodable(path, f"its data end inside frame {length + 1}")
            for frame in packet.decode():
                length += 1
                size = size or (frame.width, frame.height)
                _require_same_size(path, size, frame, length)
                if frame.is_corrupt:
                    raise _undecodable(path, f"frame {length} is damaged")
                yield _grey(path, frame)
        if length == 0:
            raise _undecodable(path, "it has no frames")
        _require_whole(path, container, stream, packets, end)


def _video_stream(path: Path, container: InputContainer) -> VideoStream:
    """The film, not the cover picture, set to decode in one thread and to refuse absurd sizes."""
    from av.video.stream import VideoStream

    stream = container.streams.best("video")
    if not isinstance(stream, VideoStream):
        kinds = ", ".join(s.type for s in container.streams) or "none"
        raise BadData(
            f"the video {path} holds no moving picture (its streams: {kinds}). It must have one. "
            f"{_ADVICE}"
        )
    stream.codec_context.thread_count = 1
    # The options of opening guard what the header says; these guard what the frames say.
    stream.codec_context.options = {"max_pixels": str(LARGEST_FRAME)}
    return stream


def _require_same_size(path: Path, first: tuple[int, int], frame: VideoFrame, number: int) -> None:
    if (frame.width, frame.height) != first:
        raise BadData(
            f"frame {number} of the video {path} has {frame.width} x {frame.height} pixels, the "
            f"first has {first[0]} x {first[1]}. All frames of a clip must be of one size. "
            "Copy the file again, or cut it where the size changes."
        )


def _require_whole(
    path: Path, container: InputContainer, stream: VideoStream, packets: int, end: int
) -> None:
    """Compare with what the container declares; one that declares nothing is taken as it is.

    Compared are times, not counts: codecs hide frames, recorders leave some out, and the frame
    count of an AVI is its length in ticks. ``end`` is the end of the last packet.
    """
    if stream.time_base is None or (declared := _declared_seconds(container, stream)) is None:
        return
    # Matroska declares when it ends, the others how long it takes.
    start = 0 if "matroska" in container.format.name else stream.start_time or 0
    seconds = (end - start) * stream.time_base
    frame = seconds / max(packets, 1)
    if seconds < declared - max(_SHORT_FRAMES * frame, _SHORT_SHARE * declared):
        raise BadData(
            f"the video {path} ends early: it has {float(seconds):.2f} of the "
            f"{float(declared):.2f} seconds that it declares. It was probably cut off while it was "
            f"copied. {_ADVICE}"
        )


def _declared_seconds(container: InputContainer, stream: VideoStream) -> Fraction | None:
    """Length of the video stream as its file declares it."""
    if container.format.name == "avi":  # its duration is what the file still holds
        return stream.frames * stream.time_base if stream.frames and stream.time_base else None
    if stream.duration and stream.time_base:
        return stream.duration * stream.time_base
    try:
        hours, minutes, seconds = map(Fraction, stream.metadata.get("DURATION", "").split(":"))
    except (ValueError, ZeroDivisionError):
        alone = len(container.streams) == 1  # else the duration may be that of the sound
        return Fraction(container.duration, 1_000_000) if alone and container.duration else None
    return 3600 * hours + 60 * minutes + seconds


def _undecodable(path: Path, reason: str) -> BadData:
    if (problem := stand_in(path)) is not None:
        return BadData(f"the video {path} {problem}")
    return BadData(
        f"the video {path} cannot be decoded: {reason}. It must be a complete file of one of "
        f"{', '.join(VIDEO_SUFFIXES)}. {_ADVICE}"
    )


def _grey(path: Path, frame: VideoFrame) -> Pixels:
    """One frame in grey, 0..255, [height, width]."""
    name = frame.format.name
    if name in _RGB:
        from PIL import Image

        rgb = np.asarray(frame.reformat(format="rgb24").to_ndarray(), dtype=np.uint8)
        return np.asarray(Image.fromarray(rgb).convert("L"))
    if name in _PACKED:
        return _grey(path, frame.reformat(format="yuv422p"))
    if name not in (*_GREY, *_LUMA, *_FULL_LUMA):
        raise BadData(
            f"the video {path} has pixels of format {name}. Allowed are 8 bits per channel (grey, "
            "YUV or RGB). Convert it (ffmpeg -i OLD -pix_fmt yuv420p -c:v ffv1 NEW.mkv)."
        )
    luma = _first_plane(frame)
    limited = frame.color_range == _LIMITED or (name in _LUMA and frame.color_range != _FULL)
    return _SPREAD[luma] if limited else luma


def _first_plane(frame: VideoFrame) -> Pixels:
    """The first plane without the padding of its rows, [height, width]."""
    plane = frame.planes[0]
    rows = np.frombuffer(memoryview(plane), np.uint8).reshape(-1, plane.line_size)
    return np.ascontiguousarray(rows[: frame.height, : frame.width])
