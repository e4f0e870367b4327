"""Networks that are asked again: they answer as they did when their arm was evaluated."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.support.data.instruction_runs import LONGEST, instruction_task, rows, tiny_instructions
from tests.support.oracles import TINY
from trainables.arm_run import ArmRun
from trainables.build import build_model
from trainables.config.arm import ArmConfig
from trainables.errors import Misuse
from trainables.predictors.answerer import Answerer
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore
from trainables.training import to_bytes


def untrained(config: ArmConfig) -> Answerer:
    model = build_model(config, instruction_task(config))
    return Answerer(config, to_bytes({"model": model.state_dict()}))


def test_a_kept_network_answers_as_its_arm_did(tmp_path: Path) -> None:
    """Trained with an average of its weights, which is what is evaluated and kept."""
    config = tiny_instructions(tmp_path, primal_lr=0.02, steps=30, report_every=30, weight_ema=0.9)
    store = ArmStore(ObjectStore(tmp_path / "store"))
    record = ArmRun(config, store).advance()
    assert record.evaluation is not None
    weights = store.weights(record.signature)
    assert weights is not None
    asked = Answerer(config, weights)
    prompts = instruction_task(config).prompts("dev", 3)
    asks = [(prompt, gamma) for prompt in prompts for gamma in (0.0, config.train_gamma)]
    assert [asked.answer(*ask) for ask in asks] == record.evaluation.answers
    assert [untrained(config).answer(*ask) for ask in asks] != record.evaluation.answers


def test_held_out_prompts_are_of_no_unit_that_arms_are_measured_on(tmp_path: Path) -> None:
    config = tiny_instructions(tmp_path)
    task = instruction_task(config)
    measured = {p.text for p in task.prompts("dev", len(task.dev_units))}
    every = {example.text for example in task.texts.dev}
    found = [p.text for p in untrained(config).held_out(100)]
    assert len(measured) == config.eval_windows
    assert set(found) <= every - measured
    assert len(found) == len(task.tokens.dev.group_names) - len(measured)
    assert [p.text for p in untrained(config).held_out(3)] == found[:3]
    whole = config.with_fields({"eval_windows": 1000})
    assert {p.text for p in untrained(whole).held_out(3)} <= every


def test_a_prompt_of_a_file_is_the_one_that_the_data_set_makes(tmp_path: Path) -> None:
    config = tiny_instructions(tmp_path)
    asked = untrained(config)
    known = {p.text: p for p in asked.held_out(6)}
    texts = [(row["instruction"], row["input"]) for row in rows()]
    made = {p.text: p for p in asked.of_texts(texts) if p is not None}
    assert set(known) <= set(made)
    for text, prompt in known.items():
        assert list(made[text].ids) == list(prompt.ids)
    one, other = list(made.values())[:2]
    again = next(iter(p for p in untrained(config).of_texts(texts) if p is not None))
    assert torch.equal(one.noise(0.5, 3), again.noise(0.5, 3))
    assert not torch.equal(one.noise(0.5, 3), one.noise(0.5, 4))
    assert not torch.equal(one.noise(0.5, 3), other.noise(0.5, 3))


def test_a_prompt_that_leaves_no_room_is_none_and_answers_end_in_time(tmp_path: Path) -> None:
    asked = untrained(tiny_instructions(tmp_path))
    short, long = asked.of_texts([("Name a river.", ""), ("river " * 60, "")])
    assert long is None
    assert short is not None
    few, some, most = (asked.answer(short, 0.0, n).written for n in (1, 5, 1000))
    assert some.startswith(few)
    assert most.startswith(some)
    assert len(few) < len(some) < len(most)
    assert asked.answer(short, 0.0, LONGEST - len(short.ids)).written == most


def test_networks_that_write_nothing_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match="task video_denoising write no answers"):
        Answerer(TINY, b"")
