"""Digest of a file of code: every edit of its structure changes it, layout and messages do not."""

from __future__ import annotations

import ast
import random
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from trainables.registry.source_digest import ANY, source

Digest = Callable[[str], str]


@pytest.fixture
def digest(tmp_path: Path) -> Digest:
    def of(text: str) -> str:
        file = tmp_path / "module.py"
        file.write_text(text)
        return source(file).digest

    return of


PAIRS = {
    "out of for": ("for i in r:\n    a = i\n    b = a\n", "for i in r:\n    a = i\nb = a\n"),
    "out of if": ("if t:\n    a = 1\n    b = 2\n", "if t:\n    a = 1\nb = 2\n"),
    "out of with": ("with m():\n    a = f()\n    b = g()\n", "with m():\n    a = f()\nb = g()\n"),
    "out of else": (
        "if t:\n    a\nelse:\n    b()\n    c()\n",
        "if t:\n    a\nelse:\n    b()\nc()\n",
    ),
    "return in a loop": (
        "def f():\n    for i in r:\n        s = i\n        return s\n",
        "def f():\n    for i in r:\n        s = i\n    return s\n",
    ),
    "method": ("class A:\n    x = 1\n    y = 2\n", "class A:\n    x = 1\ny = 2\n"),
    "arguments": ("f(a, min(b, c))\n", "f(a, min(b), c)\n"),
    "keywords": ("f(a=g(b=1, c=2))\n", "f(a=g(b=1), c=2)\n"),
    "lists": ("x = [1, [2, 3]]\n", "x = [1, [2], 3]\n"),
    "tuples": ("x = ((1,), 2)\n", "x = ((1, 2),)\n"),
    "steps": ("x = a[1:2]\n", "x = a[1::2]\n"),
    "defaults": ("f = lambda a, b=1: a\n", "f = lambda a=1, b=1: a\n"),
    "defaults by keyword": ("def f(*, a, b=1): g()\n", "def f(*, a=1, b): g()\n"),
    "unpacking": ("x = {**a, 'k': b}\n", "x = {'k': a, **b}\n"),
    "comparisons": ("x = a < b < c\n", "x = (a < b) < c\n"),
    "bool operations": ("x = a and b and c\n", "x = a and (b and c)\n"),
    "comprehensions": ("[x for y in z if a if b]\n", "[x for y in z if a and b]\n"),
    "scopes": ("def f():\n    global a\n    a = 1\n", "def f():\n    nonlocal a\n    a = 1\n"),
    "text and number": ("x = '1'\n", "x = 1\n"),
    "float and int": ("x = 1.0\n", "x = 1\n"),
    "text and bytes": ("x = '1'\n", "x = b'1'\n"),
    "text and format": ("x = 'a{b}'\n", "x = f'a{b}'\n"),
    "end of a text": ("x = 'a\\0b', 'c'\n", "x = 'a', 'b\\0c'\n"),
    "matches": ("match a:\n    case None: b()\n", "match a:\n    case True: b()\n"),
    "condition of a check": (
        "from trainables.errors import require\nrequire(mode == 'a', 'mode', mode, 'a')\n",
        "from trainables.errors import require\nrequire(mode == 'b', 'mode', mode, 'a')\n",
    ),
    "another's require": ("require(a, 'x')\n", "require(a, 'y')\n"),
    "a check whose value counts": (
        "from trainables.errors import require\nx = require(a, 'x')\n",
        "from trainables.errors import require\nx = require(a, 'y')\n",
    ),
    "class of an error": ("raise kinds['a'](x)\n", "raise kinds['b'](x)\n"),
    "cause of an error": ("raise E(x) from c['a']\n", "raise E(x) from c['b']\n"),
    "text that a message is made of": ("raise E(load('a'))\n", "raise E(load('b'))\n"),
    "values of an error": ("raise E(f'got {x}')\n", "raise E(f'got {y}')\n"),
    "large numbers": ("x = 0x" + "f" * 5000 + "\n", "x = 0x" + "e" * 5000 + "\n"),
    "long sums": (f"x = {'+'.join('1' * 3000)}\n", f"x = {'+'.join('1' * 3001)}\n"),
    "no Python": ("def half(x) return 1\n", "def half(x) return 2\n"),
}


@pytest.mark.parametrize("one", PAIRS)
def test_what_may_move_a_number_changes_the_digest(digest: Digest, one: str) -> None:
    before, after = PAIRS[one]
    assert digest(before) != digest(after)


