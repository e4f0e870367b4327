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
from trainables.plain import Json, Plain

Rule = Callable[["ClusterFile"], Iterator[str]]

PLACEHOLDER = "FILL-IN"
OBJECT_STORES = ("s3://", "gs://", "abfs://")
TOKEN_LENGTH = 32  # of the shortest token that Ray makes

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


@dataclass(frozen=True, kw_only=True)
class NodeType(Plain):
    """One of the available_node_types."""

    name: str
    min_workers: int = 0
    max_workers: int = 0
    resources: Mapping[str, Json]
    node_config: Mapping[str, Json]  # the request to the cloud


@dataclass(frozen=True)
class ClusterFile:
    """A cluster.yaml as its rules read it; a value of a wrong shape raises where it is read."""

    plain: Mapping[str, Json]  # as it is written
    prepared: Mapping[str, Json]  # with Ray's defaults

    @cached_property
    def provider(self) -> Mapping[str, Json]:
        """The provider, its ``type`` among its keys."""
        return dict(self.prepared["provider"])

    @property
    def provider_type(self) -> str:
        """The type of the provider, such as aws or local."""
        return str(self.provider.get("type"))

    @property
    def ssh_key(self) -> str | None:
        """The path of the private key; None where Ray is to make one."""
        key: str | None = self.prepared["auth"].get("ssh_private_key")
        return key

    @cached_property
    def node_types(self) -> tuple[NodeType, ...]:
        """All node types, in the order of the file."""
        return tuple(
            NodeType.from_json({**plain, "name": name})
            for name, plain in self.prepared["available_node_types"].items()
        )

    @property
    def head(self) -> NodeType:
        """The head's node type."""
        name = self.prepared["head_node_type"]
        return next(node_type for node_type in self.node_types if node_type.name == name)

    @property
    def workers(self) -> list[NodeType]:
        """The types that workers may have."""
        return [node_type for node_type in self.node_types if node_type != self.head]

    @cached_property
    def mounts(self) -> dict[str, str]:
        """Files that are copied to every node: path on the node -> path on this machine."""
        return dict(self.prepared.get("file_mounts") or {})

    @cached_property
    def exported(self) -> dict[str, str]:
        """The settings that our script exports on every node; empty where it is not called."""
        return node_scripts.exported_settings(self.plain)

    @property
    def storage(self) -> str:
        """The storage root of every node; empty where our script does not export one."""
        return self.exported.get(STORAGE, "")

    @property
    def stores_objects(self) -> bool:
        """True when results go into an object store."""
        return self.storage.startswith(OBJECT_STORES)


def _check_placeholders(cluster: ClusterFile) -> Iterator[str]:
    left = re.findall(rf"[^\s'\"]*{PLACEHOLDER}[^\s'\"]*", str(cluster.plain))
    if left:
        shown = ", ".join(dict.fromkeys(left))
        yield f"still to be filled in: {shown}. docs/cluster.md says what belongs there."


def _check_provider(cluster: ClusterFile) -> Iterator[str]:
    provider = cluster.plain["provider"]
    own = PROVIDER_KEYS.get(cluster.provider_type)
    if own is None:
        yield (
            f"provider.type {cluster.provider_type!r} is unknown to these checks, so its keys and "
            f"its firewall are unchecked. Known: {', '.join(sorted(PROVIDER_KEYS))}."
        )
        return
    known = own | _EVERY_PROVIDER
    for key in sorted(set(provider) - known):
        hint = did_you_mean(key, known)
        yield f"provider.{key} is read by nobody.{hint} Correct or delete it."
    head, workers = provider.get("head_ip"), provider.get("worker_ips") or ()
    if head is not None and PLACEHOLDER not in head and not re.fullmatch(r"[\d.]+", head):
        yield (
            f"head_ip is {head}, a name, which the head itself looks up for its workers: Debian "
            "gives a machine's own name as 127.0.1.1. Give its address."
        )
    for machine, times in Counter([head, *workers]).items():
        if times > 1:
            yield (
                f"{machine} is named {times} times. A machine is the head or one worker, since "
                "starting a second node on it stops the first: name each once."
            )


def _check_node_types(cluster: ClusterFile) -> Iterator[str]:
    for node_type in cluster.node_types:
        if node_type.min_workers > node_type.max_workers:
            yield (
                f"{node_type.name} has min_workers {node_type.min_workers} above max_workers "
                f"{node_type.max_workers}: raise max_workers or lower min_workers."
            )
    if cluster.provider_type == "local":
        return
    if cluster.head.max_workers:
        yield f"{cluster.head.name} is the head's type: set its max_workers to 0."
    if not cluster.workers:
        yield "no node type is for workers, and the head trains nothing: add one."
    elif not cluster.prepared["max_workers"]:
        yield "max_workers is 0, so that no worker ever starts: set the most you will pay for."


def _check_local_files(cluster: ClusterFile) -> Iterator[str]:
    if cluster.ssh_key is not None and not Path(cluster.ssh_key).expanduser().is_file():
        yield f"auth.ssh_private_key: this machine has no file {cluster.ssh_key}."
    missing = [s for s in cluster.mounts.values() if not Path(s).expanduser().exists()]
    relative = [source for source in missing if source[0] not in "~/"]
    for source in missing:
        if source not in relative:
            yield f"file_mounts: this machine has no {source}."
    if relative:
        yield (
            f"file_mounts: no {', '.join(relative)} below {os.getcwd()}. Call this from the folder "
            "that the paths are relative to, usually the checkout."
        )


def _check_token(cluster: ClusterFile) -> Iterator[str]:
    """The cluster's token is copied to every node, and closed to other users of this machine."""
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
    if length < TOKEN_LENGTH:
        yield (
            f"{source} holds {length} characters, but a token has {TOKEN_LENGTH} or more: delete "
            "it, and run `ray get-auth-token --generate`."
        )
    elif mode & (stat.S_IRWXG | stat.S_IRWXO):
        yield f"{source} can be read by other users: chmod 600 {source}."


def _check_storage(cluster: ClusterFile) -> Iterator[str]:
    """Every node writes to one place that outlives it."""
    if not cluster.exported:
        return
    of_node = r"(?:var/)?tmp\b|root\b"
    if cluster.provider_type != "local":  # where all machines may mount their homes
        of_node += r"|home\b"
    if not cluster.stores_objects and not re.match(rf"/(?!{of_node})", cluster.storage):
        yield (
            f"{STORAGE} {cluster.storage or '(not set)'} is lost with its node: give "
            f"{' or '.join(OBJECT_STORES)}..., or the absolute path of a file system that every "
            "node mounts."
        )


def _check_node_files(cluster: ClusterFile) -> Iterator[str]:
    return node_scripts.find_missing_mounts(cluster.plain, cluster.mounts)


RULES: dict[str, Rule] = {
    "filled in": _check_placeholders,
    "provider": _check_provider,
    "node types": _check_node_types,
    "files here": _check_local_files,
    "token": _check_token,
    "storage": _check_storage,
    "files on nodes": _check_node_files,
}
