"""Strict reading of YAML files, whose mistakes are named without their words."""

from __future__ import annotations

import os
from collections.abc import Hashable
from pathlib import Path

import yaml
from yaml.composer import ComposerError
from yaml.constructor import ConstructorError

from trainables.errors import Misuse
from trainables.plain import Json


class OnceEach(yaml.SafeLoader):
    """Loader that refuses a key given twice, of which YAML keeps the last without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Json]:
        """Read a mapping; MarkedYAMLError for a key that is there already."""
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


def text_of(path: str | os.PathLike[str], name: str) -> str:
    """The text of a file that is to be ``name``; Misuse where it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise Misuse(f"{path} cannot be read: {error.strerror}. Name a {name}.") from error
    except UnicodeDecodeError as error:
        raise Misuse(f"{path} is not UTF-8 text. Name a {name}.") from error


def parsed(
    path: str | os.PathLike[str], text: str, loader: type[yaml.SafeLoader] = OnceEach
) -> Json:
    """Plain values of a file's text; Misuse, with the line, where it is no YAML."""
    try:
        return yaml.load(text, loader)
    except yaml.MarkedYAMLError as error:  # its own text quotes the line, which may hold a secret
        line = error.problem_mark.line + 1 if error.problem_mark else "?"
        raise Misuse(f"{path} is no YAML: line {line}: {_problem(error)}.") from None
    except yaml.YAMLError as error:
        raise Misuse(f"{path} is no YAML.") from error
    except ValueError:  # that of Python's own types quotes the value
        raise Misuse(
            f"{path} is no YAML: a value looks like a date or number and is none: quote it."
        ) from None


def _problem(error: yaml.MarkedYAMLError) -> str:
    """The problem without words of the file: the name of an alias or tag may be a secret."""
    problem = str(error.problem)
    if "single document" in str(error.context):
        return "a second document begins there (---), and one is read"
    if isinstance(error, ComposerError | ConstructorError) or "tag handle" in problem:
        return "a value that begins with *, & or ! must be quoted"
    return problem
