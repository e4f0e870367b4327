"""Every early sign fires on what it names; only what lasts, is late and infeasible ends a run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.data.text_runs import tiny_text
from tests.support.oracles import TINY
from trainables.arm_run import ArmRun
from trainables.config.arm import ArmConfig
from trainables.config.constraint import TOLERANCE
from trainables.primal_dual.constraints import Scales, descent_constraints, missing_shares
from trainables.primal_dual.dual_variables import Multipliers
from trainables.primal_dual.lagrangian import PrimalDual
from trainables.primal_dual.schedule import lr_factor
from trainables.records.arm_record import TRAIN_LOSS, TRAIN_SECONDS, Report
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore
from trainables.signs.early_signs import EarlySigns
from trainables.signs.multiplier_signs import idle_signals

SCALES = Scales(constant_loss=1.0, identity_loss=0.5)
SANE = {
    "losses": [0.5, 0.4, 0.3, 0.2],
    "missing_shares": [0.0, 0.0, 0.0],
    "violations": [-0.1, -0.1, -0.1],
    "multipliers": [0.0, 0.1, 0.0],
    "weights": [0.0, 0.1, 0.1, 1.0],
}


def signs(config: ArmConfig = TINY, step: int = 20, **layers: list[float]) -> list[str]:
    before = Report(step=step - 10, timestamp_ms=1, layers=SANE)
    now = Report(step=step, timestamp_ms=2, layers={**SANE, **layers})
    return EarlySigns(config, SCALES, steps_per_epoch=10).warnings([before, now])


def adam() -> ArmConfig:
    assert TINY.constraint is not None
    return replace(TINY, constraint=replace(TINY.constraint, dual_optimizer="adam"))


def test_a_sane_run_gives_none() -> None:
    assert signs() == []
    assert signs(adam(), multipliers=[0.0, 0.05, 0.0]) == []


def test_a_blank_output_is_named() -> None:
    assert "blank" in signs(losses=[0.5, 2.0, 2.0, 2.0])[0]


def test_a_network_without_relu_is_not_told_of_dead_ones() -> None:
    (text,) = signs(TINY.with_fields({"model.name": "dust"}), losses=[0.5, 2.0, 2.0, 2.0])
    assert "ReLU" not in text
    assert "Lower primal_lr, or train longer" in text


def test_an_output_that_is_no_better_than_the_input_is_named_after_a_quarter() -> None:
    flat = [0.5, 0.5, 0.5, 0.5]
    assert "unchanged input" in signs(losses=flat)[0]
    assert "Train longer or raise primal_lr." in signs(losses=flat)[0]
    assert signs(step=9, losses=flat) == []
    (above,) = signs(losses=[0.5, 0.6, 0.7, 0.8])  # it blew up, and `best` says the same
    assert "is above the unchanged input's" in above
    assert above.endswith("Lower primal_lr, or train longer.")


def test_a_multiplier_that_only_rose_while_its_layer_misses_is_named() -> None:
    # dual_lr 0.05, clip 1, 20 steps: at most 1.0; and 0.25 if it removed nothing at alpha 0.2
    wound = {"multipliers": [0.0, 0.9, 0.0], "missing_shares": [0.0, 0.7, 0.0]}
    assert "layer 2 only ever rose" in signs(**wound)[0]
    assert signs(multipliers=[0.0, 0.9, 0.0]) == []  # its constraint is met
    assert signs(**{**wound, "multipliers": [0.0, 0.19, 0.0]}) == []
    assert signs(step=19, **{**wound, "multipliers": [0.0, 0.21, 0.0]}) == []  # before half
    assert "layer 2 only ever rose" in signs(**{**wound, "multipliers": [0.0, 0.21, 0.0]})[0]


def test_a_sign_that_no_longer_stands_is_told_in_the_past_with_its_step() -> None:
    """The quickstart's winner was said to be wound up to its end, by what step 500 looked like."""
    wound = {**SANE, "multipliers": [0.0, 0.9, 0.0], "missing_shares": [0.0, 0.7, 0.0]}
    said = ["of the data"]
    told = []
    reports: list[Report] = []
    for step, layers in ((10, SANE), (20, wound), (30, SANE), (40, SANE), (50, wound), (60, SANE)):
        reports.append(Report(step=step, timestamp_ms=step, layers=layers))
        said = EarlySigns(TINY, SCALES, steps_per_epoch=10).noted(said, reports)
        told.append(said)
    assert told[0] == ["of the data"]
    assert told[1][1].startswith("The multiplier of layer 2 only ever rose")
    past = (
        'Warned at step {} and no longer true at step {}: "The multiplier of layer 2 only ever '
        'rose and its constraint is still missed (wound up)."'
    )
    assert told[2] == told[3] == ["of the data", past.format(20, 30)]
    assert told[4] == told[1]  # it stands again, and once
    assert told[5] == ["of the data", past.format(50, 60)]


