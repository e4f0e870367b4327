"""Points for a pointer, against what is plotted and where the picture has it."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from sweep.report import hover
from sweep.report.pages.svg import inlined
from sweep.report.report import rendered

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
    one, other = (inlined(svg, key) for key in ("one", "other"))
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
