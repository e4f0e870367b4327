"""Decoding video files: the right grey, in order, whole; and every way a file can be wrong."""

from __future__ import annotations

import os
import re
import resource
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from tests.data_folders import HEIGHT, WIDTH, as_frame, noise, scene, write_video
from trainables.config import DataConfig
from trainables.datasets.clips import Pixels
from trainables.datasets.video import list_clips, load_video
from trainables.datasets.video_files import VIDEO_SUFFIXES, decode_video
from trainables.errors import BadData

SIZE = 32
SCENE = [scene(i) for i in range(12)]
NOISE = [noise(i) for i in range(5)]

# Where a container says how long it is, in each of its ways, with a codec that is common there.
FILES = [
    ("clip.avi", "ffv1", "gray"),
    ("clip.avi", "mpeg4", "yuv420p"),
    ("clip.avi", "mjpeg", "yuvj420p"),
    ("clip.mp4", "libx264", "yuv420p"),
    ("clip.mov", "mpeg4", "yuv420p"),
    ("clip.mkv", "libx264", "yuv420p"),
    ("clip.webm", "libvpx-vp9", "yuv420p"),
]


def scaled(pixels: Pixels) -> NDArray[np.int64]:
    image = Image.fromarray(pixels).resize((SIZE, SIZE), Image.Resampling.BILINEAR)
    return np.asarray(image).astype(np.int64)


def decoded(path: Path) -> NDArray[np.int64]:
    return np.stack(list(decode_video(path, SIZE))).astype(np.int64)


def spread(luma: Pixels) -> Pixels:
    """Luma of 16..235 as grey of 0..255, in real numbers."""
    return np.clip(np.rint((luma.astype(float) - 16) * 255 / 219), 0, 255).astype(np.uint8)


# --- the right pixels -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "codec", "pixel_format"),
    [
        ("clip.avi", "ffv1", "gray"),
        ("clip.mkv", "ffv1", "gray"),
        ("clip.avi", "rawvideo", "gray"),
        ("clip.avi", "rawvideo", "bgr24"),
        ("clip.avi", "ffv1", "bgr0"),
        ("clip.mkv", "ffv1", "bgra"),
        ("clip.mov", "qtrle", "rgb24"),
    ],
)
def test_grey_and_rgb_that_lose_nothing_are_exact(
    tmp_path: Path, name: str, codec: str, pixel_format: str
) -> None:
    path = write_video(tmp_path / name, NOISE, codec, pixel_format)
    np.testing.assert_array_equal(decoded(path), [scaled(p) for p in NOISE])


@pytest.mark.parametrize(
    ("codec", "pixel_format"),
    [
        ("ffv1", "yuv420p"),
        ("ffv1", "yuv444p"),
        ("ffv1", "yuv410p"),
        ("ffv1", "yuva420p"),
        ("rawvideo", "yuv420p"),
        ("huffyuv", "yuv422p"),
    ],
)
def test_luma_of_16_to_235_is_spread_over_all_greys(
    tmp_path: Path, codec: str, pixel_format: str
) -> None:
    path = write_video(tmp_path / "clip.avi", NOISE, codec, pixel_format)
    np.testing.assert_array_equal(decoded(path), [scaled(spread(p)) for p in NOISE])


