"""Data location: the folder or address given, else SWEEP_DATA.

What lies at an address is fetched. An address is fetched in part where it holds a data set under
one of the usual names of its folder.
"""

from __future__ import annotations

import dataclasses
import os

from trainables.config.arm import DataConfig
from trainables.fetching import fetched_folders
from trainables.fetching.fetched_folders import Tell
from trainables.registry.lookup import known_data_set

VARIABLE = "SWEEP_DATA"


def folders_of(data: DataConfig) -> tuple[str, ...]:
    """The usual names of the data set's folder below one that holds several.

    Data sets that have some are looked for in SWEEP_DATA: others need no folder, or are whatever
    folder is given.
    """
    found = known_data_set(data.name)
    return () if found is None else found.folders


def with_default_folder(data: DataConfig) -> DataConfig:
    """``data`` with the folder or address of SWEEP_DATA, where none is given and it needs one."""
    default = os.environ.get(VARIABLE)
    if data.folder is not None or not default or not folders_of(data):
        return data
    return dataclasses.replace(data, folder=default)


def on_this_machine(data: DataConfig, *, tell: Tell | None = None) -> DataConfig:
    """``data`` with a folder of this machine: what lies at an address is fetched first.

    Args:
        data: as it was given.
        tell: told how far a fetch is.

    Raises:
        BadData, StoreError, Misuse: as ``fetched``.
    """
    if data.folder is None:
        return data
    folder = fetched_folders.on_this_machine(data.folder, folders_of(data), tell=tell)
    return dataclasses.replace(data, folder=folder)
