"""A store that waits: what passes is waited for, what does not is told, and patience ends."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from trainables.errors import DamagedObject, StoreError
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore
from trainables.records.retrying import RetryingStore


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long a patient store would have waited; it does not."""
    waited: list[float] = []
    monkeypatch.setattr("trainables.records.retrying.time.sleep", waited.append)
    return waited


def test_a_listing_that_fails_once_does_not_fail_a_checkpoint(
    objects: ObjectStore, monkeypatch: pytest.MonkeyPatch, waits: list[float]
) -> None:
    real, failures = os.listdir, [OSError(errno.ESTALE, "Stale file handle")]

    def listdir(path: str) -> list[str]:
        if failures:
            raise failures.pop()
        return real(path)

    monkeypatch.setattr(os, "listdir", listdir)
    store = ArmStore(RetryingStore(objects.root))
    store.put_checkpoint("s", 10, b"10")
    assert store.newest_checkpoint("s") == (10, b"10")
    assert waits == [0.5]


def test_what_waiting_does_not_mend_is_told_at_once(
    objects: ObjectStore, monkeypatch: pytest.MonkeyPatch, waits: list[float]
) -> None:
    patient = RetryingStore(objects.root)
    patient.put("thing", b"content")
    Path(objects.root, "thing").write_bytes(b"torn")
    with pytest.raises(DamagedObject, match=r"Restore it from a copy, or delete it"):
        patient.get("thing")

    def refused(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refused)
    with pytest.raises(StoreError, match="Permission denied"):
        patient.get("thing")
    assert waits == []


def test_a_writer_waits_for_a_disk_that_is_full_for_a_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: list[float]
) -> None:
    failures = [OSError(errno.ENOSPC, "No space left")] * 3
    real = ObjectStore._put_local

    def put_local(path: Path, content: bytes, *, replace: bool = True) -> None:
        if failures:
            raise failures.pop()
        real(path, content, replace=replace)

    monkeypatch.setattr(ObjectStore, "_put_local", staticmethod(put_local))
    store = RetryingStore(tmp_path, patience_s=60)
    store.put("a", b"content")
    assert store.get("a") == b"content"
    assert waits == [0.5, 1.0, 2.0]


def test_a_writer_gives_up_after_its_patience(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def put_local(path: Path, content: bytes, *, replace: bool = True) -> None:
        raise OSError(errno.ENOSPC, "No space left")

    monkeypatch.setattr(ObjectStore, "_put_local", staticmethod(put_local))
    with pytest.raises(StoreError, match=r"No space left.*nothing that is finished is lost"):
        RetryingStore(tmp_path, patience_s=0).put("a", b"content")
