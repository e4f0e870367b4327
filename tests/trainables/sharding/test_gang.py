"""Arms on several processes against arms on one: numbers, deaths, refusals."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from torch.distributed.tensor import DTensor

from tests.support.data.instruction_runs import tiny_instructions
from tests.support.data.text_runs import tiny_text
from tests.support.oracles import TINY
from tests.support.training.companies import SpawnedCompany, company_of, farthest
from trainables.arm_run import ArmRun
from trainables.config.arm import ArmConfig
from trainables.errors import RankLost, StoreError
from trainables.records.arm_record import ArmRecord
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore

SAME = 1e-4  # what the order of sums may do in float32; seen below: 3e-6 to 3e-5


def store_in(folder: Path) -> ArmStore:
    return ArmStore(ObjectStore(folder))


def trained(
    config: ArmConfig, store: ArmStore, company: SpawnedCompany | None = None, reports: int = 99
) -> ArmRecord:
    """Train to its end, or to so many more reports."""
    run = ArmRun(config, store, company=company)
    for _ in range(reports):
        if run.advance().is_final:
            break
    return run.record


def together(
    config: ArmConfig, store: ArmStore, processes: int = 2, reports: int = 99
) -> ArmRecord:
    with company_of(store, processes) as company:
        return trained(config, store, company, reports)


def instructions(root: Path, **fields: Any) -> ArmConfig:
    """Drawn layers and tokens, a mean of the weights, and a row that does not divide."""
    drawn = {
        "constraint.inner_layers": 1,
        "constraint.inner_tokens": 0.5,
        "constraint.dual_signal": "violation",
    }
    more = {"weight_ema": 0.9, "weight_decay": 0.01, "batch_size": 5}
    return tiny_instructions(root, **{**drawn, **more, **fields})


@pytest.mark.long("another process imports torch and trains")
def test_two_processes_come_to_the_numbers_of_one(tmp_path: Path) -> None:
    config = instructions(tmp_path)
    alone = trained(config, store_in(tmp_path / "one"))
    two = store_in(tmp_path / "two")
    with company_of(two) as company:
        run = ArmRun(config, two, company=company)
        run.advance()
        parts = [p for p in run.training.parameters if isinstance(p, DTensor)]
        here = sum(p.to_local().numel() for p in parts)
        while not run.advance().is_final:
            pass
    assert alone.status == run.record.status == "finished"
    assert len(parts) == len(run.training.parameters)
    assert here == pytest.approx(sum(p.numel() for p in parts) / 2, rel=0.05)
    assert farthest(alone, run.record) < SAME
    assert run.record.environment == {**alone.environment, "processes": 2}
    took_ms = run.record.ended_ms - run.record.started_ms
    assert run.record.held_s * 1000 == pytest.approx(2 * took_ms, abs=10)  # two places


CASES: dict[str, tuple[int, dict[str, Any]]] = {
    "ut": (2, {}),
    "ut, plain": (2, {}),
    "ut, three processes, uneven": (3, {"accumulate": 2}),
    "dust": (2, {"model.name": "dust", "model.atoms_per_side": 6}),
    "encoder": (2, {}),
    "encoder, low rank": (2, {"model.lora_rank": 2, "model.recompute": True}),
    "decoder, plain": (2, {"constraint.inner_layers": None, "constraint.inner_tokens": 1.0}),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_every_kind_of_network_and_arm_comes_to_the_numbers_of_one(
    case: str, tmp_path: Path
) -> None:
    processes, fields = CASES[case]
    if case.startswith("decoder"):
        config = instructions(tmp_path, **fields)
    elif case.startswith("encoder"):
        config = tiny_text(tmp_path, **fields)
    else:
        config = TINY.with_fields({"steps": 20, **fields})
    if case.endswith("plain"):
        config = config.unconstrained()
    alone = trained(config, store_in(tmp_path / "one"))
    gang = together(config, store_in(tmp_path / "several"), processes)
    assert (alone.status, gang.status) == ("finished", "finished"), gang.reason
    assert farthest(alone, gang) < SAME


@pytest.mark.slow
@pytest.mark.parametrize("processes", [(1, 2), (2, 1), (2, 3)])
def test_an_arm_goes_on_from_its_checkpoint_on_another_number_of_processes(
    processes: tuple[int, int], tmp_path: Path
) -> None:
    config = instructions(tmp_path, steps=6, report_every=3)
    alone = trained(config, store_in(tmp_path / "one"))
    moved = store_in(tmp_path / "moved")
    before, after = processes
    for count, reports in ((before, 1), (after, 99)):
        if count == 1:
            record = trained(config, moved, reports=reports)
        else:
            record = together(config, moved, count, reports)
    assert record.status == alone.status == "finished"
    assert farthest(alone, record) < SAME
    assert record.environment.get("processes", 1) == after
    assert record.environment["before"].get("processes", 1) == before


@pytest.mark.slow
def test_an_arm_that_loses_a_process_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    config = instructions(tmp_path, steps=6, report_every=3)
    undisturbed = together(config, store_in(tmp_path / "one"))
    disturbed = store_in(tmp_path / "two")
    with company_of(disturbed) as company:
        run = ArmRun(config, disturbed, company=company)
        run.advance()
        pid = company.peers[0].pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(RankLost):
            run.advance()
    record = disturbed.record(config.signature())
    assert record is not None
    assert not record.is_final
    assert farthest(undisturbed, together(config, disturbed)) == 0.0


class Forgetful(SpawnedCompany):
    """Its storage loses the checkpoints before the others read them."""

    def gather(self, config: ArmConfig, step: int) -> Any:
        ArmStore(ObjectStore(self.root)).drop_training(config.signature())
        return super().gather(config, step)


class Misunderstood(SpawnedCompany):
    """The others are told of an arm that there cannot be."""

    def told(self, config: ArmConfig) -> Any:
        return config.to_json() | {"steps": 0}


@pytest.mark.slow
def test_what_another_process_fails_with_is_the_arms_outcome(tmp_path: Path) -> None:
    config, store = instructions(tmp_path), store_in(tmp_path / "store")
    company = Misunderstood(store)
    try:
        record = trained(config, store, company)
    finally:
        company.end()
    assert record.status == "failed"
    assert record.reason.startswith("process 2 of 2: steps must be")


@pytest.mark.slow
@pytest.mark.parametrize("trouble", ["storage", "code"])
def test_what_is_wrong_with_another_machine_is_no_arms_outcome(
    trouble: str, tmp_path: Path
) -> None:
    config, store = instructions(tmp_path), store_in(tmp_path / "store")
    trained(config, store, reports=1)
    company = Forgetful(store) if trouble == "storage" else SpawnedCompany(store)
    what = "expected the checkpoint of step 2, found none"
    if trouble == "code":
        company.code, what = "0.0.0+other", r"has other code .* \(0\.0\.0\+other\)"
    try:
        with pytest.raises(StoreError, match=f"process 2 of 2: .*{what}"):
            trained(config, store, company)
    finally:
        company.end()
    record = store.record(config.signature())
    assert record is None or record.status == "running"


@pytest.mark.slow
def test_more_processes_than_samples_are_refused(tmp_path: Path) -> None:
    config = instructions(tmp_path, batch_size=2, accumulate=2)
    record = together(config, store_in(tmp_path / "store"))
    assert (record.status, record.reports) == ("failed", [])
    assert record.reason == (
        "processes must be at most 1, the samples of a batch (batch_size over accumulate), got 2: "
        "each trains on rows of its own."
    )