def test_without_a_clip_a_huge_multiplier_is_named() -> None:
    assert TINY.constraint is not None
    unclipped = replace(TINY, constraint=replace(TINY.constraint, signal_clip=None))
    missed = [0.0, 0.7, 0.0]
    assert signs(unclipped, multipliers=[0.0, 19.0, 0.0], missing_shares=missed) != []
    assert signs(unclipped, step=19, multipliers=[0.0, 10.0, 0.0], missing_shares=missed) == []


def test_a_classifiers_loss_that_falls_while_its_hidden_state_grows_is_named(
    tmp_path: Path,
) -> None:
    texts = tiny_text(tmp_path)
    first = {**SANE, "losses": [0.9, 0.8, 0.7, 0.6], "hidden_norms": [1.0, 1.0, 1.0, 1.0]}

    def of(config: ArmConfig, **layers: list[float]) -> list[str]:
        reports = [
            Report(step=step, timestamp_ms=1, layers={**SANE, **values})
            for step, values in (
                (10, first),
                (15, {**SANE, "hidden_norms": [1.0] * 4}),
                (20, layers),
            )
        ]
        found = EarlySigns(config, SCALES, steps_per_epoch=10).warnings(reports)
        return [text for text in found if "scale alone" in text]

    (text,) = of(texts, hidden_norms=[99.0, 9.0, 11.0, 1.0])
    assert text.startswith("The hidden state of layer 2 has become more than 10 times as large")
    assert of(texts, hidden_norms=[1.0, 1.0, 11.0, 1.0], losses=[0.9, 0.8, 0.7, 0.6]) == []
    assert of(texts) == []  # reports of before norms were measured
    assert of(TINY, hidden_norms=[1.0, 1.0, 11.0, 1.0]) == []  # what is denoised has a scale
    assert of(texts.unconstrained(), hidden_norms=[1.0, 1.0, 11.0, 1.0]) == [text]


def monitored(*scalars: dict[str, float], every: int = 10, **layers: list[float]) -> list[str]:
    """The signs of a run with these scalars at its reports."""
    reports = [
        Report(step=every * (i + 1), timestamp_ms=i, scalars=values, layers={**SANE, **layers})
        for i, values in enumerate(scalars)
    ]
    return EarlySigns(TINY, SCALES, steps_per_epoch=10).warnings(reports)


def test_a_loss_that_does_not_move_is_named() -> None:
    def found(*losses: float) -> list[str]:
        return monitored(*({TRAIN_LOSS: loss} for loss in losses))

    assert "not moved since the first report" in found(0.7, 0.704, 0.696)[0]
    assert found(0.7, 0.704) == []  # two reports
    assert found(0.7, 0.704, 0.69) == []  # 1.4 %
    assert found(0.7, 0.5, 0.7) == []  # it has moved, if in vain
    assert found(0.7, 0.7, float("nan")) == []
    assert monitored(*[{TRAIN_LOSS: 0.7}] * 3, every=3) == []  # before a quarter


