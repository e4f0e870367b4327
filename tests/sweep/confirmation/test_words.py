"""Sentences about a confirmation: words for sizes, and what a better control says."""

from __future__ import annotations

import numpy as np
import pytest

from sweep.confirmation.controls import CONTROLS
from sweep.confirmation.summary import Family
from sweep.confirmation.words import answer, in_short, of_setting, outcome_words, p_text
from sweep.statistics.decisions import table
from sweep.statistics.design import Design
from tests.support.confirmations import of_before
from tests.support.summaries import confirmation_summary, confirmed_setting
from trainables.plain import Json

UNITS: dict[str, Json] = {
    "mean": 0.03, "low": -0.01, "high": 0.05, "name": "", "seeds": 6, "units": 72,
    "unit": "window", "groups": 12, "group": "clip",
    "variance": {"seed": None, "unit": None, "rest": None},
}  # fmt: skip


def setting(**marked: str) -> dict[str, Json]:
    """A setting whose constrained arm is better than plain training, and so than its controls."""
    against = {"mean": 0.2, "counted": 6, "seeds": 6, "low": 0.1, "high": 0.3, "marked": "better"}
    against |= {"outcome": "better", "decided_at": 6, "p_adjusted": 0.04}
    against["sign_flip"] = {"p": 2 / 2**6, "least_p": 2 / 2**6}
    contrasts = {
        name: {**against, "marked": mark, "question": CONTROLS[name].question}
        for name, mark in marked.items()
    }
    ours = {"certified": {"feasible": 6}, "seeds": 6, "feasible": True}
    return {
        "contrasts": {"unconstrained": against, **contrasts},
        "not_binding": False,
        "arms": {"constrained": ours},
        "test_units": None,
    }


def said_of(one: dict[str, Json], **design: Json) -> str:
    """What is said of a setting where the smallest effect of interest is 0.15 grey levels."""
    entry = confirmation_summary(design={"sign_flips": False, **design})
    return of_setting(confirmed_setting(one), entry)


def test_what_few_seeds_can_show_stands_beside_a_claim() -> None:
    one = setting()
    least = "By sign flips p is 0.031, and of 6 seeds it is never below 0.031."
    assert least in said_of(one)
    contrast = one["contrasts"]["unconstrained"]
    contrast |= {"counted": 5, "seeds": 5, "sign_flip": {"p": 2 / 2**5, "least_p": 2 / 2**5}}
    assert "never below 0.062: the claim rests on differences being normal." in said_of(one)
    assert "never below 0.062. " in said_of(one, sign_flips=True)  # then they bore it out
    contrast |= {"counted": 10, "seeds": 10}
    assert "By sign flips" not in said_of(one)


@pytest.mark.parametrize(
    ("marked", "ends"),
    [
        ({}, "whether it is the constraint that does it."),
        ({"deep_supervision": "better"}, "It is better than deep supervision, too."),
        (
            {"deep_supervision": "worse", "detached": "undecided"},
            "It is not shown to beat detached: that may explain the gain. It is worse than deep "
            "supervision: the constraint is not what works.",
        ),
        (
            {"detached": "better", "larger_gamma": "worse", "tuned_plain": "worse"},
            "It is better than detached, too. It is worse than larger gamma and tuned plain: plain "
            "training gains more that way.",
        ),
    ],
)
def test_a_better_control_says_what_it_is_a_control_of(marked: dict[str, str], ends: str) -> None:
    assert said_of(setting(**marked)).endswith(ends)


def sized(name: str, mean: float, half: float, outcome: str, **contrast: Json) -> dict[str, Json]:
    """A setting with a gain and half the width of its interval."""
    one = setting()
    one["contrasts"]["unconstrained"] |= {
        "mean": mean,
        "low": mean - half,
        "high": mean + half,
        "units": None,
        "outcome": outcome,
        "marked": outcome,
        **contrast,
    }
    return {**one, "setting": name}


