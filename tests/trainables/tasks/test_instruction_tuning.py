"""Instruction tuning: losses and scores against naive loops over single answers; contracts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from tests.support.data.instruction_runs import LAYERS, LONGEST, instruction_task, tiny_instructions
from tests.support.data.text_runs import tokens_of
from trainables.build import build_model
from trainables.config.arm import ArmConfig
from trainables.errors import InvalidValue, UnknownName
from trainables.evaluation.answers import written_answers
from trainables.evaluation.measuring import measure
from trainables.heads.logits import Logits
from trainables.heads.loss_estimators import sample_places
from trainables.heads.token_losses import IGNORED
from trainables.layer_losses import layer_losses, layer_predictions
from trainables.models.decoder import Decoder
from trainables.random_keys import keyed_generator
from trainables.training import from_bytes, to_bytes
from trainables_testing.models import check_model
from trainables_testing.tasks import check_task
from trainables_testing.tiny_runs import training_of

DRAWN = {"constraint.inner_layers": 1, "constraint.dual_signal": "violation"}


@pytest.fixture(name="config")
def _config(tmp_path: Path) -> ArmConfig:
    return tiny_instructions(tmp_path)


def decoder(config: ArmConfig) -> Decoder:
    model = build_model(config, instruction_task(config))
    assert isinstance(model, Decoder)
    return model.eval()


def test_targets_are_the_answers_tokens_and_places_those_before_them(config: ArmConfig) -> None:
    task = instruction_task(config)
    split = task.tokens.dev
    examples = {(e.text, e.pair) for e in task.texts.dev}
    for batch in task.held_out("dev", 0.0, 0):
        tokens = tokens_of(batch)
        assert tokens.places is not None
        for row in range(len(tokens)):
            ids = tokens.ids[row][tokens.attention_mask[row]].tolist()
            asked = batch.targets[row] != IGNORED
            places = tokens.places[row][asked].tolist()
            answer = batch.targets[row][asked].tolist()
            assert ids[places[0] + 1 :] == answer
            assert places == list(range(places[0], len(ids) - 1))
            assert answer[-1] == split.pad_id  # the end token pads, too
            text = task.tokenizer.decode(ids[: places[0] + 1])
            assert (text, task.tokenizer.decode(answer[:-1])) in examples


def test_losses_and_scores_are_those_of_a_loop_over_answers(config: ArmConfig) -> None:
    task, model = instruction_task(config), decoder(config)
    network, norm = model.network, model.network.model.norm
    for gamma in (0.0, 0.5):
        measured = measure(model, task, "dev", gamma, 1)
        losses, right = [], []
        for batch in task.held_out("dev", gamma, 0):
            tokens = tokens_of(batch)
            for row, targets in enumerate(batch.targets):
                real = tokens.attention_mask[row]
                words = model.words[tokens.ids[row][real]]
                if tokens.noise is not None:
                    words = words + tokens.noise[row][real]
                with torch.no_grad():
                    states = network.model(
                        inputs_embeds=words[None], output_hidden_states=True
                    ).hidden_states
                    logits = [network.lm_head(norm(state[0])) for state in states[:-1]]
                    logits.append(network.lm_head(states[-1][0]))
                answer = targets[targets != IGNORED]
                after = [each[-len(answer) - 1 : -1] for each in logits]
                losses.append([float(nn.functional.cross_entropy(x, answer)) for x in after])
                right.append([float((x.argmax(1) == answer).double().mean()) for x in after])
        np.testing.assert_allclose(
            np.sort(measured.samples, axis=1), np.sort(np.array(losses).T, axis=1), rtol=1e-5
        )
        np.testing.assert_allclose(measured.scores, np.mean(right, axis=0), rtol=1e-6)


def test_the_constant_prediction_is_the_answers_words(config: ArmConfig) -> None:
    task = instruction_task(config)
    tokenizer = task.tokenizer
    counts = np.ones(len(tokenizer))
    words = []
    for example in task.texts.train:
        answer = tokenizer.encode(example.pair, add_special_tokens=False)
        words += [*answer, tokenizer.eos_token_id]
    np.add.at(counts, words, 1)
    shares = counts / counts.sum()
    np.testing.assert_allclose(task.scales.constant_loss, -np.log(shares[words]).mean())
    by_unit: dict[str, list[float]] = {unit: [] for unit in task.dev_units}
    for example in task.texts.dev:
        answer = [*tokenizer.encode(example.pair, add_special_tokens=False), task.tokens.pad_id]
        if example.group in by_unit:
            by_unit[example.group].append(-np.log(shares[answer]).mean())
    expected = np.mean([np.mean(losses) for losses in by_unit.values()])
    np.testing.assert_allclose(task.references().losses["constant"], expected)


def test_noise_is_on_prompt_and_answer_and_keyed(config: ArmConfig) -> None:
    task, again = instruction_task(config), instruction_task(config.unconstrained())
    one, other = (tokens_of(t.train_batch(1)) for t in (task, again))
    assert one.noise is not None
    assert other.noise is not None
    assert torch.equal(one.noise, other.noise)
    drawn = one.noise[one.attention_mask]
    assert bool((drawn != 0).all())
    expected = config.train_gamma * task.embedding_std
    assert abs(float(drawn.std()) / expected - 1) < 0.1


def test_both_arms_learn(config: ArmConfig) -> None:
    """Sixty steps lower the loss of the answers, which are alike, far below the constant's."""
    config = config.with_fields({"steps": 60, "primal_lr": 1e-2, "dtype": "float32"})
    for arm in (config, config.unconstrained()):
        task = instruction_task(arm)
        training = training_of(arm, task)
        before = layer_losses(training.model, task, task.train_batch(0))[-1].detach().mean()
        training.run_to(60)
        after = layer_losses(training.model, task, task.train_batch(0))[-1].detach().mean()
        assert float(before) > 0.8 * task.scales.constant_loss
        assert float(after) < 0.5 * task.scales.constant_loss


