"""Comparison of dual optimisers: equal tries, a table that is a count, a store that goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import dual_optimizers as module
from benchmarks.trained import lines_of
from search_spaces.ranges import decay_of
from trainables.config.arm import ArmConfig, ConstraintConfig


@pytest.fixture
def base(monkeypatch: pytest.MonkeyPatch) -> ArmConfig:
    config = ArmConfig(steps=240, constraint=ConstraintConfig(alpha=0.2))
    monkeypatch.setattr(module, "base", lambda setting, checkpoint: (config, 200.0))
    return config


def test_every_optimiser_has_the_same_tries(base: ArmConfig) -> None:
    for name in module.OPTIMIZERS:
        for reach in module.REACHES:
            constraint = module.arm("any", name, reach, 7, None).constraint
            assert constraint is not None
            assert constraint.dual_optimizer == name
            assert constraint.dual_lr * 200.0 == pytest.approx(reach)
            if name == "adamw":
                at = {"dual_lr": constraint.dual_lr, "dual_steps": 200.0}
                assert decay_of(constraint.resilience, **at) == pytest.approx(module.DECAY)
            elif name == "bare_decay":  # of the multiplier itself
                kept = (1 - constraint.resilience) ** 200
                assert kept == pytest.approx(2.718281828**-module.DECAY)
            else:
                assert constraint.resilience == 0.0
            if name in ("nupi", "augmented"):
                own = {"nupi": constraint.dual_kp, "augmented": constraint.dual_penalty}[name]
                assert own == pytest.approx(reach * module.PROPORTIONAL)


def came_to(share: float, objective: float, start: int | None) -> dict[str, Any]:
    return {
        "worst_missing_share": share, "feasible": share <= 0.1, "objective": objective,
        "feasible_from": start,
    }  # fmt: skip


def test_the_table_counts_what_the_arms_came_to(base: ArmConfig) -> None:
    setting = "Ped2 UT L3"
    arms = {
        (setting, n, seed): came_to(1.0, 0.0, None) for n in module.OPTIMIZERS for seed in (1, 2)
    }
    arms[setting, "sgd", 1] = came_to(0.1, -0.10, 120)
    arms[setting, "nupi", 1] = came_to(0.0, -0.15, 60)
    arms[setting, "nupi", 2] = came_to(-1.0, -0.20, 180)
    plain = {(setting, seed): came_to(2.0, -0.1, None) for seed in (1, 2)}
    tries = {
        (setting, n, r): module.arm(setting, n, r, 0, None)
        for n in module.OPTIMIZERS
        for r in module.REACHES
    }
    tuned = {config.signature(): {} for config in tries.values()}
    chosen = {(setting, n): 1.0 for n in module.OPTIMIZERS}
    rows = module.table(arms, plain, chosen, tries, tuned)["rows"]
    assert [rows[name]["feasible"] for name in ("sgd", "adam", "nupi")] == [1, 0, 2]
    assert rows["nupi"]["settings_most_seeds_feasible"] == 1
    assert rows["sgd"]["settings_most_seeds_feasible"] == 0
    assert rows["nupi"]["feasible_from_share_of_steps"] == (60 + 180) / 2 / 240
    assert rows["nupi"]["objective_less_sgd"] == pytest.approx([-0.05])  # where both are feasible
    assert rows["nupi"]["objective_less_plain"][setting] == pytest.approx([-0.05, -0.10])


def test_a_torn_last_line_is_trained_again(tmp_path: Path) -> None:
    kept = tmp_path / "arms.jsonl"
    assert lines_of(kept) == []
    kept.write_text(json.dumps({"signature": "a"}) + "\n" + '{"signa')
    assert lines_of(kept) == [{"signature": "a"}]
    assert kept.read_text() == json.dumps({"signature": "a"}) + "\n"
