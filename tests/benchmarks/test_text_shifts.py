"""Texts under shifts: what a gain is."""

from __future__ import annotations

import pytest

from benchmarks.text_shifts import CONSTRAINED, SETTINGS, judged
from trainables.config.test_conditions import unseen_gammas
from trainables.plain import Json


def test_a_gain_is_above_0_where_the_constrained_network_is_more_accurate() -> None:
    setting = SETTINGS["imdb_ut"]
    accuracy = {arm: 0.5 + 0.05 * i for i, arm in enumerate(setting.arms())}
    by_seed: dict[int, Json] = {
        seed: {
            arm: {"conditions": {"typos 2": of, "typos 5": of * (1 + 0.001 * seed)}}
            for arm, of in accuracy.items()
        }
        for seed in range(12)
    }
    tested = judged(setting, by_seed)["tested"]
    assert list(tested) == [arm for arm in accuracy if arm not in CONSTRAINED]
    for rival, gains in tested.items():
        for of in gains:
            gain = accuracy[of["form"]] - accuracy[rival]
            is_spread = of["condition"] == "typos 5"
            expected = [gain * (1 + 0.001 * seed * is_spread) for seed in range(12)]
            assert of["by_seed"] == pytest.approx(expected)
            if is_spread:  # t says nothing of seeds without
                assert of["outcome"] == "worse"  # arms are in the order of their accuracy here


@pytest.mark.parametrize("name", SETTINGS)
def test_every_setting_is_scored_at_its_train_gamma_and_beyond(name: str) -> None:
    base = SETTINGS[name].base
    assert base.train_gamma in base.test_gammas
    assert unseen_gammas(base)
