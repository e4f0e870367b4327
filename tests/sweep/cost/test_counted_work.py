"""Counted work against closed forms per model, and against what autograd keeps of real tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.flop_counter import FlopCounterMode

from sweep.cost import estimate as estimates
from sweep.cost.counted_work import NotCounted, Work, counted_work
from sweep.cost.noise_task import noise_task
from tests.support.data.checkpoints import tiny_vit
from tests.support.data.text_checkpoints import tiny_encoder
from trainables.build import build_model, parameter_dtype
from trainables.config.arm import ArmConfig, ConstraintConfig, DataConfig, ModelConfig
from trainables.layer_losses import layer_losses
from trainables.registry import built_in
from trainables.registry.specs import ModelSpec

DATA = DataConfig(frame_size=64, patch_size=16, frames=10)
BATCH = 4


def config(**model: object) -> ArmConfig:
    return ArmConfig(
        data=DATA, model=ModelConfig(**model), batch_size=BATCH, constraint=ConstraintConfig()
    )


MODELS = {
    "ut": config(name="ut", layers=5),
    "ut sharp": config(name="ut", layers=3, variant="sharp"),
    "ut literal": config(name="ut", layers=3, variant="literal"),
    "dust": config(name="dust", layers=5),
    "dust of many atoms": config(name="dust", layers=3, atoms_per_side=32),
    "dust paper, constrained": config(name="dust", layers=3, variant="paper"),
    "dust paper, unconstrained": config(name="dust", layers=3, variant="paper").unconstrained(),
    "dust shared": config(name="dust", layers=3, variant="shared"),
}


def by_hand(run: ArmConfig) -> tuple[float, float]:
    """Operations of a sample and parameters of UT and DUST, from their equations."""
    layers, frames, pixels = run.model.layers, run.data.frames, float(run.data.patch_size**2)
    if run.model.name == "ut":
        per_token = 4 * pixels**2 + 4 * frames * pixels  # scores and mixing, attention
        if run.model.variant != "literal":
            per_token += 8 * pixels * run.data.patch_size  # into the cosine basis and back
        return layers * frames * per_token, layers * 2 * pixels**2
    atoms = float(run.model.atoms_per_side**2)
    shared = run.model.variant == "shared"
    shared |= run.model.variant == "paper" and run.constraint is None
    first = 4 * pixels * atoms  # from the zero code there is nothing to mix
    other = (4 if shared else 6) * pixels * atoms + 4 * frames * pixels + 2 * frames * atoms
    return frames * (first + (layers - 1) * other), (1 if shared else layers) * pixels * atoms


@pytest.mark.parametrize("name", MODELS)
def test_operations_and_parameters_are_those_of_the_equations(name: str) -> None:
    work = counted_work(MODELS[name])
    flops, parameters = by_hand(MODELS[name])
    assert work.parameters == parameters
    assert work.forward_flops == pytest.approx(flops, rel=1e-9)  # matrix products alone count
    assert work.layers == MODELS[name].model.layers
    assert work.state_bytes == pytest.approx(16 * parameters, rel=0.01)  # and UT's cosines


@pytest.mark.parametrize("name", MODELS)
def test_a_step_costs_three_forward_passes(name: str) -> None:
    ratio = forward_passes_of_a_step(MODELS[name])
    assert ratio == pytest.approx(1 + estimates.BACKWARD, rel=0.2)


def forward_passes_of_a_step(run: ArmConfig) -> float:
    """Operations of a real step over those that are counted for a forward pass."""
    task = noise_task(run)
    model = build_model(run, task).float()
    with FlopCounterMode(display=False) as step:
        layer_losses(model, task, task.train_batch(0))[1:].mean().backward()
    return step.get_total_flops() / BATCH / counted_work(run).forward_flops


def kept_bytes(run: ArmConfig) -> int:
    """What autograd keeps of real tensors, each storage once, parameters left out."""
    task = noise_task(run)
    model = build_model(run, task).to(parameter_dtype(run))
    sizes = {t.untyped_storage().data_ptr(): 0 for t in (*model.parameters(), *model.buffers())}
    alive = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        sizes.setdefault(storage.data_ptr(), storage.nbytes())
        alive.append(tensor)  # or its memory, and so its address, would be used again
        return tensor

    part = task.train_batch(0).parts(run.accumulate)[0]
    with saved_tensors_hooks(pack, lambda tensor: tensor):
        layer_losses(model, task, part)
    return sum(sizes.values())


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("fields", [{}, {"dtype": "bfloat16"}, {"dtype": "float64"}])
def test_what_backward_needs_is_what_autograd_keeps(name: str, fields: dict[str, str]) -> None:
    run = MODELS[name].with_fields(fields)
    assert counted_work(run).kept_bytes == pytest.approx(kept_bytes(run), rel=0.01)


def test_a_batch_in_parts_keeps_what_one_of_them_does() -> None:
    halves = replace(MODELS["ut"], accumulate=2)
    whole, work = counted_work(MODELS["ut"]), counted_work(halves)
    assert work.forward_flops == whole.forward_flops
    assert work.kept_bytes == pytest.approx(kept_bytes(halves), rel=0.01)
    assert work.kept_bytes < 0.8 * whole.kept_bytes


# --- networks of checkpoints ----------------------------------------------------------------------


def of_blocks(layers: int, tokens: int, width: int) -> float:
    """Operations of transformer blocks with an MLP of 4 widths, by the usual formula."""
    return layers * (24.0 * tokens * width**2 + 4 * tokens**2 * width)


FRAMES = ArmConfig(
    task="frame_denoising",
    data=DATA,
    model=ModelConfig(name="vit", layers=2, checkpoint="never-read"),
    batch_size=BATCH,
)


def test_a_vision_transformer_is_counted_from_its_shape_alone() -> None:
    """Of a checkpoint that is not here: two blocks of width 768 on 16 patches and a class token."""
    work = counted_work(FRAMES)
    assert work.parameters == pytest.approx(2 * 12 * 768**2, rel=0.05)  # and the embedding's
    assert work.forward_flops == pytest.approx(of_blocks(2, 17, 768), rel=0.05)


def test_a_checkpoint_that_is_here_has_its_own_size_and_no_weights_are_read(
    tmp_path: Path,
) -> None:
    folder = tiny_vit(tmp_path, image_size=64, num_attention_heads=3)
    run = FRAMES.with_fields({"model.checkpoint": str(folder)})
    real = kept_bytes(run)
    (folder / "model.safetensors").unlink()
    work = counted_work(run)
    # 256 patches of 4 x 4 and a class token; the MLP has 2 widths and not 4
    mlp = 2 * 8.0 * 257 * 48**2
    embedding = 2 * 256 * 48 * 48
    assert work.forward_flops == pytest.approx(of_blocks(2, 257, 48) - mlp + embedding, rel=1e-9)
    assert work.kept_bytes == pytest.approx(real, rel=0.01)


TEXTS = ArmConfig(
    task="text_classification",
    data=DataConfig(max_length=20),
    model=ModelConfig(name="text_ut", layers=3, checkpoint="never-read"),
    batch_size=BATCH,
)


def test_text_ut_has_the_operations_of_its_equations() -> None:
    work = counted_work(TEXTS)
    readouts = 4 * 2 * 768 * 2
    assert work.forward_flops == 3 * (4 * 20 * 768**2 + 4 * 20**2 * 768) + readouts
    assert work.parameters == 3 * 2 * 768**2 + 2 * 768 + 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "layers", "width"),
    [("distilbert-base-uncased", 6, 768), ("roberta-large", 24, 1024), ("x/MiniLM-L6", 6, 384)],
)
def test_a_checkpoint_that_is_not_here_has_the_size_of_its_name(
    name: str, layers: int, width: int
) -> None:
    model = ModelConfig(name="encoder", layers=0, checkpoint=name)
    work = counted_work(replace(TEXTS, model=model))
    assert work.layers == layers
    assert work.forward_flops == pytest.approx(of_blocks(layers, 20, width), rel=0.01)
    assert work.guess == f"the size of {name}, which is not here, guessed by its name"


@pytest.mark.parametrize("kind", ["bert", "distilbert", "roberta", "albert", "mpnet", "electra"])
def test_encoders_of_every_kind_are_counted(kind: str, tmp_path: Path) -> None:
    model = ModelConfig(name="encoder", layers=0, checkpoint=str(tiny_encoder(tmp_path, kind)))
    work = counted_work(replace(TEXTS, model=model))
    assert (work.layers, work.guess) == (3, "")
    # an MLP of 2 widths; MPNet's and Electra's further products are small
    assert work.forward_flops == pytest.approx(of_blocks(3, 20, 16) - 3 * 8 * 20 * 16**2, rel=0.1)


DECODER = ArmConfig(
    task="instruction_tuning",
    data=DataConfig(name="alpaca", max_length=21),
    model=ModelConfig(name="decoder", layers=0, checkpoint="someone/Llama-3.1-8B"),
    batch_size=BATCH,
)
EXACT = replace(
    DECODER, constraint=ConstraintConfig(reference="virtual_layer0", reference_unit="constant")
)


@pytest.mark.parametrize(
    "fields", [{}, {"lora_rank": 1}, {"recompute": True}, {"lora_rank": 1, "recompute": True}]
)
def test_a_step_costs_what_its_backward_pass_does(fields: dict[str, int], tmp_path: Path) -> None:
    """Frozen weights have no gradient, recomputed blocks run twice."""
    folder = tiny_encoder(tmp_path, "bert", hidden_size=64, intermediate_size=256)
    run = ArmConfig(
        task="text_classification",
        data=DataConfig(name="imdb", max_length=20),
        model=ModelConfig(name="encoder", layers=3, checkpoint=str(folder), **fields),
        batch_size=BATCH,
    )
    assert forward_passes_of_a_step(run) == pytest.approx(1 + estimates.backward(run), rel=0.1)


@pytest.mark.slow
def test_a_decoder_of_low_rank_holds_its_updates_and_little_of_its_blocks() -> None:
    """Llama 3.1 8B: widths 4096, 1024 (keys, values) and 14,336 make 81,920 a rank and layer."""
    low = {"model.lora_rank": 16, "model.recompute": True}
    whole, few = counted_work(EXACT), counted_work(EXACT.with_fields(low))
    widths = 2 * (4096 + 4096) + 2 * (4096 + 1024) + 3 * (4096 + 14_336)
    assert few.parameters == 32 * 16 * widths
    words = 128_256 * 4096
    assert few.state_bytes == pytest.approx(4 * (whole.parameters + words + 4 * few.parameters))
    assert few.kept_bytes < 0.2 * whole.kept_bytes


@pytest.mark.slow
@pytest.mark.parametrize("share", [1.0, 0.25])
def test_a_decoder_that_is_not_here_is_llamas_and_its_heads_are_counted(share: float) -> None:
    """As published: 8,030,261,248 parameters, of which the words are not trained."""
    plain = counted_work(DECODER)
    few = counted_work(EXACT.with_fields({"constraint.inner_tokens": share}))
    words = 128_256 * 4096
    assert plain.layers == few.layers == 32
    assert plain.parameters == 8_030_261_248 - words
    head = 2.0 * words  # of one token; the last layer's are 20, all but the first of 21
    blocks = plain.forward_flops - 20 * head
    of_products = 2.0 * (plain.parameters - words)  # of one token; norms have next to none
    attention = 32 * 4.0 * 21**2 * 4096
    assert blocks == pytest.approx(21 * of_products + attention, rel=1e-3)
    inner = 32 * math.ceil(20 * share)  # layers 0 to 31
    control = math.ceil(20 * share) * (share < 1)  # of the last layer at the sampled places
    assert few.forward_flops - plain.forward_flops == pytest.approx((inner + control) * head)


# --- models of other packages ---------------------------------------------------------------------


class Mixer(nn.Module):
    """A linear map of a frame's pixels in every layer, started as networks of others are."""

    def __init__(self, layers: int, pixels: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(pixels, pixels) for _ in range(layers))
        for layer in self.layers:
            nn.init.trunc_normal_(layer.weight)  # draws until none is left outside
        self.scale = float(self.layers[0].weight.detach().norm())  # asks for a number
        self.double().float()

    def forward(self, inputs: torch.Tensor) -> list[torch.Tensor]:
        predictions = [inputs]
        for layer in self.layers:
            predictions.append(predictions[-1] + layer(predictions[-1]))
        return predictions


