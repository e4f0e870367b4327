"""Ray session of a driver: a cluster of this machine alone, or one it belongs to.

What Ray and Tune read from the environment is set here, before either is asked for anything.
"""

from __future__ import annotations

import logging
import os
import secrets
import signal
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partialmethod
from pathlib import Path

import psutil
import ray

from trainables.errors import Failure
from trainables.machine import scratch

OBJECT_STORE_BYTES = 128 * 2**20  # nothing travels through it; Ray's default takes 30 % of memory
CONNECT_S = 10.0
LONGEST = 24  # characters of the folder that a temporary folder is in
# Those of the user, if set, are kept.
ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_prestart_worker_first_driver": "0",  # workers start with their actors: saves 2.5 s
    "PL_DISABLE_FORK": "1",  # as Tune sets it, for models on Lightning
    "RAY_CHDIR_TO_TRIAL_DIR": "0",  # a relative data folder means the same in every process
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # no CSV, JSON and TensorBoard files per trial
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # Ctrl-C is ours: arms end at their next report
    "TUNE_GLOBAL_CHECKPOINT_S": "1e9",  # Tune's state is never read
    "TUNE_MAX_PENDING_TRIALS_PG": "100000",  # the searcher hands out no more than there is room for
    "TUNE_WARN_THRESHOLD_S": "30",
    # Else Tune's warning that no machine comes ends a sweep that has had none for half an hour: it
    # names the first trial, and there is none yet. Sweeps wait, and tell it themselves.
    "TUNE_WARN_INSUFFICENT_RESOURCE_THRESHOLD_S": "1e9",
    "TUNE_WARN_INSUFFICENT_RESOURCE_THRESHOLD_S_AUTOSCALER": "1e9",
    "RAY_AIR_NEW_OUTPUT": "0",  # no second display beside ours
}

# Of a Ray that nobody else uses. Port 52365 is left to those of `ray start`: the head of a cluster
# needs it to take jobs, and does without where another Ray is there first. One machine has nothing
# to scale, and its logs are read by nobody: either monitor takes 0.8 s of a core to start.
ALONE = {"dashboard_agent_listen_port": 0, "no_monitor": True, "include_log_monitor": False}


@contextmanager
def local_ray(*, cpus: int, gpus: int | None) -> Iterator[Path]:
    """A Ray cluster of this machine with a token of its own; yields its temporary folder.

    Ray listens on every interface whatever address it is given: the token is what protects it.
    """
    _own_token()
    with _scratch_folder() as folder, _environment(), _inherited_environment():
        try:
            with _signals_kept(), ray_parameters(**ALONE), _without_dashboard():
                ray.init(
                    address="local",
                    num_cpus=cpus,
                    num_gpus=gpus,
                    include_dashboard=False,
                    log_to_driver=False,
                    logging_level=logging.ERROR,
                    object_store_memory=OBJECT_STORE_BYTES,
                    _temp_dir=str(_below(folder)),
                    _system_config={"enable_metrics_collection": False},  # served without a token
                )
        except Exception as error:
            ray.shutdown()
            raise Failure(
                f"Ray could not be started on this machine: {error} See `sweep doctor`, or train "
                "without Ray with --where inline."
            ) from error
        try:
            yield folder
        finally:
            _shut_down()


def _below(folder: Path) -> Path:
    """Folder for Ray, which opens it, and all in it, to every user of the machine."""
    link = folder / scratch.LINK
    below = link / "r" if link.is_symlink() else link
    below.mkdir()
    return below


def _shut_down() -> None:
    """Shut Ray down and kill its processes at once: they block SIGTERM, see below.

    Ray would ask each of them to end, and wait a second for nothing before it kills it. What
    the raylet started would notice its end in time, some of it only after a minute.
    """
    from ray._private import worker

    # Private to Ray, which is pinned: the node that this process started, and how it kills it.
    node, started = worker._global_node, list[psutil.Process]()
    if node is not None:
        kill = node.kill_all_processes
        # Before the shutdown: once the raylet is gone, nobody knows that they were its children.
        for raylet in node.all_processes.get("raylet", []):
            if raylet.process.poll() is None:
                with suppress(psutil.Error):
                    started += psutil.Process(raylet.process.pid).children(recursive=True)

        def at_once(*, allow_graceful: bool, **others: bool) -> None:
            kill(**others)

        node.kill_all_processes = at_once
    ray.shutdown()
    for process in started:
        with suppress(psutil.Error):
            process.kill()


@contextmanager
def ray_parameters(**parameters: object) -> Iterator[None]:
    """Have ``ray.init`` in the block take these parameters of Ray's, for which it has no argument.

    Ray is pinned, and a test looks whether they are there.
    """
    from ray._private.parameter import RayParams

    with _replaced(RayParams, __init__=partialmethod(RayParams.__init__, **parameters)):
        yield


@contextmanager
def _without_dashboard() -> Iterator[None]:
    """Have ``ray.init`` in the block start no dashboard.

    Without one it starts the same process all the same, for usage statistics that are switched off,
    and waits a second for it.
    """
    from ray._private.node import Node

    def start_none(node: Node, **_: object) -> None:
        node._webui_url = ""

    with _replaced(Node, start_api_server=start_none):
        yield


