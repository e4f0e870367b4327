"""Every way a video file can be wrong: refused by name, with what to do, and not cached."""

from __future__ import annotations

import os
import re
import resource
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest

from tests.support.data.data_folders import (
    HEIGHT,
    WIDTH,
    add_film,
    as_frame,
    noise,
    timed,
    write_video,
)
from tests.support.data.decoded_videos import FILES, NOISE, SCENE, decoded
from trainables.config.arm import DataConfig
from trainables.datasets.video.load import list_clips, load_video
from trainables.errors import BadData

# --- as it is decoded -----------------------------------------------------------------------------


@pytest.mark.parametrize("kept", [0.0, 0.02, 0.3, 0.6, 0.85])
@pytest.mark.parametrize(("name", "codec", "pixel_format"), FILES)
def test_a_truncated_video_is_named(
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    name: str,
    codec: str,
    pixel_format: str,
    kept: float,
) -> None:
    path = write_video(tmp_path / name, SCENE, codec, pixel_format)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(kept * len(whole))])
    with pytest.raises(BadData, match=rf"the video {re.escape(str(path))} .*Copy it again"):
        decoded(path)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(("codec", "pixel_format"), [("ffv1", "gray"), ("mjpeg", "yuvj420p")])
def test_a_video_that_was_cut_between_frames_says_how_far_it_goes(
    tmp_path: Path, codec: str, pixel_format: str
) -> None:
    path = write_video(tmp_path / "clip.avi", SCENE, codec, pixel_format)
    with av.open(str(path)) as container:
        starts = [p.pos for p in container.demux(video=0) if p.pos is not None]
    path.write_bytes(path.read_bytes()[: starts[6] - 8])  # a chunk's head is 8 bytes
    with pytest.raises(BadData, match=r"ends early: it has 0\.24 of the 0\.48 seconds"):
        decoded(path)


@pytest.mark.parametrize(("declared", "whole"), [(12, True), (13, True), (14, False)])
def test_a_header_may_be_wrong_by_one_frame(tmp_path: Path, declared: int, whole: bool) -> None:
    path = write_video(tmp_path / "clip.avi", SCENE)
    content = bytearray(path.read_bytes())
    length = content.index(b"strh") + 8 + 32  # where the stream's header holds its length
    assert content[length : length + 4] == (12).to_bytes(4, "little")
    content[length : length + 4] = declared.to_bytes(4, "little")
    path.write_bytes(content)
    if whole:
        assert len(decoded(path)) == 12
    else:
        with pytest.raises(BadData, match=r"it has 0\.48 of the 0\.56 seconds"):
            decoded(path)


def test_a_matroska_file_that_was_cut_says_how_far_it_goes(tmp_path: Path) -> None:
    path = write_video(tmp_path / "clip.mkv", SCENE)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(BadData, match=r"ends early: it has 0\.20 of the 0\.48 seconds"):
        decoded(path)


@pytest.mark.parametrize("start", [0, 100])
def test_an_mp4_with_its_index_in_front_that_was_cut_is_named(tmp_path: Path, start: int) -> None:
    path = tmp_path / "clip.mp4"
    with av.open(str(path), "w", options={"movflags": "faststart"}) as container:
        frames = (as_frame(pixels, "yuv420p") for pixels in NOISE * 3)
        add_film(container, "mpeg4", "yuv420p", timed(frames, range(start, start + 15)))
    assert len(decoded(path)) == 15
    with av.open(str(path)) as container:
        ninth = [p for p in container.demux(video=0) if p.pos is not None][8]
    path.write_bytes(path.read_bytes()[: ninth.pos])
    with pytest.raises(BadData, match=r"ends early: it has 0\.32 of the 0\.60 seconds"):
        decoded(path)


def test_the_advice_for_a_cut_video_works(tmp_path: Path) -> None:
    """Written anew, as ffmpeg -c:v ffv1 does it, the file declares what it has."""
    path = write_video(tmp_path / "old.avi", NOISE * 3, "mpeg4", "yuv420p")
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])
    with pytest.raises(BadData, match="ffmpeg -i OLD -c:v ffv1"):
        decoded(path)
    with av.open(str(path)) as old, av.open(str(tmp_path / "new.mkv"), "w") as new:
        add_film(new, "ffv1", "yuv420p", old.decode(video=0))
    assert 3 <= len(decoded(tmp_path / "new.mkv")) < 15


def test_a_text_file_is_no_video(tmp_path: Path) -> None:
    path = tmp_path / "clip.avi"
    path.write_text("not a video\n" * 100)
    with pytest.raises(BadData, match=r"clip\.avi cannot be decoded: .*complete file of one of"):
        decoded(path)


@pytest.mark.parametrize(
    "text",
    [
        "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nother.mkv\n#EXT-X-ENDLIST\n",
        "ffconcat version 1.0\nfile other.mkv\n",
    ],
)
def test_a_playlist_leads_to_no_other_file(tmp_path: Path, text: str) -> None:
    write_video(tmp_path / "other.mkv", NOISE)
    (tmp_path / "clip.avi").write_text(text)
    with pytest.raises(BadData, match="cannot be decoded"):
        decoded(tmp_path / "clip.avi")


