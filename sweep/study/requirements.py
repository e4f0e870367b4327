"""Requirements of a space before its sweep runs: data, checkpoints, a device.

Everything here refuses in one message before anything is written.
"""

from __future__ import annotations

import importlib.metadata
import math
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from packaging.requirements import Requirement

from search_spaces.space import SearchSpace, Setting
from sweep.study.advice import note
from sweep.study.definition import Definition
from sweep.study.opening import refuse_key
from trainables.code_version import DISTRIBUTION
from trainables.config.arm import ArmConfig, DataConfig
from trainables.errors import BadData, Failure, InvalidValue, Misuse, SweepError
from trainables.fetching.remote_folders import is_address, without_scheme
from trainables.registry.find_plugins import known_data_set

TELL_EVERY_S = 5.0  # between two lines on the progress of a fetch
_FOLDER = "data.folder"


def fetch(space: SearchSpace, say: Callable[[str], None]) -> SearchSpace:
    """Fetch what the space's runs read from addresses; returns the space with SWEEP_DATA in it.

    Raises BadData where nothing can be read at an address, StoreError where it is not fetched.
    """
    from trainables.datasets.places import with_default_folder

    runs = {s.name: _run(space, s) for s in space.settings}
    folders = {
        name: with_default_folder(run.facts.data_group, run.data).folder
        for name, run in runs.items()
    }
    given = {
        name: f for name, f in folders.items() if f is not None and f != runs[name].data.folder
    }
    space = _with_each(space, "data.folder", given) if given else space
    last_s = -math.inf

    def tell(how_far: str) -> None:
        nonlocal last_s
        if time.monotonic() >= last_s + TELL_EVERY_S:
            last_s = time.monotonic()
            say(how_far)

    refuse_keys(space)
    runs = {s.name: _run(space, s) for s in space.settings}
    if any(map(is_address, _places(runs.values()))):
        from trainables import build

        for run in {(r.data, r.model.checkpoint): r for r in runs.values()}.values():
            build.fetch(run, tell)
    return space


def refuse_keys(space: SearchSpace) -> None:
    """Raise Misuse for addresses of data or weights that carry a secret key."""
    for place in _places(_run(space, s) for s in space.settings):
        refuse_key(place, "an address of data or weights")


def _places(runs: Iterable[ArmConfig]) -> set[str]:
    """The places of data and weights, as they are given."""
    given = {place for run in runs for place in (run.data.folder, run.model.checkpoint)}
    return {place for place in given if place is not None}


def resolve_data(space: SearchSpace) -> SearchSpace:
    """The space with each setting's data: an absolute folder, and a fingerprint of the content.

    Raises BadData when the data are missing, damaged, or not those of a fingerprint that is there.
    """
    from trainables.build import fingerprinted_data

    _refuse_unread_folder(space)
    space = _mapped(space, "data.folder", absolute)
    runs = {s.name: space.base.with_fields(s.fields) for s in space.settings}
    seen: dict[DataConfig, str] = {}
    for name, run in runs.items():
        try:
            if run.data not in seen:
                seen[run.data] = fingerprinted_data(run).fingerprint
                _say_how_it_is_read(run)
        except BadData as error:
            gives_none = run.data.folder is None and _reads_folder(run)
            of_hub = run.data.name.startswith("hf:")
            by = "--set data.folder=DIR" if of_hub else "--data, or set SWEEP_DATA"
            hint = f" Give the folder or address with {by}." * gives_none
            if len({other.data.name for other in runs.values()}) > 1:
                hint += f" Or leave settings like {name} out with --only."
            raise BadData(f"{error}{hint}") from error
        except (SweepError, OSError, MemoryError):  # trouble of the machine is none of the data
            raise
        except Exception as error:  # in the code of a package's data set
            last = traceback.extract_tb(error.__traceback__)[-1]
            raise BadData(
                f"the data set {run.data.name!r} of {name} cannot be read: "
                f"{type(error).__name__}: {error} ({last.filename}, line {last.lineno})."
            ) from error
    prints = {name: seen[run.data] for name, run in runs.items()}
    return _with_each(space, "data.fingerprint", prints)


def _say_how_it_is_read(run: ArmConfig) -> None:
    """Print remarks on what changes the given data, or which of them are taken."""
    group = run.facts.data_group
    if group == "videos":
        from trainables.datasets.video.load import remarks

        lines = remarks(run.data)
    else:
        from trainables.datasets.text import load

        lines = load.remarks(run.data, group)
    for line in lines:
        note(f"{run.data.name}: {line}")


