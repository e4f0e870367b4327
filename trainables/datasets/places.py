"""Data location: the folder or address given, else SWEEP_DATA.

What lies at an address is fetched. An address is fetched in part where it holds a data set under
one of the usual names of its folder.
"""

from __future__ import annotations

import dataclasses
import os
from typing import TypeVar

from trainables.config.arm import DataConfig
from trainables.errors import BadData
from trainables.fetching import fetched_folders
from trainables.fetching.fetched_folders import Tell
from trainables.registry.find_plugins import known_data_set, listed, require_no_clash
from trainables.registry.task_facts import DataGroup

VARIABLE = "SWEEP_DATA"
T = TypeVar("T")


def folders_of(group: DataGroup, data: DataConfig) -> tuple[str, ...]:
    """The usual names of the data set's folder below one that holds several.

    Data sets that have some are looked for in SWEEP_DATA: others need no folder, or are whatever
    folder is given.
    """
    spec = known_data_set(group, data.name)
    return () if spec is None else spec.folders


def with_default_folder(group: DataGroup, data: DataConfig) -> DataConfig:
    """``data`` with the folder or address of SWEEP_DATA, where none is given and it needs one."""
    default = os.environ.get(VARIABLE)
    if data.folder is not None or not default or not folders_of(group, data):
        return data
    return dataclasses.replace(data, folder=default)


def on_this_machine(group: DataGroup, data: DataConfig, *, tell: Tell | None = None) -> DataConfig:
    """``data`` with a folder of this machine: an address is fetched first, as by ``fetched``."""
    if data.folder is None:
        return data
    folder = fetched_folders.on_this_machine(data.folder, folders_of(group, data), tell=tell)
    return dataclasses.replace(data, folder=folder)


def listed_here(group: DataGroup, data: DataConfig, gives: type[T]) -> T:
    """List the files of the data set that ``data`` names, as they lie on this machine.

    Raises:
        UnknownName: no such data set.
        BadData: the folder is missing, empty, of another layout, or cannot be read.
        Misuse: another package's data set of this name lists something else than ``gives``, or this
            one is built in.
    """
    source = listed(group, data.name, gives)
    require_no_clash(group, data.name)
    data = on_this_machine(group, data)
    try:
        return source(data)
    except OSError as error:  # permissions, broken links, a disk that went away
        raise BadData(
            f"data set {data.name} in {data.folder} cannot be read: {error}. Give yourself the "
            "right to read it, or copy it again."
        ) from error


def require_fingerprint(data: DataConfig, actual: str, changed: str) -> None:
    """BadData, with what has ``changed``, where ``data`` carries another fingerprint."""
    if data.fingerprint not in ("", actual):
        raise BadData(
            f"{changed}: expected fingerprint {data.fingerprint}, got {actual}. Results on both "
            "cannot be compared. Restore the data, or start a new sweep on them, under another "
            "--name (in an exported configuration clear data.fingerprint first)."
        )
