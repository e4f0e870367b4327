"""Findings of a sweep: signs, counts, sizes and reasons by hand."""

from __future__ import annotations

from typing import Any

import pytest

from sweep.results.findings import answer, findings, next_step
from sweep.results.summary import ArmSummary, SettingSummary
from sweep.results.verdict_text import certificate_text
from tests.support.code_figures import ROOT
from tests.support.summaries import setting_summary
from trainables.plain import Json
from trainables.primal_dual.certificate import LEAST_UNITS


def entry(seen: float | None = None, unseen: float | None = None, **more: Json) -> SettingSummary:
    """Summary of one setting, as far as sentences need it."""
    fields: Json = {
        "gain": {"seen_mean": seen, "unseen_mean": unseen},
        "constrained": {"unseen_mean": 18.0},
        "references": {"wiener_train": {"unseen_mean": 15.0}},
    }
    return setting_summary(**{**fields, **more})


def test_two_winners_that_are_worse_and_lose_to_a_filter() -> None:
    assert findings([entry(-0.3, -0.32), entry(-0.2, -1.24)]) == [
        "2 of 2 settings have a winner: a model that beats trivial predictors (its input, "
        "a constant) and meets, in the mean over held-out data, descent constraints which plain "
        "training misses.",
        "On what training or selection looked at (seen gammas) both winners are worse than plain "
        "training, by 0.2 to 0.3 grey levels (one seed).",
        "Out of distribution (unseen gammas) both winners are worse than plain training, by 0.32 "
        "to 1.24 grey levels (one seed).",
        "On unseen gammas no winner beats a linear (Wiener) filter: it is ahead of both winners.",
    ]


def test_a_winner_whose_plain_arm_nearly_meets_the_constraint_is_told() -> None:
    near, far, unknown = (
        entry(-1.0, -1.0, unconstrained={"worst_missing_share": share})
        for share in (0.104, 0.21, None)
    )
    begins = "Plain training comes close to the constraints of"
    ends = "too (missing share 0.104, allowed 0.100): other seeds may meet them."
    assert findings([near])[1] == f"{begins} the winner, {ends}"
    assert findings([near, far])[1] == f"{begins} 1 of 2 winners, {ends}"
    nearer = entry(-1.0, -1.0, unconstrained={"worst_missing_share": 0.2})
    assert findings([near, nearer])[1].startswith(
        f"{begins} both winners, too (missing share 0.104 to 0.200, allowed 0.100)"
    )
    control = entry(-1.0, -1.0, unconstrained={"worst_missing_share": 0.11}, is_control=True)
    for others in ([far], [unknown], [control]):
        assert "comes close" not in " ".join(findings(others))


def test_findings_of_an_unfinished_sweep_say_so() -> None:
    part: Json = {"wanted": 4, "stored": 3, "finished": 2}
    begins = "2 of 4 proposals have finished. The setting has a winner"
    assert " ".join(findings([entry(1.0, 1.0, proposals=part)])).startswith(begins)
    both = findings([entry(1.0, 1.0, proposals=part), entry(1.0, 1.0)])
    assert both[0] == "6 of 8 proposals have finished."
    none = answer([lost(0.93, proposals={"wanted": 16, "stored": 6, "finished": 5})])
    assert none.startswith("5 of 16 proposals have finished. No winner:")
    assert "hardly help" not in none


@pytest.mark.parametrize("sign", [1, -1])
def test_what_is_below_the_smallest_effect_is_neither_better_nor_worse(sign: int) -> None:
    """Quickstart's own: 0.0115 to 0.0498 was 'worse', and 'better' after its confirmation."""
    found = findings([entry(-0.097, sign * 0.0115), entry(0.14, sign * 0.0498)])
    assert found[1] == (
        "On what training or selection looked at (seen gammas) there is no difference that matters "
        "between either winner and plain training (gains -0.097 to +0.14 grey levels, the smallest "
        "that matters 0.2; one seed)."
    )
    signs = ("-0.0498 to -0.0115", "+0.0115 to +0.0498")[sign > 0]
    assert f"(gains {signs} grey levels, the smallest" in found[2]
    of_one = findings([entry(-0.146, 0.1)])
    assert "(gain -0.146 grey levels, the smallest that matters 0.2; one seed)" in of_one[1]
    assert "worse" not in " ".join(found)


