"""The glossary is where a term is explained, once, in the words of docs/words.md."""

from __future__ import annotations

import ast

import pytest

from sweep.glossary import DIRECTION, TERMS
from tests.support.code_figures import ROOT, modules

ENOUGH = 40  # characters that a text does not have by chance
WORDED = {
    DIRECTION: [DIRECTION],
    **{name: [text[:ENOUGH] for text in term[:2]] for name, term in TERMS.items()},
}


def texts_of(source: str) -> list[str]:
    """The strings of a module, those of f-strings as far as they are fixed, with no line ends."""
    nodes = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant))
    return [" ".join(node.value.split()) for node in nodes if isinstance(node.value, str)]


@pytest.fixture(scope="module")
def elsewhere() -> list[tuple[str, str]]:
    files = [f for f in modules() if f.parts[0] == "sweep" and f.name != "glossary.py"]
    return [(str(f), text) for f in files for text in texts_of((ROOT / f).read_text("utf-8"))]


@pytest.mark.parametrize("name", WORDED)
def test_a_term_is_explained_in_the_glossary_alone(
    name: str, elsewhere: list[tuple[str, str]]
) -> None:
    again = [file for file, text in elsewhere if any(of in text for of in WORDED[name])]
    assert not again, f"use sweep.glossary for {name!r}"


def test_texts_of_a_module_are_found() -> None:
    source = """x = f"{y}: the fraction " "of f0"\nz = 'all   of it'"""
    assert sorted(texts_of(source)) == [": the fraction of f0", "all of it"]


def test_the_documentation_has_the_same_words() -> None:
    listed = (ROOT / "docs/words.md").read_text("utf-8")
    assert not [name for name, term in TERMS.items() if f"| {term.meaning} |" not in listed]