def test_a_halved_throughput_is_named_once_it_lasts() -> None:
    def found(*seconds: float) -> list[str]:
        """Of ten steps each."""
        return monitored({TRAIN_SECONDS: 0.0}, *({TRAIN_SECONDS: s} for s in np.cumsum(seconds)))

    assert "throughput halved" in found(8, 8, 8, 20, 20)[0]
    assert found(8, 8, 8, 20, 8) == []  # it was over at once
    assert found(8, 8, 8, 15, 15) == []  # nearly half
    assert found(2, 2, 2, 9, 9) == []  # too short to say
    assert found(8, 8, 20, 20) == []  # too few before
    assert monitored(*[{}] * 7) == []


def test_an_evaluation_of_exactly_0_is_named() -> None:
    found = "An evaluation is exactly 0"
    assert signs(losses=[0.5, 0.4, 0.3, 0.0])[0].startswith(found)
    assert signs(accuracies=[0.1, 0.2, 0.3, 0.0])[0].startswith(found)
    assert signs(losses=[0.5, 0.4, 0.3, 1e-30], accuracies=[0.0, 0.2, 0.3, 0.4]) == []
    clean = replace(TINY, train_gamma=0.0, early_stop=False)  # its input is the answer
    assert signs(clean, losses=[0.0, 0.0, 0.0, 0.0]) == []


def test_a_layer_that_is_paid_to_rise_is_named() -> None:
    risen = [0.5, 1.6, 0.3, 0.2]
    assert "Layer 1 is paid" in signs(losses=risen, weights=[0.0, -0.1, 0.1, 1.0])[0]
    assert signs(losses=risen) == []
    assert signs(losses=[0.5, 1.4, 0.3, 0.2], weights=[0.0, -0.1, 0.1, 1.0]) == []


def test_stale_moments_of_adam_are_named() -> None:
    stale = {"multipliers": [0.0, 0.099, 0.0], "violations": [-0.1, -0.6, -0.1]}
    assert "stale moments" in signs(adam(), **stale)[0]
    assert signs(**stale) == []  # not Adam
    assert signs(adam(), **{**stale, "violations": [-0.1, -0.1, -0.1]}) == []


def test_a_sign_about_layer_0_is_named_for_it() -> None:
    assert TINY.constraint is not None
    zero = replace(TINY, constraint=replace(TINY.constraint, reference="bound_zero"))
    wound = {"multipliers": [0.9, 0.0, 0.0, 0.0], "missing_shares": [0.7, 0.0, 0.0, 0.0]}
    assert "layer 0 only ever rose" in signs(zero, **wound)[0]


def test_a_multiplier_can_wind_up_only_as_far_as_its_dual_steps_go() -> None:
    assert TINY.constraint is not None
    # dual_lr 0.05, clip 1, a dual step every 4 of 24 steps: at most 0.3
    seldom = replace(TINY, constraint=replace(TINY.constraint, dual_every=4))
    wound: Layers = {"multipliers": [0.0, 0.25, 0.0], "missing_shares": [0.0, 0.7, 0.0]}
    assert stopped(wound, wound, config=seldom, first=14) != ""
    assert stopped(wound, wound, first=14) == ""
    epochs = replace(TINY, constraint=replace(TINY.constraint, dual_every_unit="epoch"))
    two: Layers = {**wound, "multipliers": [0.0, 0.085, 0.0]}
    assert stopped(two, two, config=epochs, first=14) != ""  # two: at most 0.1
    less: Layers = {**wound, "multipliers": [0.0, 0.075, 0.0]}
    assert stopped(less, less, config=epochs, first=14) == ""


def risen(config: ArmConfig, steps: int, signal: float) -> float:
    """What real multipliers come to by the run's schedule under one signal all the time."""
    assert config.constraint is not None
    multipliers = Multipliers(1, config.constraint, torch.device("cpu"), torch.float64)
    signal_L = torch.tensor([signal], dtype=torch.float64)
    for step in range(steps):
        rate = lr_factor(step, config.steps, config.decay_fraction, config.warmup_fraction)
        multipliers.ascend(signal_L, rate)
    return float(multipliers.effective(signal_L))


