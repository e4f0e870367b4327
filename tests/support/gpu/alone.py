"""Sweeps on one imitated GPU of this process: what their arms come to when nothing goes wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sweep.study.definition import Definition
from tests.support.drivers import undisturbed
from tests.support.gpu.devices import imitated_gpu
from trainables.records.objects import ObjectStore


def trained_alone(asked: Definition, folder: Path) -> Any:
    """The table of a sweep whose arms this process trains, one after the other."""
    with imitated_gpu():
        return undisturbed(ObjectStore(folder), asked)
