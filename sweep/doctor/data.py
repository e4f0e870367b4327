"""Checks of data sets and checkpoints for `sweep doctor`: present, and complete.

Files are listed, not decoded; weights are hashed, not loaded. What is said of a data set or of a
checkpoint carries a digest that is the same wherever a copy of it lies.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from search_spaces.space import SearchSpace
from sweep.doctor.check import Check, nearest
from sweep.study.advice import counted
from trainables.config.arm import DataConfig, ModelConfig
from trainables.config.fields import Section
from trainables.datasets.places import folders_of, with_default_folder
from trainables.errors import BadData, StoreError, SweepError
from trainables.fetching.cache import cache_root
from trainables.fetching.fetched_folders import listed
from trainables.fetching.remote_folders import is_address, without_scheme
from trainables.fetching.stand_ins import first_stand_in, stand_in
from trainables.registry.built_in import INSTRUCTIONS, TEXTS, VIDEOS
from trainables.registry.lookup import data_set_spec, facts_of, model_spec
from trainables.registry.task_facts import DataGroup

Listing = Iterable[tuple[str, int, int]]  # path, size and time of every file
DATA_ADVICE = "docs/data.md says how each data set must lie on disk."
CHECKPOINT_ADVICE = "docs/text.md and docs/spaces.md say where checkpoints come from."


@dataclass(frozen=True)
class Requirement(Section):
    """A data set, or a checkpoint, that some arm reads."""

    task: str
    data: DataConfig | None = None
    model: ModelConfig | None = None

    @property
    def name(self) -> str:
        """What its line is called."""
        if self.data is not None:
            return f"data {self.data.name}"
        assert self.model is not None
        return f"checkpoint {self.model.checkpoint}"


@dataclass(frozen=True)
class Scope:
    """What to look at beside the machines themselves, each at its place on them."""

    mlflow: str | None  # address of the MLflow server; None: where a sweep would be tracked
    folder: str | None  # to look for data sets in
    needs: tuple[Requirement, ...]  # the data sets and checkpoints of a search space
    machines: tuple[str, ...] = ()  # that should be workers, by address or name

    def words(self) -> list[str]:
        """The verb and its options by which a cluster's head looks at all of it."""
        words = ["doctor", "--where", "cluster", "--json"]
        for option, value in (("--mlflow", self.mlflow), ("--data", self.folder)):
            words += [] if value is None else [option, value]
        if self.needs:
            words += ["--needs", json.dumps([need.to_json() for need in self.needs])]
        return words + [word for machine in self.machines for word in ("--machine", machine)]


@dataclass(frozen=True)
class Found:
    """What lies there for a need."""

    text: str  # in words
    digest: str  # of its files' names and sizes, or of their content


def needs_of(space: SearchSpace) -> tuple[Requirement, ...]:
    """Every data set and checkpoint of a space, each once."""
    needs: dict[str, Requirement] = {}
    for setting in space.settings:
        run = space.run(setting, {}, seed=space.search_seeds[0])
        data = Requirement(run.task, data=run.data)
        needs.setdefault(f"{data.name} {run.data.folder}", data)
        if run.model.checkpoint is not None:
            model = Requirement(run.task, model=run.model)
            needs.setdefault(f"{model.name} {run.model.name}", model)
    return tuple(needs.values())


def look(need: Requirement) -> Found:
    """What lies on this machine for a need.

    Raises:
        SweepError: it is missing, of another layout, or damaged; the message says what to do.
    """
    if need.data is not None:
        group = facts_of(need.task).data_group
        data = with_default_folder(group, need.data)
        if is_address(data.folder):
            return _at_address(str(data.folder), folders_of(group, data))
        data = replace(data, folder=data.folder and without_scheme(data.folder))
        return _video_data(data) if group == "videos" else _text_data(data, group)
    assert need.model is not None
    if is_address(need.model.checkpoint):
        return _at_address(str(need.model.checkpoint), ())
    return _checkpoint(need.model)


def need_check(need: Requirement) -> Check:
    """The line of one need on this machine."""
    try:
        found = look(need)
    except SweepError as error:
        advice = DATA_ADVICE if need.data is not None else CHECKPOINT_ADVICE
        return Check(need.name, False, str(error), advice)
    return Check(need.name, True, found.text)


# --- addresses ------------------------------------------------------------------------------------