@pytest.mark.parametrize("resilience", [0.0, 3.0])
def test_a_multiplier_winds_up_under_a_schedule_and_a_decay_too(resilience: float) -> None:
    """Half-way it has come to .726 of dual_lr x steps in a space of texts, which asked for .8."""
    scheduled = TINY.with_fields(
        {"warmup_fraction": 0.1, "decay_fraction": 0.9, "constraint.resilience": resilience}
    )
    history: list[Layers] = [
        {"multipliers": [0.0, risen(scheduled, step, 1.0), 0.0], "missing_shares": [0.0, 0.7, 0.0]}
        for step in (20, 30)
    ]
    assert history[0]["multipliers"][1] < 0.8 * 0.05 * 20
    assert "only ever rose" in stopped(*history, config=scheduled)
    less = [{**h, "multipliers": [0.0, 0.79 * h["multipliers"][1], 0.0]} for h in history]
    assert stopped(*less, config=scheduled) == ""


@pytest.mark.parametrize(
    ("optimizer", "fields"),
    [
        ("adamw", {"resilience": 3.0}),
        ("bare_decay", {"resilience": 0.03}),
        ("nupi", {"dual_kp": 0.1}),
        ("augmented", {"dual_penalty": 0.5, "resilience": 3.0}),
    ],
)
def test_every_dual_optimizers_multiplier_can_wind_up(
    optimizer: str, fields: dict[str, float]
) -> None:
    """A signal at the clip all the time is named; a third of what it comes to is not."""
    of = {"dual_optimizer": optimizer, **fields}
    config = TINY.with_fields({f"constraint.{name}": value for name, value in of.items()})
    multiplier = risen(config, 30, 1.0)
    wound: Layers = {"multipliers": [0.0, multiplier, 0.0], "missing_shares": [0.0, 0.7, 0.0]}
    assert "only ever rose" in stopped(wound, wound, config=config, first=20)
    less: Layers = {**wound, "multipliers": [0.0, multiplier / 3, 0.0]}
    assert stopped(less, less, config=config, first=20) == ""


def test_what_a_proportional_part_reaches_at_once_is_not_wound_up() -> None:
    """nuPI comes to 2 kappa_p by one change of the signal, an augmented one to its penalty."""
    assert TINY.constraint is not None
    knobs = {"nupi": "dual_kp", "augmented": "dual_penalty"}
    for optimizer, reached in (("sgd", 1.0), ("nupi", 2.0), ("augmented", 1.0)):
        of: dict[str, Any] = {"dual_optimizer": optimizer}
        if optimizer in knobs:
            of[knobs[optimizer]] = 1.0
        config = TINY.with_fields({f"constraint.{name}": value for name, value in of.items()})
        at: Layers = {"multipliers": [0.0, reached, 0.0], "missing_shares": [0.0, 0.7, 0.0]}
        is_ended = stopped(at, at, config=config, first=14) != ""
        assert is_ended == (optimizer == "sgd")


def test_a_layer_that_never_descends_is_named_however_little_is_asked_of_it() -> None:
    """At alpha 0.05 nothing comes near the clip: its signal is 0.05 / 0.95 at most."""
    modest = TINY.with_fields(
        {
            "warmup_fraction": 0.1,
            "decay_fraction": 0.9,
            "constraint.alpha": 0.05,
            "constraint.reference": "virtual_layer0",
        }
    )
    idle: Layers = {
        "multipliers": [0.0, risen(modest, 20, 0.05 / 0.95), 0.0],
        "missing_shares": [0.0, 1.0, 0.0],
    }
    assert "layer 2 only ever rose" in signs(modest, **idle)[0]
    assert stopped(idle, idle, config=modest, first=10) == ""  # it warns alone
    half = {**idle, "multipliers": [0.0, 0.5 * idle["multipliers"][1], 0.0]}
    assert signs(modest, **half) == []


