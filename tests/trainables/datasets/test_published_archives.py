"""Published archives: known faults are read around and told; Avenue as it is."""

from __future__ import annotations

from pathlib import Path

import av
import numpy as np
import pytest
import scipy.io
from PIL import Image

from sweep.doctor.data import check_folder
from tests.support.data.data_folders import noise
from tests.support.data.text_runs import text_task, tiny_text
from tests.support.oracles import TINY
from trainables.arm_run import ArmRun
from trainables.config.arm import DataConfig
from trainables.datasets.text.load import load_text
from trainables.datasets.video.load import list_clips, load_video
from trainables.errors import BadData
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore

FLAWED = 142  # of Test/Test017 in UCSD's archive
LENGTH = 145
NOTE = "frame 142 of {} is damaged in the published archive: the frame before it stands in"

pytestmark = pytest.mark.usefixtures("own_cache")


def ped1(root: Path, *, published: bool = True) -> Path:
    """Ped1 with as many clips as its flaw needs; numbered from 1 as published, else from 0."""
    for split, clips in (("Train", (1, 2)), ("Test", (1, 17))):
        for clip in clips:
            name = f"{split}{clip:03d}" if published else f"{clip:02d}"
            place = root / (split if published else f"{split.lower()}ing/frames") / name
            place.mkdir(parents=True)
            for i in range(LENGTH if clip == 17 else 6):
                path = place / (f"{i + 1:03d}.tif" if published else f"{i:03d}.png")
                Image.fromarray(noise(clip, len(split), i)).save(path)
    return root


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def config(root: Path) -> DataConfig:
    return DataConfig(name="ucsd_ped1", folder=str(root), frame_size=32, frames=4, patch_size=8)


def test_the_frame_that_ucsd_published_truncated_is_stood_in_for(tmp_path: Path) -> None:
    frame = ped1(tmp_path / "UCSDped1") / "Test" / "Test017" / f"{FLAWED}.tif"
    whole = load_video(config(tmp_path))
    assert whole.notes == ()
    cut(frame)
    assert NOTE.format("Test/Test017") in check_folder(str(tmp_path)).finding
    cut_one = load_video(config(tmp_path))
    frame.unlink()
    left_out = load_video(config(tmp_path))
    assert cut_one.fingerprint == left_out.fingerprint != whole.fingerprint
    for video in (cut_one, left_out):
        assert len(video.notes) == 1
        assert video.notes[0].startswith(NOTE.format("Test/Test017"))
        wanted, found = whole.test[1].frames, video.test[1].frames
        others = [i for i in range(LENGTH) if i != FLAWED - 1]
        np.testing.assert_array_equal(found[others], wanted[others])
        np.testing.assert_array_equal(found[FLAWED - 1], wanted[FLAWED - 2])


def test_extracted_frames_count_from_the_first_number(tmp_path: Path) -> None:
    root = ped1(tmp_path / "ped1", published=False)
    (root / "testing" / "frames" / "17" / f"{FLAWED - 1}.png").write_bytes(b"")
    assert load_video(config(tmp_path)).notes[0].startswith(NOTE.format("testing/frames/17"))


@pytest.mark.parametrize("other", ["Test/Test017/141.tif", "Test/Test001/002.tif"])
def test_another_damaged_frame_is_still_refused(tmp_path: Path, other: str) -> None:
    cut(ped1(tmp_path / "UCSDped1") / other)
    with pytest.raises(BadData, match="cannot be decoded"):
        load_video(config(tmp_path))


def test_the_same_frame_of_another_data_set_is_refused(tmp_path: Path) -> None:
    root = ped1(tmp_path / "UCSDped2")
    cut(root / "Test" / "Test017" / f"{FLAWED}.tif")
    with pytest.raises(BadData, match="cannot be decoded"):
        load_video(DataConfig(name="ucsd_ped2", folder=str(root), frame_size=32, frames=4))
    (root / "Test" / "Test017" / f"{FLAWED}.tif").unlink()
    with pytest.raises(BadData, match="not numbered in one row"):
        list_clips(DataConfig(name="ucsd_ped2", folder=str(root), frame_size=32, frames=4))


