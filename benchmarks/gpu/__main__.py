"""Tests and measurements of what trains, on one GPU.

    bash .ci/gpu [PART ...]

runs the parts below in order, or those that are named. What fails stops no other part.
``SWEEP_GPU_DEVICE=cpu`` runs all of it on the CPU at a small size. Needs torch, numpy, scipy,
scikit-learn, pandas, pyarrow, transformers, peft, pytest and psutil.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from benchmarks.gpu.course import ROOT, Part, asked_device, course, refused_device

NEEDED = {  # packages, by the module that is imported of each
    **{name: name for name in ("torch", "numpy", "scipy", "pandas", "pyarrow", "transformers")},
    **{name: name for name in ("peft", "pytest", "psutil")},
    "sklearn": "scikit-learn",
}
GPU_TESTS = (
    "tests/trainables/test_gpu.py",
    "tests/trainables/test_gpu_memory.py",
    "tests/trainables/test_cuda_contracts.py",
    "tests/trainables/fused/test_stacks.py",
)
PYTEST = (  # none of pyproject's options: its plug-ins are not needed, others' warnings no errors
    *("-o", "addopts=", "-o", "filterwarnings=default", "-p", "no:cacheprovider"),
    *("--import-mode=importlib", "--strict-markers", "-q", "-rfE"),
)
LIMITS = {  # seconds of every part, the most telling first
    "tests": 150,
    "ut": 60,
    "companies": 110,
    "dust": 40,
    "distilbert": 60,
    "decoder_1b": 130,
    "step_profile": 40,
    "decoder_8b": 110,
}
PAIRS = ("ut", "dust", "distilbert", "decoder_1b")


def command_of(part: str, device: str) -> list[str]:
    """What a part runs."""
    if part == "tests":
        chosen = ("-m", "gpu") if device == "cuda" else ()  # else those on an imitated GPU, too
        return [sys.executable, "-m", "pytest", *PYTEST, *chosen, *GPU_TESTS]
    options = ["--device", device, *(["--small"] if device == "cpu" else [])]
    module = f"benchmarks.gpu.{'pairs' if part in PAIRS else part}"
    return [sys.executable, "-m", module, *options, *([part] if part in PAIRS else [])]


def environment_of(device: str, folder: Path) -> dict[str, str]:
    """Nothing is fetched, and caches are this course's own."""
    own = {
        "SWEEP_CACHE": str(folder / "cache"),
        "HF_HUB_OFFLINE": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
    }
    return {**os.environ, **own, **({"OMP_NUM_THREADS": "1"} if device == "cpu" else {})}


def refusal(parts: list[str], device: str) -> str:
    """Why the course cannot be run; empty where it can."""
    if unknown := [part for part in parts if part not in LIMITS]:
        return f"no part {unknown[0]!r}; there are {', '.join(LIMITS)}."
    if missing := [package for module, package in NEEDED.items() if find_spec(module) is None]:
        return f"{sys.executable} lacks {', '.join(missing)}: set PYTHON to one that has them."
    return refused_device(device)


def main(arguments: list[str]) -> int:
    """Run the course; 0 where every part ran to its end."""
    if {"-h", "--help"} & set(arguments):
        print(f"{__doc__}\nParts, with their limits in seconds:")
        print(*(f"    {name}: {limit}" for name, limit in LIMITS.items()), sep="\n")
        return 0
    device = asked_device()
    if why := refusal(arguments, device):
        print(why, file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory(prefix="sweep-gpu-") as made:
        folder = Path(made)
        parts = [Part(name, command_of(name, device), LIMITS[name]) for name in arguments or LIMITS]
        return course(parts, environment_of(device, folder), folder, "gpu")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