@pytest.mark.parametrize("accumulate", [2, 4])
def test_a_batch_in_parts_takes_the_same_step(config: ArmConfig, accumulate: int) -> None:
    steps = []
    for parts in (1, accumulate):
        arm = config.with_fields({"accumulate": parts, "dtype": "float64"})
        training = training_of(arm, instruction_task(arm))
        training.run_to(2)
        steps.append(nn.utils.parameters_to_vector(training.parameters))
    torch.testing.assert_close(*steps, rtol=1e-9, atol=1e-12)


def test_shifts_and_rooms_that_do_not_exist_are_refused(config: ArmConfig) -> None:
    with pytest.raises(InvalidValue, match="without 'typos' in instruction_tuning"):
        config.with_fields({"shifts": ["typos"]})
    with pytest.raises(UnknownName, match="shift of instructions"):
        list(instruction_task(config).shifted("dev", "typos", 0.1, 0))
    with pytest.raises(InvalidValue, match=r"data\.max_length must leave room for an answer"):
        instruction_task(config.with_fields({"data.max_length": 4}))


def test_answers_are_the_likeliest_tokens_of_whole_forward_passes(config: ArmConfig) -> None:
    """Beside a loop without a cache; noise is on every token, written ones too."""
    task, model = instruction_task(config), decoder(config)
    asked = task.prompts("dev", 2)
    assert [p.text for p in asked] == [p.text for p in instruction_task(config).prompts("dev", 2)]
    for prompt, gamma in ((p, g) for p in asked for g in (0.0, 2.0)):
        noise = None if gamma == 0 else (lambda place, p=prompt, g=gamma: p.noise(g, place))
        found = model.write(prompt.ids, end=task.end, most=7, noise=noise)
        ids = list(prompt.ids)
        for _ in range(7):
            words = model.words[torch.tensor(ids)]
            if noise is not None:
                words = words + torch.stack([noise(place) for place in range(len(ids))])
            with torch.no_grad():
                token = int(model.network(inputs_embeds=words[None]).logits[0, -1].argmax())
            if token == task.end:
                break
            ids.append(token)
        assert found == ids[len(prompt.ids) :]
        assert task.text(prompt.ids) == prompt.text


