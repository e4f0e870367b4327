"""CUDA's contracts that the imitated GPU keeps, tried on a real one too with `-m gpu`."""

from __future__ import annotations

import gc
import io
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

from tests.support.gpu.devices import GPUS, gpu_of

if TYPE_CHECKING:
    from tests.support.gpu.tensors import Gpu

CUDA = torch.device("cuda")


@pytest.fixture(params=GPUS, autouse=True)
def gpu(request: pytest.FixtureRequest) -> Iterator[Gpu | None]:
    with gpu_of(request.param) as here:
        yield here


@pytest.fixture
def no_waits() -> Iterator[None]:
    torch.zeros(1, device=CUDA).item()  # started
    torch.cuda.set_sync_debug_mode("error")
    yield
    torch.cuda.set_sync_debug_mode("default")


def test_some_calls_want_a_device_with_its_index() -> None:
    with pytest.raises(ValueError, match="specified index"):
        torch.cuda.set_per_process_memory_fraction(0.5, CUDA)
    torch.cuda.set_per_process_memory_fraction(1.0, torch.device("cuda", 0))
    assert torch.zeros(1, device=CUDA).device == torch.device("cuda", 0)
    assert torch.cuda.get_device_properties(CUDA).total_memory > 0


def test_tensors_of_two_devices_do_not_mix() -> None:
    here, there = torch.ones(3, device=CUDA), torch.ones(3)
    with pytest.raises(RuntimeError, match="same device"):
        here + there
    with pytest.raises(RuntimeError, match="same device"):
        torch.cat([here, there])
    with pytest.raises(RuntimeError, match="same device"):
        there @ here
    assert torch.equal((here + torch.tensor(2.0)).cpu(), there + 2)  # but for single numbers,
    assert torch.equal(here[torch.tensor([0, 2])].cpu(), there[:2])  # places,
    here.copy_(there)  # and copies
    assert there.to(here).device == here.device
    with pytest.raises(TypeError, match="can't convert cuda:0"):
        here.numpy()


def test_draws_are_of_a_generator_of_their_device() -> None:
    def drawn(seed: int) -> torch.Tensor:
        return torch.randn(5, generator=torch.Generator(CUDA).manual_seed(seed), device=CUDA).cpu()

    assert torch.equal(drawn(7), drawn(7))
    assert not torch.equal(drawn(7), drawn(8))
    assert not torch.equal(drawn(7), torch.randn(5, generator=torch.Generator().manual_seed(7)))
    with pytest.raises(RuntimeError, match="'cuda' device type for generator"):
        torch.randn(5, generator=torch.Generator(), device=CUDA)
    with pytest.raises(RuntimeError, match="'cpu' device type for generator"):
        torch.randn(5, generator=torch.Generator(CUDA))
    with pytest.raises(RuntimeError, match="'cuda' device type for generator"):
        torch.zeros(5, device=CUDA).normal_(generator=torch.Generator())


def test_products_of_integers_have_no_kernel() -> None:
    whole = torch.ones(3, 3, dtype=torch.int64)
    assert (whole @ whole).sum() == 27
    with pytest.raises((RuntimeError, NotImplementedError), match="not implemented for 'Long'"):
        whole.to(CUDA) @ whole.to(CUDA)


@pytest.mark.usefixtures("no_waits")
def test_what_reads_a_tensor_waits_for_the_device() -> None:
    values, same = (torch.arange(6.0, device=CUDA) for _ in range(2))
    waits = (
        lambda: values.sum().item(),
        lambda: values.cpu(),
        lambda: values.tolist(),
        lambda: values[values > 2],
        lambda: values.nonzero(),
        lambda: torch.equal(values, same),
        lambda: bool((values > 2).all()),
        lambda: torch.ones(6).to(CUDA),
        lambda: values[torch.tensor([0, 2])],
    )
    for waiting in waits:
        with pytest.raises(RuntimeError, match="synchronizing CUDA operation"):
            waiting()
    torch.ones(6).pin_memory().to(CUDA, non_blocking=True)
    torch.where(values > 2, values, 0.0).cumsum(0)[:2].add_(1)
    values.masked_fill(values > 2, 0).gather(0, torch.zeros(2, dtype=torch.int64, device=CUDA))


