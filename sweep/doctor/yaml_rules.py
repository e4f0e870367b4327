"""Rules for a cluster.yaml of any provider that Ray's validation lacks.

A rule yields its problems: each says what is wrong, what was got and what to do. Rules read the
file with Ray's defaults filled in, since those run too. Shell commands are not read: see
node_scripts.py.
"""

from __future__ import annotations

import os
import re
import stat
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from sweep.cluster.tunnel import TOKEN_FILE
from sweep.doctor import node_scripts
from sweep.study.advice import STORAGE
from trainables.errors import did_you_mean
from trainables.plain import Json

Rule = Callable[["ClusterFile"], Iterator[str]]

PLACEHOLDER = "FILL-IN"
OBJECT_STORES = ("s3://", "gs://", "abfs://")
RAYS_OWN = {
    "setup_commands": "install a nightly Ray, or nothing",
    "head_start_ray_commands": "open the dashboard to everybody and train on the head",
}

_EVERY_PROVIDER = {
    "type", "use_internal_ips", "use_external_head_ip", "disable_node_updaters",
    "disable_launch_config_check", "foreground_node_launch", "worker_liveness_check",
}  # fmt: skip
PROVIDER_KEYS = {
    "aws": {
        "region", "availability_zone", "cache_stopped_nodes", "security_group", "key_pair",
        "aws_credentials", "cloudwatch",
    },
    "local": {"head_ip", "worker_ips", "external_head_ip", "coordinator_address"},
}  # fmt: skip


@dataclass(frozen=True)
class ClusterFile:
    """A cluster.yaml that Ray accepts."""

    plain: Mapping[str, Json]  # as it is written
    prepared: Mapping[str, Json]  # with Ray's defaults

    @property
    def provider_type(self) -> str:
        """Such as aws or local."""
        return str(self.prepared["provider"].get("type"))

    @property
    def head_type(self) -> str:
        """The name of the head's node type."""
        return str(self.prepared["head_node_type"])

    @property
    def node_types(self) -> dict[str, dict[str, Json]]:
        """Node types by name."""
        return dict(self.prepared["available_node_types"])

    @property
    def node_configs(self) -> dict[str, dict[str, Json]]:
        """What the cloud is asked for, by the name of the node type."""
        return {name: node_type["node_config"] for name, node_type in self.node_types.items()}

    def worker_types(self) -> list[str]:
        """Names of the types that workers may have."""
        return [name for name in self.node_types if name != self.head_type]

    @property
    def mounts(self) -> dict[str, str]:
        """Files that are copied to every node: path there -> path here."""
        return dict(self.prepared.get("file_mounts") or {})

    @cached_property
    def exported(self) -> dict[str, str]:
        """The settings that our script exports on every node; empty where it is not called."""
        return node_scripts.settings(self.plain)

    @property
    def storage(self) -> str:
        """The storage root of every node; empty where our script does not export one."""
        return self.exported.get(STORAGE, "")

    @property
    def stores_objects(self) -> bool:
        """Whether results go into an object store."""
        return self.storage.startswith(OBJECT_STORES)


# --- rules ----------------------------------------------------------------------------------------


def _filled_in(cluster: ClusterFile) -> Iterator[str]:
    left = re.findall(rf"[^\s'\"]*{PLACEHOLDER}[^\s'\"]*", str(cluster.plain))
    if left:
        shown = ", ".join(dict.fromkeys(left))
        yield f"still to be filled in: {shown}. docs/cluster.md says what belongs there."


def _provider(cluster: ClusterFile) -> Iterator[str]:
    plain = cluster.plain["provider"]
    own = PROVIDER_KEYS.get(cluster.provider_type)
    if own is None:
        yield (
            f"a provider of type {cluster.provider_type!r} is one we know nothing of; known: "
            f"{', '.join(sorted(PROVIDER_KEYS))}. Its keys and its firewall are unchecked."
        )
        return
    known = own | _EVERY_PROVIDER
    for key in plain:
        if key not in known:
            hint = did_you_mean(key, known)
            yield f"provider.{key} is read by nobody.{hint} Correct or delete it."
    head, workers = plain.get("head_ip"), plain.get("worker_ips") or ()
    if head is not None and PLACEHOLDER not in head and not re.fullmatch(r"[\d.]+", head):
        yield (
            f"head_ip is {head}, a name: the head itself looks it up for its workers, and Debian "
            "gives a machine's own name as 127.0.1.1. Give its address."
        )
    for machine, times in Counter([head, *workers]).items():
        if times > 1:
            yield (
                f"{machine} is named {times} times: a machine is the head or one worker, since "
                "starting a second node on it stops the first. Name each once."
            )


