"""The verb `sweep init`: commented files to begin from."""

from __future__ import annotations

import keyword
import os
import re
import shlex
from collections.abc import Mapping
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

import click

from sweep.study import advice
from sweep.study.advice import counted
from sweep.study.requirements import require_torch
from trainables.config.arm import DataConfig
from trainables.errors import Misuse
from trainables.registry.built_in import MODELS

if TYPE_CHECKING:
    from trainables.datasets.video.clips import RawClip

CHECKPOINT = "sentence-transformers/all-MiniLM-L6-v2"
_PATCH = 16  # pixels of a side, in the space of videos
_MAX_LENGTH = 64  # tokens, in the space of texts
_LARGEST = 160  # pixels of a frame's side that a CPU trains on in minutes


@click.command()
@click.argument("kind", type=click.Choice(["videos", "texts", "model"]))
@click.argument("path", metavar="PATH")
@click.option("--data", metavar="DIR", help="videos, texts: the folder of your clips or tables.")
@click.option(
    "--checkpoint", metavar="FOLDER|NAME", default=CHECKPOINT, show_default=True,
    help="texts: the pretrained encoder, in the Hugging Face Hub's cache or a folder.",
)  # fmt: skip
def init(kind: str, path: str, data: str | None, checkpoint: str) -> None:
    """Write a search space, or a plug-in package, to begin from.

    KIND is videos (clips of your own, denoised), texts (labelled texts of your own) or model (a
    network of your own). PATH is a new .py file, or for a model a new folder. Its comments name
    what to change.
    """
    target = Path(path)
    if os.path.lexists(target):
        raise Misuse(f"{path} exists, and nothing is overwritten. Give a new name.")
    if kind == "model":
        _write_model(target, data)
        return
    name = target.stem.lower()
    if target.suffix != ".py" or not re.fullmatch(r"[a-z]\w*", name, flags=re.A):
        raise Misuse(
            f"PATH must be a .py file whose name is letters, digits and '_', got {path}. "
            f"For example: `{advice.command('init', kind, f'my_{kind}.py', '--data', 'DIR')}`."
        )
    if data is None:
        what = "clips" if kind == "videos" else "train.csv and test.csv"
        raise Misuse(f"--data is missing: give the folder of {what} by --data.")
    require_torch()
    contents, values = _clips(data) if kind == "videos" else _texts(data, checkpoint)
    _write(target, f"{kind}.py", {"name": name, **values})
    click.echo(f"{path}: {contents}")
    _say_what_next(path)


def _clips(folder: str) -> tuple[str, dict[str, str]]:
    """Contents of a folder of clips in words, and values for the template of its space."""
    from trainables.datasets.video.load import list_clips

    place = _absolute(folder)
    raw = list_clips(DataConfig(name="clips", folder=place))
    sizes = [_size(clip) for clip in (*raw.train, *raw.test)]
    least, most = min(sizes, key=min), max(sizes, key=min)
    side = min(*least, _LARGEST) // _PATCH * _PATCH
    if side == 0:
        raise Misuse(
            f"frames of {least[0]} x {least[1]} pixels are smaller than a patch of {_PATCH}: begin "
            "from search_spaces/ped2_ut.py, with a smaller data.patch_size."
        )
    to = "" if least == most else f" to {most[0]} x {most[1]}"
    squeezed = " whatever their aspect" * (least[0] != least[1])
    words = (
        f"{counted(len(raw.train), 'training clip')} and {counted(len(raw.test), 'test clip')}, "
        f"frames of {least[0]} x {least[1]}{to} pixels, scaled to {side} x {side}{squeezed}."
    )
    return words, {"data": repr(place), "frame_size": str(side)}


def _size(clip: RawClip) -> tuple[int, int]:
    """Width and height of a clip's frames in pixels; Misuse where they cannot be read."""
    assert clip.size is not None, "clips of one's own are files, whose size is known"
    try:
        return clip.size()
    except Exception as error:  # of whichever decoder
        raise Misuse(f"the clip {clip.name} cannot be read: {error}") from error


