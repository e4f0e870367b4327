"""Ways to spoil a cluster file: each returns what changes the parsed file in place."""

from __future__ import annotations

from collections.abc import Callable

from trainables.plain import Json


def without(text: str) -> Callable[[Json], None]:
    """Every command without ``text``."""
    return instead(text, "")


def instead(text: str, other: str) -> Callable[[Json], None]:
    """Every command with ``other`` for ``text``."""

    def planted(plain: Json) -> None:
        lists = [value for key, value in plain.items() if key.endswith("_commands")]
        assert any(text in command for commands in lists for command in commands)
        for commands in lists:
            commands[:] = [command.replace(text, other) for command in commands]

    return planted


def given(*keys: str, to: Json) -> Callable[[Json], None]:
    """One place of the file set, or removed where ``to`` is None."""

    def planted(plain: Json) -> None:
        for key in keys[:-1]:
            plain = plain[key]
        if to is None:
            del plain[keys[-1]]
        else:
            plain[keys[-1]] = to

    return planted


def both(*changes: Callable[[Json], None]) -> Callable[[Json], None]:
    def planted(plain: Json) -> None:
        for change in changes:
            change(plain)

    return planted


def node(name: str, *keys: str, to: Json) -> Callable[[Json], None]:
    return given("available_node_types", name, "node_config", *keys, to=to)
