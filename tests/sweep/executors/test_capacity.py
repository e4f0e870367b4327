"""Capacity of a driver on a cluster that grows, shrinks, and is shared."""

from __future__ import annotations

import logging
import re
import time
from pathlib import Path

import pytest
import yaml

from sweep.executors.autoscaling import CONFIG as AUTOSCALER_CONFIG
from sweep.executors.autoscaling import largest_of
from sweep.executors.capacity import (
    ASK_AGAIN_S,
    LIMITS_EVERY_S,
    LOOK_EVERY_S,
    ClusterCapacity,
    FixedCapacity,
)
from sweep.executors.fair_share import BEAT_EVERY_S, Shares
from sweep.executors.ray_cluster import RayCluster
from sweep.executors.resources import Machine, ResourceClass
from tests.support.training.stand_ins import Clock, DictBoard
from trainables.errors import Failure, Misuse

ARM = ResourceClass(1, 0.5)
NODE: Machine = {"CPU": 8.0, "GPU": 2.0}  # four such arms
HEAD: Machine = {}


class FakeCluster:
    """A cluster of lists: what came of the places that were asked for is set by the test."""

    def __init__(self, machines: list[Machine], largest: list[Machine] | None = None) -> None:
        self.there, self.most, self.asked = machines, largest, 0
        self.is_away = False
        self.why_waiting = self.trouble = ""
        self.leaving: list[str] = []

    def machines(self) -> list[Machine]:
        if self.is_away:
            raise Failure("the head does not answer")
        return list(self.there)

    def largest(self, arm: ResourceClass) -> list[Machine] | None:
        return self.most

    def waiting(self) -> int:
        return self.asked

    def ask(self, arm: ResourceClass, count: int) -> None:
        self.asked = count


def capacity_of(
    cluster: FakeCluster, clock: Clock, *, board: DictBoard | None = None, most: int | None = None
) -> ClusterCapacity:
    name = f"driver-{clock.now}"
    shares = Shares(board if board is not None else DictBoard(), name, "s", ARM, since_s=clock.now)
    return ClusterCapacity(cluster, shares, ARM, most=most, clock=clock)


def places(
    capacity: ClusterCapacity, clock: Clock, *, at: float, wanted: int = 100, live: int = 0
) -> int:
    clock.now = at
    return capacity.places(wanted=wanted, live=live, training=live)


def test_one_machine_has_as_many_places_as_it_was_given() -> None:
    capacity = FixedCapacity(3, [NODE])
    assert capacity.places(wanted=100, live=3, training=3) == 3
    assert not capacity.others_wait


def test_a_cluster_that_may_grow_is_asked_for_all_that_the_arms_need() -> None:
    clock = Clock()
    cluster = FakeCluster([HEAD], [NODE] * 3)
    capacity = capacity_of(cluster, clock)
    assert places(capacity, clock, at=0, wanted=10) == 0
    assert cluster.asked == 10
    cluster.there, cluster.asked = [HEAD, NODE], 6  # four of them came
    assert places(capacity, clock, at=1, wanted=10) == 0  # not looked again yet
    assert places(capacity, clock, at=LOOK_EVERY_S, wanted=10) == 4
    assert cluster.asked == 6
    cluster.there = [HEAD, NODE, NODE, NODE]
    assert places(capacity, clock, at=4, wanted=10, live=4) == 10
    assert cluster.asked == 0
    assert places(capacity, clock, at=20, wanted=2, live=2) == 2
    assert cluster.asked == 0


