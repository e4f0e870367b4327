"""Drivers in processes of their own, for tests that stop or kill them; the sweep is called tiny."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from search_spaces.space import HOW_IT_RUNS, LogUniform, SearchSpace, Setting, Uniform
from sweep.executors.executor import Executor
from sweep.results.sweep_view import load_sweep
from sweep.run.run_sweep import run_sweep
from sweep.study.definition import Definition, put_definition
from sweep.study.proposals import StoredProposal
from tests.support.oracles import TINY
from tests.support.proposals import stored_proposals
from trainables.records.arm_record import ArmRecord
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore

ROOT = Path(__file__).parents[2]
CODE = """
import signal, sys
# tests may run in the background or under nohup, where these are ignored; drivers of tests do not
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)
from sweep.executors import fair_share
from sweep.run import signals
from sweep.study.definition import load_definition
from sweep.executors.executor import Executor
from sweep.run.run_sweep import run_sweep
from trainables import retries
from trainables.records.objects import ObjectStore
root, where, patience_s, workers, name, beat_s, grace_s, fuse, processes = sys.argv[1:]
fair_share.BEAT_EVERY_S = float(beat_s)
signals.GRACE_S = float(grace_s)
retries.STORE_PATIENCE_S = float(patience_s)
objects = ObjectStore(root)
executor = Executor(where, *(int(count) or None for count in (workers, fuse, processes)))
summary = run_sweep(objects, load_definition(objects, name), executor)
print(summary)
sys.exit(summary.exit_code)
"""


def tiny(
    sampler: Any = "random", n_proposals: int = 2, name: str = "tiny", **fields: Any
) -> Definition:
    """Two settings of a few steps on tiny frames; fields of a space or of its base run."""
    how = {field: fields.pop(field) for field in HOW_IT_RUNS if field in fields}
    space = SearchSpace(
        name="tiny",
        summary="",
        base=TINY.with_fields({"data.frame_size": 16, "eval_draws": 1, **fields}),
        settings=tuple(Setting(f"L{layers}", {"model.layers": layers}) for layers in (2, 3)),
        ranges={
            "constraint.alpha": Uniform(0.05, 0.3),
            "constraint.dual_lr": LogUniform(1e-3, 1e-1),
        },
        n_proposals=n_proposals,
        search_seeds=(0,),
        sampler=sampler,
        **how,
    )
    return Definition(name, space)


class Driver:
    """One run of a driver on the stored sweep."""

    def __init__(
        self,
        objects: ObjectStore,
        *,
        where: str = "local",
        patience_s: float = 60,
        workers: int | None = 2,
        name: str = "tiny",
        beat_s: float = 60,
        grace_s: float = 60,
        fuse: int | None = None,
        processes: int | None = None,
        terminal: int | None = None,
        environment: Mapping[str, str] | None = None,
        tracked: bool = False,
    ) -> None:
        """Run the executor alone, or with ``tracked`` what `sweep resume` runs.

        Args:
            objects: the storage root.
            where: as for ``run_sweep``.
            patience_s: how long writers wait for a store that cannot be written.
            workers: as for ``run_sweep``.
            name: of the sweep.
            beat_s: how often drivers on one cluster look for each other.
            grace_s: from SIGTERM to the end of arms that do not report.
            fuse: as for ``run_sweep``.
            processes: as for ``run_sweep``.
            terminal: what standard output and error go to, instead of pipes.
            environment: of the process; that of the tests if not given.
            tracked: with MLflow, through the command line; then only ``environment`` counts.
        """
        resume = ["sweep.cli", "resume", "tiny", "--storage", objects.root, "--workers", "2"]
        options = (where, patience_s, workers or 0, name, beat_s, grace_s)
        together = (fuse or 0, processes or 0)
        alone = ["-c", CODE, objects.root, *map(str, (*options, *together))]
        self.process = subprocess.Popen(
            [sys.executable, *(["-m", *resume] if tracked else alone)],
            cwd=ROOT,
            env=dict(environment or os.environ),
            stdout=subprocess.PIPE if terminal is None else terminal,
            stderr=subprocess.PIPE if terminal is None else terminal,
            text=True,
            start_new_session=True,  # and so a group of its own, which can be signalled
        )

    def wait(self, timeout_s: float = 150) -> tuple[int, str, str]:
        """Exit code, standard output, standard error."""
        out, err = self.process.communicate(timeout=timeout_s)
        return self.process.returncode, out, err

    def kill(self) -> None:
        """SIGKILL, if it still runs."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


def wait_until(condition: Callable[[], bool], timeout_s: float = 90) -> None:
    give_up = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < give_up, "waited too long"
        time.sleep(0.02)


def kept_seconds(file: Path) -> Iterator[dict[str, float]]:
    """Seconds, by what was waited for, for a fixture; written to the file at the end."""
    measured: dict[str, float] = {}
    yield measured
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps({name: round(s, 1) for name, s in measured.items()}, indent=2))


def records(objects: ObjectStore) -> dict[str, ArmRecord]:
    """Every stored record, by signature."""
    found = {name: ArmStore(objects).record(name) for name in objects.names("arms")}
    return {name: record for name, record in found.items() if record is not None}


def steps(objects: ObjectStore) -> dict[str, int]:
    """The last reported step of every arm that has reported."""
    return {n: r.reports[-1].step for n, r in records(objects).items() if r.reports}


def table(objects: ObjectStore, asked: Definition) -> Any:
    """Everything that a sweep is about: points, outcomes and evaluations; no times."""
    return _proposals(objects, asked), {
        name: record.evaluation for name, record in records(objects).items()
    }


def undisturbed(objects: ObjectStore, asked: Definition) -> Any:
    """The table of the same sweep alone in a store, trained in this process.

    What arms come to does not depend on the sweep, so those that ``objects`` has are not trained
    again.
    """
    content = json.dumps(asked.to_json(), sort_keys=True).encode()
    mine = put_definition(objects, replace(asked, name=hashlib.sha256(content).hexdigest()[:16]))
    assert run_sweep(objects, mine, Executor("inline"), display=False).is_done
    there, arms = records(objects), load_sweep(objects, mine.name).arms
    return _proposals(objects, mine), {name: there[name].evaluation for name in arms}


def _proposals(objects: ObjectStore, asked: Definition) -> Any:
    """By setting; but for when arms began and ended, and for which sweep."""

    def plain(proposal: StoredProposal) -> StoredProposal:
        if proposal.outcome is None:
            return proposal
        arms = tuple(replace(a, trained_for="", ended_ms=0) for a in proposal.outcome.arms)
        return replace(proposal, outcome=replace(proposal.outcome, arms=arms, beside=()))

    return {
        s.name: [plain(one) for one in stored_proposals(objects, asked.name, s.name)]
        for s in asked.space.settings
    }
