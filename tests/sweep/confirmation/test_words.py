"""Sentences about a confirmation: what a control that is better than the constrained arm says."""

from __future__ import annotations

import pytest

from sweep.confirmation.controls import CONTROLS
from sweep.confirmation.words import of_setting
from trainables.plain import Json


def setting(**marked: str) -> dict[str, Json]:
    """A setting whose constrained arm is better than plain training, and so than its controls."""
    against = {"mean": 0.2, "counted": 6, "seeds": 6, "low": 0.1, "high": 0.3, "marked": "better"}
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


ENTRY = {"unit": "grey levels", "measure": "unseen_mean"}


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
