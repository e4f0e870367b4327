"""Checks of data sets and checkpoints for `sweep doctor`: present, and complete.

Files are listed, not decoded, but for small tables; weights are hashed, not loaded. The finding for
a data set or a checkpoint carries a digest that is the same for every copy of it.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sweep.doctor.check import Check, nearest_folder
from sweep.doctor.scope import Requirement
from sweep.study.advice import counted
from trainables.config.arm import DataConfig, ModelConfig
from trainables.datasets.places import folders_of, with_default_folder
from trainables.errors import BadData, StoreError, SweepError
from trainables.fetching.cache import cache_root
from trainables.fetching.fetched_folders import listed
from trainables.fetching.remote_folders import is_address, without_scheme
from trainables.fetching.stand_ins import first_stand_in, stand_in
from trainables.registry.built_in import INSTRUCTIONS, TEXTS, VIDEOS
from trainables.registry.find_plugins import data_set_spec, facts_of, model_spec
from trainables.registry.task_facts import DataGroup

DATA_ADVICE = (
    "docs/data.md describes how the files of each data set must lie on disk, all of them unpacked."
)
CHECKPOINT_ADVICE = "docs/text.md and docs/spaces.md describe where checkpoints come from."


@dataclass(frozen=True)
class Inventory:
    """Files that are present, in words."""

    text: str
    digest: str  # of their names and sizes, or of their content
    root: str = ""  # of a data set's folder
    notes: tuple[str, ...] = ()
    size: int = 0  # bytes of a data set's files

    def __str__(self) -> str:
        return "; ".join([self.text, *self.notes])


def check_requirement(requirement: Requirement) -> Check:
    """Check one requirement on this machine."""
    try:
        inventory = take_inventory(requirement, with_rows=True)
    except SweepError as error:
        advice = DATA_ADVICE if requirement.data is not None else CHECKPOINT_ADVICE
        return Check(requirement.name, False, str(error), advice)
    return Check(requirement.name, True, str(inventory))


def take_inventory(requirement: Requirement, *, with_rows: bool = False) -> Inventory:
    """The files of a requirement on this machine; of small tables the rows, too, if asked.

    Raises:
        SweepError: it is missing, of another layout, or damaged; the message says what to do.
    """
    if requirement.data is not None:
        group = facts_of(requirement.task).data_group
        data = with_default_folder(group, requirement.data)
        if is_address(data.folder):
            return _list_address(str(data.folder), folders_of(group, data))
        data = replace(data, folder=data.folder and without_scheme(data.folder))
        data_set = _list_data_set(data, group)
        if group == "videos":
            from trainables.datasets.video.dev_clips import few_dev
            from trainables.datasets.video.load import list_clips, remarks

            # Notes on its frame size and dev clips, too.
            return replace(data_set, notes=(*remarks(data), *few_dev(list_clips(data), data)))
        is_small = data.name.startswith("hf:") and data_set.size <= _LARGEST_READ
        return _with_rows(data, group, data_set) if with_rows and is_small else data_set
    assert requirement.model is not None
    if is_address(requirement.model.checkpoint):
        return _list_address(str(requirement.model.checkpoint), ())
    return _list_checkpoint(requirement.model)


def _list_address(address: str, names: Sequence[str]) -> Inventory:
    """The files at an address, none fetched. StoreError where this machine has no room for them."""
    files, missing = listed(address, names)
    free = shutil.disk_usage(nearest_folder(cache_root())).free
    if missing > free:
        raise StoreError(
            f"{address} needs {missing / 1e9:.1f} GB more in {cache_root()}, where "
            f"{free / 1e9:.1f} GB are free. Free some space there, or set SWEEP_CACHE to a folder "
            "on another disk."
        )
    size = sum(file.size for file in files)
    state = "fetched already" if not missing else "fetched when an arm needs it"
    number = f"{counted(len(files), 'file')}, {size / 1e6:,.1f} MB"
    text = f"{number} at {address}, {state}, into {cache_root()}"
    return Inventory(text, _digest((file.path, file.size) for file in files))


def _digest(files: Iterable[tuple[str, int]]) -> str:
    """The digest of paths and sizes, which copies share."""
    return hashlib.sha256(json.dumps(sorted(files)).encode()).hexdigest()[:16]


# --- data sets ------------------------------------------------------------------------------------


def _list_data_set(data: DataConfig, group: DataGroup) -> Inventory:
    """The data set in the folder of ``data``.

    Raises:
        BadData: it is missing, of another layout, or some files are stand-ins for their content.
    """
    if group == "videos":
        from trainables.datasets.video.load import list_clips

        video = list_clips(data)
        root, listing, notes = video.root, video.listing, video.notes
        text = f"{len(video.train)} training and {len(video.test)} test clips"
        reads_folder = data_set_spec("videos", data.name).reads_folder
    else:
        from trainables.datasets.text.load import list_text

        raw = list_text(data, group)
        root, listing, notes = raw.root, raw.listing, raw.notes
        is_labelled = group == "texts"
        kind = f"texts labelled {', '.join(raw.labels)}" if is_labelled else "instructions"
        text = f"{counted(len(listing), 'file')} of {kind}"
        reads_folder = True
    if reads_folder:
        wrong = first_stand_in((Path(root, path), size) for path, size, _ in listing)
        if wrong is not None:
            raise BadData(f"{wrong[0]} {wrong[1]}")
    digest = _digest((path, size) for path, size, _ in listing)
    text += f" in {root}" if reads_folder else " built in"
    return Inventory(text, digest, root, notes, sum(size for _, size, _ in listing))


def _with_rows(data: DataConfig, group: DataGroup, listed_only: Inventory) -> Inventory:
    """Tables as a sweep reads them: how many rows of each split, and what was left out."""
    from trainables.datasets.text.load import load_text, skipped_rows

    texts = load_text(data, group=group)
    counts = ", ".join(f"{texts.lengths[split]:,} {split}" for split in ("train", "dev", "test"))
    notes = (*listed_only.notes, *skipped_rows(texts, group))
    return replace(listed_only, text=f"{listed_only.text} ({counts})", notes=notes)


_BUILT_IN: tuple[tuple[DataGroup, str], ...] = (
    *(("videos", name) for name in VIDEOS),
    *(("texts", name) for name in TEXTS),
    *(("instructions", name) for name in INSTRUCTIONS),
)
_OWN: tuple[tuple[str, DataGroup], ...] = (
    *(("clips", "videos"), ("hf:NAME", "texts"), ("hf:NAME", "instructions")),
)
_LARGEST_READ = 1e7  # bytes, which are read in about ten seconds
_LARGEST_TABLES = 1e9  # bytes: the library copies the tables that it opens into its cache
_Matches = dict[str, Inventory]  # by data set


def check_folder(folder: str) -> Check:
    """Check that a folder or address holds data; of a folder, name the data sets that it can be."""
    if is_address(folder):
        try:
            return Check("data", True, _list_address(folder, ()).text)
        except SweepError as error:
            return Check("data", False, str(error), DATA_ADVICE)
    folder = without_scheme(folder)
    matches, problems = _match_published(folder)
    if not matches and not problems:
        matches, problems = _match_own(folder)
    names: dict[str, list[str]] = {}
    for name, match in matches.items():
        names.setdefault(str(match), []).append(name)
        # A folder that some data set matches is no damaged copy of another.
        problems = [problem for problem in problems if match.root not in problem]
    findings = [f"{' or '.join(same)}: {text}" for text, same in names.items()]
    problems = problems if matches else problems[:1]
    return Check("data", not problems, "; ".join(findings + problems), DATA_ADVICE)


def _match_published(folder: str) -> tuple[_Matches, list[str]]:
    """The published data sets that the folder could be, and the problems of damaged ones."""
    from trainables.datasets.given_folder import OtherLayout

    matches: _Matches = {}
    problems = []
    for group, name in _BUILT_IN:
        data = DataConfig(name=name, folder=folder)
        if not folders_of(group, data):
            continue
        try:
            matches[name] = _list_data_set(data, group)
        except OtherLayout:
            continue
        except BadData as error:  # a damaged copy; or another data set with folders of these names
            problems.append(str(error))
    return matches, problems


def _match_own(folder: str) -> tuple[_Matches, list[str]]:
    """The clips or tables of the user's own in a folder; else why it is neither."""
    from trainables.datasets.text.hub import TABLES
    from trainables.datasets.video.own_clips import IMAGES
    from trainables.datasets.video.video_files import VIDEO_SUFFIXES

    root = Path(folder).expanduser()
    files = [path for pattern in ("*", "*/*", "*/*/*") for path in root.glob(pattern)]
    has_clips = any(path.suffix.lower() in (*VIDEO_SUFFIXES, *IMAGES) for path in files)
    tables = [
        path for path in files if path.suffix in TABLES and path.name[0] != "." and not has_clips
    ]
    size = sum(path.stat().st_size for path in tables)
    refusals = {}
    for name, group in _OWN if tables else _OWN[:1]:
        if group != "videos" and size > _LARGEST_TABLES:
            text = f"{size / 1e9:.1f} GB of tables, not opened, in {folder}"
            return {name: Inventory(text, "", folder)}, []
        try:
            return {name: _list_data_set(DataConfig(name=name, folder=folder), group)}, []
        except SweepError as error:
            refusals[group] = f"As {group} (data.name={name}): {error}"
    known = ", ".join(name for group, name in _BUILT_IN if folders_of(group, DataConfig(name=name)))
    nearest: DataGroup = "texts" if tables else "videos"
    if tables and "instruction" in refusals["texts"]:  # its columns are named there
        nearest = "instructions"
    return {}, [f"{root} is none of the known data sets ({known}). {refusals[nearest]}"]