@contextmanager
def _inherited_environment() -> Iterator[None]:
    """Have Tune's workers take their environment from Ray's processes, which have this one's.

    Tune would name some variables for each of them; Ray then starts a worker twice, once to set
    them and once to work, which takes half a second.
    """
    from ray.tune.execution import class_cache

    with _replaced(class_cache, DEFAULT_ENV_VARS={}, ENV_VARS_TO_PROPAGATE=set()):
        yield


@contextmanager
def _replaced(owner: object, **attributes: object) -> Iterator[None]:
    """Have other attributes of a class or a module of Ray while the block runs."""
    real = {name: getattr(owner, name) for name in attributes}
    for name, value in attributes.items():
        setattr(owner, name, value)
    try:
        yield
    finally:
        for name, value in real.items():
            setattr(owner, name, value)


@contextmanager
def attached_ray() -> Iterator[Path]:
    """The Ray cluster that this machine belongs to; yields a temporary folder of this driver.

    Its address is RAY_ADDRESS, which jobs are given, or that of the only cluster on this machine;
    its token that of RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH or ~/.ray/auth_token. The cluster stays.
    """
    _refuse_silent_address()
    _use_token_if_there_is_one()
    with _scratch_folder() as folder, _environment():
        try:
            with _signals_kept():
                ray.init(address="auto", log_to_driver=False, logging_level=logging.ERROR)
        except Exception as error:
            ray.shutdown()
            raise Failure(_no_cluster(f"{str(error).strip().rstrip('.')}.")) from error
        try:
            yield folder
        finally:
            ray.shutdown()


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Keep our SIGTERM handler, and both signals from every process that Ray starts in the block.

    `timeout`, Slurm, systemd and a closed terminal signal the whole group. Ray's processes would
    die of it before the arms have checkpointed, and the driver wait a minute for them. They inherit
    the blocked signals, as Ray itself has them inherit a blocked SIGINT; Ray's end kills them.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGTERM)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGHUP})
    try:
        yield
    finally:
        # Before they are unblocked: one that came meanwhile is for our handler, not for Ray's.
        signal.signal(signal.SIGTERM, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _scratch_folder() -> Iterator[Path]:
    """A folder that goes with this process, or, when it is killed, with a later one."""
    place, wanted = _short_folder(), _wanted_folder()
    with ExitStack() as stack:
        try:
            folder = stack.enter_context(scratch.held_folder(place))
        except OSError as error:
            raise _no_folder(place, error) from error
        if wanted != place:
            try:
                there = tempfile.mkdtemp(prefix=scratch.PREFIX, dir=wanted)
            except OSError as error:
                raise _no_folder(wanted, error) from error
            (folder / scratch.LINK).symlink_to(there)
        yield folder


def _no_folder(place: str, error: OSError) -> Failure:
    wanted, why = _wanted_folder(), ""
    if place != wanted:
        why = (
            f" It is for a link to {wanted}: of its {len(wanted)} characters {LONGEST} at most "
            "leave room for the names of Ray's sockets."
        )
    return Failure(
        f"no folder for Ray's sockets and logs can be made in {place}: {error}.{why} Give another "
        f"with RAY_TMPDIR, of at most {LONGEST} characters."
    )


def _short_folder() -> str:
    """Folder of Ray's sockets: paths may have 107 characters, of which Ray takes about 70."""
    return wanted if len(wanted := _wanted_folder()) <= LONGEST else "/tmp"


def _wanted_folder() -> str:
    """Folder of Ray's files; over a link where the name is too long for its sockets."""
    return os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()


def _refuse_silent_address() -> None:
    """Failure where RAY_ADDRESS names a place that takes no connection: Ray tries for minutes."""
    host, _, port = os.environ.get("RAY_ADDRESS", "").rpartition(":")
    if not host or "/" in host or not port.isdecimal():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_S).close()
    except OSError as error:
        raise Failure(
            _no_cluster(f"RAY_ADDRESS is {host}:{port}, and there is {error}.")
        ) from error


def _no_cluster(why: str) -> str:
    return (
        f"no Ray cluster answers here: {why} Train on the head of a cluster (`sweep submit` does), "
        "or name it with RAY_ADDRESS; ~/.ray/auth_token must be the cluster's. See `sweep doctor`."
    )


def _own_token() -> None:
    """Give this process's clusters a secret of their own; Ray would write one to ~/.ray.

    Token mode itself is Ray's default for local clusters; its variable is read at import.
    """
    if not {"RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} & set(os.environ):
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)


def _use_token_if_there_is_one() -> None:
    """Answer with the token where there is one: Ray does so only where nobody gave an address."""
    from ray._private.authentication import authentication_token_setup as setup

    level = setup.logger.level
    setup.logger.setLevel(logging.ERROR)  # that it does is no news
    try:
        setup.maybe_enable_token_auth_if_token_available(warn_if_disabled=False)
    finally:
        setup.logger.setLevel(level)


@contextmanager
def _environment() -> Iterator[None]:
    added = {name: value for name, value in ENVIRONMENT.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)
