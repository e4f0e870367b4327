"""Groups of arms against arms alone: whole runs, early ends, kills, resumes and failures."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.data.text_runs import tiny_text
from tests.support.oracles import TINY
from tests.support.training.groups import finish, group_of, require_same, store_in
from trainables import arm_run
from trainables.arm_run import ArmRun
from trainables.config.arm import ArmConfig
from trainables.evaluation.measuring import measure
from trainables.fused.training import FusedTraining
from trainables.records.arms import ArmStore
from trainables.training import Training

# The third wants what no layer gives, and is ended early; the fourth diverges.
HARD = {"constraint.alpha": 0.9, "constraint.dual_lr": 2.0, "constraint.signal_clip": 0.4}
STEEP = {"constraint.dual_lr": 1e37, "constraint.signal_clip": None}


def company(base: ArmConfig) -> list[ArmConfig]:
    others: Sequence[dict[str, Any]] = ({"constraint.alpha": 0.35}, HARD, STEEP)
    return [base, *(base.with_fields(fields) for fields in others), base.unconstrained()]


@pytest.fixture(params=["ut", "dust", "text_ut"])
def configs(request: pytest.FixtureRequest, tmp_path: Path) -> list[ArmConfig]:
    if request.param == "text_ut":
        base = tiny_text(tmp_path, batch_size=15, **{"model.name": "text_ut"})
        return company(replace(base, steps=12, report_every=3))
    more = {"model.atoms_per_side": 6} if request.param == "dust" else {}
    return company(TINY.with_fields({"model.name": request.param, "dtype": "float32", **more}))


def alone(configs: list[ArmConfig], store: ArmStore) -> None:
    for config in configs:
        run = ArmRun(config, store)
        while not run.advance().is_final:
            pass


def test_a_group_leaves_the_records_and_weights_of_arms_alone(
    configs: list[ArmConfig], tmp_path: Path
) -> None:
    by_itself, together = store_in(tmp_path / "alone"), store_in(tmp_path / "together")
    alone(configs, by_itself)
    group = group_of(configs, together)
    finish(group)
    assert group.fuses
    require_same(configs, by_itself, together)
    ends = [by_itself.record(config.signature()) for config in configs]
    lengths = {(record.status, record.reports[-1].step) for record in ends if record}
    assert len(lengths) > 1  # some left before the others


class Clock:
    """Milliseconds: 100 s for steps to a report, of one arm or fused, and 1 s for a measurement."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ms = 1_000
        monkeypatch.setattr(arm_run, "_now_ms", lambda: self.now_ms)
        monkeypatch.setattr(Training, "run_to", self.taking(100_000, Training.run_to))
        monkeypatch.setattr(FusedTraining, "run_to", self.taking(100_000, FusedTraining.run_to))
        monkeypatch.setattr(arm_run, "measure", self.taking(1_000, measure))

    def taking(self, ms: int, work: Callable[..., Any]) -> Callable[..., Any]:
        def longer(*args: Any) -> Any:
            self.now_ms += ms
            return work(*args)

        return longer


