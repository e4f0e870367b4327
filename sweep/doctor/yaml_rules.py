"""Rules for a cluster.yaml of any provider that Ray's validation lacks.

A rule yields its problems: each says what is wrong, what was got and what to do. Rules read the
file with Ray's defaults filled in, since those run too.
"""

from __future__ import annotations

import difflib
import os
import re
import stat
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from sweep.cluster.tunnel import LOOPBACK, TOKEN_FILE
from sweep.doctor import yaml_secrets
from sweep.study.advice import STORAGE
from trainables.code_version import DISTRIBUTION
from trainables.plain import Json

Rule = Callable[["ClusterFile"], Iterator[str]]

PLACEHOLDER = "FILL-IN"
NOTICED_S = 12.0  # a vanished worker must be noticed within this
OBJECT_STORES = ("s3://", "gs://", "abfs://")
_START = re.compile(r"\bray start\b")
_MOUNT = re.compile(r"\bmount\b|/etc/fstab")

# What the health check of Ray's control service reads, with Ray's defaults (milliseconds, times).
HEALTH = {
    "RAY_health_check_period_ms": 3000,
    "RAY_health_check_timeout_ms": 10000,
    "RAY_health_check_failure_threshold": 5,
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
        """Names of the types that workers may have; on premises all machines share the head's."""
        if self.provider_type == "local":
            return [self.head_type]
        return [name for name in self.node_types if name != self.head_type]

    def head_commands(self) -> list[str]:
        """What runs on the head, in this order: setup, then start."""
        return [*self.prepared["head_setup_commands"], *self.head_start]

    def nodes(self) -> Iterator[tuple[str, list[str]]]:
        """The head and every type of worker: how to call it, and what runs on it."""
        yield "the head", self.head_commands()
        for name in self.worker_types():
            own = self.node_types[name].get("worker_setup_commands")  # replaces everybody's
            setup = self.prepared["worker_setup_commands"] if own is None else own
            yield f"workers of type {name}", [*setup, *self.prepared["worker_start_ray_commands"]]

    @property
    def head_start(self) -> list[str]:
        """Commands that start Ray on the head."""
        return list(self.prepared["head_start_ray_commands"])

    @property
    def mounts(self) -> dict[str, str]:
        """Files that are copied to every node: path there -> path here."""
        return dict(self.prepared.get("file_mounts") or {})

    @property
    def stores_objects(self) -> bool:
        """Whether results go into an object store."""
        stores = settings(self.head_commands(), STORAGE)
        return any(store.startswith(OBJECT_STORES) for store in stores)


# --- reading commands -----------------------------------------------------------------------------


def settings(commands: Iterable[str], name: str) -> set[str]:
    """The values that shell commands give to an environment variable.

    >>> sorted(settings(["export A=1 BA='x y'; A=2 run", "AB=3"], "A"))
    ['1', '2']
    """
    value = rf"(?<![\w-]){re.escape(name)}=(?:\"([^\"]*)\"|'([^']*)'|([^\s;&|\"']*))"
    found = [re.findall(value, command) for command in commands]
    return {"".join(groups) for matches in found for groups in matches}


def options(commands: Iterable[str], name: str) -> set[str]:
    """The values of a command-line option, written with ``=`` or with a space.

    >>> sorted(options(["serve --host=a", "serve --host b --hosts c"], "--host"))
    ['a', 'b']
    """
    value = rf"(?<!\S){re.escape(name)}[= ][\"']?([^\s;&|\"']+)"
    return {found for command in commands for found in re.findall(value, command)}


def home_free(path: str) -> str:
    """A path on a node without its home, which is written in several ways.

    >>> home_free("~/a"), home_free("$HOME/a"), home_free("/home/ubuntu/a/"), home_free("/opt/a")
    ('a', 'a', 'a', '/opt/a')
    """
    return re.sub(r"^(?:~|\$HOME|\$\{HOME\}|/root|/home/[^/]+)/", "", path).rstrip("/")


def did_you_mean(got: str, known: Iterable[str]) -> str:
    """A hint at the closest known name, or nothing."""
    close = difflib.get_close_matches(got, list(known), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


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


def _package(cluster: ClusterFile) -> Iterator[str]:
    """Every node installs this package from what is copied to it; constraints install nothing."""
    targets = [home_free(target) for target in cluster.mounts]
    folders = {str(Path(target).parent) for target in targets} | set(targets)
    brought = sorted(folder for folder in folders if Path(folder).name.startswith(DISTRIBUTION))
    if not brought:
        yield (
            f"file_mounts bring no folder called {DISTRIBUTION}: mount pyproject.toml and the "
            "three packages of the checkout, as in cluster.yaml."
        )
        return
    for node, commands in cluster.nodes():
        pip = " ".join(command for command in commands if "pip install" in command)
        installed = re.sub(r"(?<!\S)(?:-c|--constraint)[= ]\S+", "", pip)
        if not any(folder in installed for folder in brought):
            yield (
                f"{node}: no setup command has 'pip install' of {', '.join(brought)}, so another "
                "version of this package, or none, would train. Add it to setup_commands."
            )


def _shell(cluster: ClusterFile) -> Iterator[str]:
    """Whether bash can read every command: an unquoted " #" in YAML cuts one off, for example.

    Ray puts each in parentheses, so one that ends in a comment is not read either.
    """
    commands = list(cluster.prepared["initialization_commands"])
    commands += [command for _, on_node in cluster.nodes() for command in on_node]
    places = {text: place for place, _, text in yaml_secrets.texts(cluster.plain)}
    for command in dict.fromkeys(commands):
        if subprocess.run(["bash", "-n", "-c", f"({command})"], capture_output=True).returncode:
            yield (
                f"bash cannot read {places.get(command, 'a command of Ray')}. In YAML, one with "
                "' #' or ': ' in it must be quoted or start with >-; none may end in a comment, "
                "since Ray puts it in parentheses."
            )


def _head(cluster: ClusterFile) -> Iterator[str]:
    """How Ray starts on the head: it launches workers, trains nothing, and can be started again."""
    yield from _starts(cluster.head_start, "head_start_ray_commands", "--head")
    start = [command for command in cluster.head_start if _START.search(command)]
    if "--autoscaling-config" not in " ".join(start):
        yield (
            "ray start on the head has no --autoscaling-config: no worker would ever start. Add "
            "--autoscaling-config=~/ray_bootstrap_config.yaml."
        )
    for option in ("--num-cpus", "--num-gpus"):
        got = options(start, option)
        if got != {"0"}:
            yield (
                f"ray start on the head needs {option}=0, got {', '.join(got) or 'none'}: arms "
                "would train beside the drivers and end them when memory runs out."
            )


def _workers(cluster: ClusterFile) -> Iterator[str]:
    start = list(cluster.prepared["worker_start_ray_commands"])
    yield from _starts(start, "worker_start_ray_commands", "--address", "$RAY_HEAD_IP")
    if any("--head" in command for command in start):
        yield "worker_start_ray_commands start a head: remove --head."


def _starts(commands: list[str], name: str, *needed: str) -> Iterator[str]:
    start = [at for at, command in enumerate(commands) if _START.search(command)]
    if len(start) != 1 or not all(word in commands[start[0]] for word in needed):
        yield f"{name} need one 'ray start' with {' and '.join(needed)}."
    if start and not any(re.search(r"\bray stop\b", c) for c in commands[: start[0]]):
        yield f"{name} need 'ray stop' before 'ray start': a second `ray up` would fail."


def _dead_workers(cluster: ClusterFile) -> Iterator[str]:
    """A silent node is dead after so many checks, each a period and a timeout apart (measured)."""
    values = []
    for name, default in HEALTH.items():
        got = settings(cluster.head_commands(), name) or {str(default)}
        try:
            values.append(max(int(value) for value in got))
        except ValueError:
            yield f"{name} must be a whole number, got {', '.join(sorted(got))}."
            return
    period, timeout, threshold = values
    noticed_s = threshold * (period + timeout) / 1000
    if noticed_s > NOTICED_S:
        yield (
            f"a worker whose cable is cut would be missed after {noticed_s:g} s only. Start the "
            "head with RAY_health_check_period_ms=1000 RAY_health_check_timeout_ms=1000 "
            "RAY_health_check_failure_threshold=5."
        )


def _token(cluster: ClusterFile) -> Iterator[str]:
    """Token authentication on every node: the mode in every shell, the token in every home."""
    for node, commands in cluster.nodes():
        modes = settings(commands, "RAY_AUTH_MODE")
        if modes != {"token"}:
            yield (
                f"{node}: RAY_AUTH_MODE is {' and '.join(sorted(modes)) or 'not set'}. Export "
                "RAY_AUTH_MODE=token in ~/.bashrc by a setup command: without it a worker does not "
                "join, and an unauthenticated head runs anybody's code."
            )
    paths = {TOKEN_FILE, *settings(cluster.head_commands(), "RAY_AUTH_TOKEN_PATH")}
    there = set(map(home_free, paths))
    sources = [source for target, source in cluster.mounts.items() if home_free(target) in there]
    if not sources:
        yield f'no token on the nodes: add "{TOKEN_FILE}": "{TOKEN_FILE}" to file_mounts.'
    for source in sources:
        yield from _token_file(source)


def _token_file(source: str) -> Iterator[str]:
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


def _closed_ports(cluster: ClusterFile) -> Iterator[str]:
    """Dashboard, job server and MLflow listen on loopback: the way in is the SSH tunnel."""
    for host in sorted(options(cluster.head_start, "--dashboard-host") - LOOPBACK):
        yield (
            f"the dashboard and job server would listen on {host}: start with "
            "--dashboard-host=127.0.0.1 and use the tunnel."
        )
    for node, commands in cluster.nodes():
        servers = [c for c in commands if re.search(r"\bmlflow (?:server|ui)\b", c)]
        hosts = options(servers, "--host") | options(servers, "-h")
        for host in sorted((hosts | settings(commands, "MLFLOW_HOST")) - LOOPBACK):
            yield (
                f"{node}: MLflow would listen on {host} and asks for no password: give it --host "
                "127.0.0.1. Only drivers write to it, and they run on the head."
            )


def _storage(cluster: ClusterFile) -> Iterator[str]:
    """Every node writes to one place that outlives it."""
    places = {}
    for node, commands in cluster.nodes():
        got = settings(commands, STORAGE)
        if len(got) != 1:
            yield (
                f"{node}: {STORAGE} has {len(got)} values. Export one in ~/.bashrc by a setup "
                "command, the same on every node."
            )
        else:
            places[node] = got.pop()
    if len(set(places.values())) > 1:
        told = ", ".join(f"{node}: {place}" for node, place in places.items())
        yield f"nodes write to different places ({told}): give all the same."
    for place in sorted(set(places.values())):
        if not place.startswith(OBJECT_STORES):
            yield from _lasting(cluster, place)


def _lasting(cluster: ClusterFile, place: str) -> Iterator[str]:
    """Whether a folder is on none of the nodes' own disks."""
    own = r"(?:var/)?tmp\b|root\b"
    if cluster.provider_type != "local":  # where all machines may mount their homes
        own += r"|home\b"
    if not re.match(rf"/(?!{own})", place):
        yield (
            f"{STORAGE} {place} goes with its node: give {' or '.join(OBJECT_STORES)}..., or the "
            "absolute path of a file system that every node mounts."
        )
    elif cluster.provider_type == "aws":
        mounting = {
            node for node, commands in cluster.nodes() if _MOUNT.search("\n".join(commands))
        }
        for node, _ in cluster.nodes():
            if node not in mounting:
                yield f"{node}: nothing mounts {place}: mount EFS before `ray start`, or use s3://."
        again = "\n".join(cluster.head_start)
        in_fstab = any("/etc/fstab" in command for command in cluster.head_commands())
        if "the head" in mounting and not _MOUNT.search(again) and not in_fstab:
            yield (
                f"the head mounts {place} in its setup, which `ray up` skips where it starts a "
                "stopped head again: mount it in head_start_ray_commands, or by /etc/fstab."
            )


def _tracking(cluster: ClusterFile) -> Iterator[str]:
    if cluster.stores_objects and not settings(cluster.head_commands(), "MLFLOW_TRACKING_URI"):
        yield (
            "MLflow's database cannot live in an object store: export MLFLOW_TRACKING_URI on the "
            "head, as cluster.yaml does."
        )


def _autoscaler(cluster: ClusterFile) -> Iterator[str]:
    """Ray's second autoscaler counts the head as a worker on premises, so one never joins."""
    on = settings(cluster.head_start, "RAY_enable_autoscaler_v2") != {"0"}
    if cluster.provider_type == "local" and on:
        yield (
            "on premises Ray's second autoscaler leaves one worker out: put `export "
            "RAY_enable_autoscaler_v2=0;` before ray start on the head."
        )


RULES: dict[str, Rule] = {
    "filled in": _filled_in,
    "provider": _provider,
    "node types": _node_types,
    "files here": _files,
    "package": _package,
    "commands": _shell,
    "head": _head,
    "workers": _workers,
    "dead workers": _dead_workers,
    "token": _token,
    "closed ports": _closed_ports,
    "storage": _storage,
    "tracking": _tracking,
    "autoscaler": _autoscaler,
}
