"""Pictures inside a page: matplotlib's SVG without what no browser needs. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

# Pixels of the page to a point of paper, at most: a figure of two columns fills the page's 1024,
# and 6.5 points, the least, are 14 pixels.
SCALE = 2.12
_FAMILY = re.compile(r"font-family: [^;\"]*;? ?")
_NUMBER = re.compile(r"(-?\d+\.\d{2})\d+")
_TAG = re.compile(r"<[^>]*>")
_STYLE = re.compile(r' style="([^"]*)"')
_PANEL = re.compile(r'^  <g id="axes_\d+">\n.*?^  </g>\n', flags=re.M | re.S)
_LEGEND = re.compile(r'^  <g id="legend_\d+">\n.*?^  </g>\n', flags=re.M | re.S)
_CUT = "\0"


def inlined(svg: str, key: str, cells: Sequence[tuple[float, float, float, float]]) -> str:
    """A picture as elements ``<svg>``, its legend's and one a panel, which a page arranges.

    Ids that something refers to begin with ``key``, since a page has each once; the others go, and
    so do fonts, empty groups and digits beyond a hundredth of a point. Its styles are classes.
    """
    legends, panels = _LEGEND.findall(svg), _PANEL.findall(svg)
    assert len(panels) == len(cells) - 1, f"{key}: {len(panels)} panels, {len(cells)} cells"
    defs = svg[svg.rindex("<defs>") : svg.rindex("</defs>") + len("</defs>")]
    body = _CUT.join(["".join(legends), defs + panels[0], *panels[1:]])
    body = body.replace("xlink:href", "href")
    body = re.sub(r"<style.*?</style>", "", body, count=1, flags=re.S)
    body = re.sub(r"<!--.*?-->", "", body, flags=re.S)
    body = re.sub(r' transform="rotate\(-?0 [^"]*\)"', "", body)
    body = _TAG.sub(lambda tag: _NUMBER.sub(r"\1", _FAMILY.sub("", tag[0])), body)
    meant = set(re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', body))
    wanted = {one for pair in meant for one in pair if one}
    body = re.sub(r' id="([^"]*)"', lambda m: f' id="{key}-{m[1]}"' if m[1] in wanted else "", body)
    body = re.sub(r'href="#', f'href="#{key}-', body).replace("url(#", f"url(#{key}-")
    body = re.sub(r"\s*\n\s*", "\n", body)
    for _ in range(3):  # groups in groups
        body = re.sub(r"<g>\s*</g>", "", body)
    body, rules = _as_classes(body, key)
    above, *below = (
        f'<svg viewBox="{" ".join(f"{length:.2f}" for length in cell)}" style="--w:{cell[2]:.1f}" '
        f'class="c-{key}" aria-hidden="true">{piece.strip()}</svg>'
        for cell, piece in zip(cells, body.split(_CUT), strict=True)
    )
    width = float(re.search(r'viewBox="0 0 ([\d.]+)', svg)[1])  # type: ignore[index]
    return (
        f'<div class=panels style="--of:{width:.1f};--most:{SCALE * width:.0f}px">'
        f"<style>{rules}</style>{f'<div class=legend>{above}</div>' * bool(legends)}"
        f"{''.join(below)}</div>"
    )


def _as_classes(body: str, key: str) -> tuple[str, str]:
    """The same with a class for every style, and their rules."""
    names: dict[str, str] = {}

    def named(named_class: re.Match[str]) -> str:
        return f' class="{names.setdefault(named_class[1], f"s{len(names)}")}"'

    body = _STYLE.sub(named, body)
    return body, "".join(f".c-{key} .{name}{{{style}}}" for style, name in names.items())