def test_a_clock_that_is_set_back_hides_no_machine_and_no_other_driver(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sweep.executors.capacity.LOOK_EVERY_S", 0.0)
    monkeypatch.setattr("sweep.executors.fair_share.BEAT_EVERY_S", 0.0)
    cluster, board = FakeCluster([HEAD, NODE], [NODE] * 2), DictBoard()
    capacity = ClusterCapacity(cluster, Shares(board, "one", "s", ARM, since_s=time.time()), ARM)
    assert capacity.places(wanted=100, live=0, training=0) == 4
    an_hour_ago = time.time() - 3600
    monkeypatch.setattr(time, "time", lambda: an_hour_ago)
    cluster.there = [HEAD, NODE, NODE]
    assert capacity.places(wanted=100, live=0, training=0) == 8
    other = Shares(board, "other", "s", ARM, since_s=an_hour_ago)
    other.look(wants=100, holds=0, now_s=0)
    assert capacity.places(wanted=100, live=0, training=0) == 4


def test_no_more_is_asked_for_than_the_cluster_can_grow_to() -> None:
    clock = Clock()
    cluster = FakeCluster([HEAD], [NODE] * 2)
    places(capacity_of(cluster, clock), clock, at=0)
    assert cluster.asked == 8


def test_a_cluster_that_cannot_place_all_processes_of_an_arm_says_so_at_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    arm = ResourceClass(1, 1.0, processes=5)
    needs = r"which needs 5 processes of \{'CPU': 1.0, 'GPU': 1.0\}"
    cluster, shares = FakeCluster([HEAD], [NODE] * 2), Shares(DictBoard(), "d", "s", arm, since_s=0)
    with pytest.raises(Misuse, match=f"no machines of this cluster can hold an arm, {needs}"):
        ClusterCapacity(cluster, shares, arm)
    cluster.most = None  # it may grow, or not: nobody knows
    capacity = ClusterCapacity(cluster, shares, arm)
    assert capacity.places(wanted=9, live=0, training=0) == 0
    assert re.search(f"no machines of the cluster hold an arm, {needs}; waiting", caplog.text)
    cluster.there = [HEAD, NODE, NODE, NODE]
    capacity = ClusterCapacity(cluster, shares, arm)
    assert capacity.places(wanted=9, live=0, training=0) == 1


def test_limits_that_change_are_seen_within_a_minute() -> None:
    clock = Clock()
    cluster = FakeCluster([HEAD, NODE], [NODE])
    capacity = capacity_of(cluster, clock)
    places(capacity, clock, at=0, live=4)
    assert cluster.asked == 0
    cluster.most = [NODE] * 3  # `ray up` with a larger max_workers
    places(capacity, clock, at=LIMITS_EVERY_S, live=4)
    assert cluster.asked == 8
    cluster.most = None  # cannot be read for a moment
    places(capacity, clock, at=2 * LIMITS_EVERY_S, live=4)
    assert cluster.asked == 8


def test_what_is_there_is_filled_before_more_is_asked_for() -> None:
    clock = Clock()
    cluster = FakeCluster([HEAD, NODE], [NODE] * 2)
    capacity = capacity_of(cluster, clock)
    assert places(capacity, clock, at=0) == 4
    assert cluster.asked == 0
    assert places(capacity, clock, at=ASK_AGAIN_S, live=4) == 4
    assert cluster.asked == 4


def test_a_cluster_of_unknown_limits_is_asked_for_one_more_or_as_many_as_given() -> None:
    clock = Clock()
    cluster = FakeCluster([HEAD])
    places(capacity_of(cluster, clock), clock, at=0)
    assert cluster.asked == 1
    places(capacity_of(cluster, clock, most=6), clock, at=0)
    assert cluster.asked == 6


def test_a_lost_machine_is_asked_for_again_but_not_for_arms_that_wait_themselves() -> None:
    clock = Clock()
    cluster = FakeCluster([HEAD, NODE, NODE], [NODE] * 2)
    capacity = capacity_of(cluster, clock)
    assert places(capacity, clock, at=0) == 8
    cluster.there = [HEAD, NODE]
    assert places(capacity, clock, at=5, live=8) == 4
    assert cluster.asked == 0  # Tune asks for the four arms that lost their worker
    assert places(capacity, clock, at=30, live=4) == 4
    assert cluster.asked == 4


def test_no_more_than_given_is_used_of_what_is_there() -> None:
    clock = Clock()
    assert places(capacity_of(FakeCluster([NODE, NODE]), clock, most=3), clock, at=0) == 3


def test_two_drivers_come_to_half_each_and_the_first_gives_way() -> None:
    clock, board = Clock(), DictBoard()
    cluster = FakeCluster([HEAD, NODE])
    one = capacity_of(cluster, clock, board=board)
    assert places(one, clock, at=0) == 4
    clock.now = 10
    two = capacity_of(cluster, clock, board=board)
    assert places(two, clock, at=10) == 2
    assert places(one, clock, at=BEAT_EVERY_S, live=4) == 2
    assert one.others_wait
    assert places(two, clock, at=80, live=2) == 2
    assert places(one, clock, at=2 * BEAT_EVERY_S, live=2) == 2
    assert not one.others_wait


def test_an_arm_that_no_machine_can_ever_hold_is_refused_with_what_there_is() -> None:
    small: Machine = {"CPU": 8.0}
    with pytest.raises(Misuse, match=r"'GPU': 0.5.*'CPU': 8.0.*gpus_per_arm"):
        capacity_of(FakeCluster([HEAD], [small]), Clock())


def test_waiting_for_a_machine_is_told_and_not_every_second(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Clock()
    capacity = capacity_of(FakeCluster([HEAD]), clock)
    with caplog.at_level(logging.WARNING):
        for second in range(0, 500, 2):
            places(capacity, clock, at=second)
    assert [r.message for r in caplog.records] == [
        "no machine of the cluster holds an arm, which needs {'CPU': 1.0, 'GPU': 0.5}; "
        "waiting for one"
    ]


def test_what_keeps_arms_from_being_trained_is_said_until_it_ends() -> None:
    clock = Clock()
    cluster = FakeCluster([HEAD], [NODE])
    capacity = capacity_of(cluster, clock)
    places(capacity, clock, at=0, wanted=10)
    assert capacity.waits_for == (
        "a machine: no machine of the cluster holds an arm, which needs {'CPU': 1.0, 'GPU': 0.5}; "
        "4 places were requested from the cluster"
    )
    cluster.is_away = True
    places(capacity, clock, at=LOOK_EVERY_S)
    assert capacity.waits_for == "the cluster's head: the head does not answer"
    cluster.is_away, cluster.why_waiting = False, "worker job 7 is pending (Resources)"
    places(capacity, clock, at=2 * LOOK_EVERY_S)
    assert capacity.waits_for == "a machine: worker job 7 is pending (Resources)"
    cluster.there = [HEAD, NODE]
    places(capacity, clock, at=3 * LOOK_EVERY_S)
    assert capacity.waits_for == ""


def test_a_head_that_does_not_answer_for_a_moment_changes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Clock()
    cluster = FakeCluster([NODE])
    capacity = capacity_of(cluster, clock)
    assert places(capacity, clock, at=0) == 4
    cluster.is_away = True
    assert places(capacity, clock, at=10) == 4
    assert "the head does not answer" in caplog.text
    cluster.is_away, cluster.there = False, [NODE, NODE]
    assert places(capacity, clock, at=20) == 8


# --- what a cluster may grow to -------------------------------------------------------------------

CONFIG = {
    "max_workers": 5,
    "head_node_type": "head",
    "available_node_types": {
        "head": {"resources": {"CPU": 0}, "max_workers": 0},
        "small": {"resources": {"CPU": 4, "GPU": 1, "memory": 10}, "max_workers": 4},
        "large": {"resources": {"CPU": 32, "GPU": 4, "accelerator_type:A10G": 1}, "max_workers": 2},
        "cpus": {"resources": {"CPU": 64}},
    },
}


def test_a_cluster_at_its_largest_has_the_machines_that_hold_most_arms() -> None:
    large, small = {"CPU": 32.0, "GPU": 4.0}, {"CPU": 4.0, "GPU": 1.0}
    assert largest_of(CONFIG, ResourceClass(1, 1.0)) == [large] * 2 + [small] * 3
    assert largest_of(CONFIG, ResourceClass(1)) == [{"CPU": 64.0}] * 5


def test_how_far_a_cluster_may_grow_is_read_where_ray_up_leaves_it() -> None:
    path = Path(AUTOSCALER_CONFIG).expanduser()
    assert RayCluster().largest(ARM) is None
    path.write_text(yaml.safe_dump(CONFIG))
    assert RayCluster().largest(ARM) == largest_of(CONFIG, ARM)
    for damaged in ("[", "3", "max_workers: 3", "available_node_types: {a: {max_workers: x}}"):
        path.write_text(damaged)
        assert RayCluster().largest(ARM) is None


def test_where_a_type_does_not_say_what_it_has_nothing_is_known() -> None:
    kinds = {**CONFIG["available_node_types"], "large": {"resources": {}, "max_workers": 2}}  # type: ignore[dict-item]
    assert largest_of({**CONFIG, "available_node_types": kinds}, ARM) is None


def test_of_machines_of_ones_own_which_ray_gives_the_heads_type_nothing_is_known() -> None:
    kind = {"resources": {}, "min_workers": 2, "max_workers": 2, "node_config": {}}
    config = {"head_node_type": "own", "max_workers": 2, "available_node_types": {"own": kind}}
    assert largest_of(config, ARM) is None
