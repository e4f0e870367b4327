"""Files that appear whole: under errors, rivals, long names, and without hard links."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from trainables.machine.atomic_files import atomic_file, left_overs, write_atomically


def test_a_block_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "file"
    write_atomically(path, b"first")

    def half() -> None:
        with atomic_file(path) as temporary:
            temporary.write_bytes(b"sec")
            raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        half()
    assert path.read_bytes() == b"first"
    assert os.listdir(path.parent) == ["file"]
    write_atomically(path, b"second")
    assert path.read_bytes() == b"second"


@pytest.mark.parametrize("links", [True, False])
def test_a_name_that_is_taken_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    def without(*_: object) -> None:
        raise OSError(errno.EPERM, "no hard links here")

    if not links:
        monkeypatch.setattr(os, "link", without)
    write_atomically(tmp_path / "file", b"first", replace=False)
    with pytest.raises(FileExistsError):
        write_atomically(tmp_path / "file", b"second", replace=False)
    assert (tmp_path / "file").read_bytes() == b"first"
    assert os.listdir(tmp_path) == ["file"]


def test_a_rival_may_clear_the_temporary_file_away(tmp_path: Path) -> None:
    path = tmp_path / "file"

    def overtaken() -> None:
        with atomic_file(path, replace=False) as temporary:
            temporary.write_bytes(b"second")
            write_atomically(path, b"first")
            for rest in left_overs(path):
                rest.unlink()

    with pytest.raises(FileExistsError):
        overtaken()
    assert path.read_bytes() == b"first"


def test_the_longest_name_that_a_file_may_have(tmp_path: Path) -> None:
    path = tmp_path / ("\N{GREEK SMALL LETTER GAMMA}" * 127)
    with atomic_file(path) as temporary:
        temporary.write_bytes(b"1")
        assert list(left_overs(path)) == [temporary]
    assert os.listdir(tmp_path) == [path.name]
