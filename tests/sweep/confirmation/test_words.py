"""Sentences about a confirmation: words for sizes, and what a better control says."""

from __future__ import annotations

import numpy as np
import pytest

from sweep.confirmation.controls import CONTROLS
from sweep.confirmation.words import answer, in_short, of_setting, outcome_words, p_text
from sweep.statistics.decisions import table
from sweep.statistics.design import Design
from tests.support.confirmations import of_before
from trainables.plain import Json


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
        "vacuous": False,
        "arms": {"constrained": ours},
        "test_units": None,
    }


ENTRY: dict[str, Json] = {
    "unit": "grey levels",
    "measure": "unseen_mean",
    "design": {"smallest_effect": 0.15, "error": 0.05},
}


def test_what_few_seeds_can_show_stands_beside_a_claim() -> None:
    one = setting()
    least = "By sign flips p is 0.031, and of 6 seeds it is never below 0.031."
    assert least in of_setting(one, ENTRY)
    contrast = one["contrasts"]["unconstrained"]
    contrast |= {"counted": 5, "seeds": 5, "sign_flip": {"p": 2 / 2**5, "least_p": 2 / 2**5}}
    assert "never below 0.062: the claim rests on differences being normal." in of_setting(
        one, ENTRY
    )
    agree = {**ENTRY, "design": ENTRY["design"] | {"sign_flips": True}}  # then they bore it out
    assert "never below 0.062. " in of_setting(one, agree)
    assert "By sign flips" not in of_setting(
        one | {"contrasts": {"unconstrained": contrast | {"counted": 10, "seeds": 10}}}, ENTRY
    )


@pytest.mark.parametrize(
    ("marked", "ends"),
    [
        ({}, "controls would tell (--controls)."),
        ({"deep_supervision": "better"}, "It is better than deep supervision, too."),
        (
            {"deep_supervision": "worse", "detached": "undecided"},
            "It is not told apart from detached: that may explain the gain. It is worse than deep "
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
    assert of_setting(setting(**marked), ENTRY).endswith(ends)


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
            sized("a", 0.03, 0.012, "equivalent", units={"low": -0.01, "high": 0.05}),
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
    assert of_setting(one, ENTRY).startswith(begins)


def test_tables_of_no_effect_hardly_ever_have_a_slight_one() -> None:
    families = {f: tuple(f"{f}{number}" for number in range(6)) for f in "abcdef"}
    design = Design.planned(families, 10, smallest_effect=3.0)
    entry = {"design": design.to_json(), "unit": "grey levels"}
    random, told = np.random.default_rng(0), 0
    for _ in range(40):
        gains = {name: dict(enumerate(random.standard_normal(10))) for name in design.settings}
        rows = table(design, gains, range(10))
        words = {outcome_words(row.to_json(), row.outcome, entry)[0] for row in rows}
        assert any(text.startswith("equivalent: no difference") for text in words)
        told += any("slightly" in text for text in words)
    assert told <= 4  # 5 % of tables are 2


def test_the_p_of_a_line_is_named_as_it_is_taken() -> None:
    design = Design.planned({"UT": ("a",)}, 6)
    row = table(design, {"a": dict(enumerate([0.1, -1.0, 1.2, 0.0, -0.4, 0.9]))}, range(6))[1]
    assert row.p > 0.05  # t finds nothing: sign flips are not asked
    assert row.p != row.sign_flip.p
    assert p_text(design.to_json()).startswith("the paired t test's (where t finds something,")
    assert p_text(of_before({"UT": ("a",)}).to_json()) == "the paired t test's"


def test_a_control_that_is_hardly_worse_is_said_to_be_so() -> None:
    one = setting(deep_supervision="better", penalty="better", larger_gamma="worse")
    one["contrasts"]["deep_supervision"]["mean"] = 0.05
    one["contrasts"]["larger_gamma"]["mean"] = -0.05
    said = of_setting(one, ENTRY)
    assert "It is better than deep supervision (slightly) and penalty, too." in said
    assert "It is worse than larger gamma (slightly): plain training gains more" in said


def test_of_many_settings_what_is_alike_is_said_once() -> None:
    settings = [sized(f"s{number}", 0.03, 0.012, "equivalent") for number in range(45)]
    settings[44] = sized("worse", -0.9, 0.2, "worse")
    entry = {**ENTRY, "settings": settings}
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