@pytest.mark.parametrize("form", ["difference", "ratio"])
@pytest.mark.parametrize("reference", ["bound_first", "virtual_layer0", "bound_zero"])
@pytest.mark.parametrize("signal", ["violation", "relative"])
def test_the_signal_of_an_idle_layer_is_that_of_a_missing_share_of_1(
    form: str, reference: str, signal: str
) -> None:
    """Against the weighting's own signal, at losses where every layer misses exactly all."""
    fields = {"form": form, "reference": reference, "dual_signal": signal, "signal_clip": None}
    config = TINY.with_fields({f"constraint.{name}": value for name, value in fields.items()})
    assert config.constraint is not None
    weighting = PrimalDual(config, SCALES, torch.device("cpu"), torch.float64, steps_per_epoch=10)
    f0 = 0.5  # the identity's loss
    first = f0 if reference == "virtual_layer0" else f0 * 1.2  # (f - s_1) / (alpha f0) = 1
    losses_F = torch.full((4,), first, dtype=torch.float64)
    expected = weighting.signal(losses_F)
    constraints = descent_constraints(config.constraint, 3, SCALES)
    assert missing_shares(constraints, losses_F.numpy()) == pytest.approx(1.0)
    found = idle_signals(config.constraint, constraints, losses_F.numpy())
    assert found == pytest.approx(expected.numpy())


def test_stale_moments_are_named_in_the_papers_own_form() -> None:
    """Unscaled violations are in units of f_c, of which UT's losses are some hundredths."""
    assert TINY.constraint is not None
    constraint = replace(
        TINY.constraint, dual_optimizer="adam", scale="none", dual_signal="violation"
    )
    papers = replace(TINY, constraint=constraint)
    tiny = {"losses": [0.02, 0.019, 0.01, 0.009], "multipliers": [0.0, 0.099, 0.0]}
    # allowed: 0.8 x 0.019 = 0.0152
    assert "stale moments" in signs(papers, **tiny, violations=[0.0, -0.0052, 0.0])[0]
    assert signs(papers, **tiny, violations=[0.0, -0.0036, 0.0]) == []


def test_a_multiplier_that_cannot_fall_any_more_is_not_stale() -> None:
    """At the end of a learning rate's decay nothing moves, with whatever moments."""
    assert TINY.constraint is not None
    constraint = replace(TINY.constraint, dual_optimizer="adam", dual_lr=2e-3)
    late = replace(TINY, decay_fraction=1.0, constraint=constraint)
    stale = {"multipliers": [0.0, 0.099, 0.0], "violations": [-0.1, -0.6, -0.1]}
    assert "stale moments" in signs(late, step=20, **stale)[0]  # it could have lost 0.013
    assert signs(late, step=40, **stale) == []  # 0.003


def test_a_run_on_texts_that_winds_up_is_ended(tmp_path: Path) -> None:
    config = tiny_text(
        tmp_path,
        steps=12,
        warmup_fraction=0.1,
        decay_fraction=0.9,
        **{"constraint.alpha": 0.6, "primal_lr": 1e-6, "constraint.dual_lr": 1e-3},
    )
    arm = ArmRun(config, ArmStore(ObjectStore(tmp_path / "store")))
    while not arm.advance().is_final:
        pass
    assert arm.record.status == "stopped"
    assert "wound up" in arm.record.reason


Layers = dict[str, list[float]]
BLANK: Layers = {"losses": [0.5, 2.0, 2.0, 2.0]}
WOUND: Layers = {"multipliers": [0.0, 2.0, 0.0], "missing_shares": [0.0, 0.7, 0.0]}
PAID: Layers = {
    "losses": [0.5, 1.6, 0.3, 0.2],
    "weights": [0.0, -0.1, 0.1, 1.0],
    "missing_shares": [2.2, 0.0, 0.0],
}
STALE: Layers = {"violations": [-0.1, -0.6, -0.1], "missing_shares": [0.0, 0.0, 0.4]}


