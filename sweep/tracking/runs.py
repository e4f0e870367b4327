"""MLflow runs of one experiment by signature: looked up, created once, remembered.

What a search costs grows with the number of runs, since MLflow has no index on the value of a tag;
what it is asked by run id does not. So all runs are listed once, a run that is not in the list is
created and then searched for (somebody else may have made one, too), and the rest goes by id. Of
several runs of one arm the oldest stays and the others are deleted.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from sys import intern
from typing import TYPE_CHECKING

from sweep.tracking.address import TrackingError
from sweep.tracking.client import CREATED, age, arm_signature, search_runs
from sweep.tracking.marks import ArmTags, Verdicts
from sweep.tracking.rows import OBJECTIVE_GAIN, Row, TrackedArm, final_rows, report_metrics
from sweep.tracking.tags_and_notes import LAYOUT, LAYOUT_VERSION, tags_of

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

CHECKED_S = 60.0  # a baseline that is linked again within them is not asked for again
RUNS_KEPT = 512  # runs whose tags and names stay in memory, about 7 KB each
# Tags of ours: step of the newest report there, how many final rows are, the baseline's run.
SYNCED_STEP, SYNCED_FINAL, BASELINE = "synced_step", "synced_final", "unconstrained_run_id"


@dataclass
class TrackedRun:
    """State of one run as known here. Names are interned: all runs have nearly the same."""

    run_id: str
    status: str
    start_ms: int
    end_ms: int | None
    tags: dict[str, str]
    params: set[str] = field(default_factory=set)
    metrics: set[str] = field(default_factory=set)
    has_data: bool = False  # whether its data set is named
    synced_step: int | None = None  # of the newest report that is there; None: not asked yet

    @classmethod
    def from_mlflow(cls, run: Run) -> TrackedRun:
        """State of a run as MLflow returns it."""
        return cls(
            run_id=run.info.run_id,
            status=run.info.status,
            start_ms=run.info.start_time,
            end_ms=run.info.end_time,
            tags={intern(key): value for key, value in run.data.tags.items()},
            params=set(map(intern, run.data.params)),
            metrics=set(map(intern, run.data.metrics)),
            has_data=run.inputs is not None and bool(run.inputs.dataset_inputs),
        )

    def note_sent(
        self, params: Iterable[str], tags: Mapping[str, str], metrics: Iterable[str]
    ) -> None:
        """Take note of what is there now, too: names of parameters, tags, names of metrics."""
        self.params.update(map(intern, params))
        self.tags.update((intern(key), value) for key, value in tags.items())
        self.metrics.update(map(intern, metrics))

    def final_rows(self) -> int:
        """Number of final rows that MLflow has completely."""
        return int(self.tags.get(SYNCED_FINAL, 0))

    @property
    def is_whole(self) -> bool:
        """A finished arm's run that lacks nothing, its pair's numbers and baseline included."""
        is_alone = "unconstrained_signature" not in self.tags
        is_joined = BASELINE in self.tags and OBJECTIVE_GAIN in self.metrics
        has_ended = self.status == "FINISHED" and SYNCED_FINAL in self.tags
        return self.is_of_this_version and has_ended and (is_alone or is_joined)

    @property
    def is_of_this_version(self) -> bool:
        """True if it has this version's layout; the sweep's own run always has."""
        return self.tags.get("kind") != "arm" or self.tags.get(LAYOUT) == LAYOUT_VERSION


class Runs:
    """The active runs of one sweep's experiment. Methods raise what mlflow raises."""

    def __init__(self, client: MlflowClient, experiment_id: str) -> None:
        self._client = client
        self.experiment_id = experiment_id
        self._ids: dict[str, str] | None = None  # every arm's, by signature; None: not listed yet
        self._complete: set[str] = set()  # signatures
        self._checked_s: dict[str, float] = {}  # by run id, when; monotonic clock
        self._doubtful: set[str] = set()  # signatures; see ``doubt``
        self._known = OrderedDict[str, TrackedRun]()  # by signature, the last used last
        self.created = 0

    def get(
        self, signature: str, name: str, tags: Mapping[str, str], started_ms: int
    ) -> TrackedRun:
        """The one run of an arm, or of the sweep (signature ''), created with tags if need be."""
        if (there := self._there(signature)) is not None:
            return there
        first = {**tags, CREATED: str(time.time_ns())}
        self._client.create_run(self.experiment_id, started_ms, first, run_name=name)
        self.created += 1
        # Not the run just made: a rival may have made one in this instant, and the oldest counts.
        there = self._search(signature)
        if there is None:
            raise TrackingError(f"MLflow does not show the run it just created for {name!r}.")
        return there

    def remembers(self, signature: str) -> bool:
        """True if an arm's run is in memory, where it may be out of date."""
        return signature in self._known

    def run_id(self, signature: str, *, check: bool) -> str | None:
        """Id of an arm's run; None when it is not tracked yet.

        MLflow is asked only to ``check``, of one arm once a minute: another writer may have deleted
        the run that is remembered, as the younger of two.
        """
        known = self._known.get(signature)
        run_id = self._listed().get(signature) if known is None else known.run_id
        last_s = self._checked_s.get(run_id or "", -inf)
        if not check or run_id is None or time.monotonic() <= last_s + CHECKED_S:
            return run_id
        current = self._by_id(signature, run_id)
        self._checked_s[run_id] = time.monotonic()
        if current is not None and current.run_id != run_id:
            self.rename_baseline(run_id, current.run_id)  # arms linked meanwhile name the old one
        return None if current is None else current.run_id

    def is_whole(self, signature: str) -> bool:
        """True if a finished arm's run is known to have all that will ever be sent."""
        self._listed()
        return signature in self._complete

    def note_whole(self, signature: str, known: TrackedRun) -> None:
        """Take note of what was sent."""
        (self._complete.add if known.is_whole else self._complete.discard)(signature)

    def replace(self, signature: str, known: TrackedRun) -> None:
        """Delete the run; the next ``get`` makes a new one."""
        self._client.delete_run(known.run_id)
        self.let_go(signature)

    def mark(self, verdicts: Verdicts) -> None:
        """Name, colour and tag every arm's run as its sweep now says, where it is otherwise."""
        from mlflow.entities import RunTag

        for run in list(search_runs(self._client, self.experiment_id, "tags.kind = 'arm'")):
            run_id, there = run.info.run_id, run.data.tags
            if not {"setting", "seed", "outcome"} <= there.keys():
                continue  # made by another writer just now
            arm = ArmTags.from_json(there)
            name, tags = verdicts.marks(arm)
            if run.info.run_name != name:
                self._client.update_run(run_id, name=name)
            new = {key: value for key, value in tags.items() if there.get(key) != value}
            if new:
                self._client.log_batch(run_id, tags=[RunTag(*tag) for tag in new.items()])
            if arm.signature in self._known:
                self._known[arm.signature].tags.update(new)

    def rename_baseline(self, old: str, new: str) -> None:
        """Have every run that names the run ``old`` as its baseline's name ``new``."""
        # Read whole before the first change: a run that is renamed leaves the search, and the pages
        # after it, which MLflow finds by counting, would begin too late.
        named = search_runs(self._client, self.experiment_id, f"tags.{BASELINE} = '{old}'")
        for run_id, signature in [(run.info.run_id, arm_signature(run)) for run in named]:
            self._client.set_tag(run_id, BASELINE, new)
            self._complete.discard(signature)  # its gains are over the old one
            if signature in self._known:
                self._known[signature].tags[BASELINE] = new

    def doubt(self, signature: str) -> None:
        """A request failed: a run may have been made all the same, or one be gone."""
        self.let_go(signature)
        self._doubtful.add(signature)

    def let_go(self, signature: str) -> None:
        """Forget a run."""
        self._known.pop(signature, None)
        self._complete.discard(signature)
        if self._ids is not None:
            self._ids.pop(signature, None)

    def _there(self, signature: str) -> TrackedRun | None:
        if signature in self._known:
            self._known.move_to_end(signature)
            return self._known[signature]
        if not signature or signature in self._doubtful:
            return self._search(signature)
        run_id = self._listed().get(signature)
        return None if run_id is None else self._by_id(signature, run_id)

    def _by_id(self, signature: str, run_id: str) -> TrackedRun | None:
        """The run with this id, or what stands in its place where another writer deleted it."""
        run = self._client.get_run(run_id)
        if run.info.lifecycle_stage != "active":
            return self._search(signature)
        if signature in self._known:
            return self._known[signature]
        return self._keep(signature, TrackedRun.from_mlflow(run))

    def _search(self, signature: str) -> TrackedRun | None:
        """The oldest active run of the arm; any younger one is a lost race and is deleted."""
        wanted = f"tags.signature = '{signature}'" if signature else "tags.kind = 'sweep'"
        oldest_first = sorted(search_runs(self._client, self.experiment_id, wanted), key=age)
        for run in oldest_first[1:]:
            self._client.delete_run(run.info.run_id)
        self.let_go(signature)
        self._doubtful.discard(signature)
        if not oldest_first:
            return None
        return self._keep(signature, TrackedRun.from_mlflow(oldest_first[0]))

    def _listed(self) -> dict[str, str]:
        """Run ids of all arms by signature, asked for once; lost races are deleted."""
        if self._ids is None:
            oldest: dict[str, tuple[int, str]] = {}
            every, complete = set[str](), set[str]()  # run ids
            for run in search_runs(self._client, self.experiment_id, "tags.kind = 'arm'"):
                signature, run_id = arm_signature(run), run.info.run_id
                oldest[signature] = min(age(run), oldest.get(signature, age(run)))
                every.add(run_id)
                if TrackedRun.from_mlflow(run).is_whole:
                    complete.add(run_id)
            self._ids = {signature: run_id for signature, (_, run_id) in oldest.items()}
            self._complete = {s for s, run_id in self._ids.items() if run_id in complete}
            for run_id in every - set(self._ids.values()):
                self._client.delete_run(run_id)
        return self._ids

    def _keep(self, signature: str, known: TrackedRun) -> TrackedRun:
        """Remember a run; of the least used ones only the ids stay."""
        if signature and self._ids is not None:
            self._ids[signature] = known.run_id
        self._known[signature] = known
        self._known.move_to_end(signature)
        while len(self._known) > RUNS_KEPT:
            self._known.popitem(last=False)
        return known


