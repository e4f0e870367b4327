"""Data location: the folder or address given, else SWEEP_DATA.

What lies at an address is fetched. An address is fetched in part where it holds a data set under
one of the usual names of its folder.
"""

from __future__ import annotations

import dataclasses
import os

from trainables.config.arm import DataConfig
from trainables.datasets import fetched_folders
from trainables.datasets.fetched_folders import Tell
from trainables.datasets.text import imdb, mnli
from trainables.datasets.video import avenue, shanghaitech, ucsd

VARIABLE = "SWEEP_DATA"
# By data set, the usual names of its folder below one that holds several. These alone are looked
# for in SWEEP_DATA: others need no folder, or are whatever folder is given.
FOLDERS: dict[str, tuple[str, ...]] = {
    **ucsd.FOLDERS,
    "cuhk_avenue": avenue.FOLDERS,
    "shanghaitech": shanghaitech.FOLDERS,
    "imdb": imdb.FOLDERS,
    "mnli": mnli.FOLDERS,
}


def with_default_folder(data: DataConfig) -> DataConfig:
    """``data`` with the folder or address of SWEEP_DATA, where none is given and it needs one."""
    default = os.environ.get(VARIABLE)
    if data.folder is not None or not default or data.name not in FOLDERS:
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
    names = FOLDERS.get(data.name, ())
    folder = fetched_folders.on_this_machine(data.folder, names, tell=tell)
    return dataclasses.replace(data, folder=folder)
