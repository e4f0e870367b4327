"""Figure of the best of N beside confirmation, where nothing has an effect."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import matplotlib
import numpy as np

from benchmarks.imitated.null_sweeps import Floats

matplotlib.use("svg")
from matplotlib import pyplot as plt  # after the backend is chosen

NAIVE, CONFIRMED = "#c44e00", "#1b6ac9"
BINS = np.linspace(-4, 5, 55)


def draw(margins: Mapping[int, tuple[Floats, Floats, Floats]], path: Path) -> None:
    """Distributions of both margins per number of tries, and how often each says "better".

    Args:
        margins: by N, of each setting: the best of N less one baseline, the mean of 10 fresh
            differences, and whether confirmation called it better.
        path: the SVG to write; the same margins give the same bytes.
    """
    plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "best of N", "font.size": 9})
    figure, rows = plt.subplots(len(margins), sharex=True, figsize=(6.4, 4.2), squeeze=False)
    for axes, (tries, (naive, confirmed, better)) in zip(rows[:, 0], margins.items(), strict=True):
        for values, colour, says in (
            (naive, NAIVE, f"best of {tries} against one: {(naive > 0).mean():.0%} win"),
            (confirmed, CONFIRMED, f"confirmed on 10 seeds: {better.mean():.1%} better"),
        ):
            axes.hist(values, BINS, density=True, color=colour, alpha=0.35, histtype="stepfilled")
            axes.axvline(values.mean(), color=colour, linewidth=1.5, label=says)
        axes.axvline(0, color="black", linewidth=0.8, linestyle=":")
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 0.97), ncols=2, frameon=False)
        axes.set_yticks([])
        axes.set_ylabel(f"N = {tries}", rotation=0, ha="right", va="center")
        for side in ("left", "right", "top"):
            axes.spines[side].set_visible(False)
    figure.suptitle("No constraint has an effect: what is reported all the same", size="large")
    rows[-1, 0].set_xlabel("constrained less unconstrained, in standard deviations of one run")
    figure.tight_layout()
    figure.savefig(path, format="svg", metadata={"Date": None})
    plt.close(figure)
