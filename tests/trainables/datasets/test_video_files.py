"""Decoding video files: the right grey, in order, whole."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image

from tests.support.data.data_folders import HEIGHT, WIDTH, add_film, as_frame, write_video
from tests.support.data.decoded_videos import (
    FILES,
    NOISE,
    SCENE,
    SIZE,
    assert_in_order,
    decoded,
    scaled,
    spread,
)
from trainables.datasets.video.video_files import VIDEO_SUFFIXES, decode_video
from trainables.errors import BadData


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
        add_film(container, "ffv1", "yuv444p", [frame])
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
        assert_in_order(decoded(path))


@pytest.mark.parametrize(
    ("name", "options"),
    [("clip.mkv", {"live": "1"}), ("clip.mp4", {"movflags": "frag_keyframe+empty_moov"})],
)
def test_recordings_that_do_not_know_their_length_are_taken_as_they_are(
    tmp_path: Path, name: str, options: dict[str, str]
) -> None:
    path = tmp_path / name
    with av.open(str(path), "w", options=options) as container:
        unevenly = [*SCENE, *NOISE, *SCENE]  # as bit rates go
        frames = (as_frame(pixels, "yuv420p") for pixels in unevenly)
        add_film(container, "mpeg4", "yuv420p", frames)
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
    assert_in_order(decoded(path))


@pytest.mark.parametrize("tagged", [True, False])
def test_the_film_is_taken_and_not_the_sound(tmp_path: Path, tagged: bool) -> None:
    path = tmp_path / "clip.mkv"
    with av.open(str(path), "w") as container:
        sound = container.add_stream("pcm_s16le", rate=8000, layout="mono")
        add_film(container, "ffv1", "gray", (as_frame(pixels, "gray") for pixels in NOISE))
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


@pytest.mark.parametrize(("name", "codec", "pixel_format"), FILES)
def test_a_film_may_start_later_than_at_zero(
    tmp_path: Path, name: str, codec: str, pixel_format: str
) -> None:
    times = range(100, 112)
    path = write_video(tmp_path / name, SCENE, codec, pixel_format, times=times)
    assert len(decoded(path)) == 12


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
