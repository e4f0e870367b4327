"""One driver per sweep, whoever looks at it; locks that cannot be had are told."""

from __future__ import annotations

import errno
import fcntl
import threading
from pathlib import Path

import pytest

from sweep.errors import AlreadyRunning
from sweep.lock import driver_lock, driver_of
from trainables.errors import StoreError
from trainables.object_store import ObjectStore


@pytest.fixture
def objects(tmp_path: Path) -> ObjectStore:
    return ObjectStore(tmp_path)


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
    monkeypatch.setattr("sweep.lock.PATIENCE_S", 0.0)
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
