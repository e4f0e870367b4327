"""Files in place of the content: pointers, web pages and zeros are named wherever data are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweep.doctor.data import check_folder, check_requirement
from sweep.doctor.scope import Requirement
from tests.support.data.data_folders import LAYOUTS
from tests.support.data.ped2_folders import config, write_original
from tests.support.data.text_folders import TEXT_LAYOUTS
from tests.support.data.text_runs import checkpoint_in
from trainables.checkpoints import Checkpoint
from trainables.config.arm import DataConfig, ModelConfig
from trainables.datasets.text.load import load_text
from trainables.datasets.video.load import load_video
from trainables.errors import BadData

pytestmark = pytest.mark.usefixtures("own_cache")

POINTER = (
    b"version https://git-lfs.github.com/spec/v1\n"
    b"oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n"
)
STAND_INS = {
    "git lfs pull": POINTER,
    "git annex get": b"/annex/objects/SHA256E-s12345--4d7a21.tif\n",
    "is a web page": b"<!DOCTYPE html><html><title>Virus scan warning</title>" + b" " * 4000,
    "zeros alone": bytes(100_000),
}


@pytest.mark.parametrize("said", STAND_INS)
@pytest.mark.parametrize("layout", ["ucsd_ped2 as published", "cuhk_avenue as published"])
def test_a_tree_of_frames_or_videos_is_not_taken_for_one(
    tmp_path: Path, layout: str, said: str
) -> None:
    root = LAYOUTS[layout].write(tmp_path / LAYOUTS[layout].folder)
    for path in [*root.rglob("*.tif"), *root.rglob("*.avi")]:
        path.write_bytes(STAND_INS[said])
    with pytest.raises(BadData, match=said):
        load_video(DataConfig(name=LAYOUTS[layout].data_set, folder=str(root), frames=4))
    check = check_folder(str(root))
    assert not check.passed
    assert said in check.finding


@pytest.mark.parametrize("said", STAND_INS)
def test_one_frame_among_others_is_named_where_it_is_read(tmp_path: Path, said: str) -> None:
    root = write_original(tmp_path / "UCSDped2")
    (root / "Train" / "Train002" / "003.tif").write_bytes(STAND_INS[said])
    with pytest.raises(BadData, match=rf"Train002/003\.tif .*{said}"):
        load_video(config(root))


NO_ZEROS = sorted(STAND_INS.keys() - {"zeros alone"})  # in texts: null characters


@pytest.mark.parametrize("said", NO_ZEROS)
@pytest.mark.parametrize("kind", ["imdb as published", "mnli as published", "mnli of GLUE"])
def test_files_of_texts_are_not_taken_for_them(tmp_path: Path, kind: str, said: str) -> None:
    layout = TEXT_LAYOUTS[kind]
    root = layout.write(tmp_path / layout.folder)
    for path in root.rglob("*"):
        if path.suffix in (".jsonl", ".tsv", ".txt") and not path.name.startswith(("urls", "READ")):
            path.write_bytes(STAND_INS[said])
    with pytest.raises(BadData, match=said):
        load_text(DataConfig(name=layout.data_set, folder=str(root)))


@pytest.mark.parametrize("said", STAND_INS)
@pytest.mark.parametrize("suffix", ["parquet", "csv", "arrow"])
def test_tables_are_not_taken_for_them(tmp_path: Path, suffix: str, said: str) -> None:
    pytest.importorskip("datasets", minversion="4")
    for split in ("train", "test"):
        (tmp_path / f"{split}.{suffix}").write_bytes(STAND_INS[said])
    with pytest.raises(BadData, match=rf"test\.{suffix} .*{said}"):
        load_text(DataConfig(name="hf:mine", folder=str(tmp_path)))


@pytest.mark.parametrize("said", STAND_INS)
def test_weights_are_not_taken_for_them(tmp_path: Path, said: str) -> None:
    place = Path(checkpoint_in(tmp_path / "model"))
    (place / "model.safetensors").write_bytes(STAND_INS[said])
    with pytest.raises(BadData, match=rf"model\.safetensors .*{said}"):
        Checkpoint(str(place), ("config.json", "model.safetensors")).network()
    check = check_requirement(
        Requirement("text_classification", model=ModelConfig(name="encoder", checkpoint=str(place)))
    )
    assert not check.passed
    assert said in check.finding
