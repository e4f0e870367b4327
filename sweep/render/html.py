"""HTML from Jinja templates; ``table.html.jinja`` is that of every table. Pure."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import TYPE_CHECKING

from sweep.render.table import ShortForm, note_texts

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


def fill(template: Path, **values: object) -> str:
    """The text of a template; all that is no markup is escaped.

    Args:
        template: a file, which may use those beside it and ``table.html.jinja``.
        values: by the names that the template has for them.
    """
    return _environment(template.parent).get_template(template.name).render(values)


@functools.cache
def _environment(folder: Path) -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        autoescape=True,
        loader=FileSystemLoader([folder, Path(__file__).parent]),
        lstrip_blocks=True,
        trim_blocks=True,
        undefined=StrictUndefined,  # a misspelt name is an error
    )
    environment.filters |= {"code": _code, "note_texts": note_texts, "rows": _rows}
    environment.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "separators": (",", ":")}
    return environment


def _rows(shown: ShortForm) -> list[tuple[str, ...]]:
    return list(zip(*(cells for _, cells in shown), strict=True))


def _code(text: str) -> Markup:
    """Text whose words between backticks are code."""
    from markupsafe import Markup, escape

    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(text))))
