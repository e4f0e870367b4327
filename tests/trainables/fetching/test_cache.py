"""Folders that are built once per machine: whole or not at all, by one process of many."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from trainables.config.arm import DataConfig
from trainables.datasets.video.load import load_video
from trainables.errors import BadData, Misuse
from trainables.fetching import cache
from trainables.fetching.cache import built_once, cache_root

pytestmark = pytest.mark.usefixtures("own_cache")

BUILDER = """
import os, pathlib, sys, time
from trainables.fetching.cache import built_once

def build(folder):
    print("built")
    for part in range(20):
        (folder / str(part)).write_text(str(os.getpid()))
        time.sleep(0.01)

start = pathlib.Path(sys.argv[1])
start.with_name(f"ready{os.getpid()}").touch()
while not start.exists():
    time.sleep(0.001)
entry = built_once("test", {"of": "two at once"}, build)
print(*sorted({(entry / str(part)).read_text() for part in range(20)}))
"""


def test_two_processes_at_once_build_one_whole_entry(tmp_path: Path, own_cache: Path) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", BUILDER, str(tmp_path / "go")], stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    while len(list(tmp_path.glob("ready*"))) < 2:
        assert all(process.poll() is None for process in processes)
        time.sleep(0.01)
    (tmp_path / "go").touch()
    outputs = [process.communicate(timeout=60)[0].splitlines() for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert sum("built" in output for output in outputs) == 1
    (writer,) = {output[-1] for output in outputs}
    assert writer in {str(process.pid) for process in processes}
    assert list((own_cache / "test").glob(".*.tmp")) == []


def test_a_failed_build_leaves_nothing_behind(own_cache: Path) -> None:
    def build(folder: Path) -> None:
        (folder / "half").write_text("half")
        raise BadData("the frame is damaged")

    with pytest.raises(BadData, match="damaged"):
        built_once("test", 1, build)
    assert [p.name for p in (own_cache / "test").iterdir() if not p.name.endswith(".lock")] == []


def test_the_cache_root_follows_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cache_root() == tmp_path / "cache"
    monkeypatch.delenv("SWEEP_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_root() == tmp_path / "xdg" / "descent-sweep"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_root() == tmp_path / "home" / ".cache" / "descent-sweep"


def test_without_a_home_the_cache_is_a_temporary_folder_closed_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SWEEP_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/proc/nowhere")  # nobody can write there, not even root
    monkeypatch.setattr("os.access", lambda path, mode: str(path) != "/proc")
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    folder = cache_root()
    assert folder == tmp_path / f"descent-sweep-{os.getuid()}"
    assert folder.stat().st_mode & 0o077 == 0
    assert built_once("test", 1, lambda entry: None).is_dir()
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Misuse, match=r"is another user's\. Set SWEEP_CACHE"):
        cache_root()


def test_a_cache_that_cannot_be_written_says_what_to_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SWEEP_CACHE", str(tmp_path / "file"))
    with pytest.raises(Misuse, match=r"cannot be written .* Set SWEEP_CACHE"):
        load_video(DataConfig(frame_size=32))


def test_a_process_that_waits_for_another_says_so_and_strangers_cannot_hold_it_up(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(cache, "_TELL_AFTER_S", 0.0)
    monkeypatch.setattr(cache, "_LOOK_EVERY_S", 0.01)
    entry = built_once("test", {"of": "one"}, lambda folder: None)
    (entry / "manifest.json").unlink()
    path = entry.with_name(f".{entry.name}.lock")
    assert path.stat().st_mode & 0o077 == 0
    with open(path) as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        threading.Timer(0.3, fcntl.flock, (held, fcntl.LOCK_UN)).start()
        built_once("test", {"of": "one"}, lambda folder: None)
    (line,) = (record.getMessage() for record in caplog.records)
    assert line == f"waiting for another process that decodes the same data, and holds {path}"


def test_a_file_system_without_locks_has_whole_entries_too(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", none)
    entry = built_once("test", {"of": "one"}, lambda folder: (folder / "a").touch())
    assert (entry / "a").exists()
