"""Calls of this project's two node scripts in a cluster.yaml, and other commands.

The scripts contain what is right (tests/sweep/doctor/test_node_scripts.py runs them), so no shell
is read here: a list of commands calls them, or is its author's own and unchecked.
"""

from __future__ import annotations

import hashlib
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
PROMISES = (
    "that nodes install this checkout and want the token, that the head trains nothing, and that "
    "dashboard and MLflow stay on loopback"
)


def settings(plain: Mapping[str, Json]) -> dict[str, str]:
    """The variables that every node exports by a call in setup_commands; empty without a call.

    >>> settings({"setup_commands": [f"bash {FOLDER}/node-setup.sh settings A=1 'B=x'", "C=2 d"]})
    {'A': '1', 'B': 'x'}
    """
    words = " ".join(_calls(plain, "setup_commands")).replace("'", "").replace('"', "").split()
    pairs = (word.partition("=") for word in words if "=" in word)
    return {name: value for name, _, value in pairs}


def find_unchecked(plain: Mapping[str, Json], mounts: Mapping[str, str]) -> Iterator[str]:
    """Places of a file whose commands are not our calls, and scripts that were changed.

    Args:
        plain: the file as it is written.
        mounts: its file_mounts, path there -> path here.
    """
    for name in CALLS:
        if len(_calls(plain, name)) != len(plain.get(name) or [""]):
            yield name
    for kind, node_type in (plain.get("available_node_types") or {}).items():
        if "worker_setup_commands" in node_type:  # Ray runs these in place of all the others
            yield f"{kind}.worker_setup_commands"
    for script, digest in DIGESTS.items():
        file = Path(mounts.get(FOLDER, "")).expanduser() / script
        if file.is_file() and hashlib.sha256(file.read_bytes()).hexdigest()[:16] != digest:
            yield f"{file} (changed)"


def _calls(plain: Mapping[str, Json], name: str) -> list[str]:
    call = f"bash {FOLDER}/{CALLS[name]} "
    return [command for command in plain.get(name) or [] if f"{command} ".startswith(call)]
