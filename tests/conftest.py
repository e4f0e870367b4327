"""Shared fixtures, and the isolated environment that every test runs in."""

from __future__ import annotations

import gc
import importlib.util
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

# Nothing of ours is imported up here: what must hold before that is set by pytest_configure below.
if TYPE_CHECKING:
    from tests.support.servers.clouds import Cloud
    from tests.support.servers.postgres_servers import Postgres
    from trainables.records.objects import ObjectStore


def is_there(package: str) -> bool:
    """Whether it is installed; .ci/gpu runs tests where most packages are not."""
    return importlib.util.find_spec(package) is not None


if is_there("hypothesis"):
    from hypothesis import HealthCheck, settings

    # Two shared cores: no deadlines; the same examples every time, so that a red run can be
    # repeated.
    settings.register_profile(
        "repeatable", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile("repeatable")

NOT_FAST = ("slow", "cluster", "gpu", "network")
LONG_S = 5.0  # a fast test that takes longer has a reason

GOLDEN = Path(__file__).parent / "golden"

# AF_UNIX paths end at 107 characters and Ray appends up to about 70 to RAY_TMPDIR.
LONGEST_RAY_TMPDIR = 36

# A variable of the developer's shell that would send a test elsewhere.
UNSET = (
    "MLFLOW_TRACKING_URI",
    "RAY_ADDRESS",
    "RAY_AUTH_MODE",
    "RAY_AUTH_TOKEN",
    "RAY_NAMESPACE",
    "SWEEP_ADDRESS",
    "SWEEP_STORAGE",
)

_FOLDER = pytest.StashKey[Path]()
_PATCH = pytest.StashKey[pytest.MonkeyPatch]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="rewrite tests/golden/* and the README's file tree; review the diff like code",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Set what must hold before test modules are imported; undone by pytest_unconfigure."""
    folder = _short_temporary_folder()
    patch = pytest.MonkeyPatch()
    config.stash[_FOLDER], config.stash[_PATCH] = folder, patch
    for name in UNSET:
        patch.delenv(name, raising=False)
    # RAY_AUTH_TOKEN_PATH must name a file that exists: ray.init fails otherwise. Without it Ray
    # would create ~/.ray/auth_token.
    token = folder / "token"
    token.touch(mode=0o600)
    token.write_text(secrets.token_hex(32))
    patch.setenv("RAY_AUTH_TOKEN_PATH", str(token))
    patch.setenv("RAY_TMPDIR", str(folder))
    patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    patch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    patch.setenv("DO_NOT_TRACK", "true")
    patch.setenv("MPLBACKEND", "Agg")
    patch.setenv("MPLCONFIGDIR", str(folder / "matplotlib"))
    # One cache for the run: entries are named by their content, and decoding is slow.
    patch.setenv("SWEEP_CACHE", str(folder / "cache"))
    # Read by torch when it is first imported; thread counts change sums (one_torch_thread below).
    patch.setenv("OMP_NUM_THREADS", "1")
    for name in ("HOME", "XDG_CACHE_HOME"):  # while modules are collected; per test below
        patch.setenv(name, str(folder / "home"))
    (folder / "home").mkdir()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What test modules import stays: it is kept out of every collection of garbage after this."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


def pytest_unconfigure(config: pytest.Config) -> None:
    patch = config.stash.get(_PATCH, None)
    if patch is not None:
        patch.undo()
        shutil.rmtree(config.stash[_FOLDER], ignore_errors=True)


def _short_temporary_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="dsw-"))
    if len(str(folder)) <= LONGEST_RAY_TMPDIR:
        return folder
    folder.rmdir()
    return Path(tempfile.mkdtemp(prefix="dsw-", dir="/tmp"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if not any(item.get_closest_marker(name) for name in NOT_FAST):
            mark = item.get_closest_marker("long")
            why = mark.args[0] if mark else "no reason given: make it smaller, or mark it `long`"
            item.user_properties.append(("why long", why))  # goes along from another process


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name the fast tests that took long, each with its reason."""
    seconds: dict[tuple[str, str], float] = defaultdict(float)
    for report in (one for of_kind in terminalreporter.stats.values() for one in of_kind):
        if isinstance(report, pytest.TestReport):
            for why in (why for name, why in report.user_properties if name == "why long"):
                seconds[report.nodeid, str(why)] += report.duration
    for (test, why), took in sorted(seconds.items(), key=lambda item: -item[1]):
        if took > LONG_S:
            terminalreporter.write_line(f"over {LONG_S:.0f} s: {took:.1f} s {test}: {why}")


@pytest.fixture(autouse=True)
def own_folders(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Home, cache and storage of this test alone: nothing of the user's is read or written."""
    folder = tmp_path_factory.mktemp("own")
    for name in ("HOME", "XDG_CACHE_HOME", "SWEEP_STORAGE"):
        path = folder / name.lower()
        path.mkdir()
        monkeypatch.setenv(name, str(path))


@pytest.fixture(scope="session", autouse=True)
def photographs_without_pillow() -> None:
    """Drawn ones, so that what trains can be tested there."""
    if not is_there("PIL"):
        from benchmarks.imitated.drawn_clips import stand_in

        stand_in()


@pytest.fixture(autouse=True)
def one_torch_thread() -> None:
    """Back to one thread, whatever the last test set. Does not import torch."""
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


@pytest.fixture(scope="session")
def ray_home() -> Iterator[Path]:
    """The folder of every Ray cluster that tests start. Start it with ``address="local"``.

    A test ends what it started; a cluster that this process still holds at the end is ended here.
    """
    yield Path(os.environ["RAY_TMPDIR"])
    ray = sys.modules.get("ray")
    if ray is not None and ray.is_initialized():
        ray.shutdown()


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real data sets named by SWEEP_TEST_DATA; without it, the test is skipped."""
    name = os.environ.get("SWEEP_TEST_DATA")
    if not name:
        pytest.skip("SWEEP_TEST_DATA is not set: it names the folder of real data sets")
    folder = Path(name).absolute()
    if not folder.is_dir():
        pytest.fail(f"SWEEP_TEST_DATA must name a folder, got {name!r}.")
    return folder


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """``golden(name, text)``: the text equals tests/golden/<name>; --update-golden rewrites it."""

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        if not path.exists():
            pytest.fail(f"no tests/golden/{name}: write it with `pytest --update-golden`.")
        assert text == path.read_text(), f"differs from tests/golden/{name}"

    return compare


@pytest.fixture
def objects(tmp_path: Path) -> ObjectStore:
    """An empty store."""
    from trainables.records.objects import ObjectStore

    return ObjectStore(tmp_path)


@pytest.fixture(scope="session")
def trained_inline(tmp_path_factory: pytest.TempPathFactory) -> ObjectStore:
    """Where ``drivers.undisturbed`` trains: arms that several tests compare with, once."""
    from trainables.records.objects import ObjectStore

    return ObjectStore(tmp_path_factory.mktemp("inline"))


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The test decodes anew, into its own folder."""
    monkeypatch.setenv("SWEEP_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def cache_of_the_file(shared_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One cache for the tests of a file, which decode once and not into that of the run."""
    monkeypatch.setenv("SWEEP_CACHE", str(shared_cache))


# --- sweeps for the command line ------------------------------------------------------------------


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The storage root that every verb of a test uses; it does not exist yet."""
    monkeypatch.setenv("SWEEP_STORAGE", str(tmp_path / "root"))
    return tmp_path / "root"


@pytest.fixture
def stored(root: Path) -> ObjectStore:
    """The storage root with a sweep written by hand in it, called tiny; it is not finished."""
    from tests.support.sweeps import FEASIBLE, FIRST, INFEASIBLE, SECOND, store_sweep
    from trainables.records.objects import ObjectStore

    store = ObjectStore(root)
    store_sweep(store, {FIRST: [INFEASIBLE, FEASIBLE], SECOND: [INFEASIBLE]})
    return store


@pytest.fixture(scope="session")
def space_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A search space of the user's own, called mine: two arms in a second or two."""
    from tests.support.command_line import SPACE_FILE

    path = tmp_path_factory.mktemp("space") / "mine.py"
    path.write_text(SPACE_FILE)
    return str(path)


@pytest.fixture(scope="session")
def trained_once(tmp_path_factory: pytest.TempPathFactory, space_file: str) -> Path:
    """A storage root with the finished sweep of ``space_file``: to be copied, not to be changed."""
    from tests.support.command_line import sweep

    folder = tmp_path_factory.mktemp("trained") / "root"
    ran = sweep("run", space_file, "--where", "inline", "--storage", str(folder))
    assert "2 of 2 arms are final" in ran.stdout
    return folder


@pytest.fixture
def trained(root: Path, trained_once: Path) -> Path:
    """The storage root with the finished sweep of ``space_file`` in it: a copy of its own."""
    shutil.copytree(trained_once, root)
    return root


# --- object storage -------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def cloud_server() -> Iterator[Cloud]:
    """One cloud on loopback for the run; a test gets it empty, as ``cloud``."""
    from tests.support.servers.clouds import Cloud

    server = Cloud()
    yield server
    server.close()


@pytest.fixture
def cloud(cloud_server: Cloud, monkeypatch: pytest.MonkeyPatch) -> Cloud:
    """A cloud with one empty bucket, whose S3 this process and those that it starts talk to."""
    from tests.support.servers.clouds import BUCKET, REGION, enter

    enter(cloud_server, monkeypatch)
    cloud_server.client("s3").create_bucket(
        Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION}
    )
    cloud_server.requests.clear()
    return cloud_server


# --- databases for tracking -----------------------------------------------------------------------


@pytest.fixture(scope="session", autouse=True)
def tables_are_made_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """MLflow makes the tables of a new SQLite file for a second or two; later files are copies."""
    if not is_there("mlflow"):
        yield
        return
    from sweep.tracking import database

    make, first = database._make_tables, tmp_path_factory.mktemp("tables") / "mlflow.db"

    def copied(database: Path) -> None:
        if not first.exists():
            make(database)
            shutil.copyfile(database, first)
        shutil.copyfile(first, database)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "_make_tables", copied)
        yield


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL server with an MLflow database without an experiment of ours, called empty."""
    from tests.support.servers.postgres_servers import Postgres, why_not

    if reason := why_not():
        pytest.skip(reason)
    server = Postgres()
    try:
        made = (
            "import sys; from sweep.tracking.client import make_client; "
            "make_client(sys.argv[1]).search_experiments()"
        )
        # In a process of its own: a database that somebody is connected to cannot be copied.
        subprocess.run(
            [sys.executable, "-c", made, server.create("empty")],
            env=os.environ | {"PGPASSWORD": server.password},
            cwd=Path(__file__).parents[1],
            check=True,
        )
        yield server
    finally:
        server.stop()


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def new_database(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], str]:
    """Makes empty MLflow databases, all of one kind; returns their addresses."""
    from sweep.tracking.address import tracking_uri

    if request.param == "sqlite":
        return lambda: tracking_uri(tempfile.mkdtemp(dir=tmp_path))
    server: Postgres = request.getfixturevalue("postgres")
    monkeypatch.setenv("PGPASSWORD", server.password)
    return lambda: tracking_uri("", server.create(f"t{secrets.token_hex(8)}", "empty"))


@pytest.fixture
def uri(new_database: Callable[[], str]) -> str:
    """Where a test tracks: a database of its own."""
    return new_database()


@pytest.fixture
def other_uri(new_database: Callable[[], str]) -> str:
    """Another one of the same kind."""
    return new_database()


@pytest.fixture
def undisturbed(undisturbed_on_sqlite: dict[str, Any], uri: str) -> dict[str, Any]:
    """What twelve arms look like on a database that was never away: the same on every kind.

    But for artifacts, which have no place beside a database that is no file.
    """
    from tests.support.tracked_arms import without_artifacts

    is_file = uri.startswith("sqlite:")
    return undisturbed_on_sqlite if is_file else without_artifacts(undisturbed_on_sqlite)


@pytest.fixture(scope="session")
def undisturbed_on_sqlite(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What twelve arms look like on a database that was never away."""
    from sweep.tracking.address import tracking_uri
    from sweep.tracking.tracker import Tracker
    from tests.support.tracked_arms import content, history

    place = tracking_uri(str(tmp_path_factory.mktemp("undisturbed")))
    tracker = Tracker(place)
    for offered in history(12):
        for arm in offered:
            tracker.sync(arm)
    return content(place)
