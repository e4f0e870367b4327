"""Text classification under shifts: one draw for both arms, scores by sample, references."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch

from tests.support.data.text_runs import (
    LONGEST,
    by_sample,
    noise_of,
    text_task,
    tiny_text,
    tokens_of,
)
from trainables.build import build_model
from trainables.config.arm import ArmConfig
from trainables.config.test_conditions import TEXT_FAMILIES, gamma_key
from trainables.errors import UnknownName
from trainables.evaluation.evaluate import evaluate
from trainables.evaluation.measuring import measure_shifted, units_of
from trainables.layer_losses import layer_predictions
from trainables.records.unit_scores import at_gamma, under_shift
from trainables.tasks.text_shifts import mistyped

CPU = torch.device("cpu")


@pytest.fixture(scope="module", params=["imdb without films", "mnli as published"])
def config(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ArmConfig:
    return tiny_text(tmp_path_factory.mktemp("text"), request.param)


@pytest.fixture(scope="module")
def reviews(tmp_path_factory: pytest.TempPathFactory) -> ArmConfig:
    return tiny_text(tmp_path_factory.mktemp("reviews"))


@pytest.mark.parametrize("shift", TEXT_FAMILIES)
def test_a_severity_of_0_gives_the_very_numbers_without_the_shift(
    config: ArmConfig, shift: str
) -> None:
    task = text_task(config)
    plain = by_sample(task.held_out("dev", config.train_gamma, 0))
    shifted = by_sample(task.shifted("dev", shift, 0.0, 0))
    assert plain.keys() == shifted.keys()
    for key, (label, noise) in plain.items():
        assert shifted[key][0] == label
        assert torch.equal(shifted[key][1], noise)  # type: ignore[arg-type]


@pytest.mark.parametrize("shift", TEXT_FAMILIES)
def test_a_shift_is_the_same_for_both_arms_and_spares_labels_and_padding(
    config: ArmConfig, shift: str
) -> None:
    severity = TEXT_FAMILIES[shift].severities[-1]
    ours, theirs = (
        list(text_task(c).shifted("dev", shift, severity, 0))
        for c in (config, config.unconstrained().with_fields({"seed": 3}))
    )
    plain = list(text_task(config).held_out("dev", config.train_gamma, 0))
    counts = [Counter((u, int(t)) for b in bs for u, t in zip(b.units, b.targets, strict=True))
              for bs in (ours, plain)]  # fmt: skip
    assert counts[0] == counts[1]
    for a, b in zip(ours, theirs, strict=True):
        assert torch.equal(tokens_of(a).ids, tokens_of(b).ids)
        assert torch.equal(noise_of(a), noise_of(b))
        assert (noise_of(a)[~tokens_of(a).attention_mask] == 0).all()
        assert tokens_of(a).ids.shape[1] <= LONGEST
    assert by_sample(iter(ours)).keys() != by_sample(iter(plain)).keys()


def test_dropped_and_swapped_texts_keep_their_special_tokens(config: ArmConfig) -> None:
    task = text_task(config)
    special = set(task.tokens.special_ids)
    for shift in ("token_drop", "token_swap"):
        for batch in task.shifted("dev", shift, 1.0, 0):
            given = tokens_of(batch)
            for row in range(len(given)):
                ids = given.ids[row][given.attention_mask[row]].tolist()
                assert ids[0] in special
                assert ids[-1] in special
                assert shift != "token_drop" or set(ids) <= special


def test_typos_come_before_the_tokenizer(config: ArmConfig) -> None:
    """Each text mistyped by hand with its own draws, then tokenised on its own."""
    task = text_task(config)
    wanted: Counter[tuple[int, ...]] = Counter()
    from trainables.random_keys import keyed_generator

    for name in task.dev_units:
        of_unit = [e for e in task.texts.dev if e.group == name]
        for k, example in enumerate(of_unit):
            generator = keyed_generator("cpu", "dev", name, k, "typos", 0)
            texts = [mistyped(example.text, 0.1, generator)]
            if example.pair is not None:
                texts.append(mistyped(example.pair, 0.1, generator))
            made = task.tokenizer(*texts, truncation="longest_first", max_length=LONGEST)
            wanted[tuple(made["input_ids"])] += 1
    found: Counter[tuple[int, ...]] = Counter()
    for batch in task.shifted("dev", "typos", 0.1, 0):
        given = tokens_of(batch)
        for row in range(len(given)):
            found[tuple(given.ids[row][given.attention_mask[row]].tolist())] += 1
    assert found == wanted


def test_unseen_shifts_are_scored_beside_the_constant_alone(reviews: ArmConfig) -> None:
    config = reviews.with_fields({"shifts": ["typos", "token_drop"]})
    task = text_task(config)
    model = build_model(config, task)
    found = evaluate(config, task, model, task.references(), [])[0]
    assert list(found.shift_scores) == ["typos", "token_drop"]
    assert found.shift_scores["typos"].keys() == {"0.02", "0.05", "0.1"}
    assert found.shift_references.keys() == {"constant"}
    alone = measure_shifted(model, task, "typos", 0.05)
    assert alone.unchanged is None
    assert found.shift_scores["typos"]["0.05"] == alone.metrics(task)[-1]
    assert found.shift_layer_losses["typos"]["0.05"] == alone.losses.tolist()
    without = evaluate(reviews, task, model, task.references(), [])[0]
    assert without.objective == found.objective
    assert without.scores == found.scores


@pytest.mark.parametrize("split", ["dev", "test"])
def test_the_score_of_every_sample_is_known_by_its_place(reviews: ArmConfig, split: str) -> None:
    """Shifts that drop tokens change the order of the batches, never that of the scores."""
    config = reviews.with_fields({"shifts": ["token_drop"], "eval_windows": 99})
    task = text_task(config)
    model = build_model(config, task).eval()
    references = task.references(split)
    found, by_unit = evaluate(config, task, model, references, [], split)
    assert by_unit.units == list(units_of(task, split))
    assert (found.split, len(found.dev_losses)) == (split, len(by_unit.units))
    unit_of = np.repeat(np.arange(len(by_unit.units)), by_unit.samples)
    conditions = [(at_gamma(g), task.held_out(split, g, 0)) for g in config.test_gammas]
    for severity in TEXT_FAMILIES["token_drop"].severities:
        batches = task.shifted(split, "token_drop", severity, 0)
        conditions.append((under_shift("token_drop", severity), batches))
    orders = set()
    for name, batches in conditions:
        right, order = np.full(len(unit_of), np.nan), []
        for batch in batches:
            with torch.no_grad():
                logits = layer_predictions(model, task, batch)[-1]
            for row, (unit, number) in enumerate(zip(batch.units, batch.samples, strict=True)):
                assert unit_of[number] == unit
                right[number] = float(logits[row].argmax() == batch.targets[row])
            order += batch.samples
        assert by_unit.scores_N[name].tolist() == right.tolist()
        orders.add(tuple(order))
    assert len(orders) > 1
    for gamma in config.test_gammas:
        score = found.scores[gamma_key(gamma)]
        assert by_unit.scores_N[at_gamma(gamma)].mean() == pytest.approx(score)
    for severity, score in found.shift_scores["token_drop"].items():
        mean = by_unit.scores_N[under_shift("token_drop", float(severity))].mean()
        assert mean == pytest.approx(score)


def test_the_constant_is_that_of_the_split_it_is_asked_for(reviews: ArmConfig) -> None:
    task = text_task(reviews.with_fields({"eval_windows": 99}))
    for split in ("dev", "test"):
        labels = torch.cat([batch.targets for batch in task.held_out(split, 0.0, 0)]).numpy()
        found = task.references(split)
        assert found.metrics["constant"]["0.40"] == pytest.approx(
            np.mean(labels == task.frequencies.argmax())
        )


def test_a_shift_of_videos_is_no_shift_of_texts(reviews: ArmConfig) -> None:
    with pytest.raises(UnknownName, match="unknown shift of texts 'blur'"):
        next(text_task(reviews).shifted("dev", "blur", 1.0, 0))
