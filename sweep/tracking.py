"""MLflow, fed from stored arm records: an experiment per sweep, a flat run per arm, exactly once.

MLflow is a projection. One process writes it (the driver), off the training path, and whatever is
missing there can be sent again from the records at any time, to the same server or to a new one.

Exactly once: MLflow gives run ids itself, so a run is found by its tags, created when it is not
there, and *found again*; the oldest stays and the others are deleted. An arm that is trained once
more (`--retry-failed`) gets a new run in place of its old one. Metric rows are unique on
(run, key, timestamp, step, value) and every timestamp comes from the record, so rows that are sent
again add nothing. What is there already is not sent again: a running arm's newest step is asked for
once, a final arm has the tags ``synced_step`` and ``synced_final``.

Importing this imports no mlflow: that costs two seconds, paid when a client is made.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from sweep.tracking_client import (
    CREATED,
    age,
    create_experiment,
    find_experiment,
    foreign_errors,
    make_client,
    search_runs,
    trouble,
)
from sweep.tracking_place import TrackingError, is_server, shown, sqlite_path
from sweep.tracking_rows import (
    RUN_STATUS,
    Row,
    TrackedArm,
    config_json,
    final_rows,
    last_step,
    params_of,
    report_rows,
    run_name,
    stale_tags,
    summary_tags,
    tags_of,
)

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

    from trainables.results import ArmRecord

Json = Any
logger = logging.getLogger(__name__)

METRICS_PER_BATCH = 800  # mlflow takes 1000 metrics, parameters and tags in a request
PARAMS_PER_BATCH = 90  # it takes 100, and as many tags
_SYNCED_STEP, _SYNCED_FINAL = "synced_step", "synced_final"
_TWIN = "unconstrained_run_id"
_ARTIFACT = "artifact_sha256"  # of the run's one artifact, once it is there
ARTIFACT_TRIES = 3  # failures in a row after which artifacts are left to `sweep sync`


class SyncCounts(NamedTuple):
    """What ``sync_all`` did."""

    arms: int
    created: int  # runs that were not there
    rows: int  # metric rows sent


@dataclass
class _Known:
    """What this process knows of one run."""

    run_id: str
    status: str
    start_ms: int
    end_ms: int | None
    tags: dict[str, str]
    params: set[str] = field(default_factory=set)
    metrics: set[str] = field(default_factory=set)
    synced_step: int | None = None  # of the newest report that is there; None: not asked yet

    @classmethod
    def of(cls, run: Run) -> _Known:
        return cls(
            run_id=run.info.run_id,
            status=run.info.status,
            start_ms=run.info.start_time,
            end_ms=run.info.end_time,
            tags=dict(run.data.tags),
            params=set(run.data.params),
            metrics=set(run.data.metrics),
        )

    def final_rows(self) -> int:
        """How many of the final rows are there whole."""
        return int(self.tags.get(_SYNCED_FINAL, 0))


class Tracker:
    """One sweep on one MLflow server or database.

    Methods raise TrackingError when it is away or refuses. Used by one thread at a time. Travels as
    its address: the client is made on first use.
    """

    def __init__(self, uri: str, artifact_root: str | None = None, *, sweep_id: str = "") -> None:
        """Name the place; nothing is imported, opened or created yet.

        Args:
            uri: what ``tracking_uri`` returns.
            artifact_root: folder or URI for artifacts, for databases: a server has its own. None:
                beside an SQLite file; for another database, artifacts are left out.
            sweep_id: tells the experiment of this sweep from that of another one of its name.
        """
        self.uri, self.sweep_id = uri, sweep_id
        path = sqlite_path(uri)
        beside = None if path is None else str(path.parent / "mlartifacts")
        self.artifact_root = None if is_server(uri) else (artifact_root or beside)
        self._forget()

    def __getstate__(self) -> dict[str, object]:
        """The address alone."""
        return {"uri": self.uri, "artifact_root": self.artifact_root, "sweep_id": self.sweep_id}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def _forget(self) -> None:
        """Start over with an empty memory."""
        self._made: MlflowClient | None = None
        self._experiments: dict[str, str] = {}
        self._runs: dict[tuple[str, str], _Known] = {}
        self._unlinked: dict[tuple[str, str], dict[str, _Known]] = {}  # runs by the twin they lack
        self._artifact_failures = 0  # in a row
        self.created = 0
        self.rows_sent = 0

    def sync(self, arm: TrackedArm) -> str:
        """Bring the arm's run up to its record, creating it if need be; return the run id.

        Sending the same or an older state again changes nothing.
        """
        return self._again((arm.sweep, arm.signature), lambda: self._sync(arm))

    def sync_sweep_summary(
        self,
        sweep: str,
        *,
        definition: Mapping[str, Json],
        outcomes: Mapping[str, Mapping[str, int]],
        started_ms: int,
        ended_ms: int | None = None,
    ) -> str:
        """Bring the sweep's one ``kind=sweep`` run up to date; return the run id.

        Args:
            sweep: the sweep's name.
            definition: kept as definition.json.
            outcomes: by setting, how many arms ended how.
            started_ms: when the sweep was first run.
            ended_ms: when it ended; None while it runs.
        """
        tags = summary_tags(sweep, outcomes)

        def send() -> str:
            known = self._run(sweep, "", f"sweep {sweep}", tags, started_ms)
            self._send(known, [], {}, tags)
            self._artifact(known, "definition.json", json.dumps(definition, indent=2) + "\n")
            self._end(known, "RUNNING" if ended_ms is None else "FINISHED", ended_ms)
            return known.run_id

        return self._again((sweep, ""), send)

    def _sync(self, arm: TrackedArm) -> str:
        record = arm.record
        tags = tags_of(arm)
        known = self._attempt(arm, tags)
        is_done = known.tags.get("status", "running") != "running"
        if record.started_ms < known.start_ms or (is_done and not record.is_final):
            return known.run_id  # an older state
        self._drop_tags(known, stale_tags(known.tags, tags))
        synced_step = self._synced_step(known, record)
        rows, params = report_rows(record, synced_step), params_of(record)
        final = _missing_final_rows(arm, known)
        if len(rows) + len(final) > METRICS_PER_BATCH:  # the final rows go in one request, whole
            self._send(known, rows, params, {})
            rows = []
        synced_step = max(synced_step, last_step(record))
        if record.is_final:  # not at every report: a tag costs the server a third of the request
            tags[_SYNCED_STEP] = str(synced_step)
            tags[_SYNCED_FINAL] = str(max(known.final_rows(), len(final_rows(arm))))
        if arm.unconstrained_signature:
            twin = self._twin(arm.sweep, arm.unconstrained_signature, search=record.is_final)
            if twin is None:
                wanted = (arm.sweep, arm.unconstrained_signature)
                self._unlinked.setdefault(wanted, {})[arm.signature] = known
            else:
                tags[_TWIN] = twin.run_id
        self._send(known, rows + final, params, tags)
        known.synced_step = synced_step
        for other in self._unlinked.pop((arm.sweep, arm.signature), {}).values():
            self._send(other, [], {}, {_TWIN: known.run_id})
        self._artifact(known, "config.json", config_json(record))
        self._end(known, RUN_STATUS[record.status], record.ended_ms if record.is_final else None)
        return known.run_id

    def _attempt(self, arm: TrackedArm, tags: Mapping[str, str]) -> _Known:
        """The arm's run; a new one when the arm was started again since: equal steps, new rows."""
        key = (arm.sweep, arm.signature)
        wanted = (*key, run_name(arm), tags, arm.record.started_ms)
        known = self._run(*wanted)
        if arm.record.started_ms <= known.start_ms:
            return known
        self._client().delete_run(known.run_id)
        del self._runs[key]
        again = self._run(*wanted)
        for other in list(self._runs.values()):
            if other.tags.get(_TWIN) == known.run_id:
                self._send(other, [], {}, {_TWIN: again.run_id})
        return again

    def _run(
        self, sweep: str, signature: str, name: str, tags: Mapping[str, str], started_ms: int
    ) -> _Known:
        """The one active run of an arm, or of the sweep (signature ''), created if need be."""
        there = self._runs.get((sweep, signature)) or self._find(sweep, signature)
        if there is None:
            first = {k: tags[k] for k in ("kind", "sweep", "signature") if k in tags}
            first[CREATED] = str(time.time_ns())
            self._client().create_run(
                self._experiment(sweep), start_time=started_ms, run_name=name, tags=first
            )
            self.created += 1
            there = self._find(sweep, signature)
            if there is None:
                raise TrackingError(
                    f"MLflow at {shown(self.uri)} does not show the run it just created for "
                    f"{name!r}."
                )
        self._runs[sweep, signature] = there
        return there

    def _find(self, sweep: str, signature: str) -> _Known | None:
        """The oldest active run with these tags; any younger one is a lost race and is deleted."""
        runs = search_runs(self._client(), self._experiment(sweep), _filter(sweep, signature))
        oldest_first = sorted(runs, key=age)
        for run in oldest_first[1:]:
            self._client().delete_run(run.info.run_id)
        return _Known.of(oldest_first[0]) if oldest_first else None

    def _synced_step(self, known: _Known, record: ArmRecord) -> int:
        """Step of the newest report that is there whole; -1 when none is.

        Asked once per run and process. Reports are sent in order, and their metrics by name, so the
        last name's newest step tells; also after a kill, and when the step was trained again since.
        """
        if known.synced_step is not None:
            return known.synced_step
        if _SYNCED_STEP in known.tags:
            return int(known.tags[_SYNCED_STEP])
        names = sorted(record.reports[-1].metrics()) if record.reports else []
        if not names or names[-1] not in known.metrics:
            return -1
        there = self._client().get_metric_history(known.run_id, names[-1])
        return max((metric.step for metric in there), default=-1)

    def _twin(self, sweep: str, signature: str, *, search: bool) -> _Known | None:
        """The run of an arm's twin, if it is tracked yet; asks MLflow only when ``search``.

        Asked even where it is remembered: another writer may have deleted that run as the younger
        of two.
        """
        twin = self._runs.get((sweep, signature))
        if not search:
            return twin
        found = self._find(sweep, signature)
        if found is not None and (twin is None or twin.run_id != found.run_id):
            self._runs[sweep, signature] = twin = found
        return twin if found is not None else None

    def _send(
        self, known: _Known, rows: Sequence[Row], params: Mapping[str, str], tags: Mapping[str, str]
    ) -> None:
        """Send what is not there yet, the tags last: a kill in between sends equal rows again."""
        from mlflow.entities import Metric, Param, RunTag

        new_params = [Param(k, v) for k, v in params.items() if k not in known.params]
        new_tags = [RunTag(k, v) for k, v in tags.items() if known.tags.get(k) != v]
        metrics = [Metric(row.key, row.value, row.timestamp_ms, row.step) for row in rows]
        client = self._client()
        while new_params or new_tags or metrics:
            batch, metrics = metrics[:METRICS_PER_BATCH], metrics[METRICS_PER_BATCH:]
            now, new_params = new_params[:PARAMS_PER_BATCH], new_params[PARAMS_PER_BATCH:]
            marks: list[RunTag] = []
            if not metrics and not new_params:
                marks, new_tags = new_tags[:PARAMS_PER_BATCH], new_tags[PARAMS_PER_BATCH:]
            client.log_batch(known.run_id, metrics=batch, params=now, tags=marks)
            self.rows_sent += len(batch)
        known.params |= set(params)
        known.tags |= tags
        known.metrics |= {row.key for row in rows}

    def _drop_tags(self, known: _Known, names: Iterable[str]) -> None:
        for name in names:
            self._client().delete_tag(known.run_id, name)
            del known.tags[name]

    def _artifact(self, known: _Known, name: str, text: str) -> None:
        """Put the run's small artifact, once. What an artifact store refuses is a warning."""
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        has_place = is_server(self.uri) or self.artifact_root is not None
        if known.tags.get(_ARTIFACT) == digest or not has_place:
            return
        if self._artifact_failures >= ARTIFACT_TRIES:
            return
        try:
            self._client().log_text(known.run_id, text, name)
        except Exception as error:  # whatever a storage client raises
            self._artifact_failures += 1
            if self._artifact_failures == ARTIFACT_TRIES:
                logger.warning(
                    "MLflow at %s keeps metrics but not artifacts (%s). Runs have no %s until that "
                    "is mended and `sweep sync` is run.", shown(self.uri), error, name
                )  # fmt: skip
            return
        self._artifact_failures = 0
        self._client().set_tag(known.run_id, _ARTIFACT, digest)
        known.tags[_ARTIFACT] = digest

    def _end(self, known: _Known, status: str, ended_ms: int | None) -> None:
        if (known.status, known.end_ms) == (status, ended_ms):
            return
        if ended_ms is not None:
            self._client().set_terminated(known.run_id, status=status, end_time=ended_ms)
        elif known.status != status:
            self._client().update_run(known.run_id, status=status)
        known.status, known.end_ms = status, ended_ms

    def _again(self, key: tuple[str, str], send: Callable[[], str]) -> str:
        """Run ``send``; again if what was known of the run misled it (deleted in the UI, say)."""
        for was_known in (True, False) if key in self._runs else (False,):
            try:
                return send()
            except foreign_errors() as error:
                self._runs.pop(key, None)
                if not was_known:
                    raise trouble(self.uri, error) from error
        raise AssertionError("unreachable")

    def _client(self) -> MlflowClient:
        if self._made is None:
            self._made = make_client(self.uri)
        return self._made

    def _experiment(self, sweep: str) -> str:
        """Id of the sweep's experiment, created if need be."""
        if sweep not in self._experiments:
            key = (sweep, self.sweep_id)
            there = find_experiment(self._client(), *key)
            if there is None:
                there = create_experiment(self._client(), *key, self.artifact_root)
            if there.lifecycle_stage != "active":
                raise TrackingError(
                    f"MLflow at {shown(self.uri)} has experiment {there.name!r} in its trash. "
                    f"Restore it with `mlflow experiments restore -x {there.experiment_id}`, or "
                    "remove it with `mlflow gc`."
                )
            self._experiments[sweep] = there.experiment_id
        return self._experiments[sweep]