def _at_address(address: str, names: Sequence[str]) -> Found:
    """What lies at an address, and whether there is room for it here; nothing is fetched."""
    files, missing = listed(address, names)
    free = shutil.disk_usage(nearest(cache_root())).free
    if missing > free:
        raise StoreError(
            f"{address} needs {missing / 1e9:.1f} GB more in {cache_root()}, and {free / 1e9:.1f} "
            "are free. Free some space there, or set SWEEP_CACHE to a folder on another disk."
        )
    size = sum(file.size for file in files)
    here = "fetched already" if not missing else "fetched when an arm needs it"
    many = f"{counted(len(files), 'file')}, {size / 1e6:,.1f} MB"
    text = f"{many} at {address}, {here}, into {cache_root()}"
    return Found(text, _listing_digest((f.path, f.size, f.modified_ns) for f in files))


# --- data sets ------------------------------------------------------------------------------------


def _video_data(data: DataConfig) -> Found:
    from trainables.datasets.video.load import remarks

    counts, root, listing = _clips(data)
    place = f"in {root}" if data_set_spec("videos", data.name).reads_folder else "built in"
    said = "".join(f"; {remark}" for remark in remarks(data))
    return Found(f"{counts} {place}{said}", _listing_digest(listing))


def _text_data(data: DataConfig, group: DataGroup) -> Found:
    from trainables.datasets.text.load import list_text

    raw = list_text(data, group)
    _require_content(raw.root, raw.listing)
    size_mb = sum(size for _, size, _ in raw.listing) / 1e6
    text = f"{counted(len(raw.listing), 'file')}, {size_mb:.1f} MB, labels {', '.join(raw.labels)}"
    said = "".join(f"; {note}" for note in raw.notes)
    return Found(f"{text} in {raw.root}{said}", _listing_digest(raw.listing))


def _require_content(root: str, listing: Listing) -> None:
    """BadData where files hold pointers, web pages or zeros in place of their content."""
    wrong = first_stand_in((Path(root, path), size) for path, size, _ in listing)
    if wrong is not None:
        raise BadData(f"{wrong[0]} {wrong[1]}")


def _listing_digest(listing: Listing) -> str:
    """Of paths and sizes; copies differ in their times."""
    files = sorted((path, size) for path, size, _ in listing)
    return hashlib.sha256(json.dumps(files).encode()).hexdigest()[:16]


def folder_check(folder: str) -> Check:
    """Whether some data set can be listed in the folder; frames are not decoded.

    Of an address it is said what lies there.
    """
    if is_address(folder):
        try:
            return Check("data", True, _at_address(folder, ()).text)
        except SweepError as error:
            return Check("data", False, str(error), DATA_ADVICE)
    folder = without_scheme(folder)
    fits, problems = _published(folder)
    if not fits and not problems:
        fits, problems = _own(folder)
    elsewhere = [p for p in problems if not any(root in p for _, root, *_ in fits.values())]
    wrong = elsewhere if fits else problems[:1]
    names: dict[str, list[str]] = {}
    for name, (counts, root, *notes) in fits.items():
        names.setdefault("; ".join([f"{counts} in {root}", *notes]), []).append(name)
    found = [f"{' or '.join(those)}: {text}" for text, those in names.items()]
    return Check("data", not wrong, "; ".join(found + wrong), DATA_ADVICE)


_BUILT_IN: tuple[tuple[DataGroup, str], ...] = (
    *(("videos", name) for name in VIDEOS),
    *(("texts", name) for name in TEXTS),
    *(("instructions", name) for name in INSTRUCTIONS),
)
_PACKED = (".zip", ".gz", ".tgz", ".tar", ".bz2", ".xz", ".rar", ".7z")
_OPENED = 1e9  # bytes of tables at most
_Fits = dict[str, tuple[str, ...]]  # by data set: what it holds in words, its root, and notes


def _published(folder: str) -> tuple[_Fits, list[str]]:
    """The published data sets that the folder could be, and what is wrong with those it is."""
    from trainables.datasets.layouts import OtherLayout

    fits: _Fits = {}
    problems = []
    for group, name in _BUILT_IN:
        data = DataConfig(name=name, folder=folder)
        if not folders_of(group, data):
            continue
        try:
            fits[name] = _seen_clips(data) if group == "videos" else _texts(data, group)
        except OtherLayout:
            continue
        except BadData as error:  # it looks like this one, and something in it is wrong; or it is
            problems.append(str(error))  # another whose folders have the same names
    return fits, problems