Counted = Callable[[Callable[[ArmConfig, object], nn.Module]], Work]


@pytest.fixture
def count(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counted]:
    """``count(build)``: the work of a model that a package has under the name mixer."""

    def counted(build: Callable[[ArmConfig, object], nn.Module]) -> Work:
        spec = ModelSpec(task="video_denoising", build=build)
        monkeypatch.setitem(built_in.MODELS, "mixer", spec)
        counted_work.cache_clear()  # a name means one model in a process
        return counted_work(config(name="mixer", layers=2))

    yield counted
    counted_work.cache_clear()


def test_a_model_of_another_package_is_counted_as_it_is(count: Counted) -> None:
    work = count(lambda run, task: Mixer(run.model.layers, run.data.patch_size**2))
    assert work.forward_flops == 2 * 10 * 2 * 256**2
    assert work.parameters == 2 * (256**2 + 256)
    assert work.state_bytes == 16 * work.parameters


def test_what_asks_for_more_than_noise_is_told_by_name(count: Counted) -> None:
    with pytest.raises(NotCounted, match=r"model 'mixer' does not run on .* video_denoising: Attr"):
        count(lambda run, task: Mixer(run.model.layers, task.pixels))  # type: ignore[attr-defined]
    with pytest.raises(NotCounted, match="RuntimeError"):
        count(lambda run, task: Mixer(run.model.layers, 7))


class Looping(Mixer):
    """Halves its input until it is small, which a number that is always 1 never is."""

    def forward(self, inputs: torch.Tensor) -> list[torch.Tensor]:
        while inputs.abs().max().item() > 0.5:
            inputs = inputs / 2
        return super().forward(inputs)


def test_a_loop_over_numbers_that_are_none_is_ended_and_told(count: Counted) -> None:
    with pytest.raises(NotCounted, match="more than 1000 times"):
        count(lambda run, task: Looping(run.model.layers, run.data.patch_size**2))
