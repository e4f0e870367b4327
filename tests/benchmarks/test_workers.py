"""Processes of benchmarks that train side by side."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.workers import spawned


def begun(file: Path) -> None:
    file.touch()
    if file.stem == "0":
        raise RuntimeError("the first one fails")
    time.sleep(0.2)


def begin_all(files: Sequence[Path]) -> None:
    with spawned(1) as pool:
        for running in [pool.submit(begun, file) for file in files]:
            running.result()


def test_where_one_fails_no_further_one_is_begun(tmp_path: Path) -> None:
    files = [tmp_path / str(number) for number in range(40)]
    with pytest.raises(RuntimeError, match="the first one fails"):
        begin_all(files)
    assert len(list(tmp_path.iterdir())) < len(files)