def test_a_record_keeps_the_answers_of_some_prompts(config: ArmConfig) -> None:
    task, model = instruction_task(config), decoder(config)
    kept = written_answers(config, task, model, "dev")
    assert [a.gamma for a in kept] == [0.0, config.train_gamma] * 3
    known = {(e.text, e.pair) for e in task.texts.dev}
    assert {(a.prompt, a.reference) for a in kept} <= known
    first = task.prompts("dev", 3)[0]
    ids = model.write(first.ids, end=task.end, most=LONGEST - len(first.ids), noise=None)
    assert kept[0].written == task.text(ids)


def test_losses_of_sampled_tokens_are_unbiased_and_the_last_ones_exact(config: ArmConfig) -> None:
    """Means over 400 steps on one batch, beside the exact losses; all tokens give those at once."""
    exact, model = instruction_task(config), decoder(config)
    batch = exact.train_batch(0)
    expected = layer_losses(model, exact, batch).detach().mean(1)
    few = instruction_task(config.with_fields({"constraint.inner_tokens": 0.3}))
    few.train_batch(0)
    drawn = []
    for step in range(400):
        generator = keyed_generator("cpu", few._config.seed, "inner_tokens", step)
        found = sample_places(few._lengths, 0.3, generator)
        places = found.places_BK.masked_fill(~found.drawn_BK, -1)
        inputs = replace(tokens_of(batch), sampled=places)
        losses = layer_losses(model, few, replace(batch, inputs=inputs)).detach().mean(1)
        assert torch.equal(losses[-1], expected[-1])
        drawn.append(losses)
    of_draws = torch.stack(drawn)
    error = of_draws.std(0) / len(drawn) ** 0.5
    assert bool(((of_draws.mean(0) - expected).abs() <= 3 * error)[:-1].all())
    assert bool((error[:-1] > 0).all())
    step = tokens_of(few.train_batch(3)).sampled
    assert step is not None
    assert not torch.equal(step, tokens_of(few.train_batch(0)).sampled)


def test_sampled_tokens_are_of_decoders_alone_and_train(config: ArmConfig) -> None:
    with pytest.raises(InvalidValue, match=r"inner_tokens must be left at 1\.0 in text_class"):
        ArmConfig().with_fields(
            {
                "task": "text_classification", "data.name": "imdb", "model.name": "encoder",
                "model.checkpoint": "x", "constraint.inner_tokens": 0.5,
            }
        )  # fmt: skip
    few = config.with_fields({"constraint.inner_tokens": 0.3, "accumulate": 2, "steps": 2})
    training = training_of(few, instruction_task(few))
    training.run_to(2)
    assert all(bool(p.isfinite().all()) for p in training.parameters)


@pytest.mark.parametrize(("reference", "among"), [("virtual_layer0", 2), ("bound_zero", 3)])
def test_losses_and_gradients_of_drawn_layers_are_unbiased(
    config: ArmConfig, reference: str, among: int
) -> None:
    """Means over every draw of one layer are the exact ones, with gaps that are no zeros."""
    exact = config.with_fields({"constraint.reference": reference})
    drawn = exact.with_fields({**DRAWN})
    training = training_of(drawn, instruction_task(drawn))
    training.run_to(2)
    batch, gaps_M = training.task.train_batch(2), training._gaps_M
    assert gaps_M is not None
    assert len(gaps_M) == among
    assert bool(gaps_M.any())
    weights_F = torch.tensor([0.4 * (among == 3), 0.7, -0.2, 1.1])

    def found(layers: tuple[int, ...] | None) -> torch.Tensor:
        inputs = replace(tokens_of(batch), layers=layers)
        part = replace(batch, inputs=inputs)
        losses_F = layer_losses(training.model, training.task, part).mean(1)
        losses_F = losses_F / training.task.scales.constant_loss
        if layers is not None:
            losses_F = training._estimated(losses_F, part, gaps_M)
        slopes = torch.autograd.grad(weights_F @ losses_F, training.parameters)
        first = LAYERS - among
        return torch.cat([losses_F[first:].detach(), *(slope.flatten() for slope in slopes)])

    each = [found((layer,)) for layer in range(LAYERS - among, LAYERS)]
    torch.testing.assert_close(torch.stack(each).mean(0), found(None), rtol=1e-4, atol=1e-6)
    assert not torch.allclose(each[0], each[1], rtol=0.1)
    steps = [tokens_of(training.task.train_batch(step)).layers for step in range(30)]
    assert set(steps) == {(layer,) for layer in range(LAYERS - among, LAYERS)}


