"""What a space needs before its sweep runs: its data, and a device to train on.

Everything here refuses in one message before anything is written.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from search_spaces.space import SearchSpace
from sweep.definition import Definition
from trainables.config import DataConfig
from trainables.errors import BadData, Misuse


def resolve_data(space: SearchSpace) -> SearchSpace:
    """The space with each setting's data: an absolute folder, and the fingerprint of the pixels.

    Raises BadData when the data are missing, damaged, or not those of a fingerprint that is there.
    """
    from trainables.datasets.video import resolve

    _refuse_unread_folder(space)
    space = _with_absolute_folders(space)
    datas = {s.name: space.base.with_fields(s.fields).data for s in space.settings}
    seen: dict[DataConfig, str] = {}
    for name, data in datas.items():
        try:
            seen[data] = seen.get(data) or resolve(data).fingerprint
        except BadData as error:
            hint = " Give the folder with --data." if data.folder is None else ""
            if len({d.name for d in datas.values()}) > 1:
                hint += f" Or leave settings like {name} out with --only."
            raise BadData(f"{error}{hint}") from error
    prints = {name: seen[data] for name, data in datas.items()}
    if len(set(prints.values())) == 1:
        first = next(iter(prints.values()))
        base = space.base.with_fields({"data.fingerprint": first})
        return replace(space, base=base)
    settings = tuple(
        replace(s, fields={**s.fields, "data.fingerprint": prints[s.name]}) for s in space.settings
    )
    return replace(space, settings=settings)


def _with_absolute_folders(space: SearchSpace) -> SearchSpace:
    """Folders as every working directory, and every worker, finds them."""
    base = space.base.with_fields({"data.folder": absolute(space.base.data.folder)})
    settings = [
        replace(s, fields={**s.fields, "data.folder": absolute(s.fields["data.folder"])})
        if "data.folder" in s.fields
        else s
        for s in space.settings
    ]
    return replace(space, base=base, settings=tuple(settings))


def absolute(folder: str | None) -> str | None:
    """The folder as it is found from anywhere."""
    if folder is None:
        return None
    try:
        return str(Path(folder).expanduser().resolve())
    except (OSError, RuntimeError, ValueError) as error:  # a null byte, no such user, a loop
        raise Misuse(f"{folder!r} cannot be a folder: {error}. Give --data a path.") from error


def _refuse_unread_folder(space: SearchSpace) -> None:
    """Raise Misuse when a folder is given and every setting's data set is built in."""
    from trainables.datasets.video import BUILT_IN

    data = [space.base.with_fields(s.fields).data for s in space.settings]
    folder = next((d.folder for d in data if d.folder is not None), None)
    if folder is not None and all(d.name in BUILT_IN for d in data):
        names = ", ".join(sorted({d.name for d in data}))
        raise Misuse(
            f"the data set {names} is built in and reads no folder, got {folder}. Leave --data and "
            "data.folder out, or choose a space whose data set lies in a folder."
        )


def require_device(space: SearchSpace) -> None:
    """Raise Misuse when a setting trains on a GPU and this machine has none."""
    if not any(space.base.with_fields(s.fields).device == "cuda" for s in space.settings):
        return
    import torch

    if not torch.cuda.is_available():
        raise Misuse(
            "device must be 'cpu' on this machine, got 'cuda': torch finds no GPU here. Set "
            "device=cpu, or install a CUDA build of torch where there is one."
        )


def with_folder(definition: Definition, folder: str | None) -> Definition:
    """The definition with its data in another place; a place is no part of what it is."""
    return replace(definition, space=definition.space.with_base({"data.folder": folder}))
