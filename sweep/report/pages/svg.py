"""Pictures inside a page: matplotlib's SVG without what no browser needs. Pure."""

from __future__ import annotations

import re

SCALE = 1.3  # pixels of the page to a point of paper: 8 points of text are 10 pixels
_FAMILY = re.compile(r"font-family: [^;\"]*;? ?")
_NUMBER = re.compile(r"(-?\d+\.\d{2})\d+")
_TAG = re.compile(r"<[^>]*>")
_STYLE = re.compile(r' style="([^"]*)"')


def inlined(svg: str, key: str) -> str:
    """The element ``<svg>`` of a picture, to stand in a page beside others.

    Ids that something refers to begin with ``key``, since a page has each once; the others go, and
    so do fonts, empty groups and digits beyond a hundredth of a point. Its styles are classes.
    """
    body = svg[svg.index("<svg") :]
    head, body = body.split(">", 1)
    size = re.search(r'viewBox="([^"]*)"', head)
    assert size is not None
    width, height = (float(length) for length in size[1].split()[2:])
    body = re.sub(r"<metadata>.*?</metadata>", "", body, count=1, flags=re.S)
    body = re.sub(r"<style.*?</style>", "", body, count=1, flags=re.S)
    body = re.sub(r"<!--.*?-->", "", body, flags=re.S)
    body = body.replace("xlink:href", "href")
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
    return (
        f'<svg width="{SCALE * width:.0f}" height="{SCALE * height:.0f}" viewBox="{size[1]}" '
        f'class="c-{key}" aria-hidden="true"><style>{rules}</style>{body.strip()}'
    )


def _as_classes(body: str, key: str) -> tuple[str, str]:
    """The same with a class for every style, and their rules."""
    names: dict[str, str] = {}

    def named(found: re.Match[str]) -> str:
        return f' class="{names.setdefault(found[1], f"s{len(names)}")}"'

    body = _STYLE.sub(named, body)
    return body, "".join(f".c-{key} .{name}{{{style}}}" for style, name in names.items())
