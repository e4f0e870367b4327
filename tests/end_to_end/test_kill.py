"""Kill -9 at seeded moments, some inside a write: running again loses and repeats nothing."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sweep.study.definition import Definition, put_definition
from sweep.study.proposals import StoredProposal
from tests.support.drivers import Driver, records, steps, table, tiny, undisturbed, wait_until
from tests.support.faults import Faults
from tests.support.proposals import stored_proposals
from trainables.records.arm_record import REPORTED_LOSS, ArmRecord
from trainables.records.objects import ObjectStore

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.usefixtures("ray_home"),
]

# Deaths inside a write: of workers, which Tune replaces, and of the driver. See faults.py.
WORKER_WRITES = [
    ("checkpoint", "half"),
    ("record", "before"),
    ("weights", "after"),
    ("final", "after"),
]
DRIVER_WRITES = [("proposal", "half"), ("outcome", "after")]
LONG = {"steps": 400, "report_every": 20}
AT_MOST_S = 300.0  # four workers are replaced, beside another test on the same two cores


class Sweep:
    """A stored sweep whose drivers are killed and started again; watches what must never happen."""

    def __init__(self, asked: Definition, folder: Path) -> None:
        self.objects = ObjectStore(folder / "store")
        self.asked = put_definition(self.objects, asked)
        self.faults = Faults(folder / "faults")
        self.driver: Driver | None = None
        self.kills = 0
        self._final: dict[str, ArmRecord] = {}
        self._proposals: dict[tuple[str, int], StoredProposal] = {}

    def start(self) -> Driver:
        self.driver = Driver(self.objects, environment=self.faults.environment(), tracked=True)
        return self.driver

    def look(self) -> None:
        """Final records and stored points stay what they were when they were first seen."""
        for name, record in records(self.objects).items():
            if name in self._final:
                assert record == self._final[name]
            elif record.is_final:
                self._final[name] = record
        for setting in self.asked.space.settings:
            for stored in stored_proposals(self.objects, self.asked.name, setting.name):
                before = self._proposals.setdefault((setting.name, stored.number), stored)
                assert stored.point == before.point
        assert len(self._proposals) == sum(
            len(stored_proposals(self.objects, self.asked.name, s.name))
            for s in self.asked.space.settings
        )

    def kill_driver(self) -> None:
        assert self.driver is not None
        assert self.driver.process.poll() is None, self.driver.wait()
        self.driver.kill()
        self.died()

    def kill_a_worker(self, rng: random.Random) -> None:
        wait_until(lambda: bool(self.faults.workers()), AT_MOST_S)
        os.kill(rng.choice(self.faults.workers()), signal.SIGKILL)
        self.died()

    def died(self) -> None:
        self.kills += 1
        self.look()

    def wait_for_reports(self, more: int) -> None:
        """Until this many more reports are stored, or the sweep is over."""
        before = reports(self.objects)
        wait_until(lambda: reports(self.objects) >= before + more or self.is_over, AT_MOST_S)

    def wait_for_the_orders(self) -> None:
        """Until every ordered death has happened; workers die, the driver goes on."""
        wait_until(lambda: not self.faults.pending() or self.is_over, AT_MOST_S)
        assert not self.faults.pending()

    @property
    def is_over(self) -> bool:
        return self.driver is not None and self.driver.process.poll() is not None

    def finish(self) -> None:
        """Start a last time, undisturbed."""
        code, out, err = self.start().wait(timeout_s=AT_MOST_S)
        assert code == 0, out + err
        self.look()


def reports(objects: ObjectStore) -> int:
    return sum(steps(objects).values()) // LONG["report_every"]


@pytest.fixture
def sweep_of(tmp_path: Path) -> Iterator[Callable[[Definition], Sweep]]:
    """Stores a sweep whose last driver is killed at the end of the test, if it still runs."""
    sweeps: list[Sweep] = []

    def store(asked: Definition) -> Sweep:
        sweeps.append(Sweep(asked, tmp_path))
        return sweeps[-1]

    yield store
    for sweep in sweeps:
        if sweep.driver is not None:
            sweep.driver.kill()


def disturb(sweep: Sweep, rng: random.Random) -> None:
    """Kill the driver inside each of its ordered writes, and once more at a drawn moment."""
    for kind, when in DRIVER_WRITES:
        sweep.faults.kill(kind, when, skip=rng.randrange(2))
        if sweep.driver is None or sweep.is_over:
            sweep.start()
        assert sweep.driver is not None
        sweep.driver.process.wait(timeout=AT_MOST_S)
        assert not sweep.faults.pending()
        assert sweep.driver.process.returncode == -signal.SIGKILL
        sweep.driver.kill()
        sweep.died()
    sweep.start()
    sweep.wait_for_reports(rng.randrange(1, 8))
    time.sleep(0.2 * rng.random())
    sweep.kill_driver()


def disturb_workers(sweep: Sweep, rng: random.Random) -> None:
    """Kill workers of one driver inside each of their ordered writes, and at four drawn moments."""
    for kind, when in WORKER_WRITES:
        sweep.faults.kill(kind, when, skip=rng.randrange(1, 3))
    sweep.start()
    sweep.wait_for_the_orders()
    for _ in WORKER_WRITES:
        sweep.died()
    for _ in range(4):
        sweep.wait_for_reports(rng.randrange(1, 6))
        time.sleep(0.2 * rng.random())
        sweep.kill_a_worker(rng)


def test_after_eleven_kills_a_random_sweep_equals_an_undisturbed_one(
    sweep_of: Callable[[Definition], Sweep], trained_inline: ObjectStore
) -> None:
    asked = tiny("random", n_proposals=9, **LONG)
    sweep = sweep_of(asked)
    rng = random.Random(1)
    disturb_workers(sweep, rng)
    disturb(sweep, rng)
    sweep.finish()

    assert sweep.kills == 11
    inside_a_write = sweep.faults.deaths()
    assert len(inside_a_write) == len(WORKER_WRITES) + len(DRIVER_WRITES)
    assert table(sweep.objects, asked) == undisturbed(trained_inline, asked)
    assert_reports_are_whole(sweep)
    assert_tracked_once(sweep)


@pytest.mark.always
def test_after_kills_a_tpe_sweep_has_every_proposal_once_and_unchanged(
    sweep_of: Callable[[Definition], Sweep],
) -> None:
    asked = tiny("tpe", n_proposals=5, **LONG)
    sweep = sweep_of(asked)
    disturb(sweep, random.Random(2))
    sweep.finish()

    assert sweep.kills == 3
    for setting in asked.space.settings:
        found = stored_proposals(sweep.objects, "tiny", setting.name)
        assert [stored.number for stored in found] == list(range(5))
        assert all(stored.outcome is not None for stored in found)
        assert len({repr(stored.point) for stored in found}) == 5
    assert len(records(sweep.objects)) == 2 * (1 + 5)
    assert_reports_are_whole(sweep)
    assert_tracked_once(sweep)


KEPT = {"attempts.json", "record.json", "scores.npz", "weights.pt"}  # of an arm that is final


def assert_reports_are_whole(sweep: Sweep) -> None:
    """Every arm is finished, with each of its reports once, in order, and no checkpoint left."""
    expected = list(range(LONG["report_every"], LONG["steps"] + 1, LONG["report_every"]))
    for name, record in records(sweep.objects).items():
        assert record.status == "finished", record.reason
        assert [report.step for report in record.reports] == expected
        times = [report.timestamp_ms for report in record.reports]
        assert times == sorted(times)
        left = set(os.listdir(Path(sweep.objects.root, "arms", name)))
        assert left <= KEPT  # nothing half-written either


def assert_tracked_once(sweep: Sweep) -> None:
    """MLflow has one run per arm and one of the sweep, every report in it, and no row twice."""
    database = sqlite3.connect(f"file:{sweep.objects.root}/mlflow.db?mode=ro", uri=True)
    tagged = database.execute(
        "select value, count(*) from tags join runs using (run_uuid)"
        " where key = 'signature' and lifecycle_stage = 'active' group by value"
    )
    assert dict(tagged) == dict.fromkeys(records(sweep.objects), 1)
    (active,) = database.execute("select count(*) from runs where lifecycle_stage = 'active'")
    assert active == (len(records(sweep.objects)) + 1,)
    twice = database.execute(
        "select key, step, count(*) from metrics group by run_uuid, key, step having count(*) > 1"
    )
    assert twice.fetchall() == []
    rows = database.execute(
        "select t.value, m.step, m.value from metrics m join tags t using (run_uuid)"
        " join runs using (run_uuid) where t.key = 'signature' and m.key = ?"
        " and lifecycle_stage = 'active' order by m.step",
        (REPORTED_LOSS,),
    )
    tracked: dict[str, list[tuple[int, float]]] = {}
    for signature, step, value in rows:
        tracked.setdefault(signature, []).append((step, value))
    assert tracked == {
        signature: [(report.step, report.scalars[REPORTED_LOSS]) for report in record.reports]
        for signature, record in records(sweep.objects).items()
    }
    database.close()