def resolve_checkpoints(space: SearchSpace) -> SearchSpace:
    """The space with each setting's checkpoint: an absolute folder, its depth and fingerprint.

    Every checkpoint is loaded once, so that one that is missing, damaged or does not fit is refused
    here and not arm by arm.
    """
    of_checkpoints = [s for s in space.settings if _run(space, s).model.checkpoint is not None]
    if not of_checkpoints:
        return space
    from trainables.build import check_model, depth_of, model_fingerprint

    space = _mapped(space, "model.checkpoint", _absolute_if_there)
    models = {s.name: _run(space, s).model for s in space.settings}
    depths = {name: depth_of(model) for name, model in models.items() if model.layers == 0}
    space = _with_each(space, "model.layers", depths)
    checked = set()
    prints = {}
    for s in space.settings:
        run = _run(space, s)
        if run.model.checkpoint is None:
            continue
        # Of the data what a network must fit, whichever data set they are from.
        shape = (run.data.frame_size, run.data.patch_size, run.data.max_length)
        if (run.model, shape) not in checked:
            check_model(run)
            checked.add((run.model, shape))
        prints[s.name] = model_fingerprint(run.model)
    return _with_each(space, "model.checkpoint_fingerprint", prints)


def require_training(space: SearchSpace) -> None:
    """Raise the error that a setting's first proposal would meet at its start, with its name.

    Raises:
        InvalidValue: batch_size exceeds a setting's sequences, say, or its runs end before their
            first dual step: known once the data are.
        Misuse: an installed package has a model or task of the name of a built-in one that is used.
    """
    from trainables.build import check_training, require_no_clashes

    checked = set()
    for s in space.settings:
        require_no_clashes(_run(space, s))
        first = space.default_point(s)
        listed = [space.listed(s, number) or {} for number in range(len(s.points))]
        for point in (first, *listed):
            run = space.run(s, point, seed=space.search_seeds[0])
            assert run.constraint is not None
            constraint = replace(run.constraint, alpha=0.5)  # how much is asked decides nothing
            sizes = (run.batch_size, run.steps, run.eval_windows)
            decisive = (run.task, run.data, run.model.checkpoint, sizes, constraint)
            if decisive in checked:
                continue  # opening a large data set anew for every depth and noise takes seconds
            checked.add(decisive)
            try:
                check_training(run)
            except InvalidValue as error:
                raise InvalidValue(f"setting {s.name} cannot be trained: {error}") from error


def _run(space: SearchSpace, setting: Setting) -> ArmConfig:
    return space.run(setting, {}, seed=space.search_seeds[0])


def _with_each(
    space: SearchSpace, name: str, values: Mapping[str, str | int | None]
) -> SearchSpace:
    """The space with a field set by setting; in the base where all settings have one value."""
    own = any(name in s.fields for s in space.settings)
    if not own and len(values) == len(space.settings) and len(set(values.values())) == 1:
        base = space.base.with_fields({name: next(iter(values.values()))})
        return replace(space, base=base)
    settings = tuple(
        replace(s, fields={**s.fields, name: values[s.name]}) if s.name in values else s
        for s in space.settings
    )
    return replace(space, settings=settings)


def _mapped(
    space: SearchSpace, name: str, change: Callable[[str | None], str | None]
) -> SearchSpace:
    """The space with a field changed wherever it is given."""
    base = space.base.with_fields({name: change(space.base.value_of(name))})
    settings = [
        replace(s, fields={**s.fields, name: change(s.fields[name])}) if name in s.fields else s
        for s in space.settings
    ]
    return replace(space, base=base, settings=tuple(settings))


def _absolute_if_there(checkpoint: str | None) -> str | None:
    """A checkpoint's folder as it is found from anywhere; names and addresses stay as they are."""
    if checkpoint is not None:
        checkpoint = without_scheme(checkpoint)
    try:
        is_folder = checkpoint is not None and Path(checkpoint).expanduser().is_dir()
    except (OSError, RuntimeError, ValueError):
        return checkpoint  # the network that reads it says what is wrong
    return absolute(checkpoint) if is_folder else checkpoint


def absolute(folder: str | None) -> str | None:
    """The folder as it is found from anywhere; an address as it is."""
    if folder is None or is_address(folder):
        return folder
    try:
        return str(Path(without_scheme(folder)).expanduser().resolve())
    except (OSError, RuntimeError, ValueError) as error:  # a null byte, no such user, a loop
        raise Misuse(f"{folder!r} cannot be a folder: {error}. Give --data a path.") from error


