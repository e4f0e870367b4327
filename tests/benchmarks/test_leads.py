"""The leads: the frontier is a linear programme's, and own training loops end in the product's."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.optimize import linprog
from scipy.stats import ttest_1samp

from benchmarks.leads.declared import LEADS
from benchmarks.leads.frontier import Point, at_seen, upper_hull
from benchmarks.leads.judged import above_frontier, interval, verdict
from benchmarks.leads.measured import deepen
from benchmarks.leads.own_loops import PerGroup, Remembering, UnderShift
from benchmarks.leads.trained import arm_of
from tests.support.oracles import TINY
from trainables.build import build_model, build_task, weighting_of
from trainables.config.arm import ArmConfig
from trainables.models.dust import DUST
from trainables.training import Training

CPU, F64 = torch.device("cpu"), torch.float64
SMALL = TINY.with_fields({"steps": 6, "report_every": 6, "dtype": "float64"})
TIED = SMALL.with_fields(
    {"model.name": "dust", "model.variant": "shared", "model.atoms_per_side": 6}
)


def mixture(points: list[Point], seen: float) -> float:
    """The best unseen score of any mixture of the points whose seen score is at least ``seen``."""
    best = linprog(
        [-p.unseen for p in points],
        A_ub=[[-p.seen for p in points]],
        b_ub=[-seen],
        A_eq=[[1.0] * len(points)],
        b_eq=[1.0],
    )
    assert best.success
    return float(-best.fun)


@pytest.mark.parametrize("seed", range(20))
def test_the_frontier_is_the_best_mixture_that_loses_no_seen_score(seed: int) -> None:
    drawn = np.random.default_rng(seed).normal(size=(2 + seed % 7, 2))
    points = [Point(*row) for row in drawn.tolist()]
    lowest, highest = drawn[:, 0].min(), drawn[:, 0].max()
    for seen in np.linspace(lowest - 0.5, highest, 23)[:-1]:
        found = at_seen(points, float(seen))
        assert found.unseen == pytest.approx(mixture(points, seen), abs=1e-7)  # linprog's tolerance
        assert found.where != "seen beyond every point"


def test_beyond_every_point_the_frontier_is_that_of_the_best_seen_one() -> None:
    points = [Point(0.0, 5.0), Point(1.0, 2.0), Point(1.0, 3.0)]
    assert at_seen(points, 1.5) == (3.0, "seen beyond every point")
    assert at_seen(points, 1.0) == (3.0, "between")
    assert at_seen(points, 0.0) == (5.0, "between")
    assert at_seen(points, -1.0) == (5.0, "seen below the best unseen")


def test_every_point_lies_on_or_below_the_hull() -> None:
    drawn = np.random.default_rng(0).normal(size=(40, 2))
    corners = np.array(upper_hull([Point(*row) for row in drawn.tolist()]))
    heights = np.interp(drawn[:, 0], corners[:, 0], corners[:, 1])
    assert (drawn[:, 1] <= heights + 1e-12).all()  # rounding of one interpolation
    assert {tuple(c) for c in corners.tolist()} <= {tuple(row) for row in drawn.tolist()}


def test_more_plain_arms_never_help_the_judged_one() -> None:
    arms: dict[str, Point | None] = {"judged": Point(0.5, 1.0), "a": Point(0.0, 1.2)}
    arms |= {"b": Point(1.0, 0.0), "c": Point(0.6, 0.9), "lost": None}
    few, _ = above_frontier(arms, "judged", ["a", "b"])
    more, _ = above_frontier(arms, "judged", ["a", "b", "c", "lost"])
    assert few == pytest.approx(1.0 - 0.6)  # rounding
    assert more == pytest.approx(1.0 - (0.9 + 0.3 / 6))


def test_intervals_are_those_of_the_paired_t() -> None:
    values = [0.3, -0.1, 0.4, 0.2]
    oracle = ttest_1samp(values, 0.0).confidence_interval(0.95)
    assert interval(values)["interval"] == pytest.approx([oracle.low, oracle.high])


@pytest.mark.parametrize(
    ("above", "outcome"),
    [
        ([0.3, 0.31, 0.32], "above the frontier"),
        ([-0.3, -0.31, -0.32], "below the frontier"),
        ([0.01, -0.01, 0.02], "ruled out"),
        ([2.0, -2.0, 1.0], "undecided"),
        ([0.3], "too few seeds"),
    ],
)
def test_outcomes_follow_the_interval(above: list[float], outcome: str) -> None:
    seeds: dict[str, dict[str, Point | None]] = {
        str(seed): {"plain": Point(1.0, 1.0), "judged": Point(1.0, 1.0 + value), "none": None}
        for seed, value in enumerate(above)
    }
    seeds["lost"] = {"plain": Point(1.0, 1.0), "judged": None, "none": None}
    found = verdict(seeds, "judged", ["plain"], smallest=0.2)
    assert found["outcome"] == outcome
    assert found["ended_without_score"] == 1
    assert found["differences"]["none"]["unseen"]["seeds"] == 0


def weights_after(training: Training) -> list[float]:
    training.run_to(training.config.steps)
    return torch.cat([p.detach().flatten() for p in training.model.parameters()]).tolist()


def training_of(config: ArmConfig, kind: type[Training] | partial[PerGroup]) -> Training:
    task = build_task(config, CPU, F64)
    weighting = weighting_of(config, task.scales, CPU, F64, steps_per_epoch=task.steps_per_epoch)
    return kind(config, task, build_model(config, task).to(F64), weighting)


def test_one_group_of_clips_trains_as_the_product() -> None:
    ours = weights_after(training_of(SMALL, partial(PerGroup, groups=1)))
    theirs = weights_after(training_of(SMALL, Training))
    assert ours == pytest.approx(theirs, abs=1e-12)  # the same sum in another order
    plain = weights_after(training_of(SMALL.unconstrained(), Training))
    assert ours != pytest.approx(plain, abs=1e-9)


@pytest.mark.parametrize("kind", [UnderShift, PerGroup])
def test_own_loops_with_multipliers_held_at_zero_are_plain_training(kind: type[Training]) -> None:
    zero = SMALL.with_fields({"constraint.dual_lr": 0.0})
    plain = weights_after(training_of(SMALL.unconstrained(), Training))
    assert weights_after(training_of(zero, kind)) == pytest.approx(plain, abs=1e-12)  # rounding
    assert weights_after(training_of(SMALL, kind)) != pytest.approx(plain, abs=1e-9)


def test_groups_are_those_of_the_clips_that_samples_come_from() -> None:
    task = Remembering(SMALL, CPU, F64)
    task.train_batch(0)
    groups = task.groups_of_last_batch(2)
    lengths = [clip.length for clip in task.video.stored("train")]
    for index, group in zip(task._last_B, groups, strict=True):
        frame, clip = task._train_starts[index // task._split("train").positions], 0
        while frame >= lengths[clip]:
            frame, clip = frame - lengths[clip], clip + 1
        assert group == clip * 2 // len(lengths)
    assert set(groups.tolist()) == {0, 1}


def test_a_tied_network_run_deeper_is_the_deeper_network() -> None:
    sizes = {"patch_size": 4, "atoms_per_side": 6, "threshold": 0.01}
    shallow, deep = (DUST(layers=n, shared=True, **sizes) for n in (2, 5))
    with torch.no_grad():
        shallow.dictionaries[0].mul_(0.9)
        deep.load_state_dict(shallow.state_dict())
    deepen(shallow, 5)
    x = torch.rand(2, 3, 16, dtype=F64)
    for ours, theirs in zip(shallow(x), deep(x), strict=True):
        assert torch.equal(ours, theirs)
    with pytest.raises(AssertionError, match="of their own"):
        deepen(DUST(layers=2, shared=False, **sizes), 5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["H1 on more noise", "H2", "H4", "H5"])
def test_an_arm_of_every_video_lead_has_points_and_is_trained_once(
    name: str, tmp_path: Path
) -> None:
    lead = LEADS[name]
    tiny = {f: TIED.value_of(f) for f in ("steps", "report_every", "model.atoms_per_side")}
    data = {f"data.{f}": TIED.value_of(f"data.{f}") for f in ("name", "frame_size", "patch_size")}
    lead = type(lead)(**{**vars(lead), "base": lead.base.with_fields({**tiny, **data})})
    judged = next(iter(lead.judged))
    first = arm_of(lead, judged, 0, tmp_path)
    assert first["status"] == "finished"
    assert all(p.seen < 0 and p.unseen < p.seen for p in first["points"].values())
    assert arm_of(lead, judged, 0, tmp_path) == first
