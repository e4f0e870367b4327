"""File systems without locks, and those whose locks bind one machine alone."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from trainables.machine.file_locks import (
    NoLocks,
    binds_here_alone,
    has_locks,
    held,
    lock,
)

MOUNTS = """\
/dev/root / ext4 rw 0 0
10.0.0.1@tcp:/scratch /lustre lustre rw,localflock,lazystatfs 0 0
10.0.0.1@tcp:/home /lustre/home lustre rw,flock 0 0
server:/a /nfs nfs4 rw,vers=4.2,local_lock=none 0 0
server:/b /nfs/old nfs rw,vers=3,nolock,local_lock=all 0 0
beegfs_nodev /my\\040data beegfs rw,relatime 0 0
"""


@pytest.mark.parametrize(
    ("folder", "alone"),
    [
        ("/tmp/x", False),
        ("/lustre/me", True),
        ("/lustre/home/me", False),
        ("/lustre2/me", False),
        ("/nfs/me", False),
        ("/nfs/old/me", True),
        ("/my data/me", True),
    ],
)
def test_mounts_say_how_far_locks_reach(tmp_path: Path, folder: str, alone: bool) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(MOUNTS)
    assert binds_here_alone(Path(folder), mounts) is alone


def test_without_mounts_nothing_is_known(tmp_path: Path) -> None:
    assert not binds_here_alone(Path("/x"), tmp_path / "none")


def test_a_file_system_without_locks_is_told_from_a_lock_that_is_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert has_locks(tmp_path)
    held = os.open(tmp_path, os.O_RDONLY)
    lock(held)
    assert has_locks(tmp_path)
    other = os.open(tmp_path, os.O_RDONLY)
    with pytest.raises(BlockingIOError):
        lock(other)

    def none(*_: object) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", none)
    with pytest.raises(NoLocks):
        lock(other)
    assert not has_locks(tmp_path)
    from sweep.doctor.machine import check_storage

    assert "drivers know each other by a heartbeat" in check_storage(str(tmp_path)).finding
    os.close(held)
    os.close(other)


def test_a_lock_that_goes_with_its_file_is_had_by_one_at_a_time(tmp_path: Path) -> None:
    path, inside, seen = tmp_path / "lock", [0], list[int]()

    def work(_: int) -> None:
        with held(path, 30):
            inside[0] += 1
            seen.append(inside[0])
            time.sleep(0.002)
            inside[0] -= 1

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(64)))
    assert seen == [1] * 64
    assert not list(tmp_path.iterdir())
    with held(path), pytest.raises(BlockingIOError), held(path):
        pass
    assert not list(tmp_path.iterdir())
