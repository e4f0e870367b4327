"""Values that both pages of a report have, and their templates. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from html import unescape
from pathlib import Path

from markupsafe import Markup

from sweep.glossary import explained
from sweep.render.html import fill
from sweep.results.provenance import Manifest, Subject
from sweep.results.status import time_text
from trainables.plain import Json

_FOLDER = Path(__file__).parent
# Figures that are open; the others open on a click, and for a printer.
OPEN = ("gains", "forest", "search-gain", "scores", "layers")


@dataclass(frozen=True)
class Picture:
    """A figure as the page shows it."""

    title: str
    caption: str
    svg: str  # of ``svg.inlined``
    panels: Sequence[Mapping[str, Json]]  # of ``hover.panels``
    files: Mapping[str, bytes] = field(default_factory=dict)  # by format, for a paper


Pages = Mapping[str, Picture]  # of one figure, by their keys


@dataclass(frozen=True)
class Paragraph:
    """A paragraph that is more than its text; other paragraphs are plain strings."""

    text: str
    strong: str = ""  # words before it
    is_warning: bool = False
    link: str = ""  # where the words behind it lead
    linked: str = ""


@dataclass(frozen=True)
class Commands:
    """Commands to paste, by the sentence that explains each; one without a command is empty."""

    following: Mapping[str, str]  # the next step
    again: Mapping[str, str]  # to see everything again
    by_setting: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # trains its pair


def fill_page(template: str, **values: object) -> str:
    """A page; its glossary has the words that stand on it."""
    style, script = (
        Markup((_FOLDER / name).read_text(encoding="utf-8")) for name in ("style.css", "script.js")
    )
    return fill(
        _FOLDER / template,
        open_figures=OPEN,
        style=style,
        script=script,
        explained=lambda markup: explained(_plain_text(markup)),
        **values,
    )


def _plain_text(markup: str) -> str:
    """Text between the tags, without points for the pointer and styles."""
    shown = re.sub(r"<(script|style)\b.*?</\1>", " ", markup, flags=re.S)
    return re.sub(r"<[^>]*>", " ", shown)


def open_first(pictures: Mapping[str, Pages]) -> dict[str, Pages]:
    """Figures by key, those that are OPEN before the others."""
    return dict(sorted(pictures.items(), key=lambda figure: figure[0] not in OPEN))


def as_json(value: Json) -> str:
    """Plain values, to be read."""
    return json.dumps(value, indent=1, sort_keys=True)


def subject_of(page: str) -> Subject | None:
    """The sweep and the arms that a page is of; None where it does not say it.

    >>> subject_of('<pre tabindex=0>{"sweep": "tiny", "arms": {"final": 9}}</pre>').arms.final
    9
    >>> subject_of('<pre tabindex=0>["sweep"]</pre>')
    """
    for text in re.findall(r"<pre tabindex=0>(.*?)</pre>", page, flags=re.S):
        with suppress(ValueError, TypeError, AttributeError):
            plain = json.loads(unescape(text))
            if {"sweep", "arms"} <= plain.keys():
                return Subject.from_json({**plain, "arms": plain["arms"] or {}})
    return None


def provenance_of(manifest: Manifest) -> tuple[str, list[str], str]:
    """Code and data of the arms in words, their machines, and the whole manifest as JSON."""
    machines = []
    for environment in manifest.environments:
        packages = environment.get("packages") or {}
        versions = ", ".join(f"{n} {v}" for n, v in sorted(packages.items()))
        rest = {k: v for k, v in environment.items() if k != "packages" and v is not None}
        machine = ", ".join(f"{k} {_plain(v)}" for k, v in sorted(rest.items()))
        machines += ["; ".join(filter(None, (machine, versions)))] * bool(environment)
    data = [f"{one.name}, fingerprint {one.fingerprint or 'unknown'}" for one in manifest.data]
    arms = manifest.arms
    text = (
        f"Training version {manifest.training_version}; {arms.final} arms took "
        f"{time_text(arms.wall_s)} in all. Data: {'; '.join(data) or 'none yet'}."
    )
    return text, machines, as_json(manifest.to_json())


def _plain(value: Json) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
