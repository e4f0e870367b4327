"""A cluster.yaml as it is written: read strictly, so that what is wrong is named."""

from __future__ import annotations

import os
import re

from sweep.strict_yaml import parsed, text_of
from trainables.errors import Misuse
from trainables.plain import Json


def read(path: str | os.PathLike[str]) -> dict[str, Json]:
    """The file as it is written, without Ray's defaults. Raises Misuse when it is none."""
    text = text_of(path, "cluster.yaml")
    try:
        plain = parsed(path, text)
    except Misuse:
        _refuse_kubernetes(path, text)
        raise
    if not isinstance(plain, dict) or not isinstance(plain.get("provider"), dict):
        _refuse_kubernetes(path, text)
        raise Misuse(
            f"{path} must be a mapping with a cluster_name and a provider, as Ray reads it."
        )
    return plain


def _refuse_kubernetes(path: str | os.PathLike[str], text: str) -> None:
    """Raise Misuse for what `kubectl` takes, which is often called a Ray cluster's file, too."""
    kinds = dict.fromkeys(re.findall(r"^kind:[ ]*(\w+)", text, re.MULTILINE))
    if kinds and re.search(r"^apiVersion:", text, re.MULTILINE):
        raise Misuse(
            f"{path} holds Kubernetes objects ({', '.join(kinds)}), which `kubectl apply` takes; "
            "here a cluster.yaml of `ray up` is read. Give the URL of the cluster's dashboard with "
            "--address; docs/cluster.md says how it is reached on Kubernetes."
        )
