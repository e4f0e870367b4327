"""Rules about words: how docstrings begin, names that say nothing alone, and messages."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.code_figures import ROOT, modules

# A docstring that begins so continues the name above it, or says nothing.
FIRST_WORDS = ("Always", "Never", "Nothing", "Of", "Those", "Theirs", "What", "Whether")
# Verbs and prepositions in the place of a noun: say observation, request, measured, baseline, ...
NAMES = ("told", "asked", "said", "found", "theirs", "its", "of", "whole", "at")

# Words that a message does without: report, state, require, next to, with, automatically, ...
# "Descent asked" is the name of a column.
IN_MESSAGES = re.compile(
    r"\b(told|tells?|(?<!descent )asked|said|say|theirs|ours|besides?|c[ao]mes? to|by itself"
    r"|by themselves|whole(?! number| internet)|(?:is|are|was|were|be|already) there)\b"
    r"|(?-i:(?:^|(?<=[.:] ))Of\b)",
    re.IGNORECASE,
)

Named = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def first_word(text: str) -> str:
    return text.split()[0].strip(".,:;") if text.split() else ""


def docstrings_that_lean(tree: ast.Module) -> Iterator[str]:
    """Definitions whose docstring is no sentence and no noun phrase of its own, by line."""
    for node in ast.walk(tree):
        if isinstance(node, Named | ast.Module):
            text = ast.get_docstring(node) or ""
            if first_word(text) in FIRST_WORDS:
                line = 1 if isinstance(node, ast.Module) else node.lineno
                yield f"{line}: {text.splitlines()[0]}"


def names_that_say_nothing(tree: ast.Module) -> Iterator[str]:
    """Functions, classes, arguments, variables and attributes that are called one of NAMES."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                pass
            case ast.ClassDef(name=name) | ast.arg(arg=name):
                pass
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                pass
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                pass
            case ast.alias(asname=str(name)) | ast.ExceptHandler(name=str(name)):
                pass
            case _:
                continue
        if name.strip("_").lower() in NAMES:
            yield f"{node.lineno}: {name}"


def decorators(node: Named | ast.Module) -> list[ast.expr]:
    return [] if isinstance(node, ast.Module) else node.decorator_list


def messages(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Texts of several words with their line: all but docstrings; of verbs, which are help, too.

    A value that is filled in is {}.
    """
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, Named | ast.Module) and node.body and isinstance(node.body[0], ast.Expr)
        if not re.search(r"^click\.", "\n".join(map(ast.unparse, decorators(node))), re.MULTILINE)
    }
    filled = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr)
        for part in node.values
    }
    for node in ast.walk(tree):
        match node:
            case ast.JoinedStr(values=values):
                text = "".join(
                    str(part.value) if isinstance(part, ast.Constant) else "{}" for part in values
                )
            case ast.Constant(value=str(text)) if id(node) not in docstrings | filled:
                pass
            case _:
                continue
        if " " in text.strip():
            yield node.lineno, " ".join(text.split())


def words_that_messages_do_without(tree: ast.Module) -> Iterator[str]:
    for line, text in messages(tree):
        if banned := IN_MESSAGES.search(text):
            yield f"{line}: {banned[0]!r} in {text!r}"


def product_modules() -> list[Path]:
    return [file for file in modules() if file.parts[0] != "trainables_testing"]


def trees() -> Iterator[tuple[Path, ast.Module]]:
    for file in product_modules():
        yield file, ast.parse((ROOT / file).read_text(encoding="utf-8"))


def test_docstrings_stand_alone() -> None:
    leaning = [f"{file}:{one}" for file, tree in trees() for one in docstrings_that_lean(tree)]
    assert not leaning, "begin with the noun or the verb; of a bool with 'True if'"


def test_names_are_nouns() -> None:
    banned = [f"{file}:{one}" for file, tree in trees() for one in names_that_say_nothing(tree)]
    assert not banned, "use the field's term: observation, request, measured, baseline, ..."


def test_messages_say_what_happened_in_plain_words() -> None:
    banned = [
        f"{file}:{one}"
        for file, tree in trees()
        for one in words_that_messages_do_without(tree)
        if "Said at step" not in one  # in records that earlier versions stored
    ]
    assert not banned, "see CONTRIBUTING.md, House English"


@pytest.mark.parametrize(
    "source",
    [
        'raise ValueError("no node told its time")',
        'x = f"{name} goes on by itself."',
        'note(f"a gamma, say {gamma}")',
        'help = "Shown beside the "\n',
        'def f():\n    """Fine."""\n    return "what it came to"',
        'texts = {"a": ("", "It is said before better.")}',
        'note("40 are asked, "\n     "all that are held out")',
        'note("Besides, it runs")',
        'note("what is there is kept")',
        'note("the judge compares ours")',
        'raise Failure(f"replication {n} is not whole")',
        'note("logs say more")',
        'note("Kept. Of a search: all.")',
        '@click.command()\ndef best():\n    """Print what was told."""',
    ],
)
def test_a_message_with_such_a_word_is_found(source: str) -> None:
    assert len(list(words_that_messages_do_without(ast.parse(source)))) == 1


def test_docstrings_names_and_keys_are_no_messages() -> None:
    source = "'What was said.'\ntold = {'beside': f'{x}: descent asked, a whole number, out of 4'}"
    assert not list(words_that_messages_do_without(ast.parse(source)))


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ('def f():\n    """Of one model."""', ["1: Of one model."]),
        ('class C:\n    """Whether it is: no."""', ["1: Whether it is: no."]),
        ('"""Nothing. It is empty."""', ["1: Nothing. It is empty."]),
        ('def f():\n    """Offer an arm."""', []),
        ("def f():\n    pass", []),
    ],
)
def test_a_docstring_that_leans_on_its_name_is_found(source: str, lines: list[str]) -> None:
    assert list(docstrings_that_lean(ast.parse(source))) == lines


@pytest.mark.parametrize(
    "source",
    [
        "def told(): pass",
        "class Asked: pass",
        "def f(of): pass",
        "def f(*, theirs=1): pass",
        "found = 1",
        "self._said = 1",
        "for at in (): pass",
        "[whole for whole in ()]",
        "import json as its",
        "if (found := f()): pass",
        "match x:\n    case [*found]: pass",
    ],
)
def test_a_name_that_says_nothing_is_found(source: str) -> None:
    assert len(list(names_that_say_nothing(ast.parse(source)))) == 1


def test_longer_names_and_reads_of_others_are_left_alone() -> None:
    source = "is_whole = foundation.found(of=1)\nnp.add.at(x, 1)\nat_once = told_at = 2"
    assert not list(names_that_say_nothing(ast.parse(source)))
