"""LoRA against weights merged by hand, recomputed blocks against plain ones; what is refused."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.support.data.instruction_runs import tiny_instructions
from tests.support.data.text_checkpoints import DECODERS, LAYERS, WORDS, tiny_decoder, tiny_encoder
from tests.support.data.text_runs import tiny_text
from tests.support.records import numbers
from trainables.arm_run import ArmRun
from trainables.build import build_model
from trainables.config.arm import ArmConfig
from trainables.errors import BadData, InvalidValue
from trainables.models import pretrained
from trainables.models.base import TextInputs
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore
from trainables.training import from_bytes
from trainables_testing.models import MODEL

LORA = {"model.lora_rank": 2}
KINDS = [*(("decoder", kind) for kind in DECODERS), ("encoder", "bert"), ("encoder", "modernbert")]


@dataclass
class Sizes:
    """What a network asks of its task."""

    vocabulary: int = WORDS
    classes: int = 3


def run(folder: Path, model: str, **fields: Any) -> ArmConfig:
    own = {
        "task": "instruction_tuning" if model == "decoder" else "text_classification",
        "data.name": "alpaca" if model == "decoder" else "imdb", "data.max_length": 16,
        "model.name": model, "model.checkpoint": str(folder), "model.layers": LAYERS,
    }  # fmt: skip
    return ArmConfig().with_fields(own | fields)


@pytest.fixture(params=KINDS, ids=[kind for _, kind in KINDS])
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Any]:
    """A network of one family with fields of its run."""
    model, kind = request.param
    (tiny_decoder if model == "decoder" else tiny_encoder)(tmp_path / kind, kind)

    def build(**fields: Any) -> Any:
        return build_model(run(tmp_path / kind, model, **fields), Sizes())

    return build


def predictions(model: Any) -> Tensor:
    """Of two texts, the second one padded: [L + 1, ...]."""
    ids = torch.randint(3, WORDS, (2, 7), generator=torch.Generator().manual_seed(3))
    mask = torch.ones_like(ids, dtype=torch.bool)
    mask[1, 4:] = False
    places = torch.tensor([[0, 5], [2, 3]])
    found = model(TextInputs(model.embed(ids), mask, None, places))
    return torch.stack([p if isinstance(p, Tensor) else p.full() for p in found])


def trained(model: nn.Module) -> dict[str, nn.Parameter]:
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


@torch.no_grad()
def moved(model: nn.Module) -> None:
    """What is trained goes somewhere else."""
    generator = torch.Generator().manual_seed(5)
    for parameter in trained(model).values():
        parameter += 0.3 * torch.randn(parameter.shape, generator=generator)


def test_low_rank_updates_start_at_the_checkpoint_and_are_its_weights_plus_2_b_a(
    made: Callable[..., Any],
) -> None:
    plain, adapted, other = made(), made(**LORA), made(**LORA, seed=1)
    assert torch.equal(predictions(adapted), predictions(plain))
    moved(adapted)
    linear = {n: m for n, m in adapted.named_modules() if hasattr(m, "lora_A")}
    assert len(linear) >= 4 * LAYERS
    with torch.no_grad():
        for name, module in linear.items():
            a, b = module.lora_A["default"].weight, module.lora_B["default"].weight
            layer, update = plain.get_submodule(name), 2 * b @ a
            layer.weight += update if isinstance(layer, nn.Linear) else update.T  # GPT-2's lie down
        for name, parameter in trained(adapted).items():
            if "lora" not in name:  # a classifier's readout
                plain.get_parameter(name).copy_(parameter)
    torch.testing.assert_close(predictions(adapted), predictions(plain), rtol=1e-4, atol=1e-4)
    drawn = [n for n, p in trained(made(**LORA)).items() if not torch.equal(p, trained(other)[n])]
    assert [name for name in drawn if "lora" in name] == [
        n for n in trained(other) if "lora_A" in n
    ]


def test_only_what_is_trained_is_stored_and_the_rest_is_the_checkpoints(
    made: Callable[..., Any],
) -> None:
    model, restored = made(**LORA), made(**LORA)
    moved(model)
    state = model.state_dict()
    assert state.keys() == trained(model).keys()
    assert all("lora" in name or name.startswith("readout.") for name in state)
    missing, unexpected = restored.load_state_dict(state)
    assert (missing, unexpected) == ([], [])
    assert torch.equal(predictions(restored), predictions(model))
    with pytest.raises(RuntimeError, match="lora_A"):
        restored.load_state_dict(dict(itertools.islice(state.items(), 1, None)))


def test_recomputed_blocks_have_the_same_gradients_and_keep_less(
    made: Callable[..., Any],
) -> None:
    found = []
    for fields in ({}, {"model.recompute": True}):
        model = made(**fields)
        kept = 0

        def keep(tensor: Tensor) -> Tensor:
            nonlocal kept
            kept += tensor.numel()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            loss = predictions(model).square().mean()
        loss.backward()
        found.append((loss, [p.grad for p in model.parameters()], kept))
    (plain, grads, all_kept), (again, same_grads, less) = found
    assert torch.equal(plain, again)
    assert all(torch.equal(a, b) for a, b in zip(grads, same_grads, strict=True) if a is not None)
    assert less < 0.5 * all_kept


def test_frozen_weights_in_bfloat16_change_no_bit_under_autocast(made: Callable[..., Any]) -> None:
    found = []
    for narrows in (False, True):
        model = made(**LORA)
        moved(model)
        if narrows:
            pretrained.narrow_frozen(model)
        with torch.autocast("cpu", torch.bfloat16):
            predicted = predictions(model)
        predicted.float().square().mean().backward()
        found.append((predicted, {n: p.grad for n, p in trained(model).items()}, model))
    (wide, grads, plain), (narrow, same_grads, small) = found
    assert torch.equal(wide, narrow)
    assert grads.keys() == same_grads.keys()
    for name, grad in grads.items():
        assert grad is not None
        assert torch.equal(grad, same_grads[name])
    kept = {n: p.dtype for n, p in small.named_parameters()}
    narrowed = {n for n, dtype in kept.items() if dtype == torch.bfloat16}
    assert narrowed == {n for n in kept if n.endswith("base_layer.weight")}
    assert len(narrowed) >= 4 * LAYERS
    assert {p.dtype for p in plain.parameters()} == {torch.float32}


@pytest.fixture(params=["decoder", "encoder"])
def config(request: pytest.FixtureRequest, tmp_path: Path) -> ArmConfig:
    """A constrained run that trains low-rank updates of recomputed blocks."""
    make = tiny_instructions if request.param == "decoder" else tiny_text
    made = make(tmp_path, steps=4, report_every=2)
    if request.param == "decoder":
        tiny_decoder_at(made)
    return made.with_fields(LORA | {"model.recompute": True, "model.variant": "blocks"})


def tiny_decoder_at(config: ArmConfig) -> None:
    """Weights beside the configuration that a run from scratch has alone."""
    from transformers import AutoConfig, AutoModelForCausalLM

    folder = str(config.model.checkpoint)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        described = AutoConfig.from_pretrained(folder)
        AutoModelForCausalLM.from_config(described).save_pretrained(folder)


@pytest.mark.parametrize("promise", MODEL, ids=lambda promise: promise.__name__)
def test_the_promises_of_a_model_are_kept(
    config: ArmConfig, promise: Callable[[ArmConfig], None]
) -> None:
    promise(config)


def test_an_arm_goes_on_from_its_checkpoint_to_the_same_bits_and_stores_little(
    config: ArmConfig, tmp_path: Path
) -> None:
    whole, parts = (ArmStore(ObjectStore(tmp_path / name)) for name in ("whole", "parts"))
    once = ArmRun(config, whole)
    while not once.advance().is_final:
        pass
    while not ArmRun(config, parts).advance().is_final:  # a new process after every report
        pass
    resumed = parts.record(config.signature())
    assert resumed is not None
    assert (once.record.status, once.record.reason) == ("finished", "")
    assert numbers(once.record) == numbers(resumed)
    weights = [from_bytes(s.weights(config.signature()) or b"", torch.device("cpu"))["model"]
               for s in (whole, parts)]  # fmt: skip
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert not any("base_layer" in name for name in weights[0])


def test_recomputed_blocks_change_no_number_of_an_arm(config: ArmConfig, tmp_path: Path) -> None:
    found = []
    for recompute in (True, False):
        arm = config.with_fields({"model.recompute": recompute})
        trained_arm = ArmRun(arm, ArmStore(ObjectStore(tmp_path / "store")))
        while not trained_arm.advance().is_final:
            pass
        plain = numbers(trained_arm.record)
        found.append({name: plain[name] for name in ("status", "reports", "evaluation")})
    assert found[0] == found[1]


def test_an_arm_in_bfloat16_has_the_numbers_of_frozen_weights_in_float32(
    config: ArmConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reports, scores and written answers."""
    arm, found = config.with_fields({"dtype": "bfloat16", "weight_ema": 0.9}), []
    for store in ("narrow", "wide"):
        trained_arm = ArmRun(arm, ArmStore(ObjectStore(tmp_path / store)))
        trained_arm.begin()
        types = {p.dtype for p in trained_arm.training.model.parameters()}
        assert (torch.bfloat16 in types) == (store == "narrow")
        while not trained_arm.advance().is_final:
            pass
        assert trained_arm.record.status == "finished"
        found.append(numbers(trained_arm.record))
        monkeypatch.setattr(pretrained, "narrow_frozen", lambda network: None)
    assert found[0] == found[1]


def test_what_cannot_be_adapted_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = tiny_encoder(tmp_path / "albert", "albert")  # one block, passed again and again
    for fields in (LORA, {"model.recompute": True}):
        with pytest.raises(InvalidValue, match="of type 'albert', whose blocks were not found"):
            build_model(run(shared, "encoder", **fields), Sizes())
    llama = tiny_decoder(tmp_path / "llama")
    with pytest.raises(
        InvalidValue, match=r"lora_rank must be 0 where model\.variant is 'scratch'"
    ):
        build_model(run(llama, "decoder", **LORA, **{"model.variant": "scratch"}), Sizes())
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(BadData, match=r"Install it with descent-sweep\[lora\]"):
        build_model(run(llama, "decoder", **LORA), Sizes())
