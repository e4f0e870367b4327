"""Reads a cluster.yaml and checks it: Ray's own validation, and what that misses."""

from __future__ import annotations

import contextlib
import copy
import io
import logging
import os
import sys
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from yaml.composer import ComposerError
from yaml.constructor import ConstructorError

from sweep.doctor import yaml_aws, yaml_rules, yaml_secrets
from sweep.doctor.yaml_rules import ClusterFile
from sweep.doctor.yaml_secrets import Secret
from trainables.errors import Misuse

Json = Any


@dataclass(frozen=True)
class Finding:
    """One line of `sweep doctor` about a cluster.yaml."""

    name: str  # what was looked at
    ok: bool
    advice: str = ""  # what is wrong and what to do; empty where nothing is


class _OnceEach(yaml.SafeLoader):
    """YAML keeps the last of two equal keys without a word: here they are refused."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Json]:
        seen = set()
        for key, _ in node.value:
            if key.tag != "tag:yaml.org,2002:merge" and isinstance(key.value, str):
                if key.value in seen:
                    raise yaml.MarkedYAMLError(
                        problem=f"{key.value!r} is given twice, and only the last would count",
                        problem_mark=key.start_mark,
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def read(path: str | os.PathLike[str]) -> dict[str, Json]:
    """The file as it is written, without Ray's defaults. Raises Misuse when it is none."""
    try:
        plain = yaml.load(Path(path).read_text(encoding="utf-8"), _OnceEach)
    except OSError as error:
        raise Misuse(f"{path} cannot be read: {error.strerror}. Name a cluster.yaml.") from error
    except UnicodeDecodeError as error:
        raise Misuse(f"{path} is not UTF-8 text. Name a cluster.yaml.") from error
    except yaml.MarkedYAMLError as error:  # its own text quotes the line, which may hold a secret
        line = error.problem_mark.line + 1 if error.problem_mark else "?"
        raise Misuse(f"{path} is no YAML: line {line}: {_problem(error)}.") from None
    except yaml.YAMLError as error:
        raise Misuse(f"{path} is no YAML.") from error
    except ValueError:  # that of Python's own types quotes the value
        raise Misuse(
            f"{path} is no YAML: a value looks like a date or number and is none: quote it."
        ) from None
    if not isinstance(plain, dict) or not isinstance(plain.get("provider"), dict):
        raise Misuse(
            f"{path} must be a mapping with a cluster_name and a provider, as Ray reads it."
        )
    return plain


def _problem(error: yaml.MarkedYAMLError) -> str:
    """What is wrong, without words of the file: the name of an alias or tag may be a secret."""
    problem = str(error.problem)
    if isinstance(error, ComposerError | ConstructorError) or "tag handle" in problem:
        return "a value that begins with *, & or ! must be quoted, and a file is one document"
    return problem


def check(path: str | os.PathLike[str]) -> list[Finding]:
    """Everything that can be known of a cluster.yaml without a cloud; one finding per question.

    Sources of file_mounts are looked for as `ray up` does: from the current folder. What Ray's own
    validation refuses is not looked at further.
    """
    try:
        plain = read(path)
    except Misuse as error:
        return [Finding("cluster.yaml", False, str(error))]
    secrets = yaml_secrets.find(plain)
    findings = [_finding("secrets", [secret.advice for secret in secrets], secrets)]
    try:
        prepared = _as_ray_takes_it(plain)
    except Misuse as error:
        findings.append(_finding("Ray's validation", [str(error)], secrets))
        return findings
    findings.append(Finding("Ray's validation", True))
    cluster = ClusterFile(plain, prepared)
    rules = dict(yaml_rules.RULES)
    if cluster.provider_type == "aws":
        rules |= yaml_aws.RULES
    return findings + [_finding(name, rule(cluster), secrets) for name, rule in rules.items()]


def _finding(name: str, problems: list[str], secrets: list[Secret]) -> Finding:
    return Finding(name, not problems, yaml_secrets.masked(" ".join(problems), secrets))


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
