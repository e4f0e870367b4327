"""Estimates of cost: what is summed over arms, and what is timed or counted."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from search_spaces import catalog
from sweep.cost import estimate as estimates
from sweep.cost import timed_steps
from tests.support.toy_sweeps import definition
from trainables import optimizers
from trainables.config.arm import ArmConfig, ConstraintConfig, DataConfig, ModelConfig
from trainables.errors import UnknownName
from trainables.registry import built_in

DATA = DataConfig(frame_size=64, patch_size=16, frames=10)
UT = ArmConfig(data=DATA, model=ModelConfig(layers=5), batch_size=4, constraint=ConstraintConfig())


def test_an_arm_costs_its_steps_and_its_evaluation() -> None:
    run = UT.with_fields({"steps": 1000, "report_every": 300, "eval_windows": 8})
    passes = 4 + len(run.test_gammas) + 2 * run.eval_draws  # 4 reports: 300, 600, 900, 1000
    assert estimates.evaluated_samples(run) == passes * 8 * 16  # 16 patches a frame
    frames = ArmConfig(
        task="frame_denoising", model=ModelConfig(name="vit", checkpoint="x"), eval_windows=8
    )
    assert estimates.evaluated_samples(frames) % (8 * frames.data.frames) == 0
    gpu = "h100"
    once, twice = (
        estimates.arm_seconds(run.with_fields({"steps": n, "report_every": n}), gpu)
        for n in (10**6, 2 * 10**6)
    )
    assert twice - estimates.START_S == pytest.approx(2 * (once - estimates.START_S), rel=0.01)


def test_a_decoder_pays_for_its_inner_losses_and_its_answers() -> None:
    space = catalog.find("instruction_tuning_llama").space
    run = space.run(space.settings[0], space.default_point(space.settings[0]), seed=0)
    constrained = run.with_fields({"model.layers": 4})
    plain = constrained.unconstrained()
    assert (
        estimates.work_of(constrained).forward_flops > 1.5 * estimates.work_of(plain).forward_flops
    )
    none = plain.with_fields({"steps": 1, "report_every": 1})
    tokens = estimates.PROMPTS * 2 * estimates.LONGEST_ANSWER
    written_s = tokens * estimates.KERNEL_S * estimates.pass_of(plain).launches
    assert estimates.arm_seconds(none, "h100") > written_s > 1


def test_texts_are_counted_as_they_are_scored() -> None:
    """Windows stand for three samples each, of which there are no more than the data set has."""
    fields = {
        "steps": 1000,
        "report_every": 300,
        "eval_windows": 200,
        "data.dev_fraction": 0.1,
        "shifts": ["typos"],
    }
    run = ArmConfig(
        task="text_classification",
        data=DataConfig(name="imdb"),
        model=ModelConfig(name="text_ut", checkpoint="x"),
    ).with_fields(fields)
    passes = 4 + len(run.test_gammas) + run.eval_draws + 3
    assert estimates.evaluated_samples(run) == (passes + run.eval_draws) * 600
    most = run.with_fields({"eval_windows": 10**6})
    assert estimates.evaluated_samples(most) == passes * 2_500 + run.eval_draws * 22_500


@pytest.mark.parametrize("name", sorted(built_in.VIDEOS.keys() - {"photographs", "clips"}))
def test_all_of_a_published_test_split_is_measured(name: str) -> None:
    frames = estimates.TEST_FRAMES[name]
    dev = UT.with_fields({"data.name": name, "eval_windows": 8, "steps": 10, "report_every": 10})
    both = (replace(dev, measured_on=split) for split in ("dev", "test"))
    on_dev, on_test = map(estimates.evaluated_samples, both)
    final = len(dev.test_gammas) * dev.score_draws + dev.eval_draws  # passes
    assert on_test - on_dev == final * (frames // 10 - 8) * 16


def test_nothing_of_torch_is_changed_for_the_callers_own_code() -> None:
    before = torch.get_num_threads()
    timed_steps.matrix_rate.cache_clear()
    assert timed_steps.matrix_rate(before + 1, False) > 0
    assert torch.get_num_threads() == before


def test_the_sum_counts_a_shared_unconstrained_arm_once() -> None:
    space = catalog.find("ped2_ut").space
    cost = estimates.estimate(space, "a100")
    arms = [estimates.arm_seconds(space.run(s, {}, seed=0), "a100") * 2 * 8 for s in space.settings]
    plain = catalog.unconstrained_arms(space).values()
    assert len(plain) == 4
    expected = sum(arms) + sum(estimates.arm_seconds(arm, "a100") for arm in plain)
    assert cost.device_hours == pytest.approx(expected / 3600)
    assert cost.arms == catalog.arm_count(space) == 68


def test_so_many_arms_at_a_time_as_this_process_may_use_cores_and_as_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(64)))
    space = catalog.find("quickstart").space
    cost = estimates.estimate(space, None)
    assert cost.workers == 64 // space.base.threads
    every = 5 * sum(map(sum, cost.seconds_per_arm.values())) / 3600
    assert cost.confirmation_hours(5) == pytest.approx(every / (2 * 5 * len(space.settings)))


def test_the_guessed_size_of_a_checkpoint_is_told_once() -> None:
    space = catalog.find("instruction_tuning_llama").space
    told = estimates.estimate(space, "a100").assumption
    assert told.count("Llama-3.1-8B, which is not here, guessed") == 1
    assert "not here" not in estimates.estimate(catalog.find("ped2_ut").space, "a100").assumption


@pytest.mark.parametrize("slower", [1.5, 25.0])
def test_bfloat16_on_a_cpu_is_counted_at_its_own_rate_and_told_where_it_is_slow(
    slower: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A CPU of AVX2 emulates it; estimates were off by as much, "within a factor of 2"."""
    for module in (estimates, timed_steps):
        monkeypatch.setattr(
            module, "matrix_rate", lambda _, in_bfloat16: 1e11 / (slower if in_bfloat16 else 1)
        )
    space = catalog.find("minilm_imdb").space
    run = space.run(space.settings[0], space.default_point(space.settings[0]), seed=0)
    assert run.dtype == "bfloat16"
    seconds = [
        estimates.arm_seconds(one) - estimates.START_S
        for one in (run, run.with_fields({"dtype": "float32"}))
    ]
    assert seconds[0] == pytest.approx(slower * seconds[1])
    assumption = estimates.estimate(space).assumption
    assert ("times slower" in assumption) == (slower > 2)
    if slower > 2:
        assert "25 times slower than float32: consider `--set dtype=float32`" in assumption
    assert "slower" not in estimates.estimate(space, "h100").assumption