def is_of_earlier_attempt(arm: TrackedArm, known: TrackedRun) -> bool:
    """True if a record is of an earlier attempt than the run shows.

    Attempts are told apart by when they began, by the clocks of their machines, which may have been
    set back in between. Code or a sweep that the run does not name is of another attempt, whenever
    that began. Else only what failed or was broken off is trained again, so that what came to an
    end of its own is never of before that.
    """
    record = arm.record
    there, now = _trained_by(known.tags), _trained_by(tags_of(arm))
    if there and now and there != now:
        return False
    was_over = record.status in ("finished", "diverged")
    shows_less = known.tags.get("status", "running") in ("running", "failed", "stopped")
    return record.started_ms < known.start_ms and not (was_over and shows_less)


def _trained_by(tags: Mapping[str, str]) -> dict[str, str]:
    """Tags of a run on the code that trained its arm, and on the sweep it was for."""
    names = ("environment.training_code.", "environment.sweep")
    return {name: value for name, value in tags.items() if name.startswith(names)}


def missing_final_rows(arm: TrackedArm, known: TrackedRun) -> list[Row]:
    """The final rows that are not there; a name that reports use too is simply sent again."""
    final = final_rows(arm)
    if known.final_rows() >= len(final):
        return []
    reported = {name for report in arm.record.reports for name in report_metrics(report)}
    return [row for row in final if row.key in reported or row.key not in known.metrics]