def test_the_readmes_sample_begins_with_these_sentences() -> None:
    """Its numbers are those of a run; two clips certify nothing, and it says so."""
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    found = findings([entry(-0.136, -0.0478), entry(-0.005, -0.0115)])
    assert f"```text {found[0]} [...] {' '.join(found[2:])} photographs-ut-L5-g0.15" in readme
    values = ArmSummary(
        certificate="undecided", feasible=True, certificate_held_out=8, certificate_units=2,
        certificate_cluster="clip", least_units_met=0.5, worst_missing_share_upper=1.72,
    )  # fmt: skip
    said = certificate_text(values, 0.1)
    begins, _, rest = said.partition(" the worst layer")
    few = f"fewer than {LEAST_UNITS} clips certify nothing"
    assert few in rest
    assert f"{begins} [...] {few}" in readme
    assert "two clips are too few to certify that" in readme


def test_one_is_better_one_worse_and_one_without_winner_is_not_counted() -> None:
    found = findings([entry(1.0, 0.5), entry(-1.0, -0.25), entry(winner=False)])
    assert found[0].startswith("2 of 3 settings have a winner")
    assert found[2] == (
        "Out of distribution (unseen gammas) 1 of 2 winners is better than plain training, by 0.5 "
        "grey levels, and 1 is worse, by 0.25 grey levels (one seed)."
    )
    seeds = [0, 1]
    some = findings([entry(1.0, of, search_seeds=seeds) for of in (0.5, -0.1, 0.05)])
    assert some[2] == (
        "Out of distribution (unseen gammas) 1 of 3 winners is better than plain training, by 0.5 "
        "grey levels, and 2 show no difference that matters (gains -0.1 to +0.05) (mean over 2 "
        "seeds)."
    )