def test_packed_luma_is_that_of_the_planes(tmp_path: Path) -> None:
    path = write_video(tmp_path / "clip.avi", [p // 2 * 2 for p in NOISE], "rawvideo", "yuyv422")
    with av.open(str(path)) as container:
        frames = [f.reformat(format="yuv422p") for f in container.decode(video=0)]
    luma = [np.frombuffer(f.planes[0], np.uint8).reshape(HEIGHT, -1)[:, :WIDTH] for f in frames]
    np.testing.assert_array_equal(decoded(path), [scaled(spread(p)) for p in luma])


def test_luma_that_is_said_to_be_full_stays(tmp_path: Path) -> None:
    path = tmp_path / "clip.mkv"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("ffv1", rate=25)
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        stream.codec_context.color_range = 2
        frame = av.VideoFrame(WIDTH, HEIGHT, "yuv420p")
        for plane in frame.planes:
            plane.update(bytes([77]) * plane.buffer_size)
        frame.color_range = 2
        container.mux(stream.encode(frame))
        container.mux(stream.encode())
    assert decoded(path).tolist() == np.full((1, SIZE, SIZE), 77).tolist()


def test_grey_is_what_pillow_makes_of_the_colours(tmp_path: Path) -> None:
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    rgb = np.stack([255 * x / WIDTH, 255 * y / HEIGHT, 255 * (x + y) / (WIDTH + HEIGHT)], axis=-1)
    rgb = np.rint(rgb).astype(np.uint8)
    # BT.601 in real numbers: luma and both colour differences, each rounded to a byte
    r, g, b = (rgb[..., i].astype(float) for i in range(3))
    luma = 0.299 * r + 0.587 * g + 0.114 * b
    planes = (
        16 + luma * 219 / 255,
        128 + (b - luma) / 1.772 * 224 / 255,
        128 + (r - luma) / 1.402 * 224 / 255,
    )
    frame = av.VideoFrame(WIDTH, HEIGHT, "yuv444p")
    for plane, values in zip(frame.planes, planes, strict=True):
        plane.update(np.rint(values).astype(np.uint8).tobytes())
    path = tmp_path / "clip.mkv"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("ffv1", rate=25)
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv444p"
        container.mux(stream.encode(frame))
        container.mux(stream.encode())
    grey = np.asarray(Image.fromarray(rgb).convert("L"))
    # half a level of luma is 0.58 of grey, and each side rounds once more
    assert np.abs(decoded(path)[0] - scaled(grey)).max() <= 2


@pytest.mark.parametrize(("name", "codec", "pixel_format"), FILES)
def test_lossy_codecs_keep_number_order_and_nearly_the_pixels(
    tmp_path: Path, name: str, codec: str, pixel_format: str
) -> None:
    options = {"crf": "20", "b": "2M"} if codec.startswith("lib") else {"b": "2M"}
    path = write_video(tmp_path / name, SCENE, codec, pixel_format, options)
    shown = decoded(path)
    levels = (spread(p) if pixel_format == "yuv420p" else p for p in SCENE)
    expected = np.stack([scaled(p) for p in levels])
    assert shown.shape == expected.shape
    distance = np.abs(shown[:, None] - expected[None]).mean(axis=(2, 3))
    assert distance.argmin(axis=1).tolist() == list(range(len(SCENE)))
    assert distance.diagonal().max() < 4  # grey levels


def test_frames_stored_out_of_order_come_in_the_order_they_are_shown(tmp_path: Path) -> None:
    for name, codec in (("clip.mp4", "libx264"), ("clip.avi", "mpeg4")):
        path = write_video(tmp_path / name, SCENE, codec, "yuv420p", {"bf": "2", "b": "2M"})
        with av.open(str(path)) as container:
            kinds = {frame.pict_type for frame in container.decode(video=0)}
        assert av.video.frame.PictureType.B in kinds
        distance = np.abs(decoded(path)[:, None] - [scaled(spread(p)) for p in SCENE])
        assert distance.mean(axis=(2, 3)).argmin(axis=1).tolist() == list(range(len(SCENE)))


@pytest.mark.parametrize(
    ("name", "options"),
    [("clip.mkv", {"live": "1"}), ("clip.mp4", {"movflags": "frag_keyframe+empty_moov"})],
)
def test_recordings_that_do_not_know_their_length_are_taken_as_they_are(
    tmp_path: Path, name: str, options: dict[str, str]
) -> None:
    path = tmp_path / name
    with av.open(str(path), "w", options=options) as container:
        stream = container.add_stream("mpeg4", rate=25)
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        for pixels in [*SCENE, *NOISE, *SCENE]:  # as unevenly as bit rates go
            container.mux(stream.encode(as_frame(pixels, "yuv420p")))
        container.mux(stream.encode())
    assert len(decoded(path)) == 29


def test_packed_frames_of_old_encoders_are_unpacked(tmp_path: Path) -> None:
    """DivX and Xvid put two frames into one chunk of an AVI, and a filler into the next."""
    encoder = av.CodecContext.create("mpeg4", "w")
    encoder.width, encoder.height, encoder.pix_fmt = WIDTH, HEIGHT, "yuv420p"
    encoder.time_base, encoder.options = Fraction(1, 25), {"bf": "1", "b": "2M"}
    packets = []
    for i, pixels in enumerate(SCENE):
        frame = as_frame(pixels, "yuv420p")
        frame.pts = i
        packets += encoder.encode(frame)
    packets += encoder.encode()
    shown = [packet.pts or 0 for packet in packets]
    frames = [bytes(packet) for packet in packets]
    start, filler = b"\0\0\1\xb6", b"\0\0\1\xb6\x50\x4f"  # of a frame; one that is not coded
    frames[0] = frames[0].replace(start, b"\0\0\1\xb2DivX503b1393p" + start, 1)  # p: packed
    chunks = []
    while frames:
        chunks.append(frames.pop(0))
        if len(shown) > 1 and shown[1] < shown[0]:  # the next one is shown before this one
            chunks[-1] += frames.pop(0)
            chunks.append(filler)
            del shown[0]
        del shown[0]
    assert len(chunks) == len(SCENE)
    assert filler in chunks
    path = tmp_path / "clip.avi"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=25)
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        for i, chunk in enumerate(chunks):
            packet = av.Packet(chunk)
            packet.stream, packet.time_base = stream, Fraction(1, 25)
            packet.pts, packet.dts, packet.duration = i, i, 1
            container.mux(packet)
    distance = np.abs(decoded(path)[:, None] - [scaled(spread(p)) for p in SCENE])
    assert distance.mean(axis=(2, 3)).argmin(axis=1).tolist() == list(range(len(SCENE)))


@pytest.mark.parametrize("tagged", [True, False])
def test_the_film_is_taken_and_not_the_sound(tmp_path: Path, tagged: bool) -> None:
    path = tmp_path / "clip.mkv"
    with av.open(str(path), "w") as container:
        sound = container.add_stream("pcm_s16le", rate=8000, layout="mono")
        film = container.add_stream("ffv1", rate=25)
        film.width, film.height, film.pix_fmt = WIDTH, HEIGHT, "gray"
        for pixels in NOISE:
            container.mux(film.encode(av.VideoFrame.from_ndarray(pixels, format="gray")))
        container.mux(film.encode())
        quiet = av.AudioFrame.from_ndarray(np.zeros((1, 8000), np.int16), "s16", "mono")
        quiet.sample_rate, quiet.time_base, quiet.pts = 8000, Fraction(1, 8000), 0
        container.mux(sound.encode(quiet))  # a second of it, longer than the film
        container.mux(sound.encode())
    if not tagged:  # then only the length of the whole is declared
        path.write_bytes(path.read_bytes().replace(b"DURATION", b"whatever"))
    np.testing.assert_array_equal(decoded(path), [scaled(p) for p in NOISE])


@pytest.mark.parametrize("with_index", [True, False])
def test_frames_that_a_recorder_dropped_are_no_damage(tmp_path: Path, with_index: bool) -> None:
    path = write_video(tmp_path / "clip.avi", NOISE, times=[0, 1, 4, 5, 9])
    content = path.read_bytes()
    index = content.rindex(b"idx1")
    chunks = content[content.index(b"movi") : index]
    assert chunks.count(b"00dc" + bytes(4)) == 5  # empty ones: the last frame stays
    if not with_index:
        path.write_bytes(content[:index])
    with av.open(str(path)) as container:
        assert container.streams.video[0].frames == 10
    np.testing.assert_array_equal(decoded(path), [scaled(p) for p in NOISE])


def test_a_file_is_what_its_content_says(tmp_path: Path) -> None:
    path = write_video(tmp_path / "clip.mkv", NOISE)
    np.testing.assert_array_equal(
        decoded(path.rename(tmp_path / "clip.avi")), [*map(scaled, NOISE)]
    )


@pytest.mark.parametrize(
    "name", ["ein Gehweg.avi", "%03d.avi", "http:a.avi", "步.avi", "a'b\"c.avi"]
)
def test_a_file_may_have_any_name(tmp_path: Path, name: str) -> None:
    assert len(decoded(write_video(tmp_path / "x.avi", NOISE).rename(tmp_path / name))) == 5


def test_frames_are_handed_out_while_the_file_is_read(tmp_path: Path) -> None:
    path = write_video(tmp_path / "clip.avi", NOISE)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) * 2 // 3])
    frames = decode_video(path, SIZE)
    np.testing.assert_array_equal(next(frames), scaled(NOISE[0]))
    with pytest.raises(BadData):
        list(frames)


