"""Evaluation of an arm, against closed forms and naive sums."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.support.data.text_runs import text_task, tiny_text
from tests.support.oracles import TINY
from trainables.build import build_model
from trainables.config.test_conditions import (
    VIDEO_FAMILIES,
    gamma_key,
    near_shift_gammas,
    severity_key,
)
from trainables.errors import UnknownName
from trainables.evaluation.evaluate import descent_ratios, evaluate
from trainables.evaluation.measuring import measure, measure_shifted, units_of
from trainables.layer_losses import layer_outcomes
from trainables.objective import objective
from trainables.records.arm_record import ArmRecord
from trainables.records.unit_scores import UnitScores, at_gamma, under_shift
from trainables.tasks.base import Batch
from trainables.tasks.denoising import Disturbance
from trainables.tasks.linear_references import linear_references
from trainables.tasks.video_denoising import VideoDenoising


class Shrinking(nn.Module):
    """Layer l returns the noisy input times a fixed factor: losses have closed forms."""

    factors = (1.0, 0.9, 0.5)

    def forward(self, inputs: Tensor) -> list[Tensor]:
        return [inputs * f for f in self.factors]


@pytest.fixture
def task() -> VideoDenoising:
    return VideoDenoising(TINY, torch.device("cpu"), torch.float32)


def test_unit_losses_equal_a_naive_average_over_draws_and_patches(task: VideoDenoising) -> None:
    got = measure(Shrinking(), task, "dev", 0.2, 2).units
    sums = np.zeros_like(got)
    counts = np.zeros(len(got))
    for draw in range(2):
        for batch in task.held_out("dev", 0.2, draw):
            for sample, unit in enumerate(batch.units):
                counts[unit] += 1
                for layer, factor in enumerate(Shrinking.factors):
                    error = factor * batch.inputs[sample].double() - batch.targets[sample].double()
                    sums[unit, layer] += float(error.square().sum(-1).mean())
    np.testing.assert_allclose(got, sums / counts[:, None], rtol=1e-5)


def test_hidden_norms_are_the_root_mean_squares_of_predictions(task: VideoDenoising) -> None:
    found = measure(Shrinking(), task, "dev", 0.2, 2)
    samples = [
        float(sample.double().square().mean().sqrt())
        for draw in range(2)
        for batch in task.held_out("dev", 0.2, draw)
        for sample in batch.inputs
    ]
    expected = np.mean(samples) * np.array(Shrinking.factors)
    np.testing.assert_allclose(found.norms, expected, rtol=1e-5)
    evaluated = evaluate(TINY, task, Shrinking(), linear_references(TINY, task), [])[0]
    at_gamma = measure(Shrinking(), task, "dev", TINY.train_gamma, TINY.eval_draws).norms
    assert evaluated.hidden_norms == at_gamma.tolist()


def test_the_first_draw_is_that_of_a_measurement_of_one_draw(task: VideoDenoising) -> None:
    more, one = (measure(Shrinking(), task, "dev", 0.2, draws) for draws in (3, 1))
    assert more.scored.tolist() == one.units.tolist()
    assert more.units.tolist() != one.units.tolist()


def test_the_identitys_loss_is_the_noise_energy(task: VideoDenoising) -> None:
    identity = measure(Shrinking(), task, "dev", TINY.train_gamma, 2).units[:, 0].mean()
    # 4 windows x 64 patches x 3 frames x 16 pixels x 2 draws: the sampling error is about 1 %
    assert identity == pytest.approx(task.scales.identity_loss, rel=0.03)


def test_scores_auc_and_objective_follow_from_the_losses(task: VideoDenoising) -> None:
    references = linear_references(TINY, task)
    measured = evaluate(TINY, task, Shrinking(), references, [0.5])[0]
    for gamma, losses in measured.layer_losses_by_gamma.items():
        assert measured.scores[gamma] == pytest.approx(255 * np.sqrt(losses[-1] / 16))
    grid = [float(g) for g in measured.scores]
    by_hand = sum(
        0.5 * (measured.scores[f"{a:.2f}"] + measured.scores[f"{b:.2f}"]) * (b - a)
        for a, b in pairwise(grid)
    )
    assert measured.ood_auc == pytest.approx(by_hand)
    assert measured.mean_over_gammas == pytest.approx(sum(measured.scores.values()) / len(grid))
    assert measured.mean_over_gammas != pytest.approx(by_hand / (grid[-1] - grid[0]), rel=1e-4)
    wiener = references.metrics["wiener"]
    logs = [np.log(measured.scores[g] / wiener[g]) for g in ("0.20", "0.25")]
    assert measured.objective == pytest.approx(np.mean(logs))
    assert measured.multipliers == [0.5]


def test_the_wiener_filter_itself_has_objective_zero() -> None:
    assert objective({"0.20": 3.0}, {"0.20": 3.0}, [0.2]) == 0.0


@pytest.mark.parametrize(
    ("train_gamma", "test_gammas", "expected"),
    [
        (0.15, (0.0, 0.15, 0.2, 0.25, 0.3), [0.2, 0.25]),
        (0.0, (0.0, 0.05, 0.1, 0.15), [0.05, 0.1]),
        (0.15, (0.0, 0.5), [0.5]),  # nothing near: the first beyond
        (0.5, (0.0, 0.5), [0.5]),  # nothing beyond: the largest
    ],
)
def test_the_objective_looks_just_above_the_training_gamma(
    train_gamma: float, test_gammas: tuple[float, ...], expected: list[float]
) -> None:
    assert (
        near_shift_gammas(replace(TINY, train_gamma=train_gamma, test_gammas=test_gammas))
        == expected
    )


def test_descent_ratios_are_per_sample(task: VideoDenoising) -> None:
    found = descent_ratios(measure(Shrinking(), task, "dev", 0.2, 2).samples)
    assert found.quantiles.shape == (2, 21)
    assert (np.diff(found.quantiles, axis=1) >= 0).all()
    ratios = []
    for batch in task.held_out("dev", 0.2, 0):
        losses = [task.loss(p, batch.targets) for p in Shrinking()(batch.inputs)]
        ratios.append((losses[1] / losses[0]).numpy())
    every = np.concatenate(ratios)
    assert found.fraction[0] == pytest.approx((every < 1).mean())
    assert found.mean[0] == pytest.approx(every.mean(), rel=1e-5)
    assert found.quantiles[0, 0] == pytest.approx(every.min(), rel=1e-5)
    assert found.quantiles[0, -1] == pytest.approx(every.max(), rel=1e-5)


def test_ratios_are_counted_in_bins_that_say_where_they_lie() -> None:
    before = np.random.default_rng(0).lognormal(0, 1, 5000)
    losses = np.stack([before, before * np.random.default_rng(1).lognormal(-0.2, 0.6, 5000)])
    ratios = losses[1] / losses[0]
    found = descent_ratios(losses)
    edges = np.append(np.linspace(0, 2, 101), np.inf)
    assert found.counts[0].tolist() == np.histogram(ratios, edges)[0].tolist()
    assert found.counts[0, -1] == (ratios >= 2).sum() > 0
    edge_and_nothing = np.array([[1.0, 0.0, 0.0], [1.0, 0.0, 3.0]])  # ratios 1, 1 and infinite
    at = {k: n for k, n in enumerate(descent_ratios(edge_and_nothing).counts[0]) if n}
    assert at == {50: 2, 100: 1}  # a bin begins at its lower edge


# --- splits, units and samples --------------------------------------------------------------------

EVERY = replace(TINY, eval_windows=99, shifts=("blur",))


@pytest.mark.parametrize("split", ["train", "dev", "test"])
def test_every_split_is_measured_on_its_own_units(split: str) -> None:
    task = VideoDenoising(EVERY, torch.device("cpu"), torch.float32)
    counts = {s: len(units_of(task, s)) for s in ("train", "dev", "test")}
    assert counts["train"] > max(counts["dev"], counts["test"])  # train's names would leave NaN
    found = measure(Shrinking(), task, split, 0.2, 1)
    expected = [
        task.loss(batch.inputs * 0.5, batch.targets).mean()
        for batch in task.held_out(split, 0.2, 0)
    ]  # a batch is a unit
    np.testing.assert_allclose(found.units[:, -1], torch.stack(expected), rtol=1e-5)
    shifted = measure_shifted(Shrinking(), task, "blur", 2.0, split)
    assert len(shifted.scored) == counts[split]
    assert np.isfinite(shifted.scored).all()


def test_an_unknown_split_is_named(task: VideoDenoising) -> None:
    with pytest.raises(UnknownName, match="split"):
        measure(Shrinking(), task, "validation", 0.2, 1)


def test_the_test_split_is_evaluated_where_it_is_asked_for() -> None:
    task = VideoDenoising(EVERY, torch.device("cpu"), torch.float32)
    references = task.references("test")
    found, by_unit = evaluate(EVERY, task, Shrinking(), references, [], "test")
    assert (found.split, by_unit.split) == ("test", "test")
    assert tuple(found.dev_units) == tuple(by_unit.units) == task.test_units
    assert len(found.dev_losses) == len(task.test_units)
    # layer 0 of this model is the input: the references are those of the same windows
    assert found.held_out_losses()[0] == pytest.approx(found.reference_losses["identity"], rel=1e-5)
    assert found.scores != evaluate(EVERY, task, Shrinking(), references, [])[0].scores
    config = replace(EVERY, seed=1)
    record = ArmRecord(signature="a", config=config, status="finished", evaluation=found)
    assert ArmRecord.from_json(json.loads(json.dumps(record.to_json()))) == record


def test_scores_by_unit_are_what_the_means_are_of() -> None:
    task = VideoDenoising(EVERY, torch.device("cpu"), torch.float32)
    references = linear_references(EVERY, task)
    found, by_unit = evaluate(EVERY, task, Shrinking(), references, [])
    assert by_unit.samples == [64] * len(task.dev_units)  # (32 / 4)^2 patches of a window
    assert by_unit.scores_N == {}  # they are the losses
    gammas, severities = EVERY.test_gammas, VIDEO_FAMILIES["blur"].severities
    wanted = {at_gamma(g) for g in gammas} | {under_shift("blur", s) for s in severities}
    assert set(by_unit.losses_UF) == wanted
    for gamma in EVERY.test_gammas:
        losses = by_unit.losses_UF[at_gamma(gamma)]
        assert losses.shape == (len(task.dev_units), 3)
        expected = found.layer_losses_by_gamma[gamma_key(gamma)]
        np.testing.assert_allclose(losses.mean(0), expected, rtol=1e-5)  # of single precision
    for severity in severities:
        losses = by_unit.losses_UF[under_shift("blur", severity)]
        expected = found.shift_layer_losses["blur"][severity_key(severity)]
        np.testing.assert_allclose(losses.mean(0), expected, rtol=1e-5)


def test_a_computed_train_gamma_is_measured_once() -> None:
    """Twice would be two draws of noise: one in the scores, the other by unit and layer."""
    config = TINY.with_fields({"train_gamma": 3 * 0.05, "test_gammas": [0.0, 0.05 * 3, 0.3]})
    task = VideoDenoising(config, torch.device("cpu"), torch.float32)
    found, by_unit = evaluate(config, task, Shrinking(), linear_references(config, task), [])
    losses = by_unit.losses_UF[at_gamma(0.15)].mean(0)
    assert set(by_unit.losses_UF) == {at_gamma(g) for g in config.test_gammas}
    assert found.scores["0.15"] == pytest.approx(task.metric(float(losses[-1])), rel=1e-5)


def test_scores_by_unit_are_stored_and_read_as_they_are() -> None:
    task = VideoDenoising(TINY, torch.device("cpu"), torch.float32)
    _, ours = evaluate(TINY, task, Shrinking(), linear_references(TINY, task), [])
    theirs = UnitScores.from_bytes(ours.to_bytes())
    assert (ours.split, ours.units, ours.samples) == (theirs.split, theirs.units, theirs.samples)
    for mine, other in ((ours.losses_UF, theirs.losses_UF), (ours.scores_N, theirs.scores_N)):
        assert {n: x.tolist() for n, x in mine.items()} == {n: x.tolist() for n, x in other.items()}
    assert theirs.to_bytes() == ours.to_bytes()


# --- shifts beside Gaussian noise -----------------------------------------------------------------

SHIFTED = replace(TINY, shifts=tuple(VIDEO_FAMILIES))


def test_losses_under_a_shift_equal_a_naive_average(task: VideoDenoising) -> None:
    found = measure_shifted(Shrinking(), task, "salt_and_pepper", 0.025)
    sums, count = np.zeros(3), 0
    for batch in task.shifted("dev", "salt_and_pepper", 0.025, 0):
        for noisy, clean in zip(batch.inputs, batch.targets, strict=True):
            count += 1
            for layer, factor in enumerate(Shrinking.factors):
                sums[layer] += float((factor * noisy - clean).square().sum(-1).mean())
    np.testing.assert_allclose(found.losses, sums / count, rtol=1e-5)
    assert found.metrics(task)[-1] == task.metric(float(found.losses[-1]))
    # layer 0 of this model is the input
    assert found.unchanged == pytest.approx(task.metric(float(found.losses[0])))


def test_every_family_and_severity_is_scored_beside_its_references(task: VideoDenoising) -> None:
    references = linear_references(SHIFTED, task)
    measured = evaluate(SHIFTED, task, Shrinking(), references, [])[0]
    wanted = {s: [severity_key(x) for x in f.severities] for s, f in VIDEO_FAMILIES.items()}
    identity, constant = (measured.shift_references[n] for n in ("identity", "constant"))
    for found in (measured.shift_scores, measured.shift_layer_losses, identity, constant):
        assert {shift: list(by_severity) for shift, by_severity in found.items()} == wanted
    for shift, by_severity in measured.shift_layer_losses.items():
        for severity, losses in by_severity.items():
            score = measured.shift_scores[shift][severity]
            assert score == pytest.approx(255 * np.sqrt(losses[-1] / 16))
            assert identity[shift][severity] == pytest.approx(255 * np.sqrt(losses[0] / 16))
            assert constant[shift][severity] == references.metrics["constant"]["0.15"]
    # x + n + b: the energies of noise and brightness add up, but for 12,288 pixels' cross term
    energy = sum(g**2 for g in (0.15, 0.5)) * (255 * task.std) ** 2
    assert identity["brightness"]["0.5"] == pytest.approx(np.sqrt(energy), rel=0.02)


def test_what_selection_sees_is_the_same_with_and_without_shifts(task: VideoDenoising) -> None:
    references = linear_references(TINY, task)
    without = evaluate(TINY, task, Shrinking(), references, [0.5])[0]
    scored = evaluate(SHIFTED, task, Shrinking(), references, [0.5])[0]
    assert scored.shift_scores
    for name in ("shift_scores", "shift_layer_losses", "shift_references"):
        getattr(scored, name).clear()
    assert scored == without  # the objective and all else, to the last bit


def test_a_record_written_before_there_were_shifts_loads(task: VideoDenoising) -> None:
    references = linear_references(TINY, task)
    records = [
        ArmRecord(
            signature=config.signature(),
            config=config,
            status="finished",
            evaluation=evaluate(config, task, Shrinking(), references, [])[0],
        )
        for config in (TINY, SHIFTED)
    ]
    before, now = (record.to_json() for record in records)
    for name in [name for name in before["evaluation"] if "shift" in name]:
        assert before["evaluation"].pop(name) == {}  # as they were written
    for record, plain in zip(records, (before, now), strict=True):
        assert ArmRecord.from_json(json.loads(json.dumps(plain))) == record


def test_evaluation_never_opens_the_test_clips(
    monkeypatch: pytest.MonkeyPatch, task: VideoDenoising
) -> None:
    opened: list[str] = []
    original = task.disturbed

    def watched(split: str, disturbance: Disturbance) -> Iterator[Batch]:
        opened.append(split)
        return original(split, disturbance)

    monkeypatch.setattr(task, "disturbed", watched)
    evaluate(SHIFTED, task, Shrinking(), linear_references(SHIFTED, task), [])
    assert set(opened) == {"dev", "train"}
    assert "test" not in task._patches
    assert "test_units" not in vars(task)  # not even their names were asked for


# --- several draws --------------------------------------------------------------------------------


def test_scores_are_means_over_their_draws(task: VideoDenoising) -> None:
    """Unit losses are averaged before the metric, at every gamma and shift, of references too."""
    config = replace(SHIFTED, score_draws=3, eval_draws=2)
    references = linear_references(config, task)
    found, by_unit = evaluate(config, task, Shrinking(), references, [])

    def mean_loss(batches_of: Callable[[int], Iterator[Batch]]) -> float:
        losses = [task.loss(b.inputs * 0.5, b.targets) for d in range(3) for b in batches_of(d)]  # type: ignore[operator]
        return float(torch.cat(losses).double().mean())

    for gamma in config.test_gammas:
        mean = mean_loss(partial(task.held_out, "dev", gamma))
        assert found.scores[gamma_key(gamma)] == pytest.approx(task.metric(mean), rel=1e-5)
        units = by_unit.losses_UF[at_gamma(gamma)][:, -1]
        assert float(units.mean()) == pytest.approx(mean, rel=1e-5)
        # layer 0 of this model is the input
        identity = references.metrics["identity"][gamma_key(gamma)]
        layer_0 = found.layer_losses_by_gamma[gamma_key(gamma)][0]
        assert task.metric(layer_0) == pytest.approx(identity, rel=1e-5)
    severity = VIDEO_FAMILIES["blur"].severities[0]
    mean = mean_loss(partial(task.shifted, "dev", "blur", severity))
    blurred = found.shift_scores["blur"][severity_key(severity)]
    assert blurred == pytest.approx(task.metric(mean), rel=1e-5)
    once, _ = evaluate(replace(config, score_draws=1), task, Shrinking(), references, [])
    assert found.dev_losses == once.dev_losses  # feasibility has draws of its own
    assert found.train_losses == once.train_losses
    assert found.descent_ratio_quantiles == once.descent_ratio_quantiles
    assert found.scores != once.scores


def test_accuracy_of_texts_is_a_mean_over_its_draws(tmp_path: Path) -> None:
    """Dropped tokens change lengths, and so the order of a draw's batches: samples keep theirs."""
    config = tiny_text(tmp_path, shifts=["token_drop"])
    task = text_task(config)
    model = build_model(config, task)
    found = measure_shifted(model, task, "token_drop", 0.5, score_draws=3)
    sums = np.zeros(sum(found.sizes))
    for draw in range(3):
        for batch in task.shifted("dev", "token_drop", 0.5, draw):
            outcomes = layer_outcomes(model, task, batch)
            sums[list(batch.samples)] += outcomes.scores[-1].detach().numpy()
    assert found.sample_scores is not None
    np.testing.assert_allclose(found.sample_scores, sums / 3)
    assert found.scores[-1] == pytest.approx(sums.mean() / 3)