def _node_types(cluster: ClusterFile) -> Iterator[str]:
    for name, node_type in cluster.node_types.items():
        least, most = node_type.get("min_workers", 0), node_type.get("max_workers", 0)
        if least > most:
            yield (
                f"{name} has min_workers {least} above max_workers {most}: raise the one or lower "
                "the other."
            )
    if cluster.provider_type == "local":
        return
    if cluster.node_types[cluster.head_type].get("max_workers", 0):
        yield f"{cluster.head_type} is the head's type: set its max_workers to 0."
    if not cluster.worker_types():
        yield "there is no type of workers, and the head trains nothing: add one."
    elif not cluster.prepared["max_workers"]:
        yield "max_workers is 0: no worker ever starts. Set the most you will pay for."


def _files(cluster: ClusterFile) -> Iterator[str]:
    key = cluster.prepared["auth"].get("ssh_private_key")
    if key is not None and not Path(key).expanduser().is_file():
        yield f"auth.ssh_private_key: there is no file {key} here."
    missing = [s for s in cluster.mounts.values() if not Path(s).expanduser().exists()]
    relative = [source for source in missing if source[0] not in "~/"]
    for source in missing:
        if source not in relative:
            yield f"file_mounts: there is no {source} here."
    if relative:
        yield (
            f"file_mounts: there is no {', '.join(relative)} below {os.getcwd()}. Call from the "
            "folder that the paths are relative to, usually the checkout."
        )


def _token(cluster: ClusterFile) -> Iterator[str]:
    """The cluster's token, copied to every node, and closed to other users here."""
    source = cluster.mounts.get(cluster.exported.get("RAY_AUTH_TOKEN_PATH", TOKEN_FILE))
    if source is None:
        yield f'no token on the nodes: add "{TOKEN_FILE}": "{TOKEN_FILE}" to file_mounts.'
        return
    path = Path(source).expanduser()
    try:
        mode, length = path.stat().st_mode, len(path.read_text(encoding="utf-8").strip())
    except (OSError, UnicodeDecodeError):
        yield f"{source} cannot be read here: `ray get-auth-token --generate` writes one."
        return
    if length < 32:
        yield f"{source} holds {length} characters: delete it, and `ray get-auth-token --generate`."
    elif mode & (stat.S_IRWXG | stat.S_IRWXO):
        yield f"{source} can be read by others: chmod 600 {source}."


def _storage(cluster: ClusterFile) -> Iterator[str]:
    """Every node writes to one place that outlives it."""
    if not cluster.exported:
        return
    own = r"(?:var/)?tmp\b|root\b"
    if cluster.provider_type != "local":  # where all machines may mount their homes
        own += r"|home\b"
    if not cluster.stores_objects and not re.match(rf"/(?!{own})", cluster.storage):
        yield (
            f"{STORAGE} {cluster.storage or '(not set)'} goes with its node: give "
            f"{' or '.join(OBJECT_STORES)}..., or the absolute path of a file system that every "
            "node mounts."
        )


def _rays_own_commands(cluster: ClusterFile) -> Iterator[str]:
    """Lists of commands that are left out, and filled in by Ray."""
    for name, effect in RAYS_OWN.items():
        if name not in cluster.plain:
            yield f"{name} are missing, and Ray's own {effect}. Give them, as in cluster.yaml."


def _files_on_nodes(cluster: ClusterFile) -> Iterator[str]:
    return node_scripts.find_missing_mounts(cluster.plain, cluster.mounts)


RULES: dict[str, Rule] = {
    "filled in": _filled_in,
    "provider": _provider,
    "node types": _node_types,
    "files here": _files,
    "token": _token,
    "storage": _storage,
    "Ray's own commands": _rays_own_commands,
    "files on nodes": _files_on_nodes,
}
