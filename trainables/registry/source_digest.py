"""Digest of a file of code: what it does, not its layout, comments, messages."""

from __future__ import annotations

import ast
import dataclasses
import hashlib
import re
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

ANY = "*"  # imported: what only a running process knows
LARGEST = 64 * 2**20  # bytes of a file that is read; of a larger one the size counts
_SETTLED_S = 2.0  # what was changed since may change again within a tick of the file system's clock
_IMPORTERS = (
    "import_module", "__import__", "resolve_name", "iter_modules", "walk_packages",
    "spec_from_file_location", "run_path", "run_module", "exec",
)  # fmt: skip
_NAME = re.compile(r"\w[\w./: -]{,150}")


@dataclasses.dataclass(frozen=True)
class Source:
    """Digest of one file, with its imports and names."""

    digest: str
    imports: frozenset[str] = frozenset()  # names that may be modules; relative ones with dots
    names: frozenset[str] = frozenset()  # texts that may be those of files or modules


_read: dict[Path, tuple[tuple[int, ...], Source]] = {}


def source(path: Path) -> Source:
    """A file's digest, and what it imports and names; read once while it stays the same."""
    try:
        stat = path.stat()
        now = (stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size, stat.st_ino)
        known = _read.get(path)
        if known is not None and known[0] == now:
            return known[1]
        result = _source(path, stat.st_size)
    except OSError:  # whoever needs it will say so
        return Source("unreadable")
    if time.time() - max(stat.st_mtime, stat.st_ctime) > _SETTLED_S:
        _read[path] = now, result
    return result


def _source(path: Path, size: int) -> Source:
    if size > LARGEST:
        return Source(f"{size} bytes")
    content = path.read_bytes()
    if path.suffix == ".pyc":
        return Source(_digest(content[16:] or content), frozenset({ANY}))  # a time stands before
    if b"\0" not in content:
        content = content.replace(b"\r\n", b"\n")
    if path.suffix != ".py":
        return Source(_digest(content))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(content)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return Source(_digest(content), frozenset({ANY}))
    read = _Reading()
    read.look(tree)
    return Source(
        _digest("\0".join(_canonical(tree, read.messages)).encode()),
        frozenset(read.imports),
        frozenset(filter(_NAME.fullmatch, read.texts)),
    )


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class _Reading:
    """Collects imports and texts of a syntax tree, and the texts that are messages."""

    def __init__(self) -> None:
        self.imports: set[str] = set()
        self.texts: set[str] = set()
        self.messages: set[ast.AST] = set()  # expressions whose texts only somebody reads

    def look(self, tree: ast.AST) -> None:
        checks: set[ast.AST] = set()
        left = [tree]
        while left:  # trees may be deeper than Python recurses
            node = left.pop()
            match node:
                case ast.If(test=ast.Name("TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING")):
                    left += node.orelse
                    continue
                case ast.Import():
                    self.imports.update(alias.name for alias in node.names)
                case ast.Name(id=name) | ast.Attribute(attr=name) | ast.alias(name=name) if (
                    name in _IMPORTERS
                ):
                    self.imports.add(ANY)
                case ast.ImportFrom():
                    base = "." * node.level + (node.module or "")
                    self.imports.add(base)
                    dot = "." if node.module else ""
                    self.imports.update(f"{base}{dot}{alias.name}" for alias in node.names)
                case ast.Constant(str(text)):
                    self.texts.add(text)
                case ast.Raise(exc=ast.Call(args=args, keywords=keywords)):
                    self.messages.update(args, keywords)
                case ast.Assert(msg=ast.AST() as message):
                    self.messages.add(message)
                case ast.Expr(ast.Call(ast.Name("require"), args, keywords)):
                    checks.update(args[1:], keywords)
            left += ast.iter_child_nodes(node)
        if "trainables.errors.require" in self.imports:
            self.messages |= checks


class _Mark(str):
    """An end."""


_PARTS_ARE_WORDS = (ast.keyword, ast.JoinedStr, ast.BinOp, ast.IfExp)  # of a message, too


def _canonical(tree: ast.AST, messages: set[ast.AST]) -> Iterator[str]:
    """Tokens of a syntax tree that decide; the same on any Python, unlike ``ast.dump``.

    Left out are places, statements that do nothing (docstrings among them), and the texts of
    messages. Nodes and lists have ends, so that no two trees give the same tokens.
    """
    left: list[tuple[object, bool]] = [(tree, False)]  # and whether it is a message
    while left:
        item, is_message = left.pop()
        is_message |= item in messages if isinstance(item, ast.AST) else False
        if isinstance(item, _Mark):
            yield item
        elif isinstance(item, list):
            yield "["
            left.append((_Mark("]"), False))
            left += [(one, is_message) for one in reversed(item) if not _does_nothing(one)]
        elif not isinstance(item, ast.AST):
            yield hex(item) if type(item) is int else ascii(item)
        elif not (is_message and isinstance(item, ast.Constant) and isinstance(item.value, str)):
            yield f"{type(item).__name__}("
            left.append((_Mark(")"), False))
            is_message &= isinstance(item, _PARTS_ARE_WORDS)
            for name in reversed(item._fields):
                value = getattr(item, name, None)
                # Later versions of Python have fields more, which are empty.
                if value not in (None, []) and name not in ("ctx", "kind"):
                    left += (value, is_message), (_Mark(name), False)


def _does_nothing(item: object) -> bool:
    """True for a statement without an effect, as docstrings are."""
    is_value = isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant)
    return is_value or isinstance(item, ast.Pass)
