"""Checks of a cluster.yaml: Ray's own validation, then our rules."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from sweep.cluster.cluster_yaml import read
from sweep.doctor import node_scripts, yaml_aws, yaml_rules, yaml_secrets
from sweep.doctor.check import Check
from sweep.doctor.yaml_rules import ClusterFile
from sweep.doctor.yaml_secrets import Secret
from trainables.errors import Misuse
from trainables.plain import Json

# Providers whose node types may leave out `resources`. One of the user's own may fill them in, too.
FILLS_RESOURCES = ("aws", "external")


def check(path: str | os.PathLike[str]) -> list[Check]:
    """Everything that can be known of a cluster.yaml without a cloud; one finding per question.

    Sources of file_mounts are looked for as `ray up` does: from the current folder. Where Ray's own
    validation refuses something, our rules are told nevertheless, as far as they can be.
    """
    try:
        plain = read(path)
    except Misuse as error:
        return [Check("cluster.yaml", False, "", str(error))]
    secrets = yaml_secrets.find(plain)
    prepared, refusals = _as_ray_takes_it(plain)
    cluster = ClusterFile(plain, prepared)
    rules = dict(yaml_rules.RULES)
    if cluster.provider_type == "aws":
        rules |= yaml_aws.RULES
    told, unchecked = [], []
    for name, rule in rules.items():
        problems: list[str] = []
        try:
            problems.extend(rule(cluster))
        except Exception:  # nearly any type, where a value has a shape that Ray refuses
            if not refusals:
                raise
            unchecked.append(name)
            continue
        told.append(_finding(name, problems, secrets))
    if unchecked:
        refusals.append(f"Unchecked until that is mended: {', '.join(unchecked)}.")
    return [
        _finding("secrets", [secret.advice for secret in secrets], secrets),
        _finding("Ray's validation", refusals, secrets),
        *told,
        *([] if refusals else [_own_commands(cluster)]),
    ]


def _finding(name: str, problems: list[str], secrets: list[Secret]) -> Check:
    advice = yaml_secrets.masked(" ".join(problems), secrets)
    return Check(name, not problems, advice=advice)


def _own_commands(cluster: ClusterFile) -> Check:
    """The one line about shell that is not ours: unread, so refused where security depends on it.

    Lists that are left out and filled in by Ray have a rule of their own.
    """
    places = ", ".join(node_scripts.find_unchecked(cluster.plain, cluster.mounts))
    notes = [f"{places}: not checked {node_scripts.PROMISES}"] * bool(places)
    if cluster.storage.startswith("/"):
        notes.append(f"not checked that every node mounts {cluster.storage} before Ray starts")
    uncalled = [
        name
        for name in node_scripts.find_uncalled(cluster.plain)
        if name in cluster.plain or name not in yaml_rules.RAYS_OWN
    ]
    advice = "".join(
        f"{name} has no plain call of our script, so nobody checked token, ports and storage "
        f'there: add "bash {node_scripts.FOLDER}/{node_scripts.CALLS[name]}" as a command of its '
        "own, as in cluster.yaml, without other shell in it. "
        for name in uncalled
    ).rstrip()
    return Check("own commands", not uncalled, "; ".join(notes) or "none", advice)


def _as_ray_takes_it(plain: dict[str, Json]) -> tuple[dict[str, Json], list[str]]:
    """The file with Ray's defaults, since they run too; and what Ray refuses in it."""
    from ray.autoscaler._private.util import prepare_config, validate_config

    written = _as_its_provider_fills_it(plain)
    # As it is written first: filling in defaults trips over values of a wrong type.
    bare = {"cluster_synced_files": [], "max_workers": sys.maxsize, **written}
    refusals = _against_schema(bare)
    prepared = written
    with _quiet() as printed:
        try:
            if not refusals:
                validate_config(bare)
            prepared = prepare_config(copy.deepcopy(written))
            if not refusals:
                validate_config(prepared)
        except Exception as error:  # nearly any type, where a value has a shape Ray did not expect
            refusals = refusals or [_reason(error, printed.getvalue())]
    if refusals and {"head_node", "worker_nodes"} & set(plain):
        refusals.append(
            "Since Ray 2 nodes are described in available_node_types, as in cluster.yaml of this "
            "project: write them anew there."
        )
    if any("${" in refusal for refusal in refusals):
        refusals.append("Ray fills in no ${NAME}: write the values, or use `envsubst` before.")
    return prepared, refusals


def _as_its_provider_fills_it(plain: dict[str, Json]) -> dict[str, Json]:
    """The file after what `ray up` does before it validates: AWS tells what its instances have.

    EC2 is not asked: that the key is there is all that matters here.
    """
    types = plain.get("available_node_types")
    if plain["provider"].get("type") not in FILLS_RESOURCES or not isinstance(types, dict):
        return plain
    filled = {
        name: {"resources": {}, **node} if isinstance(node, dict) else node
        for name, node in types.items()
    }
    return {**plain, "available_node_types": filled}


def _against_schema(config: dict[str, Json]) -> list[str]:
    """All that Ray's schema refuses: its own validation stops at the first."""
    import ray.autoscaler
    from jsonschema.validators import validator_for

    file = Path(str(ray.autoscaler.__file__)).with_name("ray-schema.json")
    schema = json.loads(file.read_text(encoding="utf-8"))
    errors = validator_for(schema)(schema).iter_errors(config)
    return [_reason(error, "") for error in sorted(errors, key=lambda error: error.json_path)]


@contextlib.contextmanager
def _quiet() -> Iterator[io.StringIO]:
    """What Ray prints goes here: some of its reasons are printed, not raised."""
    printed = io.StringIO()
    log = logging.getLogger("ray.autoscaler")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            yield printed
    finally:
        log.setLevel(level)


def _reason(error: Exception, printed: str) -> str:
    message = getattr(error, "message", "") or str(error)  # jsonschema's str() repeats the schema
    if hasattr(error, "json_path"):
        return f"Ray refuses {error.json_path}: {message}."
    if type(error).__name__ == "SilentClickException":
        message = printed.strip().splitlines()[-1] if printed.strip() else message
    return f"Ray refuses the file: {type(error).__name__}: {message}."