def test_sound_alone_is_no_video(tmp_path: Path) -> None:
    path = tmp_path / "clip.mkv"
    with av.open(str(path), "w") as container:
        sound = container.add_stream("pcm_s16le", rate=8000, layout="mono")
        quiet = av.AudioFrame.from_ndarray(np.zeros((1, 8000), np.int16), "s16", "mono")
        quiet.sample_rate = 8000
        container.mux(sound.encode(quiet))
        container.mux(sound.encode())
    with pytest.raises(BadData, match=r"holds no moving picture \(its streams: audio\)"):
        decoded(path)


@pytest.mark.parametrize("name", ["clip.avi", "clip.mkv"])
def test_a_video_without_frames_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadData, match=rf"{name} cannot be decoded: "):
        decoded(write_video(tmp_path / name, []))


def test_frames_of_differing_sizes_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "clip.avi"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mjpeg", rate=25)
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuvj420p"
        for i, width in enumerate((WIDTH, WIDTH, 32)):
            encoder = av.CodecContext.create("mjpeg", "w")
            encoder.width, encoder.height, encoder.pix_fmt = width, HEIGHT, "yuvj420p"
            encoder.time_base = Fraction(1, 25)
            for packet in [
                *encoder.encode(av.VideoFrame(width, HEIGHT, "yuvj420p")),
                *encoder.encode(),
            ]:
                packet.pts = packet.dts = i
                packet.time_base, packet.stream = Fraction(1, 25), stream
                container.mux(packet)
    with pytest.raises(BadData, match=r"frame 3 of the video .* has 32 x 48 pixels, .* 64 x 48"):
        decoded(path)


def test_more_than_eight_bits_are_refused_with_what_to_do(tmp_path: Path) -> None:
    path = write_video(tmp_path / "clip.mkv", NOISE, "ffv1", "gray10le")
    with pytest.raises(BadData, match=r"format gray10le\. Allowed are 8 bits .*ffmpeg"):
        decoded(path)


def test_an_absurd_frame_size_is_refused_and_not_allocated(tmp_path: Path) -> None:
    path = write_video(tmp_path / "clip.avi", NOISE)
    size = WIDTH.to_bytes(4, "little") + HEIGHT.to_bytes(4, "little")
    path.write_bytes(path.read_bytes().replace(size, (12_000).to_bytes(4, "little") * 2))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(BadData, match=r"clip\.avi cannot be decoded: "):
        decoded(path)  # without a limit, five frames of 144 million pixels
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kB


def test_a_frame_that_is_cut_off_is_named_where_its_decoder_takes_it(tmp_path: Path) -> None:
    path = write_video(tmp_path / "clip.avi", NOISE, "mjpeg", "yuvj420p")
    with av.open(str(path)) as container:
        last = [p for p in container.demux(video=0) if p.pos is not None][-1]
    assert last.pos is not None
    path.write_bytes(path.read_bytes()[: last.pos + last.size - 10])
    with av.open(str(path)) as container:
        assert len(list(container.decode(video=0))) == 5
    with pytest.raises(BadData, match="its data end inside frame 5"):
        decoded(path)


def test_a_frame_that_its_decoder_mends_is_named(tmp_path: Path) -> None:
    path = write_video(tmp_path / "clip.avi", NOISE, "mpeg4", "yuv420p")
    with av.open(str(path)) as container:
        third = [p for p in container.demux(video=0) if p.pos is not None][2]
    assert third.pos is not None
    content = bytearray(path.read_bytes())
    middle = third.pos + third.size // 2
    content[middle : middle + 300] = noise(99).tobytes()[:300]
    path.write_bytes(content)
    with av.open(str(path)) as container:
        assert len(list(container.decode(video=0))) == 5
    with pytest.raises(BadData, match="frame 3 is damaged"):
        decoded(path)


# --- in a data set --------------------------------------------------------------------------------


def own(folder: Path) -> DataConfig:
    return DataConfig(name="clips", folder=str(folder), frame_size=32, frames=4, patch_size=8)


def test_a_damaged_video_leaves_nothing_in_the_cache(tmp_path: Path, own_cache: Path) -> None:
    for name in "abcd":
        write_video(tmp_path / "data" / f"{name}.avi", NOISE)
    last = tmp_path / "data" / "d.avi"
    last.write_bytes(last.read_bytes()[:-2000])
    with pytest.raises(BadData, match=r"the video .*/d\.avi "):
        load_video(own(tmp_path / "data"))
    left = [p.name for p in (own_cache / "video").iterdir()]
    assert [name for name in left if not name.endswith(".lock")] == []


def test_a_pipe_is_no_clip(tmp_path: Path) -> None:
    for name in "abc":
        write_video(tmp_path / f"{name}.avi", NOISE)
    os.mkfifo(tmp_path / "d.avi")  # opening it would wait for ever
    with pytest.raises(BadData, match=r"d\.avi is named like .* not a regular file"):
        list_clips(own(tmp_path))


def test_a_dead_link_is_named(tmp_path: Path) -> None:
    for name in "abc":
        write_video(tmp_path / f"{name}.avi", NOISE)
    (tmp_path / "d.avi").symlink_to("nowhere")
    with pytest.raises(BadData, match=r"d\.avi cannot be opened: No such file .*readable file"):
        list_clips(own(tmp_path))
