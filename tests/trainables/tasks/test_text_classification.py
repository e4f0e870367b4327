"""Text classification: units, keyed noise that spares padding, losses, scores, arms."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.support.data.text_runs import (
    LONGEST,
    by_sample,
    noise_of,
    text_task,
    tiny_text,
    tokens_of,
)
from trainables.arm_run import ArmRun
from trainables.build import build_model, build_task
from trainables.config.arm import ArmConfig
from trainables.config.test_conditions import TEXT_FAMILIES
from trainables.errors import InvalidValue, UnknownName
from trainables.evaluation import measuring
from trainables.evaluation.evaluate import evaluate
from trainables.evaluation.measuring import measure
from trainables.layer_losses import introduce, layer_outcomes
from trainables.records.arm_record import ArmRecord
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore
from trainables.tasks import texts
from trainables.tasks.text_classification import TextClassification

CPU = torch.device("cpu")


@pytest.fixture(scope="module", params=["imdb without films", "mnli as published"])
def config(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ArmConfig:
    return tiny_text(tmp_path_factory.mktemp("text"), request.param)


@pytest.fixture(scope="module")
def reviews(tmp_path_factory: pytest.TempPathFactory) -> ArmConfig:
    return tiny_text(tmp_path_factory.mktemp("reviews"))


# --- scales and references ------------------------------------------------------------------------


def test_losses_are_in_units_of_the_entropy_of_the_training_labels(config: ArmConfig) -> None:
    task = text_task(config)
    counts = Counter(example.label for example in task.texts.train)
    total = sum(counts.values())
    entropy = -sum(n / total * math.log(n / total) for n in counts.values())
    assert task.scales.constant_loss == pytest.approx(entropy)
    assert task.scales.identity_loss == task.scales.constant_loss


def test_the_constant_prediction_is_that_of_the_training_labels(config: ArmConfig) -> None:
    task = text_task(config)
    counts = Counter(example.label for example in task.texts.train)
    total = sum(counts.values())
    guess = max(sorted(counts), key=lambda label: counts[label])
    by_group: dict[str, list[int]] = {}
    for example in task.texts.dev:
        by_group.setdefault(example.group, []).append(example.label)
    units = [by_group[name] for name in task.dev_units]
    losses = [np.mean([-math.log(counts[label] / total) for label in unit]) for unit in units]
    labels = [label for unit in units for label in unit]
    found = task.references()
    assert found.losses == {"constant": pytest.approx(np.mean(losses))}
    right = np.mean([label == guess for label in labels])
    gammas = ["0.00", "0.40", "0.60", "0.80", "2.00"]
    assert found.metrics == {"constant": dict.fromkeys(gammas, pytest.approx(right))}


# --- the noise ------------------------------------------------------------------------------------


def test_sigma_is_that_of_the_training_splits_clean_words(config: ArmConfig) -> None:
    task = text_task(config)
    words = build_model(config, task).words.double().numpy()
    rows = [words[i] for k in range(len(task.tokens.train)) for i in task.tokens.train.tokens(k)]
    assert task.embedding_std == pytest.approx(np.std(np.stack(rows)), rel=1e-12)


def test_noise_has_that_sigma_and_spares_padding(config: ArmConfig) -> None:
    task = text_task(config)
    drawn = []
    for split in ("train", "dev"):
        for batch in task.held_out(split, 0.6, 0):
            given, noise = tokens_of(batch), noise_of(batch)
            assert (noise[~given.attention_mask] == 0).all()
            drawn.append(noise[given.attention_mask].flatten())
    for step in range(12):
        batch = task.train_batch(step)
        noise = noise_of(batch)
        assert (noise[~tokens_of(batch).attention_mask] == 0).all()
        drawn.append(noise[tokens_of(batch).attention_mask].flatten() * (0.6 / config.train_gamma))
    values = torch.cat(drawn)  # over 10,000: one std of the estimate is below 0.7 %
    assert values.numel() > 10_000
    assert values.std().item() == pytest.approx(0.6 * task.embedding_std, rel=0.03)
    assert abs(values.mean().item()) < 0.04 * task.embedding_std


def test_held_out_noise_is_keyed_by_what_it_is_for(config: ArmConfig) -> None:
    task = text_task(config)
    again = by_sample(
        text_task(config.unconstrained().with_fields({"seed": 9})).held_out("dev", 0.6, 1)
    )
    first = by_sample(task.held_out("dev", 0.6, 1))
    assert first.keys() == again.keys()
    assert all(torch.equal(first[k][1], again[k][1]) for k in first)  # type: ignore[arg-type]
    for others in (task.held_out("dev", 0.8, 1), task.held_out("dev", 0.6, 0)):
        for key, (_, noise) in by_sample(others).items():
            assert noise is not None
            assert not torch.allclose(noise / noise.std(), first[key][1] / first[key][1].std())  # type: ignore[operator,union-attr]
    noises = [noise.flatten()[:16].tolist() for _, noise in first.values()]  # type: ignore[union-attr]
    assert len({tuple(n) for n in noises}) == len(noises)  # no two samples share a draw


def test_batching_changes_neither_noise_nor_scores(
    config: ArmConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = text_task(config)
    model = build_model(config, task)
    together = by_sample(task.held_out("dev", 0.6, 0))
    measured = measure(model, task, "dev", 0.6, 2)
    for samples, tokens in ((1, 8192), (3, 8192), (64, 2 * LONGEST)):
        monkeypatch.setattr(texts, "_EVAL_SAMPLES", samples)
        monkeypatch.setattr(texts, "_EVAL_TOKENS", tokens)
        apart = by_sample(task.held_out("dev", 0.6, 0))
        assert apart.keys() == together.keys()
        assert all(torch.equal(apart[k][1], together[k][1]) for k in apart)  # type: ignore[arg-type]
        again = measure(model, task, "dev", 0.6, 2)
        # sums of float32 in another order
        np.testing.assert_allclose(again.units, measured.units, rtol=1e-5)
        assert again.metrics(task) == measured.metrics(task)


def test_without_noise_nothing_is_drawn(config: ArmConfig) -> None:
    clean = text_task(config.with_fields({"train_gamma": 0.0}))
    assert all(tokens_of(batch).noise is None for batch in clean.held_out("dev", 0.0, 0))
    assert tokens_of(clean.train_batch(3)).noise is None


def test_noise_needs_the_models_embeddings_first(config: ArmConfig) -> None:
    task = build_task(config, CPU, torch.float32)
    with pytest.raises(AssertionError, match="calibrate"):
        task.train_batch(0)


# --- batches --------------------------------------------------------------------------------------


def test_a_training_batch_is_a_function_of_seed_and_step(config: ArmConfig) -> None:
    ours, theirs = text_task(config), text_task(config.unconstrained())
    later = ours.train_batch(7)
    for step in (3, 7, 0):
        a, b = ours.train_batch(step), theirs.train_batch(step)
        assert torch.equal(tokens_of(a).ids, tokens_of(b).ids)
        assert torch.equal(noise_of(a), noise_of(b))
        assert torch.equal(a.targets, b.targets)
    assert torch.equal(noise_of(later), noise_of(theirs.train_batch(7)))
    other = text_task(config.with_fields({"seed": 1}))
    assert any(
        noise_of(other.train_batch(s)).shape != noise_of(ours.train_batch(s)).shape
        or not torch.equal(noise_of(other.train_batch(s)), noise_of(ours.train_batch(s)))
        for s in range(3)
    )


def test_an_epoch_visits_every_text_but_an_incomplete_batch(config: ArmConfig) -> None:
    task = text_task(config)
    known = Counter(
        (tuple(task.tokens.train.tokens(i).tolist()), int(task.tokens.train.labels_N[i]))
        for i in range(len(task.tokens.train))
    )
    for epoch in range(2):
        seen: Counter[tuple[tuple[int, ...], int]] = Counter()
        for step in range(epoch * task.steps_per_epoch, (epoch + 1) * task.steps_per_epoch):
            batch = task.train_batch(step)
            given = tokens_of(batch)
            assert len(batch.targets) == config.batch_size
            for row in range(config.batch_size):
                mask = given.attention_mask[row]
                assert (given.ids[row][~mask] == task.tokens.pad_id).all()
                seen[tuple(given.ids[row][mask].tolist()), int(batch.targets[row])] += 1
        assert seen <= known
        assert seen.total() == known.total() - known.total() % config.batch_size


def test_a_batch_in_parts_is_the_batch(config: ArmConfig) -> None:
    batch = text_task(config).train_batch(2)
    assert batch.parts(1) == [batch]
    parts = batch.parts(2)
    assert torch.equal(torch.cat([p.targets for p in parts]), batch.targets)
    for name in ("ids", "attention_mask", "noise"):
        whole = torch.cat([getattr(tokens_of(p), name) for p in parts])
        assert torch.equal(whole, getattr(tokens_of(batch), name))


def test_a_batch_larger_than_the_data_is_refused(config: ArmConfig) -> None:
    with pytest.raises(InvalidValue, match="batch_size must be at most"):
        text_task(config.with_fields({"batch_size": 4000}))


# --- units ----------------------------------------------------------------------------------------


def test_a_unit_is_a_group_with_all_its_samples(config: ArmConfig) -> None:
    task = text_task(config)
    groups = Counter(example.group for example in task.texts.dev)
    assert len(task.dev_units) == min(config.eval_windows, len(groups))
    counts = Counter(unit for batch in task.held_out("dev", 0.0, 0) for unit in batch.units)
    assert [counts[i] for i in range(len(task.dev_units))] == [groups[n] for n in task.dev_units]
    if config.data.name == "mnli":
        assert max(counts.values()) >= 3  # a premise has several hypotheses
    labels = Counter(int(t) for b in task.held_out("dev", 0.0, 0) for t in b.targets)
    wanted = set(task.dev_units)
    assert labels == Counter(e.label for e in task.texts.dev if e.group in wanted)


def test_fewer_units_are_evenly_chosen_and_the_same_for_every_seed(config: ArmConfig) -> None:
    few = config.with_fields({"eval_windows": 2})
    task, other = text_task(few), text_task(few.with_fields({"seed": 5}))
    assert task.dev_units == other.dev_units
    assert len(task.dev_units) == len(task.train_units) == 2
    assert set(task.dev_units) <= set(text_task(config.with_fields({"eval_windows": 99})).dev_units)
    assert {u for b in task.held_out("train", 0.0, 0) for u in b.units} == {0, 1}


@pytest.mark.parametrize("per_unit", [1, 2])
def test_large_groups_are_fewer_so_that_evaluation_costs_no_more(
    config: ArmConfig, per_unit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(texts, "SAMPLES_PER_UNIT", per_unit)
    tokens = text_task(config).tokens.train
    at_most = len(tokens.group_names) - 1
    task = text_task(config.with_fields({"eval_windows": at_most}))
    mean_size = len(tokens) / len(tokens.group_names)
    assert len(task.train_units) == min(at_most, math.ceil(at_most * per_unit / mean_size))
    if config.data.name == "mnli":
        assert len(task.train_units) < at_most


def test_an_unknown_split_is_named(config: ArmConfig) -> None:
    with pytest.raises(UnknownName, match="unknown split 'val'"):
        next(text_task(config).held_out("val", 0.0, 0))


def test_training_and_evaluation_never_open_the_test_split(config: ArmConfig) -> None:
    config = config.with_fields({"shifts": list(TEXT_FAMILIES)})
    task = text_task(config)
    model = build_model(config, task)
    task.train_batch(0)
    evaluate(config, task, model, task.references(), [])
    assert "test" not in vars(task.tokens)
    assert "test" not in vars(task.texts)
    assert len(next(task.held_out("test", 0.0, 0)).targets)  # what confirmation does
    assert "test" in vars(task.tokens)


# --- losses and scores ----------------------------------------------------------------------------


def test_the_loss_is_the_cross_entropy_and_the_score_counts_right_answers(
    reviews: ArmConfig,
) -> None:
    task = text_task(reviews)
    logits = torch.tensor([[2.0, -1.0], [0.0, 0.0], [-3.0, 1.0], [5.0, 9.0]], dtype=torch.float64)
    labels = torch.tensor([0, 1, 0, 1])
    naive = [
        -math.log(math.exp(row[label]) / sum(math.exp(v) for v in row))
        for row, label in zip(logits.tolist(), labels.tolist(), strict=True)
    ]
    losses = task.loss(logits, labels)
    assert losses.tolist() == pytest.approx(naive)
    assert task.scores(logits, labels, losses).tolist() == [1.0, 0.0, 0.0, 1.0]
    assert task.metric(0.75) == 0.75
    assert task.unchanged_losses(next(task.held_out("dev", 0.0, 0))) is None


def test_a_prediction_that_is_no_number_is_never_right(reviews: ArmConfig) -> None:
    task = text_task(reviews)
    logits = torch.tensor([[math.nan, 0.0], [0.0, math.inf], [1.0, 0.0]])
    scores = task.scores(logits, torch.tensor([0, 1, 0]), logits[:, 0])
    assert scores.isnan().tolist() == [True, True, False]


def test_every_sample_counts_alike_in_the_metric_and_every_unit_in_the_loss(
    config: ArmConfig,
) -> None:
    task = text_task(config)
    model = build_model(config, task)
    measured = measure(model, task, "dev", 0.6, 1)
    losses: list[list[list[float]]] = [[] for _ in task.dev_units]
    right: list[list[float]] = []
    with torch.no_grad():
        for batch in task.held_out("dev", 0.6, 0):
            found = layer_outcomes(model, task, batch)
            for column, unit in enumerate(batch.units):
                losses[unit].append(found.losses[:, column].tolist())
                right.append(found.scores[:, column].tolist())
    by_unit = [np.mean(rows, axis=0) for rows in losses]
    np.testing.assert_allclose(measured.units, by_unit, rtol=1e-6)
    assert measured.metrics(task) == pytest.approx(np.mean(right, axis=0).tolist())


def test_features_are_what_the_readout_sees(reviews: ArmConfig) -> None:
    task = text_task(reviews)
    model = build_model(reviews, task)
    found = measure(model, task, "dev", 0.4, 2, feature_draws=1)
    assert found.features is not None
    labels = [int(t) for b in task.held_out("dev", 0.4, 0) for t in b.targets]
    assert found.features.labels.tolist() == labels
    two = measure(model, task, "dev", 0.4, 2, feature_draws=2).features
    assert two is not None
    norms = [np.sqrt((x**2).mean(axis=1)).mean() for x in two.features]
    np.testing.assert_allclose(found.norms, norms, rtol=1e-5)
    logits = [model.readout(torch.from_numpy(x)) for x in found.features.features]
    right = [(x.argmax(1).numpy() == labels).mean() for x in logits]
    assert found.metrics(task) == pytest.approx(right)


# --- evaluation -----------------------------------------------------------------------------------


class Fixed(nn.Module):
    """A model of texts whose layers are right about known fractions of the samples."""

    def __init__(self, words: Tensor, classes: int) -> None:
        super().__init__()
        self.words = nn.Parameter(words)
        self.classes = classes

    def embed(self, ids: Tensor) -> Tensor:
        return nn.functional.embedding(ids, self.words)

    def features(self, inputs: object) -> list[Tensor]:
        mean = inputs.embeddings.sum((1, 2))  # type: ignore[attr-defined]
        rows = ([k * mean, -mean, 0.5 - mean] for k in (1.0, -1.0, 3.0))
        return [torch.stack(row[: self.classes], dim=1) for row in rows]

    def readout(self, features: Tensor) -> Tensor:
        return features


def test_the_final_evaluation_follows_from_its_parts(config: ArmConfig) -> None:
    task = text_task(config)
    model = Fixed(build_model(config, task).words, task.classes)
    found = evaluate(config, task, model, task.references(), [0.5])[0]
    for gamma in config.test_gammas:
        accuracies = measure(model, task, "dev", gamma, 1).metrics(task)
        assert found.layer_scores_by_gamma[f"{gamma:.2f}"] == accuracies
        assert found.scores[f"{gamma:.2f}"] == accuracies[-1]
    s = [found.scores[key] for key in ("0.00", "0.40", "0.60", "0.80", "2.00")]
    area = 0.4 * (s[0] + s[1]) / 2 + 0.2 * (s[1] + s[2]) / 2 + 0.2 * (s[2] + s[3]) / 2
    area += 1.2 * (s[3] + s[4]) / 2
    assert found.ood_auc == pytest.approx(area)
    assert found.mean_over_gammas == pytest.approx(sum(s) / 5)  # plain: every gamma counts alike
    assert (found.gamma_range, found.gamma_step) == ((0.0, 2.0), None)
    # selection looks at gammas in (0.4, 0.8]: what is missing to 1, over the trapezoid of two
    assert found.objective_gammas == [0.6, 0.8]
    assert found.objective == pytest.approx(1 - (s[2] + s[3]) / 2)
    assert 0.0 <= found.mean_over_gammas <= 1.0


def test_probes_are_fitted_to_training_features_and_scored_on_dev(reviews: ArmConfig) -> None:
    task = text_task(reviews.with_fields({"eval_windows": 99}))
    model = build_model(reviews, task)
    found = evaluate(reviews, task, model, task.references(), [])[0]
    assert len(found.probe_losses) == len(found.probe_scores) == len(found.probe_train_losses) == 4
    # layer 0 of [CLS] knows nothing of its text: no probe can tell the labels
    assert found.probe_scores[0] == pytest.approx(0.5, abs=0.2)
    assert found.probe_train_losses[-1] < found.probe_train_losses[0]


def test_features_are_of_whole_draws_and_not_of_more_than_are_needed(
    reviews: ArmConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = text_task(reviews)
    model = build_model(reviews, task)
    for most, draws in ((1, 1), (10, 2), (10_000, 3)):
        monkeypatch.setattr(measuring, "MOST_FEATURES", most)
        found = measure(model, task, "train", 0.4, 3, feature_draws=3)
        assert found.features is not None
        assert len(found.features.labels) == draws * found.samples.shape[1]


def test_units_without_a_label_have_no_probe(reviews: ArmConfig) -> None:
    task = text_task(reviews.with_fields({"eval_windows": 1}))
    found = evaluate(reviews, task, build_model(reviews, task), task.references(), [])[0]
    assert found.probe_losses == []
    record = ArmRecord(signature="x", config=reviews, status="finished", evaluation=found)
    assert record.to_json()["evaluation"]["probe_losses"] == []


# --- arms -----------------------------------------------------------------------------------------


def finished(config: ArmConfig, store: ArmStore) -> ArmRecord:
    arm = ArmRun(config, store)
    while not arm.advance().is_final:
        pass
    assert arm.record.status == "finished", arm.record.reason
    return arm.record


def test_a_pair_trains_and_reports_accuracy_beside_the_loss_of_every_layer(
    config: ArmConfig, tmp_path: Path
) -> None:
    store = ArmStore(ObjectStore(tmp_path))
    for arm in (config, config.unconstrained()):
        record = finished(arm, store)
        measured = record.evaluation
        assert measured is not None
        assert ArmRecord.from_json(record.to_json()) == record
        for report in record.reports:
            assert len(report.layers["accuracies"]) == len(report.layers["losses"]) == 4
            assert all(0 <= value <= 1 for value in report.layers["accuracies"])
            assert list(report.by_layer("accuracies")) == [0, 1, 2, 3]
        assert set(measured.scores) == {"0.00", "0.40", "0.60", "0.80", "2.00"}
        assert all(0 <= score <= 1 for score in measured.scores.values())


@pytest.mark.parametrize(
    "fields", [{}, {"accumulate": 2, "weight_decay": 0.01, "readout_lr": 0.01}]
)
def test_an_arm_that_is_resumed_comes_to_the_very_numbers(
    reviews: ArmConfig, fields: dict[str, object], tmp_path: Path
) -> None:
    config = reviews.with_fields({"warmup_fraction": 0.25, "decay_fraction": 0.5, **fields})
    whole = finished(config, ArmStore(ObjectStore(tmp_path / "whole")))
    store = ArmStore(ObjectStore(tmp_path / "parts"))
    assert ArmRun(config, store).advance().status == "running"
    resumed = finished(config, store)  # another ArmRun, from the checkpoint
    assert resumed.evaluation == whole.evaluation
    losses = [[r.layers["losses"] for r in record.reports] for record in (whole, resumed)]
    assert losses[0] == losses[1]


def test_a_stand_in_for_a_model_meets_the_task_once(reviews: ArmConfig) -> None:
    """The embeddings that a task is shown are those of the starting weights."""
    task = build_task(reviews, CPU, torch.float32)
    assert isinstance(task, TextClassification)
    model = build_model(reviews, task)
    introduce(model, task)
    before = task.embedding_std
    with torch.no_grad():
        model.words.mul_(2.0)
    assert task.embedding_std == before
    introduce(model, task)
    assert task.embedding_std == pytest.approx(2 * before, rel=1e-6)
