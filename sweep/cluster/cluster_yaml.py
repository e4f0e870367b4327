"""A cluster.yaml as it is written: read strictly, so that what is wrong is named."""

from __future__ import annotations

import os
import re
from collections.abc import Hashable
from pathlib import Path

import yaml
from yaml.composer import ComposerError
from yaml.constructor import ConstructorError

from trainables.errors import Misuse
from trainables.plain import Json


class _OnceEach(yaml.SafeLoader):
    """Loader that refuses a key given twice, of which YAML keeps the last without a word."""

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
    text = ""
    try:
        text = Path(path).read_text(encoding="utf-8")
        plain = yaml.load(text, _OnceEach)
    except OSError as error:
        raise Misuse(f"{path} cannot be read: {error.strerror}. Name a cluster.yaml.") from error
    except UnicodeDecodeError as error:
        raise Misuse(f"{path} is not UTF-8 text. Name a cluster.yaml.") from error
    except yaml.MarkedYAMLError as error:  # its own text quotes the line, which may hold a secret
        _refuse_kubernetes(path, text)
        line = error.problem_mark.line + 1 if error.problem_mark else "?"
        raise Misuse(f"{path} is no YAML: line {line}: {_problem(error)}.") from None
    except yaml.YAMLError as error:
        raise Misuse(f"{path} is no YAML.") from error
    except ValueError:  # that of Python's own types quotes the value
        raise Misuse(
            f"{path} is no YAML: a value looks like a date or number and is none: quote it."
        ) from None
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


def _problem(error: yaml.MarkedYAMLError) -> str:
    """The problem without words of the file: the name of an alias or tag may be a secret."""
    problem = str(error.problem)
    if "single document" in str(error.context):
        return "a second document begins there (---), and a cluster.yaml is one"
    if isinstance(error, ComposerError | ConstructorError) or "tag handle" in problem:
        return "a value that begins with *, & or ! must be quoted"
    return problem
