"""Findings of a sweep: signs, counts and sizes by hand."""

from __future__ import annotations

import pytest

from sweep.results.findings import findings
from trainables.plain import Json


def entry(
    seen: float | None = None, unseen: float | None = None, *, winner: bool = True, **more: Json
) -> Json:
    """What ``best_entries`` says of one setting, as far as sentences need it."""
    return {
        "task": "video_denoising",
        "winner": winner,
        "proposals": {"finished": 4},
        "gain": {"seen_mean": seen, "unseen_mean": unseen},
        "constrained": {"unseen_mean": 18.0},
        "references": {"wiener_train": {"unseen_mean": 15.0}},
        **more,
    }


def test_two_winners_that_are_worse_and_lose_to_a_filter() -> None:
    assert findings([entry(-0.1, -0.032), entry(-0.2, -0.124)]) == [
        "2 of 2 settings have a winner: a useful model that meets descent constraints which plain "
        "training misses.",
        "On what training or selection looked at (seen gammas) both winners are worse than plain "
        "training, by 0.1 to 0.2 grey levels.",
        "Out of distribution (unseen gammas) both winners are worse than plain training, by 0.032 "
        "to 0.124 grey levels.",
        "On unseen gammas no winner beats a linear (Wiener) filter: it is ahead of both winners.",
    ]


def test_one_is_better_one_worse_and_one_without_winner_is_not_counted() -> None:
    found = findings([entry(1.0, 0.5), entry(-1.0, -0.25), entry(winner=False)])
    assert found[0].startswith("2 of 3 settings have a winner")
    assert found[2] == (
        "Out of distribution (unseen gammas) 1 of 2 winners is better than plain training, by 0.5 "
        "grey levels, and 1 is worse, by 0.25 grey levels."
    )


def test_of_accuracy_more_is_better() -> None:
    found = findings([entry(0.01, 0.02, task="text_classification", references={})])
    assert found[-1] == (
        "Out of distribution (unseen gammas) the winner is better than plain training, by 0.02 "
        "shares of samples."
    )


def test_a_filter_that_is_beaten_is_said_so() -> None:
    better = entry(1.0, 1.0, constrained={"unseen_mean": 14.0})
    assert findings([better])[-1] == "On unseen gammas the winner beats a linear (Wiener) filter."
    assert findings([better, better])[-1] == (
        "On unseen gammas both winners beat a linear (Wiener) filter."
    )
    assert findings([better, entry(-1.0, -1.0)])[-1] == (
        "On unseen gammas 1 of 2 winners beats a linear (Wiener) filter."
    )


def test_what_was_not_measured_is_not_found() -> None:
    found = findings([entry(None, None, constrained={"unseen_mean": None})])
    assert len(found) == 1


@pytest.mark.parametrize(
    ("finished", "said"), [(0, "no proposal has finished"), (4, "No setting has a winner")]
)
def test_without_a_winner_it_says_so(finished: int, said: str) -> None:
    (sentence,) = findings([entry(winner=False, proposals={"finished": finished})])
    assert said in sentence
