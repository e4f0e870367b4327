"""Freed memory is used again, not given back to the system and asked for anew."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

ROUNDS = 20
PAGES_OF_A_ROUND = 20 * 360 // 4  # of 4 KiB

# Twenty live tensors of 360 KiB, as in a forward pass, again and again; faults are of new pages.
# What glibc does by itself depends on what lies behind them: here each gets pages of its own.
PASSES = f"""
import ctypes, resource, sys, torch
torch.set_num_threads(1)
ctypes.CDLL(None).mallopt(-3, 128 * 1024)
if sys.argv[1] == "kept":
    from trainables.memory import keep_freed_memory
    keep_freed_memory()
def work():
    for _ in range({ROUNDS}):
        live = [torch.zeros(92_160) for _ in range(20)]
        del live
work()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
work()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def new_pages(way: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", PASSES, way], capture_output=True, text=True, check=True
    )
    return int(done.stdout)


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="the C library is not glibc")
def test_a_pass_takes_the_memory_of_the_one_before() -> None:
    assert new_pages("given back") > ROUNDS * PAGES_OF_A_ROUND / 2
    assert new_pages("kept") < PAGES_OF_A_ROUND
