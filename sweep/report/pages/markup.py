"""Parts of a page as HTML: the frame, figures, tables, commands. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from html import escape, unescape

from sweep.render.table import NOTHING, Table, note_texts
from sweep.report.pages.look import SCRIPT, STYLE
from sweep.report.pages.words import explained
from trainables.plain import Json

Answers = Mapping[str, Iterable[str]]  # paragraphs of HTML by the question that they answer
# Figures that are open; the others open on a click, and for a printer.
OPEN = ("gains", "forest", "search-gain", "scores", "layers")


@dataclass(frozen=True)
class Picture:
    """A figure as the page shows it."""

    title: str
    caption: str
    svg: str  # of ``svg.inlined``
    panels: Sequence[Mapping[str, Json]]  # of ``hover.panels``


def document(title: str, head: str, sections: Mapping[str, str]) -> str:
    """A page: its head, sections by the words that contents name them with, and a glossary.

    A section without content is left out; the glossary has the words that stand on the page.
    """
    shown = " ".join(_plain_text(body) for body in (head, *sections.values()))
    every = {**sections, "Words": definitions(explained(shown))}
    whole = {words: body for words, body in every.items() if body}
    links = " ".join(f'<a href="#{anchor(w)}">{escape(w)}</a>' for w in whole)
    body = "\n".join(
        f'<section aria-labelledby="{anchor(words)}"><h2 id="{anchor(words)}">{escape(words)}</h2>'
        f"{body}</section>"
        for words, body in whole.items()
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<title>{escape(title)}</title>\n<link rel="icon" href="data:,">\n'
        f"<style>{STYLE}</style>\n</head>\n<body>\n"
        f'<a class=skip href="#content">To the content</a>\n{head}\n'
        f'<nav aria-label="Contents">{links}</nav>\n<main id="content">\n{body}\n</main>\n'
        f'<div id="tip" role="status"></div>\n<script>{SCRIPT}</script>\n</body>\n</html>\n'
    )


def _plain_text(markup: str) -> str:
    """What a reader reads: no tags, no points for the pointer, no styles."""
    shown = re.sub(r"<(script|style)\b.*?</\1>", " ", markup, flags=re.S)
    return re.sub(r"<[^>]*>", " ", shown)


def definitions(meanings: Mapping[str, str]) -> str:
    """What words mean, one below the other."""
    items = "".join(
        f"<dt>{escape(word)}</dt><dd>{_code(escape(meaning))}</dd>"
        for word, meaning in meanings.items()
    )
    return f"<dl class=words>{items}</dl>" * bool(items)


def anchor(words: str) -> str:
    """The id of a section.

    >>> anchor("What was searched")
    'what-was-searched'
    """
    return "-".join(words.lower().split())


def lead(name: str, what: str, answer: Answers, shown: str, rest: Answers) -> str:
    """The first screen: a title, the answer with its table, what else a reader asks.

    Args:
        name: the title.
        what: is reported.
        answer: paragraphs of HTML by the question that they answer.
        shown: the table, as HTML.
        rest: as ``answer``.
    """
    return (
        f"<header><h1>{escape(name)}</h1><p class=what>{escape(what)} "
        '(<a href="#words">words explained</a>)</p>'
        f"{_answers(answer)}{shown}{_answers(rest)}</header>"
    )


def _answers(texts: Answers) -> str:
    items = "".join(
        f"<dt>{escape(question)}</dt><dd>{''.join(map(paragraph, of))}</dd>"
        for question, of in texts.items()
    )
    return f"<dl class=lead>{items}</dl>"


def paragraph(markup: str) -> str:
    """A paragraph; what is a block of its own stays one."""
    return markup if markup.startswith(("<pre", "<p", "<details")) else f"<p>{markup}</p>"


def warning(text: str) -> str:
    """A paragraph that a reader must not miss."""
    return f"<p class=warning>{escape(text)}</p>"


def command(what: str, said: str) -> str:
    """What to type, below what it does; of advice without a command the advice."""
    return f"<p>{escape(what)}</p>{f'<pre><code>{escape(said)}</code></pre>' * bool(said)}"


def bullets(texts: Iterable[str], *, few: int | None = None) -> str:
    """A list of plain texts; of more than ``few`` the rest is counted."""
    every = list(texts)
    shown = every if few is None else every[:few]
    items = "".join(f"<li>{escape(text)}</li>" for text in shown)
    rest = f"<li>and {len(every) - len(shown)} more</li>" * (len(shown) < len(every))
    return f"<ul>{items}{rest}</ul>" * bool(every)


def details(summary: str, body: str, *, printed: bool = True) -> str:
    """What opens on a click, and for a printer; nothing where there is nothing."""
    how = " class=printed" * printed
    return f"<details{how}><summary>{escape(summary)}</summary>{body}</details>" * bool(body)


def as_json(value: Json) -> str:
    """Plain values, to be read."""
    text = json.dumps(value, indent=1, sort_keys=True)
    return f"<pre tabindex=0>{escape(text)}</pre>"


def manifest_of(page: str) -> Mapping[str, Json]:
    """The provenance that stands on a page; empty where there is none.

    >>> manifest_of(as_json({"sweep": "tiny", "arms": {"final": 9}}))["arms"]
    {'final': 9}
    >>> manifest_of(as_json(["sweep"]))
    {}
    """
    for text in re.findall(r"<pre tabindex=0>(.*?)</pre>", page, flags=re.S):
        with suppress(ValueError):
            found = json.loads(unescape(text))
            if isinstance(found, dict) and {"sweep", "arms"} <= found.keys():
                return found
    return {}


def figures(found: Mapping[str, Mapping[str, Picture]]) -> str:
    """Figures by key, each with its pages; those that are not OPEN, and further pages, fold."""
    return "".join(
        _pages(key, found[key]) for key in sorted(found, key=lambda key: key not in OPEN)
    )


def _pages(key: str, pages: Mapping[str, Picture]) -> str:
    first, *more = (figure(name, picture) for name, picture in pages.items())
    settings = f"Further settings ({len(more)} page{'s' * (len(more) > 1)})"
    whole = first + details(settings, "".join(more))
    return whole if key in OPEN else details(pages[key].title, whole)


def _code(text: str) -> str:
    """Escaped text whose words between backticks are code."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", text)