# --- checkpoints ----------------------------------------------------------------------------------


def _list_checkpoint(model: ModelConfig) -> Inventory:
    from trainables.build import depth_of, model_fingerprint, require_same_checkpoint
    from trainables.fetching.checkpoint_files import files_of

    place = str(model.checkpoint)
    depth = depth_of(model)  # first: its error says what is missing, and how to get it
    facts = facts_of(model_spec(model.name).task)
    if facts.needs_tokenizer:
        from trainables.datasets.text.tokenizer import load_tokenizer

        load_tokenizer(place, answers=facts.answers)
    files = files_of(place)
    for file in files:
        _require_complete(file)
    fingerprint = model_fingerprint(model)
    require_same_checkpoint(model)
    size_mb = sum(file.stat().st_size for file in files) / 1e6
    size = f"{counted(depth, 'layer')}, {size_mb:.1f} MB"
    return Inventory(f"{size} in {files[0].parent}, fingerprint {fingerprint}", fingerprint)


def _require_complete(file: Path) -> None:
    """Raise BadData for weights that an interrupted copy left short."""
    if file.suffix != ".safetensors":
        return
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="numpy"):
            pass
    except (SafetensorError, OSError) as error:
        if (problem := stand_in(file)) is not None:
            raise BadData(f"{file} {problem}") from error
        raise BadData(f"{file} is damaged: {error}. Download or copy it again.") from error
