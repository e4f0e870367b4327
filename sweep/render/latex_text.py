r"""Texts of a LaTeX table: shortened, escaped, with symbols; their widths. Pure.

Widths are those of cmr8, which the article class sets at 10pt in \footnotesize.
"""

from __future__ import annotations

import re

from sweep.render.table import Bold

COLUMN_PT = 228  # of two columns in the article class; conferences have 235 to 252
LABEL_PT = 96.0  # a wider label breaks


def title_text(text: str) -> str:
    """A title above rows, which breaks where it is wider than a column."""
    if 1.05 * width_pt(text) <= COLUMN_PT:
        return escaped(text)
    return rf"\parbox[t]{{\columnwidth}}{{\raggedright {escaped(text)}\strut}}"


_SHORT = {  # in LaTeX, where a column is narrow
    "(selection-biased)": "(biased)",
    "unconstrained": "unconstr.",
    "constrained": "constr.",
}


def shortened(text: str) -> str:
    """A header or cell with the short forms of long words."""
    if isinstance(text, Bold):
        return text
    for long, short in _SHORT.items():
        text = text.replace(long, short)
    return text


def header_text(text: str, side: str) -> str:
    r"""A header, a word a line.

    >>> header_text("unconstrained loss", "r")
    '\\shortstack[r]{unconstr.\\\\loss}'
    """
    words = [with_symbols(escaped(word)) for word in shortened(text).split()]
    stacked = r"\\".join(words)
    return stacked if len(words) == 1 else rf"\shortstack[{side}]{{{stacked}}}"


_SYMBOLS = {"alpha": r"$\alpha$", "gamma": r"$\gamma$", "f0": "$f_0$"}


def with_symbols(written: str) -> str:
    r"""Words of a header or a note as symbols; within names they stay words.

    >>> with_symbols(r"at train gamma: alpha, train\_gamma, alpha-run")
    'at train $\\gamma$: $\\alpha$, train\\_gamma, alpha-run'
    """
    alone = rf"(?<![\w.\\-])({'|'.join(_SYMBOLS)})(?!\w|-|\.\w)"
    return re.sub(alone, lambda word: _SYMBOLS[word[1]], written)


_NUMBER = re.compile(r"([+-]?\d[\d.]*)(?:e([+-]?\d+))?")


def cell_text(text: str, *, is_label: bool = False) -> str:
    r"""A number in math mode, so that its minus is one and its exponent is raised; a label breaks.

    >>> cell_text("-0.5"), cell_text("5.17e-05"), cell_text(Bold("+0.5")), cell_text("1.5?")
    ('$-0.5$', '$5.17\\times10^{-5}$', '$\\mathbf{+0.5}$', '$1.5$\\textsuperscript{?}')
    """
    if is_label and width_pt(text) > LABEL_PT:
        return rf"\parbox[t]{{{LABEL_PT:g}pt}}{{\raggedright {escaped(text)}\strut}}"
    parsed = re.fullmatch(rf"{_NUMBER.pattern}([{''.join(MARKS)}]*)", text)
    if parsed is None:
        plain = re.sub(r"(?<![\w.])[+-]\d[\d.]*", r"$\g<0>$", escaped(text))
        return rf"\textbf{{{plain}}}" if isinstance(text, Bold) else plain
    mantissa, exponent, marks = parsed.groups()
    mantissa = rf"\mathbf{{{mantissa}}}" if isinstance(text, Bold) else mantissa
    raised = rf"\times10^{{{int(exponent)}}}" if exponent else ""
    return f"${mantissa}{raised}$" + "".join(MARKS[mark] for mark in marks)


MARKS = {  # behind a number, raised
    "†": r"\textsuperscript{\textdagger}",
    "✗": r"\textsuperscript{$\times$}",
    "?": r"\textsuperscript{?}",
    "°": r"\textsuperscript{$\circ$}",
    "‡": r"\textsuperscript{$\ddagger$}",
}
_ESCAPES = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",
    "—": "---",
    **{mark: text for mark, text in MARKS.items() if mark != "?"},
}
_LONG_WORD = 20  # characters from which a word may break anywhere, since TeX may find no place


def escaped(text: str) -> str:
    r"""Text as LaTeX takes it; a long word may break behind its signs, or else anywhere.

    >>> print(escaped("a_b 50%"), escaped("ucsd_ped2-ut-L3-g0.15-detached"))
    a\_b 50\% ucsd\_\allowbreak{}ped2-ut-L3-g0.15-detached
    """
    return " ".join(map(_escaped_word, text.replace("\n", " ").split(" ")))


def _escaped_word(word: str) -> str:
    pieces = re.findall(_PIECE, word) if len(word) > _LONG_WORD else [word]
    written = ["".join(_ESCAPES.get(c, c) for c in piece) for piece in pieces]
    # TeX breaks behind a hyphen by itself
    return r"\allowbreak{}".join(written).replace(r"-\allowbreak{}", "-")


_PIECE = r"[^-_/=:]{0,15}[-_/=:]|.{1,16}"


_WIDTHS_PT = {  # of cmr8 at 8pt; of what is not here, those of a capital
    **dict.fromkeys(" !',.:;[]`il|fjI-", 2.83),
    **dict.fromkeys('_()trs?°†‡✗"', 3.9),
    **dict.fromkeys("cez$*/0123456789\\^agovkqxy~", 4.4),
    **dict.fromkeys("Sbdhnpu", 4.75),
    **dict.fromkeys("#%mMW—", 8.5),
}


def width_pt(text: str) -> float:
    r"""About how wide a text is, in pt; an exponent is written as a power of ten."""
    if re.fullmatch(_NUMBER, text) and "e" in text:
        return width_pt(text.partition("e")[0]) + 33
    wide = 1.15 if isinstance(text, Bold) else 1.0
    signs = len(re.findall(r"(?<![\w.])[-]\d", text)) * 4  # a minus is wider than a hyphen
    return wide * sum(_WIDTHS_PT.get(character, 6.9) for character in text) + signs
