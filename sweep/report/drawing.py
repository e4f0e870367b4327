"""Figures as pictures of a page and as files, many at a time."""

from __future__ import annotations

import io
import multiprocessing
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

from sweep.report.figures import FIGURES, draw, drawing_of
from sweep.report.measured import Measured
from sweep.report.pages import hover
from sweep.report.pages.markup import Pages, Picture
from sweep.report.pages.svg import inlined
from sweep.report.style import cells, style
from trainables.machine.cores import usable_cores
from trainables.machine.parent_process import end_with_parent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = ("pdf", "png")  # of a figure, beside the page
DPI = 200  # of a PNG
FEW = 4  # settings that one process draws sooner than others have started


def drawn(
    data: Measured, keys: Sequence[str] = tuple(FIGURES), formats: Sequence[str] = FORMATS
) -> dict[str, Pages]:
    """The figures that there is anything for, drawn on all CPUs where there is much to draw."""
    one = partial(_drawn, data, formats)
    workers = min(usable_cores(), len(keys))
    if len(data.entries) <= FEW or workers == 1:
        drawn_pages = list(map(one, keys))
    else:
        # A fork would copy the locks of threads that read records.
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(workers, spawn, end_with_parent, (os.getpid(),)) as pool:
            drawn_pages = list(pool.map(one, keys))
    return {key: pages for key, pages in zip(keys, drawn_pages, strict=True) if pages}


def _drawn(data: Measured, formats: Sequence[str], key: str) -> Pages:
    return {
        name: Picture(
            drawing_of(name).title,
            drawing_of(name).caption,
            inlined(rendered(figure, "svg").decode(), name, cells(figure)),
            hover.panels(figure),
            {form: rendered(figure, form) for form in formats},
        )
        for name, figure in draw(data, [key]).items()
    }


def rendered(figure: Figure, form: str) -> bytes:
    """A figure as a file's content; the same figure gives the same bytes.

    It is drawn once: ``savefig`` would draw it a first time for a layout that it has.
    """
    from matplotlib.backends import backend_agg, backend_pdf, backend_svg

    canvases: Mapping[str, Any] = {
        "svg": backend_svg.FigureCanvasSVG,
        "pdf": backend_pdf.FigureCanvasPdf,
        "png": backend_agg.FigureCanvasAgg,
    }
    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(form, {})
    stream, dpi, canvas = io.BytesIO(), figure.dpi, figure.canvas
    with style():
        figure.set_dpi(DPI)
        draw_into = getattr(canvases[form](figure), f"print_{form}")
        draw_into(stream, metadata={"Title": figure.get_label(), **undated})
    figure.set_dpi(dpi)
    figure.set_canvas(canvas)
    return stream.getvalue()
