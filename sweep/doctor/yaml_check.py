"""Checks of a cluster.yaml: Ray's own validation, then our rules."""

from __future__ import annotations

import contextlib
import copy
import io
import logging
import os
import sys
from collections.abc import Iterator

from sweep.cluster.cluster_yaml import read
from sweep.doctor import yaml_aws, yaml_rules, yaml_secrets
from sweep.doctor.check import Check
from sweep.doctor.yaml_rules import ClusterFile
from sweep.doctor.yaml_secrets import Secret
from trainables.errors import Misuse
from trainables.plain import Json


def check(path: str | os.PathLike[str]) -> list[Check]:
    """Everything that can be known of a cluster.yaml without a cloud; one finding per question.

    Sources of file_mounts are looked for as `ray up` does: from the current folder. What Ray's own
    validation refuses is not looked at further.
    """
    try:
        plain = read(path)
    except Misuse as error:
        return [Check("cluster.yaml", False, "", str(error))]
    secrets = yaml_secrets.find(plain)
    findings = [_finding("secrets", [secret.advice for secret in secrets], secrets)]
    try:
        prepared = _as_ray_takes_it(plain)
    except Misuse as error:
        findings.append(_finding("Ray's validation", [str(error)], secrets))
        return findings
    findings.append(Check("Ray's validation", True))
    cluster = ClusterFile(plain, prepared)
    rules = dict(yaml_rules.RULES)
    if cluster.provider_type == "aws":
        rules |= yaml_aws.RULES
    return findings + [_finding(name, list(rule(cluster)), secrets) for name, rule in rules.items()]


def _finding(name: str, problems: list[str], secrets: list[Secret]) -> Check:
    advice = yaml_secrets.masked(" ".join(problems), secrets)
    return Check(name, not problems, advice=advice)


def _as_ray_takes_it(plain: dict[str, Json]) -> dict[str, Json]:
    """The file with Ray's defaults, since they run too. Raises Misuse with Ray's reason."""
    from ray.autoscaler._private.util import prepare_config, validate_config

    with _quiet() as printed:
        try:
            # As it is written first: filling in defaults trips over values of a wrong type.
            validate_config({"cluster_synced_files": [], "max_workers": sys.maxsize, **plain})
            prepared: dict[str, Json] = prepare_config(copy.deepcopy(plain))
            validate_config(prepared)
        except Exception as error:  # nearly any type, where a value has a shape Ray did not expect
            raise Misuse(_reason(error, printed.getvalue())) from error
    return prepared


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