def sync_all(
    tracker: Tracker, arms: Iterable[TrackedArm], *, say: Callable[[str], None] = print
) -> SyncCounts:
    """Complete MLflow from the records; a new, empty server ends up as if it had always been there.

    Unconstrained arms go first, so that the others can name their twin's run.
    """
    ordered = sorted(arms, key=lambda arm: arm.record.config.arm != "unconstrained")
    created, rows = tracker.created, tracker.rows_sent
    for done, arm in enumerate(ordered, start=1):
        tracker.sync(arm)
        if done % 50 == 0:
            say(f"{done} of {len(ordered)} arms")
    counts = SyncCounts(len(ordered), tracker.created - created, tracker.rows_sent - rows)
    say(
        f"{counts.arms} arms at {shown(tracker.uri)}: {counts.created} runs created, "
        f"{counts.rows} rows sent"
    )
    return counts


def _missing_final_rows(arm: TrackedArm, known: _Known) -> list[Row]:
    """The final rows that are not there; a name that reports use too is simply sent again."""
    final = final_rows(arm)
    if known.final_rows() >= len(final):
        return []
    reported = {name for report in arm.record.reports for name in report.metrics()}
    return [row for row in final if row.key in reported or row.key not in known.metrics]


def _filter(sweep: str, signature: str) -> str:
    if not signature:
        return f"tags.kind = 'sweep' and tags.sweep = '{sweep}'"
    return f"tags.kind = 'arm' and tags.sweep = '{sweep}' and tags.signature = '{signature}'"
