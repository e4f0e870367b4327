"""A laptop's verbs without a cluster: logs line by line, places, exports elsewhere."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import click
import pytest

from sweep.cli.cluster import LogLines
from sweep.cli.options import given_storage, storage_option
from sweep.cluster.submission import Answer
from sweep.results.export_folder import EXPORT, MANIFEST, write_files
from tests.support.command_line import contents, refused
from trainables.errors import Misuse, StoreError

# --- logs -----------------------------------------------------------------------------------------

LOG = f"one\n{Answer(0, 'x').to_line()}\ntwo\nthree\nthe end"


@pytest.mark.parametrize("cut", range(0, len(LOG), 7))
def test_a_log_is_shown_once_however_it_is_read(cut: int) -> None:
    """It breaks off anywhere, and is read from its beginning again; answers are no part of it."""
    shown: list[str] = []
    lines = LogLines(shown.append)
    lines.restart()
    lines.read(LOG[:cut])
    lines.restart()
    for letter in LOG:
        lines.read(letter)
    lines.finish()
    assert "".join(shown) == "one\ntwo\nthree\nthe end"


# --- places ---------------------------------------------------------------------------------------


def test_a_checkpoint_that_is_a_folder_here_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("weights").mkdir()
    words = ("submit", "video_denoising_vit", "--address", "http://h", "--data", "/data")
    text = refused(*words, "--set", "model.checkpoint=weights")
    assert "model.checkpoint 'weights' is a folder of this machine" in text


def test_the_storage_of_a_laptop_is_not_that_of_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    @click.command()
    @storage_option
    def verb(storage: str) -> None:
        seen.append(given_storage())

    monkeypatch.setenv("SWEEP_STORAGE", "/of/the/laptop")
    verb.main([], standalone_mode=False)
    verb.main(["--storage", "s3://there"], standalone_mode=False)
    assert seen == [None, "s3://there"]


# --- exports --------------------------------------------------------------------------------------


def exported(**texts: str) -> dict[str, str]:
    checksums = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()}
    manifest = {"kind": EXPORT, "sweep": "mine", "files": checksums, "complete": True}
    return {**texts, MANIFEST: json.dumps(manifest)}


def test_an_export_made_elsewhere_replaces_an_earlier_one(tmp_path: Path) -> None:
    out = tmp_path / "out"
    write_files(out, "mine", exported(a="1", b="2"))
    with pytest.raises(Misuse, match="b, which this one lacks"):
        write_files(out, "mine", exported(a="3"))
    assert write_files(out, "mine", exported(a="3"), replace=True) == ["a", MANIFEST]
    assert contents(out).keys() == {"a", MANIFEST}
    assert contents(out)["a"] == b"3"
    with pytest.raises(Misuse, match="not of 'other'"):
        write_files(out, "other", exported(a="4"))


@pytest.mark.parametrize("name", ["/etc/passwd", "../a", "a/../../b"])
def test_an_export_writes_nothing_outside_its_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(StoreError, match="no export of mine"):
        write_files(tmp_path / "out", "mine", exported(**{name: "x"}))
    assert list(tmp_path.iterdir()) == []


def test_an_answer_without_a_manifest_is_no_export(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no manifest"):
        write_files(tmp_path / "out", "mine", {})