FILE = '''"""What it is."""

from trainables.errors import require


class Half(Exception):
    """Half of it."""

    def __call__(self, x):
        """Half of it."""
        require(x > 0, "x", x, "above 0")
        assert x, "no x"
        if x == 3:
            raise ValueError(f"got {x}: three")
        return f(x / 2, "mode")  # why
'''
SAME = {
    "comments": ("# why", "# because\n        # of this"),
    "a docstring of a module": ('"""What it is."""\n', ""),
    "a docstring of a class": ('    """Half of it."""\n\n    def', "    pass\n\n    def"),
    "a docstring of a function": ('"""Half of it."""\n        req', '"""A half."""\n        req'),
    "layout": ("f(x / 2,", "f(\n            (x) /\n            2,"),
    "quotes": ('"mode"', "'mode'"),
    "the words of a check": ('"above 0"', '"more than 0"'),
    "the words of an assertion": ("no x", "x is missing"),
    "the words of an error": ("got {x}: three", "{x} is three"),
}


@pytest.mark.parametrize("one", SAME)
def test_what_moves_no_number_changes_no_digest(digest: Digest, one: str) -> None:
    assert FILE.count(SAME[one][0]) == 1
    assert digest(FILE.replace(*SAME[one])) == digest(FILE)
    assert digest(FILE.replace("\n", "\r\n")) == digest(FILE)


PROGRAM = """
from a import b, c

class Net(Base, kind=d(e, 1)):
    width: int = 3

    def forward(self, x, *rest, scale=2, **more):
        with no_grad(), cast(x, half):
            y = [f(x, g(x, 1)), [x, [self.width, -1]], {1: x, **more}]
            for i, layer in enumerate(self.layers):
                if layer.on and i < len(y) or x is None:
                    y[i] = layer(y[i], *rest)
                    continue
                elif i % 2:
                    try:
                        y.append(layer(y[i:, ::2], key=lambda z, k=1: z * k))
                    except (Skip, Halt) as error:
                        break
                    finally:
                        self.count += 1
                while i:
                    i -= 1
                    y = y + [z for z in y if z > 0 if z < 9]
            return y, scale
"""


def test_no_random_edit_of_structure_is_missed(digest: Digest) -> None:
    """Python's own dump of a tree is the oracle, in a program without messages."""
    seen = {ast.dump(ast.parse(PROGRAM)): digest(PROGRAM)}
    draw = random.Random(0)
    for _ in range(250):
        tree = ast.parse(PROGRAM)
        kind = draw.choice([ast.stmt, ast.expr])
        values = draw.choice([one for node in ast.walk(tree) for one in _lists(node, kind)])
        moved = [one for node in values for inner in ast.walk(node) for one in _lists(inner, kind)]
        if moved and draw.random() < 0.7:
            values.append(draw.choice(moved).pop())  # out of a block, a call, a list
        else:
            values.append(values.pop(draw.randrange(len(values))))
        try:
            edited = ast.unparse(tree)
            seen.setdefault(ast.dump(ast.parse(edited)), digest(edited))
        except (AttributeError, SyntaxError, TypeError, ValueError):
            continue  # no program
    assert len(seen) > 40
    assert len(set(seen.values())) == len(seen)


def _lists(node: ast.AST, kind: type[ast.AST]) -> list[list[ast.AST]]:
    lists = [v for _, v in ast.iter_fields(node) if isinstance(v, list) and v]
    return [one for one in lists if all(isinstance(item, kind) for item in one)]


def test_a_file_is_read_anew_where_it_was_changed_at_once(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    digests = set()
    for width in range(10, 30):
        file.write_text(f"WIDTH = {width}\n")
        digests.add(source(file).digest)
    assert len(digests) == 20


def test_what_is_imported_beside_names_is_said(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text(
        "from . import beside\n"
        "from ..above import other\n"
        "def f():\n    from c import *\n"
        "if TYPE_CHECKING:\n    import no\nelse:\n    import yes\n"
    )
    names = {".", ".beside", "..above", "..above.other", "c", "c.*", "yes"}
    assert source(file).imports == names
    file.write_text("from importlib import import_module as im\nim('a.b')\nim('c')\nx = 'a text'\n")
    assert source(file).imports == {"importlib", "importlib.import_module", ANY}
    assert source(file).names == {"a.b", "c", "a text"}
    file.write_text("x = 'a.b'\nmodel.eval()\n")
    assert source(file).imports == set()


def test_reading_code_prints_none_of_its_warnings(digest: Digest) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert digest('x = "\\d"\n') != digest('x = "\\e"\n')
