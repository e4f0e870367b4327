"""The report: one HTML page that opens from disk, with everything inside. Pure.

Figures are inline SVG pictures, tables sort by a click on a header, and nothing is fetched. Light
or dark as the reader's system is; a print style sheet makes it a PDF.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape

from sweep.report.figures import drawing_of
from sweep.results.findings import findings
from sweep.results.tables.formats import NOTHING, Table
from sweep.results.verdict_text import verdict_lines
from sweep.study.selection import outcome_text
from trainables.plain import Json


def page(
    status: Mapping[str, Json],
    entries: Sequence[Mapping[str, Json]],
    tables: Iterable[Table],
    figures: Mapping[str, bytes],
    provenance: Mapping[str, Json],
    commands: Mapping[str, str],
) -> str:
    """The page as a text.

    Args:
        status: that of ``status_entry``, and of the sweep ``name``, ``space`` and ``summary``, and
            ``notes``: sentences on what the page leaves out.
        entries: those of ``best_entries``; a section each.
        tables: below the sections, in this order.
        figures: SVG by key of ``draw``.
        provenance: what ``provenance.manifest`` says.
        commands: what to type, by what it does.
    """
    name = str(status["name"])
    parts = [
        f"<h1>{escape(name)}</h1>",
        f"<p class=what>{escape(str(status['summary']))}</p>",
        _progress(status),
        *(f"<p>{escape(sentence)}</p>" for sentence in findings(entries)),
        *(f"<p>{escape(line)}</p>" for line in status["notes"]),
        _biased(entries),
        _contents(entries, figures),
        '<h2 id="figures">Figures</h2>',
        *(_figure(key, svg) for key, svg in figures.items()),
        *("<p>Nothing is measured yet that a figure could show.</p>" for _ in [0] if not figures),
        '<h2 id="settings">Settings, one by one</h2>',
        *(_setting(entry) for entry in entries),
        '<h2 id="tables">Tables</h2>',
        *(_table(table) for table in tables),
        '<h2 id="again">How to get it again</h2>',
        *(f"<p>{escape(what)}</p><pre>{escape(said)}</pre>" for what, said in commands.items()),
        '<h2 id="provenance">Provenance</h2>',
        _provenance(provenance),
    ]
    return _PAGE.format(title=escape(f"{name}: report"), body="\n".join(parts))


def _progress(status: Mapping[str, Json]) -> str:
    arms = status["arms"]
    ends = ", ".join(f"{count} {how}" for how, count in status["statuses"].items())
    done = f"{arms['final']} of {arms['wanted']} arms are final{f' ({ends})' * bool(ends)}."
    state = status["state"]
    more = (
        ""
        if state in ("finished", "failed")
        else " This page is of a sweep that is not at its end."
    )
    failures = status["failures"]
    failed = "".join(
        f"<li>{escape(f['setting'])}, {escape(f['signature'])}: {escape(str(f['reason']))}</li>"
        for f in failures[:_FEW]
    )
    rest = f"<li>and {len(failures) - _FEW} more</li>" * (len(failures) > _FEW)
    listed = f"<details><summary>Arms that ended early</summary><ul>{failed}{rest}</ul></details>"
    return f"<p><b>{state.capitalize()}</b>: {done}{more}</p>" + listed * bool(failures)


_FEW = 20  # arms whose reason is on the page


def _biased(entries: Sequence[Mapping[str, Json]]) -> str:
    if not any(entry["difference"].get("selection_biased") for entry in entries):
        return ""
    return (
        "<p class=warning>Differences are of pairs that the search selected by these very scores: "
        "they look better than they are, and are no result before fresh seeds confirm them.</p>"
    )


def _contents(entries: Sequence[Mapping[str, Json]], figures: Mapping[str, bytes]) -> str:
    links = [("figures", "Figures"), ("settings", f"Settings ({len(entries)})")]
    links += [("tables", "Tables"), ("again", "Again"), ("provenance", "Provenance")]
    return "<nav>" + " ".join(f'<a href="#{at}">{text}</a>' for at, text in links) + "</nav>"


def _figure(key: str, svg: bytes) -> str:
    drawing = drawing_of(key)
    title, caption = escape(drawing.title), escape(drawing.caption)
    source = base64.b64encode(svg).decode()
    return (
        f'<figure id="figure-{key}"><figcaption><b>{title}.</b> {caption}</figcaption>'
        f'<div class=wide><img alt="{title}. {caption}" src="data:image/svg+xml;base64,{source}">'
        "</div></figure>"
    )


def _setting(entry: Mapping[str, Json]) -> str:
    name = escape(entry["setting"])
    head = f'<h3 id="{name}">{name}</h3>'
    tried = entry["proposals"]
    kind = "no pair yet"
    if entry["proposal"] is not None:
        kind = f"proposal {entry['proposal']}"
        kind = f"Winner: {kind}" if entry["winner"] else f"No winner; the closest is {kind}"
    counts = f"{tried['finished']} of {tried['wanted']} proposals finished"
    outcomes = outcome_text(entry["outcomes"])
    lines = [f"<b>{kind}.</b> {counts}{f': {outcomes}' * bool(outcomes)}."]
    if entry["why"]:
        lines.append(escape(f"Why: {entry['why']}."))
    if entry["point"]:
        values = ", ".join(
            f"{n.removeprefix('constraint.')} {_plain(v)}" for n, v in entry["point"].items()
        )
        lines.append(escape(values))
    if entry["proposal"] is not None:
        lines += [escape(line) for line in verdict_lines(entry)]
    return head + "<ul>" + "".join(f"<li>{line}</li>" for line in lines) + "</ul>"


def _plain(value: Json) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _table(table: Table) -> str:
    heads = [header for header, _ in table.shown]
    rows = zip(*(cells for _, cells in table.shown), strict=True)
    head = "".join(f'<th scope="col"><button>{escape(h)}</button></th>' for h in heads)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell) or NOTHING}</td>" for cell in row) + "</tr>"
        for row in rows
    )
    notes = "".join(f"<li>{escape(note)}</li>" for note in table.notes)
    return (
        f'<section id="table-{table.name}"><h3>{escape(table.caption)}</h3>'
        f'<div class=wide tabindex=0><table class="texts-{table.texts}"><thead><tr>{head}</tr>'
        f"</thead><tbody>{body}</tbody></table></div><ul class=notes>{notes}</ul></section>"
    )


def _provenance(found: Mapping[str, Json]) -> str:
    rows = []
    for environment in found["environments"]:
        packages = environment.get("packages") or {}
        versions = ", ".join(f"{n} {v}" for n, v in sorted(packages.items()))
        rest = {k: v for k, v in environment.items() if k != "packages" and v is not None}
        said = ", ".join(f"{k} {_plain(v)}" for k, v in sorted(rest.items()))
        rows.append(f"<li>{escape(said)}{escape(f'; {versions}' if versions else '')}</li>")
    whole = escape(json.dumps(found, indent=1, sort_keys=True))
    arms = found["arms"]
    return (
        f"<p>Training version {found['training_version']}; {arms['final']} arms took "
        f"{arms['wall_s'] / 3600:.1f} hours in all. Where they were trained:</p>"
        f"<ul>{''.join(rows)}</ul>"
        f"<details><summary>Everything, as JSON</summary><pre>{whole}</pre></details>"
    )


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<link rel="icon" href="data:,">
<style>
:root {{ color-scheme: light dark; --line: #8884; --soft: #8881;
  --link: light-dark(#0060a0, #7cc4ff); }}
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 0 auto; padding: 1rem; }}
h1, h2, h3 {{ line-height: 1.2; overflow-wrap: anywhere; }}
h2 {{ border-bottom: 1px solid var(--line); padding-bottom: .2rem; margin-top: 2.5rem; }}
a {{ color: var(--link); }}
nav a {{ margin-right: 1rem; }}
.what {{ font-size: 1.1rem; }}
.warning {{ border-left: 4px solid #d55e00; padding: .3rem .8rem; background: var(--soft); }}
figure {{ margin: 1.5rem 0; }}
figure img {{ display: block; background: white; border-radius: 4px; }}
figcaption {{ margin-bottom: .4rem; }}
.wide {{ overflow-x: auto; }}
table {{ border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; }}
th, td {{ padding: .25rem .6rem; border-bottom: 1px solid var(--line); text-align: right; }}
th:nth-child(-n+2), td:nth-child(-n+2) {{ text-align: left; }}
th button {{ all: unset; cursor: pointer; font-weight: 600; }}
th button:focus-visible {{ outline: 2px solid var(--link); }}
th[aria-sort=ascending] button::after {{ content: " \\2191"; }}
th[aria-sort=descending] button::after {{ content: " \\2193"; }}
.notes, details {{ font-size: .85rem; }}
pre {{ overflow-x: auto; background: var(--soft); padding: .6rem; }}
@media print {{
  nav, details {{ display: none; }}
  figure, tr {{ break-inside: avoid; }}
  figure img {{ max-width: 100%; }}
  body {{ max-width: none; }}
}}
</style>
</head>
<body>
{body}
<script>
document.querySelectorAll("th button").forEach(function (button) {{
  button.addEventListener("click", function () {{
    var head = button.parentNode, body = head.closest("table").tBodies[0];
    var at = head.cellIndex, up = head.getAttribute("aria-sort") !== "ascending";
    Array.from(head.parentNode.cells).forEach(function (h) {{ h.removeAttribute("aria-sort"); }});
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    var key = function (row) {{ return row.cells[at].textContent.trim(); }};
    var rows = Array.from(body.rows).sort(function (a, b) {{
      var x = key(a), y = key(b), nx = parseFloat(x), ny = parseFloat(y);
      var by = isNaN(nx) || isNaN(ny) ? (isNaN(nx) - isNaN(ny)) || x.localeCompare(y) : nx - ny;
      return up ? by : -by;
    }});
    rows.forEach(function (row) {{ body.appendChild(row); }});
  }});
}});
</script>
</body>
</html>
"""
