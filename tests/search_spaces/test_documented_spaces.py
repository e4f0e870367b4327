"""Tables of docs/spaces.md against the spaces that they describe, number by number."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from search_spaces import catalog
from search_spaces.effects.descent import twice
from search_spaces.ranges import LogReach, Range, decay_of, ends_of, into
from search_spaces.space import SearchSpace, Setting
from trainables.config.arm import ConstraintConfig
from trainables.primal_dual.schedule import effective_dual_steps

PAGE = (Path(__file__).parents[2] / "docs" / "spaces.md").read_text(encoding="utf-8")
VIDEO = ("video_denoising_ut", "video_denoising_dust", "video_denoising_vit")
TEXT = ("text_classification_ut", "text_classification_distilbert", "text_classification_roberta")
NUMBER = re.compile(r"\d[\d,]*\.?\d*(?:e-?\d+)?")


def found(text: str) -> list[float]:
    return [float(number.replace(",", "").rstrip(".")) for number in NUMBER.findall(text)]


def cells(row: str, of: str = "video") -> list[str]:
    """What the table of a section says of its three spaces in the row that begins so."""
    section = PAGE.partition(f"## The paper's comparisons on {of}")[2].partition("\n## ")[0]
    (line,) = (line for line in section.splitlines() if line.startswith(f"| {row}"))
    told = [cell.strip() for cell in line.strip("|").split("|")[1:]]
    return [told[0] if cell.startswith("the same") else cell for cell in told]


def space_of(name: str, *, full: bool = False) -> SearchSpace:
    return catalog.find(name, full=full).space


def constraint_of(space: SearchSpace) -> ConstraintConfig:
    assert space.base.constraint is not None
    return space.base.constraint


def by_depth(space: SearchSpace) -> list[Setting]:
    """A setting of each depth."""
    depths = {space.base.with_fields(s.fields).model.layers: s for s in space.settings}
    return [depths[layers] for layers in sorted(depths)]


def alphas(space: SearchSpace) -> list[float]:
    runs = [space.base.with_fields(s.fields) for s in by_depth(space)]
    values = [run.constraint.alpha for run in runs if run.constraint is not None]
    return [*values, 12.0] if space.name.endswith("vit") else values  # "at L = 12"


def alphas_of_texts(space: SearchSpace) -> list[tuple[str, float]]:
    """Data set and first guess of every depth, in the space's order."""
    runs = [space.base.with_fields(s.fields) for s in space.settings]
    found = [(r.data.name, r.model.layers, r.constraint.alpha) for r in runs if r.constraint]
    return [(data, alpha) for data, _, alpha in dict.fromkeys(found)]


def other_highest_alphas(space: SearchSpace) -> list[float]:
    """Highest alphas that do not ask for twice the first guess's descent: none."""
    highest = [float(ends_of(space.ranges_of(s)["constraint.alpha"])[1]) for s in space.settings]
    firsts = [s.fields["constraint.alpha"] for s in space.settings]
    return [h for h, alpha in zip(highest, firsts, strict=True) if h != twice(alpha)]


def once(ranges: list[Range]) -> list[float]:
    return [float(end) for values in dict.fromkeys(ranges) for end in ends_of(values)]


def alpha_ranges(space: SearchSpace) -> list[float]:
    return once([space.ranges_of(s)["constraint.alpha"] for s in by_depth(space)])


def dual_lrs(space: SearchSpace) -> list[float]:
    values = space.ranges["constraint.dual_lr"]
    ends = [float(end) for end in ends_of(values)]
    if isinstance(values, LogReach):
        ends = [end / dual_steps(space) for end in ends]
    return [constraint_of(space).dual_lr, *ends]


def dual_steps(space: SearchSpace) -> float:
    return effective_dual_steps(space.base, steps_per_epoch=1, until=space.base.steps)


def decays(space: SearchSpace) -> list[float]:
    own, values = constraint_of(space), space.ranges["constraint.resilience"]
    first = decay_of(own.resilience, dual_lr=own.dual_lr, dual_steps=dual_steps(space))
    return [float(into(values, first)), *(float(end) for end in ends_of(values))]


def lengths(space: SearchSpace) -> list[float]:
    return [space.base.steps, space_of(space.name, full=True).base.steps, space.base.batch_size]


@pytest.mark.parametrize(
    ("row", "of"),
    [
        ("alpha at L = 3, 5, 7", alphas),
        ("alpha, range", alpha_ranges),
        ("dual_lr of the relative signal", dual_lrs),
        ("decay over the run", decays),
        ("steps x batch", lengths),
    ],
)
def test_the_table_of_first_guesses_is_that_of_the_spaces(
    row: str, of: Callable[[SearchSpace], list[float]]
) -> None:
    for name, cell in zip(VIDEO, cells(row), strict=True):
        assert found(cell) == pytest.approx(of(space_of(name)), rel=0.03), name


@pytest.mark.parametrize(
    ("row", "of"),
    [
        (
            "alpha on IMDb",
            lambda space: [alpha for data, alpha in alphas_of_texts(space) if data == "imdb"],
        ),
        (
            "alpha on MNLI",
            lambda space: [alpha for data, alpha in alphas_of_texts(space) if data == "mnli"],
        ),
        ("alpha, range", other_highest_alphas),
        ("dual_lr of the relative signal", dual_lrs),
        ("decay over the run", decays),
        ("steps x batch", lengths),
    ],
)
def test_the_table_of_texts_is_that_of_the_spaces(
    row: str, of: Callable[[SearchSpace], list[float]]
) -> None:
    for name, cell in zip(TEXT, cells(row, "text"), strict=True):
        assert found(cell) == pytest.approx(of(space_of(name)), rel=0.03), name


def test_f0_is_that_of_the_spaces() -> None:
    units = {"identity": "the unchanged input's", "constant": "the best constant's"}
    for name, cell in zip(VIDEO, cells("f0"), strict=True):
        constraint = constraint_of(space_of(name))
        assert found(cell)[0] == constraint.reference_loss
        assert units[constraint.reference_unit] in cell


def test_what_a_winner_must_ask_for_is_that_of_the_spaces() -> None:
    page = " ".join(PAGE.split())  # lines may end anywhere
    (text,) = re.findall(r"UT: ([^;]*); DUST: ([^;]*); ViT ([\d.]+); quickstart ([\d.]+)\.", page)
    depths = {"ut": {3, 5, 7}, "dust": {3, 5, 7}}
    for model, said in zip(("ut", "dust", "vit"), text, strict=False):
        told = [n for n in found(said) if n not in depths.get(model, ())]
        space = space_of(f"video_denoising_{model}")
        assert told == [s.least_descent for s in by_depth(space)], model
    assert float(text[3]) == by_depth(space_of("quickstart"))[0].least_descent