def test_an_unknown_gpu_names_the_known_ones() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'rtx3090'"):
        estimates.estimate(catalog.find("quickstart").space, "rtx3091")


@pytest.mark.slow
@pytest.mark.parametrize(
    "fields",
    [
        {"batch_size": 10**9},
        {"steps": 10**18, "report_every": 1},
        {"data.patch_size": 160, "model.layers": 64},
        {"data.frames": 10**6},
        {"model.name": "dust", "model.atoms_per_side": 256},
    ],
)
def test_what_is_too_large_to_be_timed_is_counted(fields: dict[str, object]) -> None:
    """Nothing of this size is built: an estimate must never be what fills the memory."""
    run = ArmConfig(constraint=ConstraintConfig(alpha=0.1)).with_fields(fields)
    assert estimates.is_timed(run) == ("steps" in fields)
    assert math.isfinite(estimates.arm_seconds(run))
    assert estimates.arm_memory_gb(run) > estimates.PROCESS_GB


def test_a_step_that_fails_leaves_a_sweep_without_an_estimate_and_ends_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def step(*_: object, **__: object) -> None:
        raise RuntimeError("no kernel")

    monkeypatch.setattr(optimizers.Adam, "step", step)
    space = definition(n_proposals=1, n_settings=1).space
    space = space.with_base({"batch_size": 3})  # of no other test: steps are timed once
    assert estimates.estimate_entry(space, None) == {
        "not_counted": "a step of model 'ut' fails: RuntimeError: no kernel"
    }