def _texts(folder: str, checkpoint: str) -> tuple[str, dict[str, str]]:
    """Contents of a folder of tables in words, and values for the template of its space."""
    from trainables.datasets.places import listed_here
    from trainables.datasets.text.examples import RawText

    place = _absolute(folder)
    raw = listed_here("texts", DataConfig(name="hf:mine", folder=place), RawText)
    train, test = (raw.read(split).examples for split in ("train", "test"))
    # A word is a token or more, and a text begins and ends with one.
    longer = sum(len(example.text.split()) > _MAX_LENGTH - 2 for example in train)
    most = counted(longer, "training text")
    cut = f" At least {most} would be cut at max_length, {_MAX_LENGTH} tokens."
    words = (
        f"{counted(len(train), 'training text')} and {counted(len(test), 'test text')}, labels "
        f"{', '.join(raw.labels)}.{cut * (longer > 0)}"
    )
    model = Path(checkpoint).expanduser()
    if model.is_dir() and not (model / "config.json").is_file():
        raise Misuse(f"--checkpoint {checkpoint} is no checkpoint: it has no config.json.")
    known = str(model.resolve()) if model.is_dir() else checkpoint
    values = {"data": repr(place), "checkpoint": repr(known), "max_length": str(_MAX_LENGTH)}
    return words, values


def _write_model(folder: Path, data: str | None) -> None:
    """A package with one network, its search space and its test."""
    if data is not None:
        raise Misuse("a model's space trains on the built-in clips: leave out --data.")
    name = folder.name
    is_name = re.fullmatch(r"[a-z]([a-z0-9_]*[a-z0-9])?", name) and not keyword.iskeyword(name)
    if not is_name or name in MODELS or find_spec(name) is not None:
        raise Misuse(
            "the folder's name is that of the network: lower case letters, digits and between them "
            f"'_', none of {', '.join(MODELS)}, and of no module that is installed; got {name!r}."
        )
    values = {"name": name, "package": name.replace("_", "-")}
    for file, template in (
        ("pyproject.toml", "pyproject.toml"),
        (f"{name}.py", "network.py"),
        (f"{name}_space.py", "network_space.py"),
        (f"test_{name}.py", "test_network.py"),
    ):
        _write(folder / file, template, values)
    space = str(folder / f"{name}_space.py")
    click.echo(f"{folder}: a package with the network {name}, a search space, and a test.")
    _say_what_next(
        space,
        (f"python -m pip install -e {shlex.quote(str(folder))} pytest", "make its name known"),
        (f"python -m pytest {shlex.quote(str(folder))}", "does it keep the contract of models?"),
    )


def _absolute(folder: str) -> str:
    """The folder's path from everywhere; it stands in the space."""
    path = str(Path(folder).expanduser().resolve())
    if not path.isprintable():
        raise Misuse(f"the path of --data must be of printable characters, got {path!r}.")
    return path


def _write(path: Path, template: str, values: Mapping[str, str]) -> None:
    text = files("sweep.cli.starts").joinpath(f"{template}.template").read_text("utf-8")
    content = Template(text).substitute(values).encode()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            file.write(content)
    except OSError as error:
        raise Misuse(f"{path} cannot be written: {error.strerror}.") from error


def _say_what_next(space: str, *first: tuple[str, str]) -> None:
    """Print commands to paste, each with what it is for: ``first``, then those about the space."""
    lines = [
        *first,
        (advice.command("doctor", space), "can all that it needs be read?"),
        (advice.command("spaces", space), "what it trains, and what that costs"),
        (advice.command("run", space), "train it"),
    ]
    width = max(len(line) for line, _ in lines)
    for line, says in lines:
        click.echo(f"  {line:<{width}}    # {says}")