def figure(key: str, picture: Picture) -> str:
    """A figure with its caption, its points for the pointer, and the same as a table."""
    title, caption = escape(picture.title), escape(picture.caption)
    data = json.dumps(picture.panels, separators=(",", ":"), ensure_ascii=False)
    data = data.replace("<", "\\u003c")  # else a word could end the script
    heads = ("panel", "line", "", "x", "", "y")
    row = "".join(f"<th scope=col>{head}</th>" for head in heads)
    return (
        f'<figure id="figure-{key}"><figcaption><b>{title}.</b> {_code(caption)}</figcaption>'
        f'<div class=picture tabindex=0 role="img" aria-label="{title}. {caption} Its numbers are '
        'in the table below it; arrow keys go from point to point.">'
        f'{picture.svg}</div><script type="application/json">{data}</script>'
        "<details><summary>Its numbers</summary><div class=wide tabindex=0><table><thead>"
        f"<tr>{row}</tr></thead><tbody></tbody></table></div></details></figure>"
    )


def table(table: Table, *, level: int = 3, linked: Collection[str] = ()) -> str:
    """A table whose headers sort; first cells that are ``linked`` lead to the part of this id."""
    heads = [header for header, _ in table.shown]
    rows = list(zip(*(cells for _, cells in table.shown), strict=True))
    classes = ["w" if at < table.texts else "" for at in range(len(heads))]
    head = "".join(
        f"<th scope=col{_class(of)}><button>{escape(text)}</button></th>"
        for text, of in zip(heads, classes, strict=True)
    )
    body = []
    for row in rows:
        cells = [escape(cell) or NOTHING for cell in row]
        if row[0] in linked:
            cells[0] = f'<a href="#{escape(row[0])}">{cells[0]}</a>'
        first = f"<th scope=row{_class(classes[0])}>{cells[0]}</th>"
        rest = (f"<td{_class(c)}>{t}</td>" for t, c in zip(cells[1:], classes[1:], strict=True))
        body.append(f"<tr>{first}{''.join(rest)}</tr>")
    notes = "".join(f"<li>{escape(note)}</li>" for note in note_texts(table))
    caption = escape(table.caption)
    return (
        f'<section id="table-{table.name}" aria-label="{caption}"><h{level}>{caption}</h{level}>'
        f"<div class=wide tabindex=0><table><thead><tr>{head}</tr></thead>"
        f"<tbody>{''.join(body)}</tbody></table></div>"
        f"{f'<ul class=notes>{notes}</ul>' * bool(notes)}</section>"
    )


def _class(name: str) -> str:
    return f" class={name}" if name else ""
