"""Networks by themselves on a GPU: captured passes have the bits of those that the host starts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

from tests.support.data.instruction_runs import tiny_instructions
from tests.support.data.text_runs import tiny_text
from tests.support.gpu.devices import GPUS, gpu_of
from tests.support.oracles import TINY
from tests.support.records import numbers
from tests.support.training.groups import store_in
from trainables import build
from trainables.arm_run import ArmRun
from trainables.begun_arm import built
from trainables.config.arm import ArmConfig
from trainables.fused import agreement, by_itself
from trainables.fused.by_itself import ByItself
from trainables.fused.graph import CapturedPasses, shape_of
from trainables.fused.training import alone
from trainables.tasks.base import Batch, Tokens

if TYPE_CHECKING:
    from tests.support.gpu.tensors import Gpu

CUDA = torch.device("cuda")
STEPS = 24


def vit(folder: Path) -> ArmConfig:
    from tests.support.data.checkpoints import tiny_vit  # which needs pillow

    fields = {
        "task": "frame_denoising", "model.name": "vit", "model.layers": 2, "data.frame_size": 16,
        "model.checkpoint": str(tiny_vit(folder / "vit")), "dtype": "bfloat16",
    }  # fmt: skip
    return TINY.with_fields(fields)


NETWORKS: dict[str, Callable[[Path], ArmConfig]] = {
    "encoder": tiny_text,
    "encoder, bfloat16, low rank": lambda folder: tiny_text(
        folder, **{"dtype": "bfloat16", "model.lora_rank": 2}
    ),
    "text_ut": lambda folder: tiny_text(folder, **{"model.name": "text_ut"}),
    "vit": vit,
    "ut": lambda _: TINY,
}


class Counted(CapturedPasses):
    """Captured passes that say when they were made and taken."""

    made: ClassVar[list[tuple[object, ...]]] = []
    replayed: ClassVar[list[tuple[object, ...]]] = []

    def __init__(self, losses_of: Callable[[Batch], Tensor], *rest: Any) -> None:
        super().__init__(losses_of, *rest)
        self.made.append(shape_of(self._batch))

    def forward(self, part: Batch) -> Tensor:
        self.replayed.append(shape_of(part))
        return super().forward(part)


@pytest.fixture(params=GPUS, autouse=True)
def gpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gpu | None]:
    build._last_tasks.clear()  # of another GPU
    monkeypatch.setattr(by_itself, "CapturedPasses", Counted)
    monkeypatch.setattr(by_itself, "FEWEST_LEFT", 2)
    monkeypatch.setattr(agreement, "MOST_NUMBERS", 0)  # of a network that is stacked
    Counted.made.clear()
    Counted.replayed.clear()
    with gpu_of(request.param) as here:
        yield here
    build._last_tasks.clear()


def trained(config: ArmConfig, until: int = STEPS) -> list[Tensor]:
    """Weights, multipliers and sums of an arm after some steps, in two runs."""
    config = config.with_fields({"device": "cuda", "steps": STEPS, "report_every": STEPS // 2})
    dtype = build.parameter_dtype(config)
    training = built(config, CUDA, dtype)[1]
    steps = alone(training)
    assert isinstance(steps, ByItself)
    for target in (until // 2, until):
        steps.run_to(target)
        assert steps._passes is None
    duals = training.weighting.series().values()
    found = [*training.parameters, *duals, training.sums]
    return [one.detach().cpu().clone() for one in found]


@pytest.mark.parametrize("arm", ["constrained", "unconstrained"])
@pytest.mark.parametrize("network", list(NETWORKS))
def test_captured_passes_have_the_bits_of_those_that_the_host_starts(
    network: str, arm: str, gpu: Gpu | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = NETWORKS[network](tmp_path)
    config = config if arm == "constrained" else config.unconstrained()
    captured = trained(config)
    assert 1 <= len(Counted.made) <= 2  # one graph between two reports, where a shape came often
    assert set(Counted.replayed) <= set(Counted.made)
    if gpu is not None or network != "vit":  # whose graph had other bits on an H200: not taken
        assert len(Counted.replayed) >= 2
    Counted.made.clear()
    monkeypatch.setattr(by_itself, "FEWEST_LEFT", 10**9)
    started_by_the_host = trained(config)
    assert not Counted.made
    assert all(torch.equal(*pair) for pair in zip(captured, started_by_the_host, strict=True))


def test_a_pass_of_another_kind_takes_the_place_of_the_one_that_was_captured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An arm that is plain at first reads its last layer alone."""
    config = TINY.with_fields({"constraint.warmup_steps": 5})
    captured = trained(config)
    assert len(Counted.made) == 3
    monkeypatch.setattr(by_itself, "FEWEST_LEFT", 10**9)
    assert all(torch.equal(*pair) for pair in zip(captured, trained(config), strict=True))


@pytest.mark.parametrize(
    "make",
    [
        tiny_instructions,
        lambda folder: tiny_text(folder, accumulate=2),
        lambda folder: tiny_text(folder, **{"model.recompute": True}),
    ],
    ids=["decoder", "parts of a batch", "blocks computed again"],
)
def test_what_has_passes_of_its_own_is_not_captured(
    make: Callable[[Path], ArmConfig], tmp_path: Path
) -> None:
    trained(make(tmp_path))
    assert not Counted.made


def test_a_network_that_looks_at_the_host_is_started_by_it(
    tmp_path: Path, gpu: Gpu | None, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    """A capture that fails is told once, and changes no number."""
    if gpu is None:
        pytest.skip("a broken capture may leave a real GPU of no use to this process")
    config = TINY.with_fields({"steps": 24, "report_every": 12, "device": "cuda"})
    records = []
    for waits in (True, False):
        run = ArmRun(config, store_in(tmp_path / str(waits)))
        assert run.begin()
        if waits:
            run.training.model.register_forward_hook(waiting)
        while not run.advance().is_final:
            pass
        assert run.record.status == "finished", run.record.reason
        records.append(numbers(run.record))
    assert records[0] == records[1]
    assert len([r for r in caplog.records if "are not captured" in r.message]) == 1


def waiting(_: nn.Module, __: Any, predictions: list[Tensor]) -> list[Tensor]:
    """Predictions as they are, once the host has seen them."""
    return [p * (1.0 if float(p.detach().sum()) > float("-inf") else 0.0) for p in predictions]


def test_shapes_that_a_graph_cannot_share_are_told_apart() -> None:
    ids, mask = torch.zeros(2, 3, dtype=torch.int64), torch.ones(2, 3, dtype=torch.bool)
    labels = torch.zeros(2, dtype=torch.int64)
    noise = torch.zeros(2, 3, 4)
    batches = [
        Batch(Tokens(ids, mask), labels),
        Batch(Tokens(ids, mask, is_full=True), labels),
        Batch(Tokens(ids, mask, ids), labels),
        Batch(Tokens(ids, mask, noise=noise), labels),
        Batch(Tokens(ids, mask, noise=noise.double()), labels),
        Batch(Tokens(ids[:, :2], mask[:, :2]), labels),
        Batch(noise, noise),
    ]
    assert len({shape_of(batch) for batch in batches}) == len(batches)
    again = Batch(Tokens(ids + 1, ~mask), labels + 1)
    assert shape_of(again) == shape_of(batches[0])
