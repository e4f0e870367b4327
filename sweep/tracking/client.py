"""MLflow client: construction, and look-ups.

An experiment belongs to one sweep of one store, by its tag ``sweep_id``: sweeps of equal names on a
shared server keep apart. The first is called like its sweep, a later one also after its id.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from sweep.study.advice import command
from sweep.tracking.address import ENVIRONMENT, TrackingError, shown, sqlite_path, trouble
from sweep.tracking.database import create_database, refuse_other_schema
from trainables.machine.atomic_files import remove_temporary_files

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Experiment, Run

RUNS_PER_PAGE = 200  # a run takes about 0.1 MB in memory
CREATED = "created_ns"  # a run's tag: the oldest of several runs of an arm is the one that counts
SWEEP_ID = "sweep_id"  # an experiment's tag
PROBE = "sweep_doctor"  # an experiment's tag, for an instant


def make_client(uri: str) -> MlflowClient:
    """A client for ``uri``; imports mlflow, and makes an SQLite database that is not there yet.

    Raises TrackingError when the address is none, its database's driver is not installed, or its
    database is of another version (see ``refuse_other_schema``).
    """
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    from mlflow import MlflowClient

    # It announces every new database on stderr, in the middle of the sweep's own output.
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.WARNING)
    path = sqlite_path(uri)
    if path is not None:
        if not path.exists():
            create_database(path)
        with suppress(OSError):  # of another user, say
            remove_temporary_files(path)
    try:
        # Before there is a client: MLflow migrates a database as soon as it opens it.
        refuse_other_schema(uri)
        return MlflowClient(tracking_uri=uri)
    except ImportError as error:
        raise TrackingError(
            f"MLflow's database at {shown(uri)} needs a driver that is not installed here "
            f"({error}): `pip install 'psycopg[binary]'` for PostgreSQL. Or give the address of an "
            "MLflow server, which has its own."
        ) from error
    except ValueError as error:
        raise trouble(uri, error) from error


def foreign_errors() -> tuple[type[Exception], ...]:
    """Errors that mlflow raises when its store is away or refuses. Imports mlflow."""
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    return (MlflowException, SQLAlchemyError, OSError)


def takes_writes(uri: str) -> bool:
    """Try to write a tag to a sweep's experiment, and delete it again; True if MLflow takes it.

    False: it answers, but holds no such experiment, or only those of other users.
    Raises TrackingError when it is away, or refuses: a disk that is full, say.
    """
    try:
        client = make_client(uri)
        ours = client.search_experiments(max_results=1, filter_string=f"tags.{SWEEP_ID} LIKE '%'")
        if not ours:
            return False
        client.set_experiment_tag(ours[0].experiment_id, PROBE, "was here")
        with suppress(*foreign_errors()):  # another doctor took it, or an old server cannot
            client.delete_experiment_tag(ours[0].experiment_id, PROBE)
    except foreign_errors() as error:
        if getattr(error, "error_code", "") == "PERMISSION_DENIED":
            return False
        raise trouble(uri, error) from error
    return True


def search_runs(client: MlflowClient, experiment_id: str, filter_string: str) -> Iterator[Run]:
    """Every active run of an experiment that the filter matches, page by page."""
    token = None
    while True:
        page = client.search_runs(
            [experiment_id], filter_string, max_results=RUNS_PER_PAGE, page_token=token
        )
        yield from page
        token = page.token
        if not token:
            return


def arm_signature(run: Run) -> str:
    """The signature of the arm that a run shows."""
    return str(run.data.tags["signature"])


def age(run: Run) -> tuple[int, str]:
    """Sort key: oldest first, for every reader alike. Start times are the arms', not the runs'."""
    return (int(run.data.tags.get(CREATED, 0)), run.info.run_id)


# --- experiments ----------------------------------------------------------------------------------


def find_experiment(client: MlflowClient, sweep: str, sweep_id: str) -> Experiment | None:
    """The experiment of the sweep with this id, under whichever of its names; None without one."""
    for name in _experiment_names(sweep, sweep_id):
        there = client.get_experiment_by_name(name)
        if there is not None and there.tags.get(SWEEP_ID, "") == sweep_id:
            return there
    return None


def _experiment_names(sweep: str, sweep_id: str) -> tuple[str, str]:
    """The sweep's name, and a longer one for where another sweep has that."""
    return sweep, f"{sweep} ({sweep_id[:8]})"


def create_experiment(
    client: MlflowClient, sweep: str, sweep_id: str, artifact_root: str | None
) -> Experiment:
    """Create the sweep's experiment; under a longer name where its own is taken."""
    from mlflow.exceptions import MlflowException

    tags = {"mlflow.experimentKind": "custom_model_development", SWEEP_ID: sweep_id}
    for name in _experiment_names(sweep, sweep_id):
        folder = name.replace(" ", "-")
        place = None if artifact_root is None else f"{artifact_root}/{folder}"
        try:
            client.create_experiment(name, artifact_location=place, tags=tags)
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":  # another writer was first
                raise
        there = find_experiment(client, sweep, sweep_id)
        if there is not None:
            return there
    raise TrackingError(f"MLflow does not show the experiment it just created for {sweep!r}.")


# --- run ids --------------------------------------------------------------------------------------


def run_ids(
    uri: str, sweep: str, sweep_id: str = "", *, storage: str | None = None
) -> dict[str, str]:
    """Run ids of a sweep's arms by signature. Raises TrackingError when MLflow cannot tell.

    ``storage`` is the root that a missing experiment is sent from.
    """
    path = sqlite_path(uri)
    if path is not None and not path.exists():
        raise TrackingError(f"nothing is tracked at {uri} yet.")
    experiment = experiment_of(uri, sweep, sweep_id)
    if experiment is None:
        send = command("sync", sweep, storage=storage)
        missing = f"MLflow at {shown(uri)} has no experiment of {sweep!r}: `{send}` sends it."
        raise TrackingError(missing)
    oldest: dict[str, tuple[int, str]] = {}
    try:
        for run in search_runs(make_client(uri), experiment.experiment_id, "tags.kind = 'arm'"):
            signature = arm_signature(run)
            oldest[signature] = min(age(run), oldest.get(signature, age(run)))
    except foreign_errors() as error:
        raise trouble(uri, error) from error
    return {signature: run_id for signature, (_, run_id) in oldest.items()}


def experiment_of(uri: str, sweep: str, sweep_id: str = "") -> Experiment | None:
    """The sweep's experiment; None when it has none."""
    try:
        return find_experiment(make_client(uri), sweep, sweep_id)
    except foreign_errors() as error:
        raise trouble(uri, error) from error
