"""Stores on disks that are full, and on file systems without hard links."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from trainables.records.objects import ObjectStore


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP])
def test_without_hard_links_the_first_writer_wins(
    number: int, objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", refused)
    assert objects.put_once("a/b", b"first") == b"first"
    assert objects.put_once("a/b", b"second") == b"first"
    monkeypatch.setattr(ObjectStore, "get", lambda self, name, tried=[]: None)  # seen too late
    assert not objects._link("a/b", b"third")
    assert [p.name for p in Path(objects.root, "a").iterdir()] == ["b"]


def test_an_object_that_is_deleted_while_it_is_looked_for_is_written(
    objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    link, seen = ObjectStore._link, list[str]()

    def there_and_gone(self: ObjectStore, name: str, content: bytes) -> bool:
        seen.append(name)
        return len(seen) > 1 and link(self, name, content)

    monkeypatch.setattr(ObjectStore, "_link", there_and_gone)
    assert objects.put_once("a", b"mine") == b"mine"
    assert objects.get("a") == b"mine"