def test_an_arm_says_what_stands_in(tmp_path: Path) -> None:
    cut(ped1(tmp_path / "UCSDped1") / "Test" / "Test017" / f"{FLAWED}.tif")
    run = TINY.with_fields({"data.name": "ucsd_ped1", "data.folder": str(tmp_path), "steps": 2})
    record = ArmRun(run, ArmStore(ObjectStore(tmp_path / "arms"))).advance()
    assert [w for w in record.warnings if w.startswith(NOTE.format("Test/Test017"))]


# --- CUHK Avenue ----------------------------------------------------------------------------------


def test_real_avenue_has_every_frame_that_its_masks_judge(real_data: Path) -> None:
    root = real_data / "Avenue_Dataset"
    video = load_video(DataConfig(name="cuhk_avenue", folder=str(real_data), frame_size=32))
    assert [clip.name for clip in video.test] == ["clip08", "clip18", "clip21"]
    for clip in video.test:
        number = int(clip.name.removeprefix("clip"))
        masks = scipy.io.loadmat(root / f"ground_truth_demo/testing_label_mask/{number}_label.mat")
        assert len(clip.frames) == masks["volLabel"].size
    assert [(c.name, len(c.frames)) for c in (*video.train, *video.dev)] == [
        ("clip12", 145),
        ("clip16", 244),
    ]
    assert video.notes == ()


def test_real_avenue_is_grey_as_pillow_makes_it(real_data: Path) -> None:
    data = DataConfig(name="cuhk_avenue", folder=str(real_data / "Avenue_Dataset"), frame_size=160)
    ours = load_video(data).test[0].frames
    path = real_data / "Avenue_Dataset" / "testing_videos" / "08.avi"
    with av.open(str(path)) as container:
        theirs = [frame.to_image().convert("L") for frame in container.decode(video=0)]
    shrunk = [np.asarray(f.resize((160, 160), Image.Resampling.BILINEAR), int) for f in theirs]
    gaps = np.abs(ours.astype(int) - np.stack(shrunk))
    assert np.percentile(gaps, 99) <= 2  # grey levels of rounding; elsewhere RGB is cut off


def test_an_arm_trains_on_real_avenue(real_data: Path, tmp_path: Path) -> None:
    run = TINY.with_fields({"data.name": "cuhk_avenue", "data.folder": str(real_data), "steps": 2})
    record = ArmRun(run, ArmStore(ObjectStore(tmp_path / "arms"))).advance()
    assert (record.status, record.reason) == ("finished", "")
    assert record.evaluation is not None
    assert {name.partition(":")[0] for name in record.evaluation.dev_units} == {"clip16"}


# --- texts that train and test share --------------------------------------------------------------


def test_real_mnli_shares_premises_between_train_and_test(real_data: Path) -> None:
    splits = load_text(DataConfig(name="mnli", folder=str(real_data)))
    known = {example.text for example in (*splits.train, *splits.dev)}
    both = {example.text for example in splits.test} & known
    assert len(both) == 9
    assert splits.shared == sum(example.text in both for example in splits.test) >= 9


@pytest.mark.parametrize("on", ["dev", "test"])
def test_shared_texts_are_told_where_the_test_split_is_measured(tmp_path: Path, on: str) -> None:
    config = tiny_text(tmp_path, measured_on=on)
    assert text_task(config).notes == ()
    reviews = sorted((Path(str(config.data.folder)) / "train" / "neg").glob("*.txt"))
    for number, path in enumerate(reviews[:2]):
        place = Path(str(config.data.folder)) / "test" / "neg" / f"{900 + number}_1.txt"
        place.write_bytes(path.read_bytes())
    notes = text_task(config).notes
    assert len(notes) == (on == "test")
    assert all(note.startswith("2 of the ") for note in notes)
