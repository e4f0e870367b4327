"""Measures of an arm, the mean over layers among them, against plain arithmetic."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean

import numpy as np
import pytest

from sweep.confirmation.arms import SettingArms, read_arms
from sweep.confirmation.measures import constant_of, measures_of, planned_measure
from sweep.confirmation.plan import Measure
from sweep.confirmation.units import conditions_of, reader
from tests.support import confirmations as hand
from tests.support.records import finished
from tests.support.sweeps import SPACE
from tests.support.training.text_records import TEXT
from trainables.config.test_conditions import (
    VIDEO_FAMILIES,
    gamma_key,
    seen_gammas,
    unseen_gammas,
)
from trainables.errors import Misuse
from trainables.records.arms import ArmStore
from trainables.records.evaluation import Evaluation
from trainables.records.objects import ObjectStore
from trainables.records.unit_scores import at_gamma, under_shift

LOSSES = [0.9, 0.4, 0.16, 0.09]  # of the input and three layers


def evaluation_of(**fields: object) -> Evaluation:
    config = SPACE.run(SPACE.settings[0], {}, seed=0)
    found = finished(config, LOSSES, **fields).evaluation
    assert found is not None
    return found


def test_the_score_of_a_layer_is_what_the_network_would_score_there() -> None:
    config = SPACE.run(SPACE.settings[0], {}, seed=0)
    gammas = ("0.00", "0.15", "0.40")
    evaluation = evaluation_of(
        scores={g: hand.GREY * 0.3 for g in gammas},
        layer_losses_by_gamma={g: [*LOSSES[:-1], 0.09] for g in gammas},
    )
    expected = [hand.GREY * loss**0.5 for loss in LOSSES[1:]]
    assert evaluation.layer_scores(gamma_key(config.train_gamma))[1:] == pytest.approx(expected)
    assert measures_of(config, evaluation)["anytime_mean"] == pytest.approx(fmean(expected))


def test_a_texts_layers_are_read_off_its_own_accuracies() -> None:
    key = f"{TEXT.train_gamma:.2f}"
    evaluation = replace(
        evaluation_of(), layer_scores_by_gamma={key: [0.5, 0.6, 0.7, 0.8], "9.00": [0.0] * 4}
    )
    assert measures_of(TEXT, evaluation)["anytime_mean"] == pytest.approx(0.7)


def test_the_constant_prediction_is_the_same_at_every_layer() -> None:
    config = SPACE.run(SPACE.settings[0], {}, seed=0)
    evaluation = evaluation_of(references={"constant": {"0.00": 50.0, "0.40": 50.0}})
    assert constant_of(config, evaluation)["anytime_mean"] == 50.0


def test_a_metric_that_no_loss_gives_has_no_layers() -> None:
    config = SPACE.run(SPACE.settings[0], {}, seed=0)
    odd = {"0.00": 1.0, "0.40": 7.0}
    evaluation = evaluation_of(scores=odd, layer_losses_by_gamma=dict.fromkeys(odd, LOSSES))
    assert "anytime_mean" not in measures_of(config, evaluation)


def test_units_have_the_losses_of_every_layer(objects: ObjectStore) -> None:
    space = SPACE.with_base({"test_gammas": (0.0, SPACE.base.train_gamma, 0.4)})
    hand.searched(objects, space=space)
    plan, definition = hand.stored(objects, hand.wanted(seeds=3, measure="anytime_mean"))
    assert plan.measure == "anytime_mean"
    rng = np.random.default_rng(0)
    hand.measured(objects, definition, lambda *_: rng.uniform(0.1, 0.5, 6))
    store = ArmStore(objects)
    (arms, *_) = read_arms(store.record, definition, plan)
    signature = next(iter(arms.signatures["constrained"].values()))
    means = reader(objects, arms, "anytime_mean")(signature)
    stored = store.unit_scores(signature)
    assert means is not None
    assert stored is not None
    condition = f"gamma {arms.config.train_gamma:.2f}"
    np.testing.assert_array_equal(means.means_CU, stored.losses_UF[condition][:, 1:].T)


def test_units_have_the_conditions_of_the_measure_that_is_tested(objects: ObjectStore) -> None:
    space = SPACE.with_base({"shifts": ["blur", "occlusion"]})
    config = space.run(space.settings[0], {}, seed=0)
    arms = SettingArms.__new__(SettingArms)  # only its configuration is read
    object.__setattr__(arms, "config", config)
    last: dict[Measure, list[str]] = {
        "seen_mean": [at_gamma(g) for g in seen_gammas(config)],
        "unseen_mean": [at_gamma(g) for g in unseen_gammas(config)],
        "mean_over_gammas": [at_gamma(g) for g in config.test_gammas],
        "shift_mean": [
            under_shift(shift, severity)
            for shift in ("blur", "occlusion")
            for severity in VIDEO_FAMILIES[shift].severities
        ],
        "ood_auc": [],
    }
    for measure, names in last.items():
        assert conditions_of(arms, measure) == [(name, None) for name in names]


def test_layers_are_read_off_the_draws_that_scores_are_of() -> None:
    config = SPACE.run(SPACE.settings[0], {}, seed=0)
    key = gamma_key(config.train_gamma)
    scored = [0.9, 0.5, 0.25, 0.16]
    evaluation = evaluation_of(scores={key: hand.GREY * 0.4}, layer_losses_by_gamma={key: scored})
    assert evaluation.layer_scores(key)[-1] == pytest.approx(evaluation.scores[key])


def test_what_no_setting_can_be_measured_by_is_refused() -> None:
    seen = SPACE.with_base({"test_gammas": (0.0, 0.15)})
    assert planned_measure(seen, None) == "mean_over_gammas"
    assert planned_measure(seen, "anytime_mean") == "anytime_mean"
    with pytest.raises(Misuse, match=r"--measure unseen_mean needs larger test_gammas"):
        planned_measure(seen, "unseen_mean")
    with pytest.raises(Misuse, match=r"shifts in every .* anew with --set shifts=\["):
        planned_measure(seen, "shift_mean")
    first, *others = SPACE.settings
    blurred = replace(first, fields={**first.fields, "shifts": ["blur"]})
    some = replace(SPACE, settings=(blurred, *others))
    with pytest.raises(Misuse, match=r"or settings by --only\."):
        planned_measure(some, "shift_mean")