def _refuse_unread_folder(space: SearchSpace) -> None:
    """Raise Misuse when a folder is given and every setting's data set is built in."""
    runs = [space.base.with_fields(s.fields) for s in space.settings]
    folder = next((run.data.folder for run in runs if run.data.folder is not None), None)
    if folder is not None and not any(map(_reads_folder, runs)):
        names = ", ".join(sorted({run.data.name for run in runs}))
        raise Misuse(
            f"the data set {names} is built in and reads no folder, got {folder}. Leave --data and "
            "data.folder out, or choose a space whose data set lies in a folder."
        )


def require_torch() -> None:
    """Raise Failure where torch is not the version that this package trains with.

    Others sum in another order: their arms would be mixed with those that are stored.
    """
    every = map(Requirement, importlib.metadata.requires(DISTRIBUTION) or ("torch",))
    needed = next(requirement for requirement in every if requirement.name == "torch")
    got = importlib.metadata.version("torch")
    if not needed.specifier.contains(got, prereleases=True):
        raise Failure(
            f"torch must be {needed.specifier} here, got {got}: another version trains to other "
            f"numbers. Install it with `{sys.executable} -m pip install 'torch{needed.specifier}'`."
        )


def require_device(space: SearchSpace) -> None:
    """Raise Misuse when a setting trains on a GPU and this machine has none."""
    if not any(space.base.with_fields(s.fields).device == "cuda" for s in space.settings):
        return
    import torch

    if not torch.cuda.is_available():
        if torch.version.cuda is None:
            why = (
                f"torch {torch.__version__} is built without CUDA. Set device=cpu, or, where this "
                "machine has a GPU, install a CUDA build of torch (docs/running.md)."
            )
        else:
            why = (
                f"torch {torch.__version__} finds no GPU here. Set device=cpu, or look at "
                "`nvidia-smi` and at CUDA_VISIBLE_DEVICES."
            )
        raise Misuse(f"device must be 'cpu' on this machine, got 'cuda': {why}")


def with_folder(definition: Definition, folder: str | None) -> Definition:
    """The definition with its data in another place; a place is no part of what it is."""
    space = definition.space
    own = {s.name: folder for s in space.settings if _FOLDER in s.fields}
    places = {s.fields[_FOLDER] for s in space.settings if s.name in own}
    if not own or len(places | ({space.base.data.folder} - {None})) != 1:
        # refused where settings have places of their own, and not all the same one
        return replace(definition, space=space.with_base({_FOLDER: folder}))
    return replace(definition, space=_with_each(space, _FOLDER, own))


def with_folders_of(definition: Definition, given: SearchSpace) -> Definition:
    """The definition with its data where ``given`` has found the same, setting by setting."""
    own = {s.name: s.fields[_FOLDER] for s in given.settings if _FOLDER in s.fields}
    if not any([*own.values(), given.base.data.folder]):
        return definition
    settings = []
    for s in definition.space.settings:
        fields = {name: value for name, value in s.fields.items() if name != _FOLDER}
        here = {_FOLDER: own[s.name]} if s.name in own else {}
        settings.append(replace(s, fields=fields | here))
    base = definition.space.base.with_fields({_FOLDER: given.base.data.folder})
    return replace(definition, space=replace(definition.space, base=base, settings=tuple(settings)))


def folder_of(space: SearchSpace) -> str | None:
    """The one place where its data lie; None where there is none, or more than one."""
    own = {s.fields[_FOLDER] for s in space.settings if s.fields.get(_FOLDER)}
    every = own or {space.base.data.folder}
    return every.pop() if len(every) == 1 else None


def with_checkpoint_of(definition: Definition, given: SearchSpace) -> Definition:
    """The definition with its checkpoint where ``given`` has it: the same files, another place."""
    model = given.base.model
    is_own = any("model.checkpoint" in s.fields for s in definition.space.settings)
    if not model.checkpoint_fingerprint or is_own:
        return definition
    return replace(
        definition, space=definition.space.with_base({"model.checkpoint": model.checkpoint})
    )


def _reads_folder(run: ArmConfig) -> bool:
    """True when the run's data lie in data.folder; those of an unknown name may."""
    known = None if run.facts.reads_texts else known_data_set("videos", run.data.name)
    return known is None or known.reads_folder