def stopped(
    *history: Layers,
    config: ArmConfig = TINY,
    interval: int = 10,
    first: int | None = None,
    tolerance: float = TOLERANCE,
) -> str:
    """Why a run of 40 steps is ended after these reports, the last at step 30 unless ``first``."""
    first = 30 - interval * (len(history) - 1) if first is None else first
    reports = [
        Report(step=first + interval * i, timestamp_ms=i, layers={**SANE, **layers})
        for i, layers in enumerate(history)
    ]
    watched = EarlySigns(config, SCALES, steps_per_epoch=10, tolerance=tolerance)
    return watched.reason_to_stop(reports)


@pytest.mark.parametrize(
    ("sign", "words"),
    [
        (BLANK, "Lower primal_lr"),
        (WOUND, "Lower constraint.alpha"),
        (PAID, "Lower constraint.dual_lr"),
    ],
    ids=["blank", "wound up", "paid to rise"],
)
def test_what_lasts_ends_the_run_with_advice(sign: Layers, words: str) -> None:
    reason = stopped(sign, sign)
    assert "ended at step 30 of 40" in reason
    assert words in reason
    assert "early_stop=false" in reason
    assert stopped({}, sign) == ""  # seen once
    assert stopped(sign) == ""
    assert stopped(sign, {}) == ""  # gone
    assert stopped(sign, {}, sign) == ""
    assert stopped(sign, sign, first=30) == ""  # at step 40 the run is done anyhow
    assert stopped(sign, sign, config=replace(TINY, early_stop=False)) == ""


def test_stale_moments_end_a_run_whose_other_layers_miss() -> None:
    history = [{**STALE, "multipliers": [0.0, m, 0.0]} for m in (0.1, 0.099, 0.098)]
    assert "Use constraint.dual_optimizer=sgd" in stopped(*history, config=adam())
    assert stopped(*history) == ""
    assert stopped(*history[1:], config=adam()) == ""  # one interval alone
    met = [{**layers, "missing_shares": [0.0, 0.0, 0.1]} for layers in history]
    assert stopped(*met, config=adam()) == ""  # feasible: nothing to mend


def test_a_layer_within_the_tolerance_is_no_reason_to_stop() -> None:
    stale = [{**STALE, "multipliers": [0.0, m, 0.0]} for m in (0.1, 0.099, 0.098)]
    for history, config, share in (([WOUND, WOUND], TINY, 0.7), (stale, adam(), 0.4)):
        assert stopped(*history, config=config, tolerance=share - 0.01) != ""
        assert stopped(*history, config=config, tolerance=share) == ""


def test_what_gets_better_is_left_to_train() -> None:
    for sign, name, index in ((BLANK, "losses", 3), (WOUND, "missing_shares", 1)):
        better = list(sign[name])
        better[index] *= 0.9
        assert stopped(sign, {**sign, name: better}) == ""
        better[index] = 0.99 * sign[name][index]
        assert stopped(sign, {**sign, name: better}) != ""


def test_multipliers_end_no_run_before_half_of_its_constrained_steps() -> None:
    assert TINY.constraint is not None
    assert stopped(WOUND, WOUND, first=10) != ""  # step 20 of 40
    assert stopped(WOUND, WOUND, first=9) == ""
    late = replace(TINY, constraint=replace(TINY.constraint, warmup_steps=10))
    assert stopped(WOUND, WOUND, first=14, config=late) == ""  # 24 < 10 + 30 / 2
    assert stopped(WOUND, WOUND, first=15, config=late) != ""
    assert stopped(BLANK, BLANK, first=5, interval=5) != ""  # the output: a quarter
    assert stopped(BLANK, BLANK, first=4, interval=5) == ""


def test_only_the_output_ends_an_unconstrained_arm() -> None:
    plain = TINY.unconstrained()
    assert stopped(BLANK, BLANK, config=plain) != ""
    no_better = {"losses": [0.5, 0.5, 0.5, 0.5]}
    report = Report(step=30, timestamp_ms=1, layers=no_better)
    assert EarlySigns(plain, SCALES, steps_per_epoch=10).warnings([report])
    assert stopped(no_better, no_better, config=plain) == ""  # a warning, as before
    assert stopped(no_better, no_better) == ""
