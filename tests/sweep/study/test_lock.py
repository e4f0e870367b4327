"""One driver per sweep, whoever looks at it; locks that cannot be had are told."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from pathlib import Path
from typing import IO

import pytest

from sweep.errors import AlreadyRunning
from sweep.study.lock import driver_lock, driver_of
from trainables.errors import StoreError
from trainables.records.objects import ObjectStore


def test_a_reader_does_not_keep_a_driver_from_starting(objects: ObjectStore) -> None:
    with driver_lock(objects, "toy"):
        pass
    with open(Path(objects.root, "sweeps/toy/.driver.lock")) as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        threading.Timer(0.1, fcntl.flock, (file, fcntl.LOCK_UN)).start()
        with driver_lock(objects, "toy"):
            assert driver_of(objects, "toy") is not None
    assert driver_of(objects, "toy") is None


def test_a_driver_that_ended_is_not_named(
    objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweep.study.lock.PATIENCE_S", 0.0)
    with driver_lock(objects, "toy"):
        pass
    path = Path(objects.root, "sweeps/toy/.driver.lock")
    with open(path) as file:
        fcntl.flock(file, fcntl.LOCK_SH)  # a reader that is stuck
        with (
            pytest.raises(AlreadyRunning, match="its driver just started"),
            driver_lock(objects, "toy"),
        ):
            pass


def test_a_file_system_without_locks_is_told(
    objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with driver_lock(objects, "toy"):
        pass

    def unlocked(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", unlocked)
    with (
        pytest.raises(StoreError, match=r"No locks available.*on NFS"),
        driver_lock(objects, "toy"),
    ):
        pass
    with pytest.raises(StoreError, match=r"No locks available.*on NFS"):
        driver_of(objects, "toy")


def test_a_driver_that_starts_leaves_the_folder_of_another_that_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sweep.executors import ray_session

    monkeypatch.setattr(ray_session, "_short_folder", lambda: str(tmp_path))
    flock = fcntl.flock

    def second_driver_comes_first(file: IO[str], how: int) -> None:
        monkeypatch.setattr(fcntl, "flock", flock)
        ray_session._remove_left_overs()
        flock(file, how)

    monkeypatch.setattr(fcntl, "flock", second_driver_comes_first)
    with ray_session._scratch_folder() as folder:
        assert folder.is_dir()
        ray_session._remove_left_overs()  # nor once it is held
        assert folder.is_dir()
    assert not list(tmp_path.iterdir())


def test_the_folder_of_a_driver_that_was_killed_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sweep.executors import ray_session

    monkeypatch.setattr(ray_session, "_short_folder", lambda: str(tmp_path))
    left = tmp_path / f"{ray_session.PREFIX}left"
    left.mkdir()
    (left / ray_session.OWNER).touch()
    ray_session._remove_left_overs()
    assert not left.exists()


def test_what_strangers_leave_in_the_temporary_folder_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sweep.executors import ray_session

    monkeypatch.setattr(ray_session, "_short_folder", lambda: str(tmp_path))
    for name in ("pipe", "link", "folder"):
        (tmp_path / f"{ray_session.PREFIX}{name}").mkdir()
    os.mkfifo(tmp_path / f"{ray_session.PREFIX}pipe" / ray_session.OWNER)
    (tmp_path / "mine").touch()
    link = tmp_path / f"{ray_session.PREFIX}link" / ray_session.OWNER
    link.symlink_to(tmp_path / "mine")
    (tmp_path / f"{ray_session.PREFIX}folder" / ray_session.OWNER).mkdir()
    ray_session._remove_left_overs()
    assert len(list(tmp_path.iterdir())) == 4


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_another_users_folder_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sweep.executors import ray_session

    monkeypatch.setattr(ray_session, "_short_folder", lambda: str(tmp_path))
    for whose in ("folder", "lock"):
        left = tmp_path / f"{ray_session.PREFIX}{whose}"
        left.mkdir()
        (left / ray_session.OWNER).touch()
        os.chown(left if whose == "folder" else left / ray_session.OWNER, 65534, 65534)
    ray_session._remove_left_overs()
    assert len(list(tmp_path.iterdir())) == 2