def test_memory_is_counted_held_to_a_share_and_given_back() -> None:
    gc.collect()
    torch.cuda.empty_cache()
    before, size = torch.cuda.memory_allocated(), 64 << 20
    torch.cuda.reset_peak_memory_stats(CUDA)
    held = torch.empty(size, dtype=torch.uint8, device=CUDA)
    view = held[: size // 2]
    assert torch.cuda.memory_allocated(CUDA) == before + size
    del held
    assert torch.cuda.memory_allocated() == before + size  # the view holds it
    del view
    assert torch.cuda.memory_allocated() == before
    assert torch.cuda.max_memory_allocated(CUDA) == before + size
    assert torch.cuda.memory_reserved() >= before
    torch.cuda.empty_cache()
    total = torch.cuda.mem_get_info()[1]
    torch.cuda.set_per_process_memory_fraction((32 << 20) / total)
    try:
        with pytest.raises(torch.cuda.OutOfMemoryError, match="CUDA out of memory"):
            torch.empty(size, dtype=torch.uint8, device=CUDA)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    torch.empty(size, dtype=torch.uint8, device=CUDA)


def test_gradients_are_of_the_device_and_states_go_where_they_are_sent() -> None:
    model = nn.Linear(4, 3).to(CUDA)
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    model(torch.ones(2, 4, device=CUDA)).square().sum().backward()
    optimizer.step()
    assert all(p.grad is not None and p.grad.is_cuda for p in model.parameters())
    assert all(value.is_cuda for state in optimizer.state.values() for value in state.values())
    stream = io.BytesIO()
    torch.save(model.state_dict(), stream)
    for device in ("cpu", "cuda"):
        stream.seek(0)
        state = torch.load(stream, map_location=torch.device(device), weights_only=True)
        assert state["weight"].device.type == device
        assert torch.equal(state["weight"].cpu(), model.weight.detach().cpu())


def test_autocast_casts_products_and_not_sums() -> None:
    narrow, weight = torch.ones(2, 2, device=CUDA), torch.ones(2, 2, device=CUDA)
    weight.requires_grad_()
    with torch.autocast("cuda", torch.bfloat16):
        product = narrow @ weight
        assert product.dtype == torch.bfloat16
        assert product.softmax(-1).dtype == product.exp().dtype == product.sum().dtype
        assert product.sum().dtype == nn.functional.layer_norm(product, (2,)).dtype == torch.float32
        assert (product + product).dtype == torch.bfloat16
        product.sum().backward()
    assert weight.grad is not None
    assert weight.grad.dtype == torch.float32


def test_a_captured_graph_does_its_work_again_on_the_same_memory() -> None:
    given, total = torch.ones(3, device=CUDA), torch.zeros(3, device=CUDA)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        doubled = given * 2
        total.add_(doubled)
    total.zero_()
    given.fill_(3)
    graph.replay()
    graph.replay()
    torch.cuda.synchronize()
    assert doubled.tolist() == [6, 6, 6]
    assert total.tolist() == [12, 12, 12]


CAPTURES = """
import torch
given = torch.ones(3, device="cuda")
torch.cuda.synchronize()
with torch.cuda.graph(torch.cuda.CUDAGraph()):
    {waiting}
"""


@pytest.mark.parametrize("waiting", ["given.sum().item()", "given.copy_(torch.zeros(3))"])
def test_no_graph_is_captured_of_what_waits(waiting: str, gpu: Gpu | None) -> None:
    """On a real GPU in a process of its own, which a refused capture leaves of no use."""
    code = CAPTURES.format(waiting=waiting)
    if gpu is None:
        ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert ran.returncode != 0
        assert re.search("capturing|during (CUDA graph )?capture", ran.stderr), ran.stderr
        return
    with pytest.raises(RuntimeError, match="stream is capturing"):
        exec(code, {})
    torch.cuda.synchronize()