def test_the_arms_of_a_group_hold_what_its_place_was_held(
    configs: list[ArmConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of five end before the others."""
    clock, store = Clock(monkeypatch), store_in(tmp_path)
    group = group_of(configs, store)
    finish(group)
    assert group.fuses
    held_s = {run.signature: run.record.held_s for run in group._runs}
    assert sum(held_s.values()) == pytest.approx((clock.now_ms - 1_000) / 1000, abs=0.1)
    ends = [run.record.ended_ms for run in group._runs]
    assert len(set(ends)) == len(configs)


@pytest.mark.parametrize("after", [0, 1])
def test_arms_that_wait_for_one_of_their_group_hold_nothing(
    after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One after the other from the start, and after a failure of all, an hour before any report."""
    configs, store = company(TINY)[:2], store_in(tmp_path)
    group = group_of(configs, store)
    if after:
        began = group._begun()
        late_ms = arm_run._now_ms() + 3_600_000
        with monkeypatch.context() as patched:
            patched.setattr(arm_run, "_now_ms", lambda: late_ms)
            group._share(began)
            group._separate("as a test asks")
    else:
        group._separate("as a test asks")
    finish(group)
    one, other = (store.record(config.signature()) for config in configs)
    assert one is not None
    assert other is not None
    assert one.ended_ms <= other.started_ms
    assert one.shared_ms == other.shared_ms == 0


def test_the_one_that_catches_up_holds_the_place_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configs, store = company(TINY)[:2], store_in(tmp_path)
    Clock(monkeypatch)
    ArmRun(configs[0], store).advance()  # 101 s alone, an interval ahead
    group = group_of(configs, store)
    finish(group)
    ahead, behind = (run.record.held_s for run in group._runs)
    assert ahead == pytest.approx(behind, abs=5)


def test_where_the_last_of_a_group_died_each_holds_the_place_in_its_turn(tmp_path: Path) -> None:
    configs, store = company(TINY)[:2], store_in(tmp_path)
    group_of(configs, store).advance()
    store.count_attempt(configs[1].signature(), 20)  # it died while it settled
    group = group_of(configs, store)
    group.advance()
    assert [(run.has_neighbours, run._part) for run in group._runs] == [(False, 1.0)] * 2


def test_a_group_that_was_killed_goes_on_together_or_alone(
    configs: list[ArmConfig], tmp_path: Path
) -> None:
    """The kill came between two checkpoints: one arm lies an interval behind the others."""
    by_itself, killed = store_in(tmp_path / "alone"), store_in(tmp_path / "killed")
    alone(configs, by_itself)
    behind = ArmRun(configs[0], killed)
    behind.advance()
    others = group_of(configs[1:], killed)
    others.advance()
    others.advance()
    alone(configs[1:2], killed)
    group = group_of(configs, killed)
    finish(group)
    assert group.fuses
    require_same(configs, by_itself, killed)


@pytest.mark.parametrize("reports", [(2, 1, 1), (1, 2, 2), (0, 2, 2), (0, 1, 2)])
def test_arms_that_stopped_at_different_reports_go_on_as_one(
    reports: tuple[int, ...], tmp_path: Path
) -> None:
    """Their constraints differ in numbers alone, so that their weights are joint, too."""
    configs = [
        TINY.with_fields({"constraint.alpha": a, "dtype": "float32"}) for a in (0.2, 0.3, 0.4)
    ]
    by_itself, stopped = store_in(tmp_path / "alone"), store_in(tmp_path / "stopped")
    alone(configs, by_itself)
    for config, count in zip(configs, reports, strict=True):
        run = ArmRun(config, stopped)
        for _ in range(count):
            run.advance()
    group = group_of(configs, stopped)
    finish(group)
    assert group.fuses
    assert not group._one_by_one
    require_same(configs, by_itself, stopped)


def test_after_a_process_died_its_arms_are_trained_one_after_the_other(tmp_path: Path) -> None:
    configs = company(TINY)
    by_itself, died = store_in(tmp_path / "alone"), store_in(tmp_path / "died")
    alone(configs, by_itself)
    group_of(configs, died).advance()
    again = group_of(configs, died)
    again.advance()  # the store has newer checkpoints: nobody died
    other = group_of(configs, died)
    for config in configs:  # another process started them, and came to no report
        died.count_attempt(config.signature(), 20)
    stored = [died.record(config.signature()) for config in configs]
    ended = {record.signature for record in stored if record is not None and record.is_final}
    steps = []
    while not other.is_final:
        told = {record.signature for record in other.advance()}
        assert not steps or not told & ended  # told once, at the first report
        steps.append(sorted(told - ended))
    assert max(map(len, steps)) == 1
    assert [names for i, names in enumerate(steps) if names not in steps[:i]] == [
        [signature] for signature in (config.signature() for config in configs)
        if [signature] in steps
    ]  # fmt: skip
    require_same(configs, by_itself, died)


def test_an_arm_that_ends_as_it_begins_is_told_with_the_others(tmp_path: Path) -> None:
    few = {"constraint.dual_every": 50, "constraint.dual_every_unit": "epoch"}  # never a dual step
    configs = [TINY, TINY.with_fields(few), TINY.unconstrained()]
    group = group_of(configs, store_in(tmp_path))
    told = []
    while not group.is_final:
        told += [record.signature for record in group.advance() if record.is_final]
    assert group.fuses
    assert told[0] == configs[1].signature()  # at the first report of the others
    assert sorted(told) == sorted(config.signature() for config in configs)


def test_what_does_not_fit_beside_the_others_is_trained_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configs = company(TINY)
    by_itself, together = store_in(tmp_path / "alone"), store_in(tmp_path / "together")
    alone(configs, by_itself)
    short = [MemoryError("no more")]

    def out_of_memory(*args: Any) -> Any:
        if short:
            raise short.pop()
        return measure(*args)

    monkeypatch.setattr(arm_run, "measure", out_of_memory)  # the first evaluation of all
    group = group_of(configs, together)
    assert group.advance() == []
    assert not group.fuses
    while not group.is_final:
        group.advance()
        assert sum(run._arm is not None for run in group._runs) <= 1  # each has the memory
    require_same(configs, by_itself, together)
    for config in configs:  # nobody died: a start that was given up is none
        assert together.count_attempt(config.signature(), -1) == 2


def test_an_arm_that_fails_in_a_group_fails_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configs = company(TINY)
    by_itself, together = store_in(tmp_path / "alone"), store_in(tmp_path / "together")
    alone(configs, by_itself)

    def short(trainings: Sequence[Training], step: int) -> None:
        if step == 15 and any(training.config == configs[1] for training in trainings):
            raise MemoryError("no more")

    def one_step(fused: FusedTraining, step: int, *others: Any) -> Any:
        short(fused.trainings, step)
        return fused_step(fused, step, *others)

    def finish_step(training: Training, step: int, seen_F: torch.Tensor) -> None:
        short([training], step)
        own_step(training, step, seen_F)

    fused_step, own_step = FusedTraining._one_step, Training.finish_step
    monkeypatch.setattr(FusedTraining, "_one_step", one_step)
    monkeypatch.setattr(Training, "finish_step", finish_step)
    finish(group_of(configs, together))
    failed = together.record(configs[1].signature())
    assert failed is not None
    assert failed.status == "failed"
    assert failed.reason.startswith("out of CPU memory (no more)")
    require_same([configs[0], *configs[2:]], by_itself, together)


def test_no_network_outlives_the_arms_of_a_group(tmp_path: Path) -> None:
    group = group_of(company(TINY)[:3], store_in(tmp_path))
    group.advance()
    assert group._fused is not None
    networks = [weakref.ref(training.model) for training in group._fused.trainings]
    finish(group)
    gc.collect()
    assert [network() for network in networks] == [None] * 3