def _own(folder: str) -> tuple[_Fits, list[str]]:
    """What a folder of the user's own could be: clips or tables; else the nearest refusal."""
    from trainables.datasets.text.hub import TABLES
    from trainables.datasets.video.own_clips import IMAGES
    from trainables.datasets.video.video_files import VIDEO_SUFFIXES

    try:
        return {"clips": _seen_clips(DataConfig(name="clips", folder=folder))}, []
    except BadData as error:
        refusal = str(error)
    root = Path(folder).expanduser()
    if not root.is_dir() or not any(root.iterdir()):
        return {}, [refusal]
    files = [path for pattern in ("*", "*/*", "*/*/*") for path in root.glob(pattern)]
    files = [path for path in files if path.is_file() and path.name[0] != "."]
    if any(path.suffix.lower() in (*VIDEO_SUFFIXES, *IMAGES) for path in files):
        return {}, [refusal]
    if any(path.suffix in TABLES for path in files):
        return _tables(folder, files)
    if packed := [path.name for path in files if path.suffix.lower() in _PACKED]:
        return {}, [
            f"{root} holds {', '.join(packed[:3])}, which is packed: unpack it, and give the "
            "folder that it makes."
        ]
    known = ", ".join(name for of, name in _BUILT_IN if folders_of(of, DataConfig(name=name)))
    there = ", ".join(sorted(path.name for path in root.iterdir())[:5])
    return {}, [
        f"{root} (it holds: {there}) is none of the known data sets ({known}), and holds neither "
        "clips of your own nor tables of texts."
    ]


def _tables(folder: str, files: Sequence[Path]) -> tuple[_Fits, list[str]]:
    """Which texts the tables of a folder could be, read as ``hf:``."""
    size = sum(path.stat().st_size for path in files)
    if size > _OPENED:  # the library copies what it opens into its cache
        return {"hf:NAME": (f"{size / 1e9:.1f} GB of tables, not opened", folder)}, []
    refusals = {}
    for group in ("texts", "instructions"):
        data = DataConfig(name="hf:NAME", folder=folder)
        try:
            return {"hf:NAME": _texts(data, group)}, []
        except SweepError as error:
            refusals[group] = str(error)
    is_of_instructions = "instruction" in refusals["texts"]  # its columns are named there
    nearest_refusal = refusals["instructions" if is_of_instructions else "texts"]
    return {}, [
        f"{folder} is none of the known data sets. As tables of texts, which data.name=hf:NAME "
        f"reads: {nearest_refusal}"
    ]


def _clips(data: DataConfig) -> tuple[str, str, Listing]:
    from trainables.datasets.video.load import list_clips

    video = list_clips(data)
    if data_set_spec("videos", data.name).reads_folder:
        _require_content(video.root, video.listing)
    counts = f"{len(video.train)} training and {len(video.test)} test clips"
    return counts, video.root, video.listing


def _seen_clips(data: DataConfig) -> tuple[str, ...]:
    from trainables.datasets.video.load import list_clips

    return (*_clips(data)[:2], *list_clips(data).notes)


def _texts(data: DataConfig, group: DataGroup) -> tuple[str, ...]:
    from trainables.datasets.text.load import list_text

    raw = list_text(data, group)
    _require_content(raw.root, raw.listing)
    of = "instructions" if group == "instructions" else f"texts labelled {', '.join(raw.labels)}"
    return f"{counted(len(raw.listing), 'file')} of {of}", raw.root, *raw.notes


# --- checkpoints ----------------------------------------------------------------------------------


def _checkpoint(model: ModelConfig) -> Found:
    from trainables.build import depth_of, model_fingerprint
    from trainables.checkpoints import files_of

    place = str(model.checkpoint)
    depth = depth_of(model)  # the first to say what is missing, and how to get it
    facts = facts_of(model_spec(model.name).task)
    if facts.needs_tokenizer:
        from trainables.datasets.text.tokenizer import load_tokenizer

        load_tokenizer(place, answers=facts.answers)
    files = files_of(place)
    for file in files:
        _require_whole(file)
    fingerprint = model_fingerprint(model)
    if model.checkpoint_fingerprint not in ("", fingerprint):
        raise BadData(
            f"the files of checkpoint {place!r} are others: expected fingerprint "
            f"{model.checkpoint_fingerprint}, got {fingerprint}. Copy the ones that are meant."
        )
    size_mb = sum(file.stat().st_size for file in files) / 1e6
    size = f"{counted(depth, 'layer')}, {size_mb:.1f} MB"
    text = f"{size} in {files[0].parent}, fingerprint {fingerprint}"
    return Found(text, fingerprint)


def _require_whole(file: Path) -> None:
    """BadData for weights that an interrupted copy left short."""
    if file.suffix != ".safetensors":
        return
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="numpy"):
            pass
    except (SafetensorError, OSError) as error:
        if (said := stand_in(file)) is not None:
            raise BadData(f"{file} {said}") from error
        raise BadData(f"{file} is damaged: {error}. Download or copy it again.") from error
