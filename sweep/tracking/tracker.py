"""MLflow tracker: an experiment a sweep, a flat run an arm, exactly once.

It is fed from stored arm records alone. MLflow is a projection. One process writes it (process.py),
off the training path, and whatever is missing there can be sent again from the records at any time,
to the same server or to a new one.

Exactly once: MLflow gives run ids itself, so ``runs.py`` keeps one run per arm. An arm
that is trained once more (`--retry-failed`) gets a new run in place of its old one. Metric rows are
unique on (run, key, timestamp, step, value) and every timestamp comes from the record, so rows that
are sent again add nothing. What is there already is not sent again: a running arm's newest step is
asked for once, a final arm has the tags ``synced_step`` and ``synced_final``.

Importing this imports no mlflow: that costs two seconds, paid when a client is made.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from sweep.study.advice import counted
from sweep.tracking.address import TrackingError, is_server, shown, sqlite_path, trouble
from sweep.tracking.client import create_experiment, find_experiment, foreign_errors, make_client
from sweep.tracking.marks import run_name
from sweep.tracking.rows import (
    Row,
    TrackedArm,
    config_json,
    cut,
    final_rows,
    last_step,
    params_of,
    report_metrics,
    report_rows,
    trajectories_csv,
)
from sweep.tracking.runs import (
    BASELINE,
    SYNCED_FINAL,
    SYNCED_STEP,
    Runs,
    TrackedRun,
    is_of_earlier_attempt,
    missing_final_rows,
)
from sweep.tracking.tags_and_notes import (
    NOTE,
    RUN_STATUS,
    first_tags,
    stale_tags,
    summary_tags,
    sweep_note,
    tags_of,
)
from sweep.tracking.views import searched_fields, views
from trainables.plain import Json
from trainables.retries import ARTIFACT_TRIES

if TYPE_CHECKING:
    from mlflow import MlflowClient

    from sweep.tracking.marks import SweepPages
    from trainables.records.arm_record import ArmRecord, Outcome

log = logging.getLogger(__name__)

METRICS_PER_BATCH = 800  # mlflow takes 1000 metrics, parameters and tags in a request
PARAMS_PER_BATCH = 90  # it takes 100, and as many tags
_ARTIFACT = "sha256."  # and an artifact's name: the tag it has once it is there
LONGEST_NOTE = 20_000  # characters that an experiment's tag may have


class Tracker:
    """One sweep on one MLflow server or database.

    Methods raise TrackingError when it is away or refuses. Used by one thread at a time. Travels as
    its address: the client is made on first use.
    """

    def __init__(self, uri: str, artifact_root: str | None = None, *, sweep_id: str = "") -> None:
        """Name the place; nothing is imported, opened or created yet.

        Artifacts of a database lie in ``artifact_root``, or beside an SQLite file; a server has a
        place of its own. ``sweep_id`` tells this sweep's experiment from others of its name.
        """
        self.uri, self.sweep_id = uri, sweep_id
        path = sqlite_path(uri)
        beside = None if path is None else str(path.parent / "mlartifacts")
        self.artifact_root = None if is_server(uri) else (artifact_root or beside)
        self._made: MlflowClient | None = None
        self._runs_of: dict[str, Runs] = {}  # by sweep
        # Arms' runs by signature, by the baseline that they lack.
        self._unlinked: dict[tuple[str, str], dict[str, TrackedRun]] = {}
        self._artifact_failures = 0  # in a row
        self.rows_sent = 0

    @property
    def created(self) -> int:
        """Number of runs that this tracker made."""
        return sum(runs.created for runs in self._runs_of.values())

    def sync(self, arm: TrackedArm) -> str:
        """Bring the arm's run up to its record, creating it if need be; return the run id.

        Sending the same or an older state again changes nothing.
        """
        return self._again(arm.sweep, arm.signature, lambda: self._sync(arm))

    def is_whole(self, sweep: str, signature: str) -> bool:
        """True if a finished arm's run is known to have all that will ever be sent."""
        try:
            return self._runs(sweep).is_whole(signature)
        except foreign_errors() as error:
            raise trouble(self.uri, error) from error

    def sync_sweep_summary(
        self,
        sweep: str,
        *,
        definition: Mapping[str, Json],
        outcomes: Mapping[str, Mapping[Outcome, int]],
        started_ms: int,
        ended_ms: int | None = None,
    ) -> str:
        """Bring the sweep's one ``kind=sweep`` run up to date; return the run id."""
        tags = summary_tags(sweep, outcomes)

        def send() -> str:
            first = {"kind": "sweep", "sweep": sweep}
            known = self._runs(sweep).get("", f"sweep {sweep}", first, started_ms)
            text = json.dumps(definition, indent=2) + "\n"
            self._send(known, [], {}, tags | self._artifact(known, "definition.json", text))
            self._end(known, "RUNNING" if ended_ms is None else "FINISHED", ended_ms)
            return known.run_id

        return self._again(sweep, "", send)

    def sync_sweep(self, pages: SweepPages) -> None:
        """Write the sweep's summary run, marks of runs, saved views and note.

        What MLflow has already is not sent again.
        """
        definition = pages.definition
        self.sync_sweep_summary(
            definition.name,
            definition={n: v for n, v in definition.to_json().items() if n != "mlflow_uri"},
            outcomes={name: chosen.outcomes for name, chosen in pages.settings.items()},
            started_ms=pages.started_ms,
            ended_ms=pages.ended_ms,
        )
        try:
            runs = self._runs(definition.name)
            runs.mark(pages.verdicts)
            number, saved = runs.experiment_id, views(searched_fields(definition.space))
            links = {view.name: view.address(number) for view in saved}
            note = sweep_note(pages, links)
            tags = {view.tag: view.text(pages.started_ms) for view in saved}
            tags[NOTE] = cut(note, LONGEST_NOTE)
            there = self._client().get_experiment(number).tags
            for name, text in tags.items():
                if there.get(name) != text:
                    self._client().set_experiment_tag(number, name, text)
        except foreign_errors() as error:
            raise trouble(self.uri, error) from error

    def _sync(self, arm: TrackedArm) -> str:
        record = arm.record
        tags = tags_of(arm)
        known = self._attempt(arm)
        is_done = known.tags.get("status", "running") != "running"
        if is_of_earlier_attempt(arm, known) or (is_done and not record.is_final):
            return known.run_id  # an older state
        for name in stale_tags(known.tags, tags):
            self._client().delete_tag(known.run_id, name)
            del known.tags[name]
        synced_step = self._synced_step(known, record)
        rows, params = report_rows(record, synced_step), params_of(record)
        final = missing_final_rows(arm, known)
        if len(rows) + len(final) > METRICS_PER_BATCH:  # the final rows go in one request, whole
            self._send(known, rows, params, {})
            rows = []
        synced_step = max(synced_step, last_step(record))
        if record.is_final:  # not at every report: a tag costs the server a third of the request
            tags[SYNCED_STEP] = str(synced_step)
            tags[SYNCED_FINAL] = str(max(known.final_rows(), len(final_rows(arm))))
        if arm.unconstrained_signature:
            runs = self._runs(arm.sweep)
            baseline = runs.run_id(arm.unconstrained_signature, check=record.is_final)
            if baseline is None:
                wanted = (arm.sweep, arm.unconstrained_signature)
                self._unlinked.setdefault(wanted, {})[arm.signature] = known
            else:
                tags[BASELINE] = baseline
        # Files first: that they are there is told in the same request as the rest.
        tags |= self._artifact(known, "config.json", config_json(record))
        if record.is_final:
            tags |= self._artifact(known, "trajectories.csv", trajectories_csv(record))
        self._send(known, rows + final, params, tags)
        known.synced_step = synced_step
        for other in self._unlinked.pop((arm.sweep, arm.signature), {}).values():
            self._send(other, [], {}, {BASELINE: known.run_id})
        self._name_data(known, record)
        self._end(known, RUN_STATUS[record.status], record.ended_ms if record.is_final else None)
        self._runs(arm.sweep).note_whole(arm.signature, known)
        return known.run_id

    def _attempt(self, arm: TrackedArm) -> TrackedRun:
        """The arm's run; a new one when the arm was started again since: equal steps, new rows.

        Also in the place of one that an earlier version sent, with other metrics.
        """
        runs = self._runs(arm.sweep)
        name = run_name(arm.label, arm.setting, arm.proposal, arm.record.config.seed)
        wanted = (arm.signature, name, first_tags(arm), arm.record.started_ms)
        known = runs.get(*wanted)
        began_anew = arm.record.started_ms != known.start_ms
        if known.is_of_this_version and not (began_anew and not is_of_earlier_attempt(arm, known)):
            return known
        runs.replace(arm.signature, known)
        again = runs.get(*wanted)
        runs.rename_baseline(known.run_id, again.run_id)
        return again

    def _synced_step(self, known: TrackedRun, record: ArmRecord) -> int:
        """Step of the newest report that is there whole; -1 when none is.

        Asked once per run and process. Reports are sent in order, and their metrics by name, so the
        last name's newest step tells; also after a kill, and when the step was trained again since.
        """
        if known.synced_step is not None:
            return known.synced_step
        if SYNCED_STEP in known.tags:
            return int(known.tags[SYNCED_STEP])
        names = sorted(report_metrics(record.reports[-1])) if record.reports else []
        if not names or names[-1] not in known.metrics:
            return -1
        there = self._client().get_metric_history(known.run_id, names[-1])
        return max((metric.step for metric in there), default=-1)

    def _send(
        self,
        known: TrackedRun,
        rows: Sequence[Row],
        params: Mapping[str, str],
        tags: Mapping[str, str],
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
        # Only now: what a request that failed should have sent must count as missing.
        known.note_sent(params, tags, (row.key for row in rows))

    def _name_data(self, known: TrackedRun, record: ArmRecord) -> None:
        if known.has_data:
            return
        from mlflow.entities import Dataset, DatasetInput, InputTag

        data = record.config.data
        what = {name: value for name, value in data.to_json().items() if name != "folder"}
        dataset = Dataset(
            name=data.name,
            digest=data.fingerprint or "unknown",
            source_type="descent-sweep",
            source=json.dumps({"name": data.name}),
            profile=json.dumps(what),
        )
        context = InputTag("mlflow.data.context", "training")
        self._client().log_inputs(known.run_id, datasets=[DatasetInput(dataset, [context])])
        known.has_data = True

    def _artifact(self, known: TrackedRun, name: str, text: str) -> dict[str, str]:
        """Put one of the run's small artifacts, once; the tag that says it is there, to be sent.

        What a store refuses is a warning, and no tag.
        """
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        has_place = is_server(self.uri) or self.artifact_root is not None
        tag = _ARTIFACT + name
        if known.tags.get(tag) == digest or not has_place:
            return {}
        if self._artifact_failures >= ARTIFACT_TRIES:
            return {}
        try:
            self._client().log_text(known.run_id, text, name)
        except Exception as error:  # whatever a storage client raises
            self._artifact_failures += 1
            if self._artifact_failures == ARTIFACT_TRIES:
                log.warning(
                    "MLflow at %s keeps metrics but not artifacts (%s). Runs have no %s until that "
                    "is mended and `sweep sync` is run.", shown(self.uri), error, name
                )  # fmt: skip
            return {}
        self._artifact_failures = 0
        return {tag: digest}

    def _end(self, known: TrackedRun, status: str, ended_ms: int | None) -> None:
        if (known.status, known.end_ms) == (status, ended_ms):
            return
        if ended_ms is not None:
            self._client().set_terminated(known.run_id, status=status, end_time=ended_ms)
        elif known.status != status:
            self._client().update_run(known.run_id, status=status)
        known.status, known.end_ms = status, ended_ms

    def _again(self, sweep: str, signature: str, send: Callable[[], str]) -> str:
        """Run ``send``; again if what was known of the run misled it (deleted in the UI, say)."""
        try:
            runs = self._runs(sweep)
            for was_known in (True, False) if runs.remembers(signature) else (False,):
                try:
                    return send()
                except foreign_errors():
                    runs.doubt(signature)
                    if not was_known:
                        raise
        except foreign_errors() as error:
            raise trouble(self.uri, error) from error
        raise AssertionError("unreachable")

    def _client(self) -> MlflowClient:
        if self._made is None:
            self._made = make_client(self.uri)
        return self._made

    def _runs(self, sweep: str) -> Runs:
        if sweep not in self._runs_of:
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
            self._runs_of[sweep] = Runs(self._client(), there.experiment_id)
        return self._runs_of[sweep]


def sync_all(
    tracker: Tracker, arms: Iterable[TrackedArm], *, say: Callable[[str], None] = print
) -> None:
    """Complete MLflow from the records; a new, empty server ends up as if it had always been there.

    Fastest with unconstrained arms first: the others then name their baseline's run at once.
    """
    done, created, rows = 0, tracker.created, tracker.rows_sent
    for done, arm in enumerate(arms, start=1):
        tracker.sync(arm)
        if done % 50 == 0:
            say(f"{done} arms")
    say(
        f"{counted(done, 'arm')} at {shown(tracker.uri)}: "
        f"{counted(tracker.created - created, 'run')} created, "
        f"{counted(tracker.rows_sent - rows, 'row')} sent"
    )
