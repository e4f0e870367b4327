"""`sweep init`: what it writes runs as it is, and nothing is overwritten."""

from __future__ import annotations

import csv
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from search_spaces import catalog
from tests.support.command_line import contents, refused, sweep
from tests.support.data.data_folders import write_frames
from tests.support.data.text_runs import checkpoint_in
from tests.support.plugins.plugin_packages import write_package
from trainables.registry import find_plugins

SHORT = ("--proposals", "1", "--where", "inline", "--set", "report_every=1", "--set", "steps=2")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_clips(folder: Path, width: int = 40, height: int = 50, count: int = 4) -> None:
    random = np.random.default_rng(0)
    for clip in range(count):
        frames = [random.integers(0, 256, (height, width), np.uint8) for _ in range(24)]
        write_frames(folder / f"clip{clip}", frames)


def write_table(path: Path, rows: int) -> None:
    path.parent.mkdir(exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label"])
        writer.writerows(
            (f"the film {i} was {('bad', 'good')[i % 2]}", ("neg", "pos")[i % 2])
            for i in range(rows)
        )


def advised(output: str) -> list[list[str]]:
    """The `sweep` commands of the output, without their comments."""
    return [
        line.split("#")[0].split()[1:]
        for line in output.splitlines()
        if line.startswith("  sweep ")
    ]


@pytest.mark.long("trains both arms of a pair of a real size")
def test_a_space_of_own_clips_fits_their_size_and_trains(here: Path) -> None:
    write_clips(here / "frames")
    said = sweep("init", "videos", "my_clips.py", "--data", "frames").stdout
    assert said.startswith(
        "my_clips.py: 3 training clips and 1 test clip, frames of 40 x 50 pixels, scaled to "
        "32 x 32 whatever their aspect.\n"
    )
    space = catalog.find("my_clips.py").space
    assert (space.name, space.base.data.frame_size) == ("my_clips", 32)
    assert space.base.data.folder == str(here / "frames")
    assert [words[0] for words in advised(said)] == ["doctor", "spaces", "run"]
    sweep(*advised(said)[-1], *SHORT, "--set", "eval_windows=1", "--set", "batch_size=4")
    assert "my_clips" in sweep("list").stdout


def test_texts_that_are_cut_are_counted(here: Path) -> None:
    """By their words: 62 of them and the two ends are 64 tokens or more."""
    (here / "tables").mkdir()
    for name, lengths in (("train", (62, 63, 200, 3)), ("test", (3, 400))):
        rows = [f"{'word ' * n},{'xy'[k % 2]}" for k, n in enumerate(lengths)]
        (here / "tables" / f"{name}.csv").write_text("\n".join(["text,label", *rows]))
    said = sweep("init", "texts", "cut.py", "--data", "tables").stdout
    assert "labels x, y. At least 2 training texts would be cut at max_length, 64 tokens." in said
    assert catalog.find("cut.py").space.base.data.max_length == 64


@pytest.mark.long("trains both arms of a pair of a real size")
def test_a_space_of_own_texts_trains(here: Path) -> None:
    write_table(here / "tables" / "train.csv", 40)
    write_table(here / "tables" / "test.csv", 10)
    checkpoint = checkpoint_in(here / "model")
    said = sweep(
        "init", "texts", "my_texts.py", "--data", "tables", "--checkpoint", checkpoint
    ).stdout
    assert said.startswith("my_texts.py: 40 training texts and 10 test texts, labels neg, pos.\n")
    assert catalog.find("my_texts.py").space.base.model.checkpoint == checkpoint
    sweep(*advised(said)[-1], *SHORT, "--set", "eval_windows=4", "--set", "data.max_length=16")
    assert "my_texts" in sweep("list").stdout


@pytest.mark.long("trains both arms of a pair of a real size")
def test_a_package_of_an_own_network_keeps_the_contract_and_trains(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = sweep("init", "model", "my_net").stdout
    files = {name: text.decode() for name, text in contents(here / "my_net").items()}
    assert set(files) == {"pyproject.toml", "my_net.py", "my_net_space.py", "test_my_net.py"}
    assert not any("$" in text for text in files.values())
    project = tomllib.loads(files["pyproject.toml"])
    assert project["tool"]["setuptools"]["py-modules"] == ["my_net"]
    points = {
        group.removeprefix("descent_sweep."): names
        for group, names in project["project"]["entry-points"].items()
    }
    installed = write_package(here / "site", "my-net", "0.1", points, files)
    monkeypatch.syspath_prepend(installed)
    find_plugins._entry_points.cache_clear()
    try:
        names: dict[str, object] = {}
        exec(files["test_my_net.py"], names)
        names["test_the_network_keeps_the_contract"]()  # type: ignore[operator]
        sweep(*advised(said)[-1], *SHORT, "--set", "eval_windows=1", "--set", "batch_size=4")
        assert "my_net" in sweep("list").stdout
    finally:
        find_plugins._entry_points.cache_clear()
        find_plugins._loaded.cache_clear()


def test_frames_of_several_sizes_are_scaled_to_what_the_smallest_allow(here: Path) -> None:
    write_clips(here / "large", width=80, height=90, count=2)
    write_clips(here / "small", count=2)
    (here / "both").mkdir()
    for name, of in (("a", "large/clip0"), ("b", "small/clip0"), ("c", "large/clip1")):
        (here / of).rename(here / "both" / name)
    said = sweep("init", "videos", "two_sizes.py", "--data", "both").stdout
    assert "frames of 40 x 50 to 80 x 90 pixels, scaled to 32 x 32" in said
    assert catalog.find("two_sizes.py").space.base.data.frame_size == 32


@pytest.mark.long("pip builds a package")
def test_an_installed_network_is_known_in_every_folder(here: Path) -> None:
    """By a path file: what setuptools does otherwise loses to a folder of the network's name."""
    sweep("init", "model", "own_net")
    to = ("--prefix", str(here / "site"), "--no-build-isolation", "--no-deps", "--quiet")
    subprocess.run([sys.executable, "-m", "pip", "install", *to, "-e", "own_net"], check=True)
    (path_file,) = (here / "site").rglob("*.pth")
    assert path_file.read_text().split() == [str(here / "own_net")]


def test_a_folder_of_any_name_stands_in_the_space(here: Path) -> None:
    odd = here / 'it\'s "a\\$b" ü'
    write_clips(odd, count=3)
    sweep("init", "videos", "odd.py", "--data", str(odd))
    assert catalog.find("odd.py").space.base.data.folder == str(odd)
    no_text = odd.rename(here / os.fsdecode(b"\xff"))
    words = ("init", "videos", "no.py", "--data", str(no_text))
    assert "must be of printable characters" in refused(*words)
    assert not (here / "no.py").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["videos", "there.py", "--data", "frames"], "there.py exists, and nothing is overwritten"),
        (["videos", "my_clips.py"], "give the folder of clips by --data"),
        (["texts", "my_texts.py"], "give the folder of train.csv and test.csv by --data"),
        (["videos", "my-clips.py", "--data", "frames"], "letters, digits and '_', got my-clips.py"),
        (["videos", "clips.txt", "--data", "frames"], "must be a .py file"),
        (["videos", "my_clips.py", "--data", "none"], "none does not exist"),
        (["videos", "my_clips.py", "--data", "tiny"], "8 x 50 pixels are smaller than a patch"),
        (["texts", "my_texts.py", "--data", "frames"], "has columns image, label"),
        (["model", "ut"], "none of ut, dust"),
        (["model", "My-Net"], "lower case letters, digits and between them '_'"),
        (["model", "net_"], "lower case letters, digits and between them '_'"),
        (["model", "json"], "of no module that is installed; got 'json'"),
        (["model", "lambda"], "lower case letters"),
        (["model", "there.py/a_net"], "cannot be written: Not a directory"),
        (["videos", "dangling.py", "--data", "frames"], "dangling.py exists"),
        (["videos", "my_clips.py", "--data", "damaged"], "the clip clip0 cannot be read: cannot"),
        (["model", "my_net", "--data", "frames"], "leave out --data"),
    ],
)
def test_what_cannot_be_begun_is_refused_and_leaves_nothing(
    here: Path, words: list[str], message: str
) -> None:
    write_clips(here / "frames", count=3)
    write_clips(here / "tiny", width=8, count=3)
    (here / "there.py").write_text("SPACE = None\n")
    (here / "dangling.py").symlink_to(here / "nowhere.py")
    write_clips(here / "damaged", count=3)
    min((here / "damaged" / "clip0").iterdir()).write_bytes(b"no picture")
    before = contents(here)
    assert re.search(re.escape(message), " ".join(refused("init", *words).split()))
    assert contents(here) == before
