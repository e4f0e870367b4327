"""Points for a pointer, against what is plotted and where the picture has it."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from sweep.report.drawing import rendered
from sweep.report.pages import hover
from sweep.report.pages.svg import inlined
from sweep.report.style import cells, grid, head, style

X, Y = [0.0, 0.1, 0.2], [3.0, 300.123456789, 30.0]


def one_panel(**options: Any) -> tuple[Figure, Any]:
    figure = Figure(figsize=(4, 3))
    axes = figure.subplots()
    axes.set(title="a setting\nwinner", xlabel="test gamma", ylabel="RMSE, grey levels", **options)
    return figure, axes


def markers(svg: str, colour: str) -> list[tuple[float, float]]:
    """Where a picture has the markers of a line of this colour."""
    uses = re.findall(r'<use [^>]*x="([\d.]+)" y="([\d.]+)" style="([^"]*)"', svg)
    return [(float(x), float(y)) for x, y, style in uses if colour in style]


@pytest.mark.parametrize("scale", ["linear", "log"])
def test_values_are_those_plotted_and_lie_where_the_picture_has_them(scale: str) -> None:
    figure, axes = one_panel(yscale=scale)
    axes.plot(X, Y, "o", color="#123456", label="constrained")
    axes.axvline(0.1)  # part of the frame, no measurement
    svg = rendered(figure, "svg").decode()
    (panel,) = hover.panels(figure)
    assert (panel["title"], panel["x"]) == ("a setting winner", "test gamma")
    (series,) = panel["series"]
    assert (series["name"], series["x"]) == ("constrained", X)
    assert series["y"] == [3.0, 300.123, 30.0]  # six digits
    drawn = markers(svg, "#123456")
    assert len(drawn) == len(X)
    places = list(zip(series["at"][::2], series["at"][1::2], strict=True))
    np.testing.assert_allclose(places, drawn, atol=0.051)  # told to a tenth of a point


def test_every_kind_of_mark_has_its_points() -> None:
    figure, axes = one_panel()
    axes.errorbar(X, Y, yerr=1.0, capsize=2, label="with errors")
    axes.scatter(X, [1.0, 2.0, 3.0], label="scattered")
    axes.stairs([4.0, 5.0], [0.0, 1.0, 2.0], label="counted")
    axes.barh([0.0, 1.0], [7.0, 8.0], label="seconds")
    figure.draw_without_rendering()
    (panel,) = hover.panels(figure)
    found = {series["name"]: (series["x"], series["y"]) for series in panel["series"]}
    assert set(found) == {"with errors", "scattered", "counted", "seconds"}
    assert found["scattered"] == (X, [1.0, 2.0, 3.0])
    assert found["counted"] == ([0.5, 1.5], [4.0, 5.0])
    assert found["seconds"] == ([7.0, 8.0], [0.0, 1.0])


def test_an_axis_of_words_says_words_in_every_panel() -> None:
    figure = Figure()
    panels = figure.subplots(1, 2)
    for axes, labels in zip(panels, (["one", "two"], ["", ""]), strict=True):
        axes.plot([0.5, 0.7], [0, 1], "o", label="_hidden")
        axes.set_yticks([0, 1], labels)
    figure.draw_without_rendering()
    found = [series for panel in hover.panels(figure) for series in panel["series"]]
    assert [series["y"] for series in found] == [["one", "two"]] * 2
    assert [series["name"] for series in found] == ["", ""]


def test_missing_values_have_no_point_and_long_lines_are_thinned() -> None:
    figure, axes = one_panel()
    many = 3 * hover.MOST_POINTS
    axes.plot(np.arange(many), np.arange(many) % 7, label="long")
    axes.plot([1.0, 2.0], [float("nan"), 5.0], label="short")
    figure.draw_without_rendering()
    (panel,) = hover.panels(figure)
    long, *short = panel["series"]
    assert len(long["x"]) <= hover.MOST_POINTS
    assert long["y"] == [x % 7 for x in long["x"]]
    assert all(series["x"] == [2.0] for series in short)


def test_pictures_in_one_page_share_no_id_and_none_leads_astray() -> None:
    figure, axes = one_panel()
    axes.plot(X, Y, "o-")
    svg = rendered(figure, "svg").decode()
    one, other = (inlined(svg, key, cells(figure)) for key in ("one", "other"))
    ids = [set(re.findall(r' id="([^"]*)"', text)) for text in (one, other)]
    assert ids[0]
    assert not ids[0] & ids[1]
    for text, own in zip((one, other), ids, strict=True):
        assert set(re.findall(r'href="#([^"]*)"', text)) <= own
        assert set(re.findall(r"url\(#([^)]*)\)", text)) <= own
        assert "<metadata" not in text
        assert "http" not in text
    assert len(one) < len(svg) / 2
    texts = [re.findall(r">([^<>]+)</text>", text) for text in (one, svg)]
    assert texts[0] == texts[1]


def test_a_figure_is_cut_between_its_panels_and_nothing_is_lost() -> None:
    with style():
        figure, panels = grid(3, columns=2)
        for number, axes in enumerate(panels):
            axes.plot(X, Y, "o", label="a line")
            axes.set(title=f"panel {number}", xlabel="gamma", ylabel="RMSE")
        figure.legend(["a line"], loc="outside upper center")
        head(figure, "photographs: ut (distance)")
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
    legend, *below = cells(figure)
    width, height = (72 * inches for inches in figure.get_size_inches())
    top = legend[1] + legend[3]
    assert [(x, y) for x, y, _, _ in below] == [(0, top), (below[0][2], top), (0, below[2][1])]
    assert below[0][2] + below[1][2] == pytest.approx(width)
    assert below[0][3] + below[2][3] == pytest.approx(height - top)
    page = inlined(rendered(figure, "svg").decode(), "k", cells(figure))
    pieces = re.findall(r"<svg .*?</svg>", page, flags=re.S)
    assert "photographs: ut (distance)" in pieces[0]
    assert [re.findall(r"panel (\d)", piece) for piece in pieces] == [[], ["0"], ["1"], ["2"]]
    assert [panel["place"] for panel in hover.panels(figure)] == [0, 1, 2]
    for (x, y, w, h), panel in zip(below, hover.panels(figure), strict=True):
        (series,) = panel["series"]
        places = zip(series["at"][::2], series["at"][1::2], strict=True)
        assert all(x < left < x + w and y < down < y + h for left, down in places)