def test_of_accuracy_more_is_better() -> None:
    found = findings([entry(0.01, 0.02, task="text_classification", references={})])
    assert found[-1] == (
        "Out of distribution (unseen gammas) the winner is better than plain training, by 0.02 "
        "fractions of samples (one seed)."
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


def test_the_headline_says_which_winners_are_certified() -> None:
    def of(*verdicts: str) -> str:
        return findings(
            [entry(constrained={"certificate": v, "certificate_cluster": "clip"}) for v in verdicts]
        )[1]

    others = "another draw of clips could turn the verdict."
    assert of("undecided") == f"The winner is not certified: {others}"
    assert of("undecided", "undecided") == f"Neither winner is certified: {others}"
    assert of("undecided", "undecided", "infeasible") == f"No winner is certified: {others}"
    assert of("feasible", "undecided") == (
        f"1 of 2 winners is certified at 95 %; of the other {others}"
    )
    assert of("feasible", "undecided", "undecided").endswith(f"; of the others {others}")
    assert of("feasible", "feasible") == "Certified at 95 %: both winners."
    sure = entry(constrained={"certificate": "feasible", "certificate_cluster": "clip"})
    for unjudged in (entry(is_control=True), entry()):  # of whom no constraint, or no unit, speaks
        assert findings([sure, unjudged])[1] == "Certified at 95 %: 1 of 2 winners."


def test_what_was_not_measured_is_not_found() -> None:
    found = findings([entry(None, None, constrained={"unseen_mean": None})])
    assert len(found) == 1


# --- where nothing wins ---------------------------------------------------------------------------

WHY = (
    "no proposal is feasible: the closest, proposal 0, misses 0.93 of the reduction required of "
    "layer 3 (allowed 0.10)"
)


def lost(missing: float | None = 0.93, plain: float = 5.0, **more: Any) -> SettingSummary:
    """A setting without a winner; plain training beside the input at 17.92, a filter at 9.37."""
    alpha = more.pop("alpha", 0.19)
    config = {"steps": 1000, "constraint": {"alpha": alpha, "reference": "bound_first"}}
    ours = {
        "worst_missing_share": missing,
        "worst_layer": 3,
        "feasible": False,
        "beats_trivial": True,
    }
    ours |= {"config": config, **more.pop("ours", {})}
    fields: Json = {
        "setting": "mine-L4",
        "why": WHY,
        "least_descent": 0.3,
        "constrained": None if missing is None else ours,
        "unconstrained": {"seen_mean": plain},
        "references": {"identity": {"seen_mean": 17.92}, "wiener_train": {"seen_mean": 9.37}},
    }
    return entry(winner=False, **{**fields, **more})


def test_without_a_proposal_nothing_is_found_yet() -> None:
    none = lost(proposals={"finished": 0, "wanted": 4})
    assert "no proposal has finished" in answer([none])
    assert next_step([none]) is None
    assert next_step([entry(1.0, 1.0)]) is None


def test_a_network_that_has_hardly_learnt_is_to_be_trained_first() -> None:
    assert answer([lost(plain=17.65)]) == (
        f"No winner: {WHY}; alpha asks it to remove 19 % of the loss before it, and it removes "
        "1.3 %. Plain training itself is no better than a linear (Wiener) filter: RMSE on seen "
        "gammas 17.65, returning the input 17.92, a linear (Wiener) filter 9.37. First train "
        "longer (a new sweep, `--name NEW --set steps=2000`) or with a higher primal_lr; then "
        "ask for less than alpha 0.19."
    )


@pytest.mark.parametrize(
    ("plain", "said"),
    [
        (18.0, "is no better than returning the input or a linear (Wiener) filter:"),
        (17.80, "is hardly better than returning the input and no better than a linear"),
        (9.30, ""),  # behind nothing
    ],
)
def test_plain_training_is_held_against_what_needs_none(plain: float, said: str) -> None:
    found = findings([lost(plain=plain)])
    assert len(found) == 1 + bool(said)
    assert said in found[-1]


def test_of_texts_the_constant_stands_in_for_the_input() -> None:
    of_text = lost(
        task="text_classification", plain=0.505, references={"constant": {"seen_mean": 0.5}}
    )
    assert "hardly better than the best constant: accuracy on seen gammas 0.505" in answer(
        [of_text]
    )


@pytest.mark.parametrize(
    ("setting", "text", "words"),
    [
        (lost(0.3), "Search on, to 8 proposals a setting", ("resume", "--proposals", "8")),
        (lost(0.93), "or train longer (a new sweep, `--name NEW --set steps=2000`)", ()),
        (lost(0.93, plain=17.65), "First train longer (a new sweep", ()),
        (lost(0.93, plain=18.05), "First train longer (a new sweep", ()),  # about the input's
        (lost(0.93, plain=83.55), "First lower primal_lr, or train longer", ()),  # it blew up
        (lost(0.0, ours={"feasible": True, "beats_trivial": False}), "Train longer", ()),
        (lost(0.0, ours={"feasible": True}, not_binding=True), "Ask for more than alpha 0.19", ()),
        (
            lost(0.0, ours={"feasible": True}, demanded_descent=0.2),
            "Ask for more than alpha 0.19",
            (),
        ),
        (lost(0.0, ours={"feasible": True}), "plain arms", ("resume", "--retry-failed")),
        (
            lost(0.0, ours={"feasible": True}, demanded_descent=0.3 - 1e-16),  # as pairs compare
            "plain arms",
            ("resume", "--retry-failed"),
        ),
        (
            lost(2.0, is_control=True, demanded_descent=0.0),
            "plain arms",
            ("resume", "--retry-failed"),
        ),
        (lost(None), "See why its arms ended", ("status",)),
    ],
)
def test_the_next_step_follows_from_what_kept_the_closest_from_winning(
    setting: SettingSummary, text: str, words: tuple[str, ...]
) -> None:
    step = next_step([setting])
    assert step is not None
    assert step.text.startswith(text) or text in step.text
    assert step.words == words
    assert answer([setting]).endswith(step.text)


def test_what_is_met_in_training_alone_asks_for_more_data_and_not_for_more_steps() -> None:
    said = answer([lost(1.7, ours={"missing_share_training": [0.0, -0.5, 0.09]})])
    assert "train on more data or for fewer steps: on training data the constraint is met." in said
    assert "train longer" not in said
    missed = answer([lost(1.7, ours={"missing_share_training": [0.0, -0.5, 0.2]})])
    assert "train longer" in missed
    two = [lost(1.7, ours={"missing_share_training": [0.0]}) for _ in "ab"]
    assert "in 2 the closest proposal meets the constraint on training data alone;" in answer(two)


def test_few_proposals_do_not_say_what_more_of_them_would_reach() -> None:
    one = lost(0.93, proposals={"wanted": 1, "stored": 1, "finished": 1})
    assert "or search on, after 1 proposal so far." in answer([one])
    assert "hardly help" not in answer([one])


def test_a_layer_that_is_held_to_the_reference_alone_was_asked_for_no_descent() -> None:
    assert "alpha asks" not in answer([lost(0.3, ours={"worst_layer": 1})])
    assert "and it adds 9.5 %" in answer([lost(1.5)])
    assert "and it adds 130 %" in answer([lost(7.84)])  # and not 1.3e+02


def test_less_than_an_alpha_is_said_of_the_alpha_itself() -> None:
    assert "Ask for less than alpha 0.1096," in answer([lost(0.93, alpha=0.1096)])


def test_advice_to_most_settings_counts_those_in_which_a_proposal_came_close() -> None:
    assert ": no proposal came close, so" in answer([lost(0.93), lost(0.93)])
    mixed = answer([lost(0.93), lost(0.3), lost(0.93)])
    assert ": a proposal came close in only 1 of 3 settings, so" in mixed


def test_a_pair_of_two_codes_has_no_gain_and_gives_no_advice() -> None:
    codes = ["trainables 1a", "trainables 2b"]
    found = findings([entry(66.0, 66.0, codes=codes)])
    assert found[1] == (
        "Its pair is of two codes: what differs between the arms may be the code, so no gain "
        "counts."
    )
    assert "66" not in " ".join(found)
    assert "filter" in found[2]  # about one arm
    some = findings([entry(66.0, 66.0, codes=codes), entry(1.0, 1.0, codes=codes[:1])])
    assert some[1].startswith("1 of 2 pairs shown are of two codes")
    assert "66" not in " ".join(some)
    assert "by 1 grey levels" in some[2]
    assert next_step([lost(0.93, codes=codes)]) is None
    assert answer([lost(0.93, codes=codes)]).endswith("so no gain counts.")


def slack(**more: Any) -> SettingSummary:
    """A setting whose closest proposal is feasible and not binding."""
    return lost(0.0, ours={"feasible": True}, not_binding=True, **more)


def test_what_plain_training_meets_is_told_with_the_alpha_that_it_does_not() -> None:
    said = answer([slack(plain_meets_up_to=0.5133, largest_alpha=0.5)])
    assert "In mine-L4 plain training meets the constraint up to alpha 0.513, and no pro" in said
    assert "asks for more than 0.5: none can win." in said
    assert said.endswith(
        "Ask for clearly more than alpha 0.514: up to there plain training meets the constraint on "
        "the seed that was tried, and others may differ. Search on in a new sweep, with another "
        "range of it."
    )
    reachable = answer([slack(plain_meets_up_to=0.4, largest_alpha=0.5)])
    assert "none can win" not in reachable
    assert "Ask for clearly more than alpha 0.4:" in reachable
    assert reachable.endswith("Search on in its range.")
    every = answer([slack(plain_meets_up_to=1.0, largest_alpha=0.5)])
    assert "Plain training meets the constraint at every alpha: ask for a smaller f0." in every
    two = [slack(plain_meets_up_to=0.3, largest_alpha=0.2, setting=name) for name in "ab"]
    assert "In a plain training meets" in answer(two)
    assert ": none can win; the same in 1 more." in answer(two)
    won = findings([entry(1.0, 1.0), two[0]])
    assert won[-1].startswith("In a plain training meets")  # beside a winner of another setting
    apart = [slack(plain_meets_up_to=of, largest_alpha=0.5) for of in (0.2, 0.4)]
    assert "Ask for clearly more than alpha 0.2 to 0.4, by setting: up to there" in answer(apart)


@pytest.mark.parametrize("missing", [0.93, 0.3, None])
def test_no_advice_asks_for_less_or_more_of_the_same_where_none_can_win(
    missing: float | None,
) -> None:
    said = answer([lost(missing, plain_meets_up_to=0.51, largest_alpha=0.5)])
    assert "none can win." in said
    assert said.endswith("Search on in a new sweep, with another range of it.")
    for wrong in ("less than", "Search on, to", "lower primal_lr", "hardly help"):
        assert wrong not in said


def test_plain_training_that_meets_all_is_told_before_any_proposal_has_finished() -> None:
    none = lost(
        None, proposals={"finished": 0, "wanted": 4}, plain_meets_up_to=0.6, largest_alpha=0.5
    )
    assert answer([none]).startswith(
        "Nothing is found yet: no proposal has finished. In mine-L4 plain training meets the"
    )


def test_many_settings_are_counted_by_their_reasons() -> None:
    settings = [lost(0.93, plain=17.65), lost(1.06, plain=17.65, setting="mine-L6")]
    said = answer([*settings, lost(0.0, not_binding=True, ours={"feasible": True})])
    assert said.startswith(
        "None of 3 settings has a winner: in 2 the constraint is missed by the closest proposal, "
        "by far; in 1 plain training meets the constraint too; where it is missed, by 0.93 to "
        "1.06 (allowed 0.10). Plain training itself is no better than a linear (Wiener) filter: "
    )
    assert "9.37 (mine-L4; the same in 1 more)." in said
    assert said.endswith("then ask for less than alpha 0.19.")
