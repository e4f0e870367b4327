"""Calls of this project's two node scripts in a cluster.yaml, and other commands.

The scripts contain what is right (tests/sweep/doctor/test_node_scripts.py runs them), so no shell
is read here: a command is one plain call of them, or its author's own and unchecked.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

from trainables.plain import Json

FOLDER = "~/descent-sweep-cluster"  # on the nodes; in the checkout it is cluster/
# Beginnings of the scripts' SHA-256, which a test compares with the files.
DIGESTS = {"node-setup.sh": "2c504d7b88dda9df", "ray-start.sh": "e77abb248468e054"}
CALLS = {
    "setup_commands": "node-setup.sh settings",
    "head_setup_commands": "node-setup.sh head",
    "worker_setup_commands": "node-setup.sh worker",
    "head_start_ray_commands": "ray-start.sh head",
    "worker_start_ray_commands": "ray-start.sh worker",
}
SETTINGS_AND_STARTS = ("setup_commands", "head_start_ray_commands", "worker_start_ray_commands")
PACKAGE = "~/descent-sweep"  # on the nodes, where node-setup.sh installs it from
PACKAGE_FILES = (
    "pyproject.toml", "constraints.txt", "README.md", "LICENSE",
    "sweep", "search_spaces", "trainables",
)  # fmt: skip
PROMISES = (
    "that nodes install this checkout and want the token, that the head trains nothing, and that "
    "dashboard and MLflow stay on loopback"
)


def exported_settings(plain: Mapping[str, Json]) -> dict[str, str]:
    """The variables that every node exports by a call in setup_commands; empty without a call.

    >>> call = f"bash {FOLDER}/node-setup.sh settings A=1 'B=x'"
    >>> exported_settings({"setup_commands": [call, "C=2 d"]})
    {'A': '1', 'B': 'x'}
    """
    words = (word for call in _calls(plain, "setup_commands") for word in call)
    pairs = (word.partition("=") for word in words if "=" in word)
    return {name: value for name, _, value in pairs}


def find_unchecked(plain: Mapping[str, Json], mounts: Mapping[str, str]) -> Iterator[str]:
    """Places of a file whose commands are not our calls, and scripts that were changed.

    Args:
        plain: the file as it is written.
        mounts: its file_mounts, path on the node -> path on this machine.
    """
    if plain.get("initialization_commands"):
        yield "initialization_commands"
    for name in CALLS:
        if len(_calls(plain, name)) != len(plain.get(name) or [""]):
            yield name
    for kind, node_type in (plain.get("available_node_types") or {}).items():
        for name in ("initialization_commands", "worker_setup_commands"):
            if name in node_type:  # Ray runs these in place of all the others
                yield f"{kind}.{name}"
    for script, digest in DIGESTS.items():
        own = mounts.get(f"{FOLDER}/{script}")
        file = Path(own or f"{mounts.get(FOLDER, '')}/{script}").expanduser()
        if file.is_file() and hashlib.sha256(file.read_bytes()).hexdigest()[:16] != digest:
            yield f"{file} (changed)"


def find_uncalled(plain: Mapping[str, Json]) -> list[str]:
    """Lists without a call of ours, on which token, ports or storage depend."""
    return [name for name in SETTINGS_AND_STARTS if not _calls(plain, name)]


def find_missing_mounts(plain: Mapping[str, Json], mounts: Mapping[str, str]) -> Iterator[str]:
    """Problems of files that the calls of a file need on the nodes and no file_mount brings."""
    callers = [name for name in CALLS if FOLDER in " ".join(plain.get(name) or [])]
    if not callers:
        return
    scripts = [script for script in DIGESTS if not _is_mounted(mounts, FOLDER, script)]
    if scripts:
        yield (
            f"file_mounts bring no {', '.join(scripts)} to {FOLDER}, where {', '.join(callers)} "
            f'call scripts (got {mounts.get(FOLDER, "no such mount")}): add "{FOLDER}": cluster.'
        )
    files = [name for name in PACKAGE_FILES if not _is_mounted(mounts, PACKAGE, name)]
    if files:
        present = [name for name in PACKAGE_FILES if name not in files]
        yield (
            f"file_mounts bring no {', '.join(files)} to {PACKAGE}, from where node-setup.sh "
            f"installs the package (got {', '.join(present) or 'nothing'}): add "
            f'"{PACKAGE}/{files[0]}": {files[0]} and so on, as in cluster.yaml.'
        )


def _is_mounted(mounts: Mapping[str, str], folder: str, name: str) -> bool:
    """True when ``folder/name`` is copied; a source that this machine lacks is another check's."""
    if f"{folder}/{name}" in mounts:
        return True
    source = Path(mounts.get(folder, "")).expanduser()
    return folder in mounts and (not source.exists() or (source / name).exists())


def _calls(plain: Mapping[str, Json], name: str) -> list[list[str]]:
    """The words of each command that is one call of ours."""
    call = ["bash", *f"{FOLDER}/{CALLS[name]}".split()]
    commands = [_split_plain(command) for command in plain.get(name) or []]
    return [words for words in commands if words[: len(call)] == call]


def _split_plain(command: str) -> list[str]:
    """The words of one command; none where the shell could run more than that, or redirect it."""
    lexer = shlex.shlex(command.strip(), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = ""  # shlex would take x#y for a comment, too
    try:
        words = list(lexer)
    except ValueError:  # an unclosed quote
        return []
    # Besides variables no $: $'...' has other rules for quotes than shlex, $(...) runs commands.
    if re.search(r"[`\n]|\$(?!\w|\{\w+\})", command.strip()):
        return []
    return [] if any(re.fullmatch(r"[();<>|&]+|#.*", word) for word in words) else words