# --- what can be wrong ----------------------------------------------------------------------------


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
        stream = container.add_stream("mpeg4", rate=25)
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        for i, pixels in enumerate(NOISE * 3):
            frame = as_frame(pixels, "yuv420p")
            frame.pts = start + i
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
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
        stream = new.add_stream("ffv1", rate=25)
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        for frame in old.decode(video=0):
            new.mux(stream.encode(frame))
        new.mux(stream.encode())
    assert 3 <= len(decoded(tmp_path / "new.mkv")) < 15


@pytest.mark.parametrize(("name", "codec", "pixel_format"), FILES)
def test_a_film_may_start_later_than_at_zero(
    tmp_path: Path, name: str, codec: str, pixel_format: str
) -> None:
    times = range(100, 112)
    path = write_video(tmp_path / name, SCENE, codec, pixel_format, times=times)
    assert len(decoded(path)) == 12


def test_a_text_file_is_no_video(tmp_path: Path) -> None:
    path = tmp_path / "clip.avi"
    path.write_text("not a video\n" * 100)
    with pytest.raises(BadData, match=r"clip\.avi cannot be decoded: .*whole file of one of \.avi"):
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


def test_titles_in_another_encoding_are_no_damage(tmp_path: Path) -> None:
    path = write_video(tmp_path / "clip.avi", NOISE, title="Gehweg")
    assert b"Gehweg" in path.read_bytes()
    path.write_bytes(path.read_bytes().replace(b"Gehweg", b"Gehw\xe4g"))
    assert len(decoded(path)) == 5