@pytest.mark.parametrize(
    ("one", "begins"),
    [
        (sized("a", 0.9, 0.2, "better"), "better, by 0.9 grey levels, on the test gammas"),
        (sized("a", -0.9, 0.2, "worse"), "worse, by 0.9 grey levels, on"),
        (
            sized("a", 0.03, 0.012, "equivalent"),
            "equivalent: slightly better, by 0.03 grey levels, too little to matter (below 0.15)",
        ),
        (
            sized("a", -0.03, 0.012, "equivalent"),
            "equivalent: slightly worse, by 0.03 grey levels, too little to matter (below 0.15)",
        ),
        (
            sized("a", 0.03, 0.012, "equivalent", p_adjusted=0.06),  # one of many lines
            "equivalent: no difference that matters, +0.03 grey levels (below 0.15), on",
        ),
        (
            sized("a", 0.03, 0.05, "equivalent"),
            "equivalent: no difference that matters, +0.03 grey levels (below 0.15), on",
        ),
        (
            sized("a", 0.03, 0.012, "equivalent", units=UNITS),
            "equivalent: no difference that matters, +0.03",
        ),
        (
            sized("a", 0.1, 0.08, "better"),  # 0.18 is not ruled out
            "slightly better, by an estimated 0.1 grey levels, less than what matters (0.15), on",
        ),
        (
            sized("a", 0.1, 0.01, "better"),  # where it is
            "slightly better, by 0.1 grey levels, too little to matter (below 0.15), on",
        ),
        (sized("a", 0.1, 0.2, "undecided"), "undecided: +0.1 grey levels, on"),
        (
            sized("a", 0.9, 0.2, "better", marked="undecided"),
            "undecided: better, by 0.9 grey levels, on",
        ),
    ],
)
def test_a_size_that_does_not_matter_is_told_with_the_words_for_it(
    one: dict[str, Json], begins: str
) -> None:
    assert said_of(one).startswith(begins)


def test_tables_of_no_effect_hardly_ever_have_a_slight_one() -> None:
    families = {f: tuple(f"{f}{number}" for number in range(6)) for f in "abcdef"}
    design = Design.planned(families, 10, smallest_effect=3.0)
    entry = confirmation_summary(design=design.to_json())
    random, told = np.random.default_rng(0), 0
    for _ in range(40):
        gains = {name: dict(enumerate(random.standard_normal(10))) for name in design.settings}
        rows = table(design, gains, range(10))
        lines = [Family.from_json({**row.to_json(), "marked": row.outcome}) for row in rows]
        words = {outcome_words(line, line.outcome, entry)[0] for line in lines}
        assert any(text.startswith("equivalent: no difference") for text in words)
        told += any("slightly" in text for text in words)
    assert told <= 4  # 5 % of tables are 2


def test_the_p_of_a_line_is_named_as_it_is_taken() -> None:
    design = Design.planned({"UT": ("a",)}, 6)
    row = table(design, {"a": dict(enumerate([0.1, -1.0, 1.2, 0.0, -0.4, 0.9]))}, range(6))[1]
    assert row.p > 0.05  # t finds nothing: sign flips are not asked
    assert row.p != row.sign_flip.p
    assert p_text(design).startswith("the paired t test's (where t finds something,")
    assert p_text(of_before({"UT": ("a",)})) == "the paired t test's"


def test_a_control_that_is_hardly_worse_is_said_to_be_so() -> None:
    one = setting(deep_supervision="better", penalty="better", larger_gamma="worse")
    one["contrasts"]["deep_supervision"]["mean"] = 0.05
    one["contrasts"]["larger_gamma"]["mean"] = -0.05
    said = said_of(one)
    assert "It is better than deep supervision (slightly) and penalty, too." in said
    assert "It is worse than larger gamma (slightly): plain training gains more" in said


def test_of_many_settings_what_is_alike_is_said_once() -> None:
    settings = [sized(f"s{number}", 0.03, 0.012, "equivalent") for number in range(45)]
    settings[44] = sized("worse", -0.9, 0.2, "worse")
    entry = confirmation_summary(settings, design={"sign_flips": False})
    found = answer(entry)
    assert len(found) == 4
    assert found[3].startswith("worse: By sign flips p is 0.031")
    assert found[0].startswith(
        "Against plain training: equivalent: slightly better, too little to matter (below 0.15 "
        "grey levels), on the test gammas beyond what training or selection looked at, over 6 "
        "fresh seeds: s0 +0.03 (+0.018 to +0.042), s1 +0.03"
    )
    assert found[2].startswith("Every setting: 6 of 6 constrained networks are certified")
    assert in_short(entry).endswith(
        "equivalent: slightly better, too little to matter (below 0.15 grey levels) in 44 settings "
        "(gain +0.03 grey levels); worse in 1 setting (gain -0.9 grey levels)."
    )
