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
from trainables.errors import Misuse
from trainables.plain import Json

# Providers whose node types may leave out `resources`. One of the user's own may fill them in, too.
FILLS_RESOURCES = ("aws", "external")
RAYS_COMMANDS = {  # that Ray fills in where the file leaves them out, and their effect
    "setup_commands": "install a nightly Ray, or nothing",
    "head_start_ray_commands": "open the dashboard to everybody and train on the head",
}


def check_cluster_file(path: str | os.PathLike[str]) -> list[Check]:
    """Every check of a cluster.yaml that needs no cloud, under the name of what it checks.

    Sources of file_mounts are looked for as `ray up` does: from the current folder. Where Ray's own
    validation refuses something, our rules are applied nevertheless, as far as they can be.
    """
    try:
        plain = read(path)
    except Misuse as error:
        return [Check("cluster.yaml", False, "", str(error))]
    secrets = yaml_secrets.find_secrets(plain)
    prepared, refusals = _validate_by_ray(plain)
    cluster = ClusterFile(plain, prepared)
    rules = dict(yaml_rules.RULES)
    if cluster.provider_type == "aws":
        rules |= yaml_aws.RULES
    problems: dict[str, list[str]] = {}
    unchecked = []
    for name, rule in rules.items():
        try:
            problems[name] = list(rule(cluster))
        except Exception:  # nearly any type, where a value has a shape that Ray refuses
            if not refusals:
                raise
            unchecked.append(name)
    if unchecked:
        refusals.append(f"Not checked until this is corrected: {', '.join(unchecked)}.")
    advice = [secret.advice for secret in secrets]
    problems = {"secrets": advice, "Ray's validation": refusals, **problems}
    checks = [
        Check(name, not texts, advice=yaml_secrets.mask(" ".join(texts), secrets))
        for name, texts in problems.items()
    ]
    return checks if refusals else [*checks, _check_commands(cluster)]


def _check_commands(cluster: ClusterFile) -> Check:
    """Check that commands on which security depends are ours: others are not read."""
    places = ", ".join(node_scripts.find_unchecked(cluster.plain, cluster.mounts))
    notes = [f"{places}: not checked {node_scripts.PROMISES}"] * bool(places)
    if cluster.storage.startswith("/"):
        notes.append(f"not checked that every node mounts {cluster.storage} before Ray starts")
    advice = []
    for name in node_scripts.find_uncalled(cluster.plain):
        problem = "has no plain call of our script, so that nobody checked token, ports and storage"
        if name in RAYS_COMMANDS and name not in cluster.plain:
            problem = f"is missing, and Ray's own commands {RAYS_COMMANDS[name]}"
        advice.append(
            f'{name} {problem}: add "bash {node_scripts.FOLDER}/{node_scripts.CALLS[name]}" as a '
            "command of its own without other shell in it, as in cluster.yaml."
        )
    return Check("own commands", not advice, "; ".join(notes) or "none", " ".join(advice))


def _validate_by_ray(plain: dict[str, Json]) -> tuple[dict[str, Json], list[str]]:
    """The file with Ray's defaults, since they run too; and Ray's refusals."""
    from ray.autoscaler._private.util import prepare_config, validate_config

    written = _fill_in_resources(plain)
    # As it is written first: filling in defaults trips over values of a wrong type.
    bare = {"cluster_synced_files": [], "max_workers": sys.maxsize, **written}
    refusals = _validate_by_schema(bare)
    prepared = written
    with _captured_output() as printed:
        try:
            if not refusals:
                validate_config(bare)
            prepared = prepare_config(copy.deepcopy(written))
            if not refusals:
                validate_config(prepared)
        except Exception as error:  # nearly any type, where a value has a shape Ray did not expect
            refusals = refusals or [_describe_refusal(error, printed.getvalue())]
    if any("${" in refusal for refusal in refusals):
        refusals.append("Ray fills in no ${NAME}: write the values, or use `envsubst` before.")
    return prepared, refusals


def _fill_in_resources(plain: dict[str, Json]) -> dict[str, Json]:
    """The file as `ray up` validates it: on AWS with resources, which it looks up by instance type.

    Here they are empty: validation needs the key alone.
    """
    types = plain.get("available_node_types")
    if plain["provider"].get("type") not in FILLS_RESOURCES or not isinstance(types, dict):
        return plain
    filled = {
        name: {"resources": {}, **node} if isinstance(node, dict) else node
        for name, node in types.items()
    }
    return {**plain, "available_node_types": filled}


def _validate_by_schema(config: dict[str, Json]) -> list[str]:
    """Every refusal of Ray's schema: its own validation stops at the first."""
    import ray.autoscaler
    from jsonschema.validators import validator_for

    file = Path(str(ray.autoscaler.__file__)).with_name("ray-schema.json")
    schema = json.loads(file.read_text(encoding="utf-8"))
    errors = validator_for(schema)(schema).iter_errors(config)
    return [_describe_refusal(error) for error in sorted(errors, key=lambda error: error.json_path)]


@contextlib.contextmanager
def _captured_output() -> Iterator[io.StringIO]:
    """The output of Ray in the block: some of its reasons are printed, not raised."""
    printed = io.StringIO()
    log = logging.getLogger("ray.autoscaler")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            yield printed
    finally:
        log.setLevel(level)


def _describe_refusal(error: Exception, printed: str = "") -> str:
    message = getattr(error, "message", "") or str(error)  # jsonschema's str() repeats the schema
    if hasattr(error, "json_path"):
        return f"Ray refuses {error.json_path}: {message}."
    if type(error).__name__ == "SilentClickException":
        message = printed.strip().splitlines()[-1] if printed.strip() else message
    return f"Ray refuses the file: {type(error).__name__}: {message}."