def test_every_suffix_that_is_named_can_be_written_and_read(tmp_path: Path) -> None:
    codecs = {".webm": "libvpx-vp9", ".mp4": "mpeg4", ".mov": "mpeg4"}
    for suffix in VIDEO_SUFFIXES:
        codec = codecs.get(suffix, "mpeg4")
        path = write_video(tmp_path / f"clip{suffix}", SCENE, codec, "yuv420p")
        assert len(decoded(path)) == len(SCENE)


# --- in a data set --------------------------------------------------------------------------------


def own(folder: Path) -> DataConfig:
    return DataConfig(name="clips", folder=str(folder), frame_size=32, frames=4, patch_size=8)


def test_a_damaged_video_leaves_nothing_in_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWEEP_CACHE", str(tmp_path / "cache"))
    for name in "abcd":
        write_video(tmp_path / "data" / f"{name}.avi", NOISE)
    last = tmp_path / "data" / "d.avi"
    last.write_bytes(last.read_bytes()[:-2000])
    with pytest.raises(BadData, match=r"the video .*/d\.avi "):
        load_video(own(tmp_path / "data"))
    left = [p.name for p in (tmp_path / "cache" / "video").iterdir()]
    assert [name for name in left if not name.endswith(".lock")] == []


def test_a_pipe_is_no_clip(tmp_path: Path) -> None:
    for name in "abc":
        write_video(tmp_path / f"{name}.avi", NOISE)
    os.mkfifo(tmp_path / "d.avi")  # opening it would wait for ever
    with pytest.raises(BadData, match=r"d\.avi is named like .* not a regular file"):
        list_clips(own(tmp_path))