def test_a_run_of_drawn_layers_resumes_bit_for_bit_and_draws_all_it_has(config: ArmConfig) -> None:
    few = config.with_fields({**DRAWN, "constraint.inner_tokens": 0.5, "accumulate": 2})
    whole, resumed = (training_of(few, instruction_task(few)) for _ in range(2))
    whole.run_to(2)
    whole.measured()
    resumed.load_state_dict(from_bytes(to_bytes(whole.state_dict()), torch.device("cpu")))
    for training in (whole, resumed):
        training.run_to(4)
    for a, b in zip(whole.parameters, resumed.parameters, strict=True):
        assert torch.equal(a, b)
    assert whole.measured()[1] == resumed.measured()[1]
    both = config.with_fields({**DRAWN, "constraint.inner_layers": 2})
    exact = config.with_fields({"constraint.dual_signal": "violation"})
    ends = [training_of(run, instruction_task(run)) for run in (exact, both)]
    for training in ends:
        training.run_to(3)
    for a, b in zip(*(training.parameters for training in ends), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)
    with pytest.raises(InvalidValue, match="inner_layers must be None or at most 2, the layers"):
        config.with_fields({**DRAWN, "constraint.inner_layers": 3})


class Reads(TorchDispatchMode):
    """Which operations gave a number of a tensor to Python."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.Tag.data_dependent_output in func.tags or func is torch.ops.aten.nonzero.default:
            self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("share", [1.0, 0.3])
def test_losses_and_gradients_of_a_step_wait_once_for_the_device(
    config: ArmConfig, share: float
) -> None:
    config = config.with_fields({"constraint.inner_tokens": share})
    training = training_of(config, instruction_task(config))
    batch = training.task.train_batch(0)
    with Reads() as reads:
        losses = layer_losses(training.model, training.task, batch)
        losses.sum().backward()
    # transformers asks once a pass whether several texts are packed into one row
    assert reads.seen == ["aten._local_scalar_dense.default"]


def test_under_bfloat16_the_heads_products_are_cast_and_losses_are_not(config: ArmConfig) -> None:
    config = config.with_fields({"dtype": "bfloat16"})
    task = instruction_task(config)
    batch, model = task.train_batch(0), decoder(config)
    for prediction in layer_predictions(model, task, batch):
        assert isinstance(prediction, Logits)
        assert prediction.narrow == torch.bfloat16
        exact = replace(prediction, narrow=None).judged(batch.targets).losses
        cast = prediction.judged(batch.targets).losses
        assert cast.dtype == torch.float32
        assert not torch.equal(cast, exact)
        torch.testing.assert_close(cast, exact, rtol=0.02, atol=0.02)


def test_a_readout_rate_that_nothing_reads_is_refused(config: ArmConfig) -> None:
    with pytest.raises(InvalidValue, match="readout_lr must be left at None in instruction_tuning"):
        config.with_fields({"readout_lr": 0.5})


@pytest.mark.slow
def test_contracts_hold(config: ArmConfig) -> None:
    check_model(config)
    check_task(config)
