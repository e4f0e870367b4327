"""One driver per sweep, whoever looks at it; locks that cannot be had are told."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import threading
from pathlib import Path
from typing import IO

import pytest

from sweep.errors import AlreadyRunning
from sweep.executors.executor import Executor
from sweep.run.run_sweep import run_sweep
from sweep.study import heartbeat
from sweep.study.definition import put_definition
from sweep.study.lock import driver_lock, driver_of
from tests.support.command_line import sweep
from tests.support.toy_sweeps import definition
from trainables.errors import StoreError
from trainables.machine import file_locks, scratch
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


@pytest.fixture(params=[errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def no_locks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lustre without flock, NFS without its lock service, and others."""

    def unlocked(*_: object) -> None:
        raise OSError(request.param, os.strerror(request.param))

    monkeypatch.setattr(fcntl, "flock", unlocked)
    monkeypatch.setattr(heartbeat, "SETTLE_S", 0.01)


def test_without_locks_a_driver_is_known_by_its_signs_of_life(
    objects: ObjectStore, no_locks: None, caplog: pytest.LogCaptureFixture
) -> None:
    asked = put_definition(objects, definition())
    with driver_lock(objects, "toy"):
        assert "without locks" in caplog.text
        driver = driver_of(objects, "toy")
        assert driver is not None
        assert driver.pid == os.getpid()
        with pytest.raises(AlreadyRunning, match=rf"{driver.pid}.*sweep stop toy"):
            run_sweep(objects, asked, Executor("inline"))
    assert driver_of(objects, "toy") is None
    with driver_lock(objects, "toy"):
        pass


@pytest.mark.long("a sweep from its start to its end, with MLflow")
@pytest.mark.parametrize("no_locks", [errno.ENOSYS], indirect=True)
def test_without_locks_sweeps_are_read_and_trained(
    root: Path, no_locks: None, space_file: str
) -> None:
    sweep("run", space_file, "--where", "inline")
    (listed,) = json.loads(sweep("list", "--json").stdout)
    assert listed["state"] == "finished"
    sweep("best", "mine")
    assert "2 of 2 arms" in sweep("resume", "mine", "--where", "inline").stdout
    sweep("rm", "mine", "--yes")


def test_where_locks_bind_one_machine_a_driver_on_another_is_seen(
    objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lustre's localflock: each machine gets the lock."""
    monkeypatch.setattr(heartbeat, "SETTLE_S", 0.01)
    monkeypatch.setattr(file_locks, "binds_here_alone", lambda path: True)
    Path(objects.root, "sweeps/toy").mkdir(parents=True)
    other = {
        "owner": "another", "pid": 7, "host": "node2", "machine": "another", "started_ms": 0,
        "every_s": 15.0, "waits_for": "",
    }  # fmt: skip
    with driver_lock(objects, "toy"):
        pass
    objects.put_json("sweeps/toy/driver.json", other)
    driver = driver_of(objects, "toy")
    assert driver is not None
    assert str(driver) == "process 7 on node2"
    with pytest.raises(AlreadyRunning, match="process 7 on node2"), driver_lock(objects, "toy"):
        pass
    assert objects.exists("sweeps/toy/driver.json")


@pytest.mark.parametrize(("folder", "lock"), [(0o755, 0o600), (0o775, 0o660), (0o777, 0o666)])
def test_those_who_may_write_a_sweep_alone_can_hold_its_lock(
    objects: ObjectStore, folder: int, lock: int
) -> None:
    path = Path(objects.root, "sweeps/toy/.driver.lock")
    path.parent.mkdir(parents=True)
    path.parent.chmod(folder)
    path.touch(0o644)  # of an earlier version
    with driver_lock(objects, "toy"):
        assert path.stat().st_mode & 0o777 == lock


def test_a_reader_who_may_not_open_the_lock_sees_the_driver(
    objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(path: object, *_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    with driver_lock(objects, "toy"):
        monkeypatch.setattr("sweep.study.lock.open", refused, raising=False)
        driver = driver_of(objects, "toy")
        assert driver is not None
        assert driver.pid == os.getpid()
    assert driver_of(objects, "toy") is None


def test_a_root_that_cannot_be_locked_is_told(
    objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(fcntl, "flock", broken)
    with (
        pytest.raises(StoreError, match=r"cannot be locked.*Input/output error.*--storage"),
        driver_lock(objects, "toy"),
    ):
        pass


def test_the_folder_for_ray_needs_no_locks(
    tmp_path: Path, no_locks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sweep.executors import ray_session

    monkeypatch.setattr(ray_session, "_short_folder", lambda: str(tmp_path))
    with ray_session._scratch_folder() as folder:
        scratch.remove_abandoned_folders(str(tmp_path))
        assert folder.is_dir()


def test_a_driver_that_starts_leaves_the_folder_of_another_that_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sweep.executors import ray_session

    monkeypatch.setattr(ray_session, "_short_folder", lambda: str(tmp_path))
    flock = fcntl.flock

    def second_driver_comes_first(file: IO[str], how: int) -> None:
        monkeypatch.setattr(fcntl, "flock", flock)
        scratch.remove_abandoned_folders(str(tmp_path))
        flock(file, how)

    monkeypatch.setattr(fcntl, "flock", second_driver_comes_first)
    with ray_session._scratch_folder() as folder:
        assert folder.is_dir()
        scratch.remove_abandoned_folders(str(tmp_path))  # nor once it is held
        assert folder.is_dir()
    assert not list(tmp_path.iterdir())


def test_the_folder_of_a_driver_that_was_killed_is_removed(tmp_path: Path) -> None:
    left = tmp_path / f"{scratch.PREFIX}left"
    left.mkdir()
    (left / scratch.OWNER).touch()
    scratch.remove_abandoned_folders(str(tmp_path))
    assert not left.exists()


def test_what_strangers_leave_in_the_temporary_folder_is_not_waited_for(tmp_path: Path) -> None:
    for name in ("pipe", "link", "folder"):
        (tmp_path / f"{scratch.PREFIX}{name}").mkdir()
    os.mkfifo(tmp_path / f"{scratch.PREFIX}pipe" / scratch.OWNER)
    (tmp_path / "mine").touch()
    link = tmp_path / f"{scratch.PREFIX}link" / scratch.OWNER
    link.symlink_to(tmp_path / "mine")
    (tmp_path / f"{scratch.PREFIX}folder" / scratch.OWNER).mkdir()
    scratch.remove_abandoned_folders(str(tmp_path))
    assert len(list(tmp_path.iterdir())) == 4


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_another_users_folder_is_left_alone(tmp_path: Path) -> None:
    for whose in ("folder", "lock"):
        left = tmp_path / f"{scratch.PREFIX}{whose}"
        left.mkdir()
        (left / scratch.OWNER).touch()
        os.chown(left if whose == "folder" else left / scratch.OWNER, 65534, 65534)
    scratch.remove_abandoned_folders(str(tmp_path))
    assert len(list(tmp_path.iterdir())) == 2
