"""Calls of our two node scripts in a cluster.yaml, and its other shell commands.

The scripts contain what is right (tests/sweep/cluster/test_node_scripts.py runs them), so no shell
is read here: a list of commands calls them, or is its author's own and unchecked.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Mapping
from pathlib import Path

from trainables.plain import Json

FOLDER = "~/descent-sweep-cluster"  # on the nodes; in the checkout it is cluster/
# Beginnings of the scripts' SHA-256, which a test compares with the files.
DIGESTS = {"node-setup.sh": "98fbf506b9f27f3f", "ray-start.sh": "e77abb248468e054"}
# List of commands: the script, its word, and what nothing but this call makes sure of.
CALLS = {
    "setup_commands": (
        *("node-setup.sh", "settings"),
        "that every node wants the token and writes to one storage",
    ),
    "head_setup_commands": ("node-setup.sh", "head", "that the head installs this checkout"),
    "worker_setup_commands": ("node-setup.sh", "worker", "that workers install this checkout"),
    "head_start_ray_commands": (
        *("ray-start.sh", "head"),
        "that the head trains nothing, starts workers, misses a vanished one within 10 s, and "
        "keeps dashboard and MLflow on loopback",
    ),
    "worker_start_ray_commands": ("ray-start.sh", "worker", "that workers can start again"),
}
# Lists that Ray fills in where they are left out, and what its own commands do.
RAYS_OWN = {
    "setup_commands": "install a nightly Ray, or nothing",
    "head_start_ray_commands": "open the dashboard to everybody and train on the head",
}


def settings(plain: Mapping[str, Json]) -> dict[str, str]:
    """The variables that every node exports by a call in setup_commands; empty without a call.

    >>> settings({"setup_commands": [f"bash {FOLDER}/node-setup.sh settings A=1 'B=x y'", "C=2 d"]})
    {'A': '1', 'B': 'x y'}
    """
    calls = [_words(command) for command in _calls(plain, "setup_commands")]
    pairs = (setting.partition("=") for call in calls for setting in call[3:])
    return {name: value for name, _, value in pairs}


def is_called(plain: Mapping[str, Json]) -> bool:
    """Whether any list of commands calls a script of ours."""
    return any(_calls(plain, name) for name in CALLS)


def find_unchecked(plain: Mapping[str, Json], mounts: Mapping[str, str]) -> list[str]:
    """Places of a file whose commands are not ours, or not as they were tested.

    Args:
        plain: the file as it is written.
        mounts: its file_mounts, path there -> path here.
    """
    unchecked = []
    for name, (*_, promise) in CALLS.items():
        calls = len(_calls(plain, name))
        if not calls:
            unchecked.append(f"{name} call no script of ours ({promise})")
        elif calls < len(plain[name]):
            unchecked.append(f"{name} run commands of your own")
    for kind, node_type in (plain.get("available_node_types") or {}).items():
        if "worker_setup_commands" in node_type:  # Ray runs these in place of all the others
            unchecked.append(f"{kind}.worker_setup_commands replace ours")
    for script, digest in DIGESTS.items():
        file = Path(mounts.get(FOLDER, "")).expanduser() / script
        if file.is_file() and hashlib.sha256(file.read_bytes()).hexdigest()[:16] != digest:
            unchecked.append(f"{file} is not the script of this version")
    return unchecked


def _calls(plain: Mapping[str, Json], name: str) -> list[str]:
    script, word, _ = CALLS[name]
    begins = ["bash", f"{FOLDER}/{script}", word]
    return [command for command in plain.get(name) or [] if _words(command)[:3] == begins]


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:  # a quotation without its end
        return []
