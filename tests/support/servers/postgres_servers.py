"""PostgreSQL for tests: Debian's package, in a folder of its own, on loopback, with a password."""

from __future__ import annotations

import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.support.servers.mlflow_servers import free_port

USER = "mlflow"
DEBIAN = Path("/usr/lib/postgresql")
OWNER = "postgres"  # who runs it where the tests are run by root: initdb refuses root


def why_not() -> str:
    """Why there can be no server here; '' when there can."""
    if importlib.util.find_spec("psycopg") is None:
        return "psycopg is not installed"
    if _folder_of_programs() is None:
        return f"no PostgreSQL below {DEBIAN}: apt-get install postgresql"
    if os.geteuid() == 0 and OWNER not in {user.pw_name for user in pwd.getpwall()}:
        return f"PostgreSQL refuses root, and there is no user {OWNER!r}"
    return ""


def _folder_of_programs() -> Path | None:
    """Of the newest version. It is not on the path of Debian's users."""
    found = [p.parent for p in DEBIAN.glob("*/bin/initdb")]
    return max(found, key=lambda p: float(p.parent.name), default=None)


class Postgres:
    """A server that listens on loopback and asks for ``password``, which no address carries."""

    def __init__(self) -> None:
        """Make its folder, short because of the socket, and start it."""
        programs = _folder_of_programs()
        assert programs is not None, why_not()
        self._programs = programs
        self.folder = Path(tempfile.mkdtemp(prefix="dsw-pg-"))
        self.port, self.password = free_port(), secrets.token_hex(16)
        self._user = OWNER if os.geteuid() == 0 else None
        if self._user is not None:
            shutil.chown(self.folder, self._user)
        secret = self.folder / "password"
        secret.write_text(self.password)
        secret.chmod(0o644)  # the folder is closed
        data = f"{self.folder}/data"
        # UTF8: of a database in SQL_ASCII, which a C locale means, psycopg reads bytes, no text.
        how = ("--auth=scram-sha-256", f"--pwfile={secret}", "--encoding=UTF8", "--no-locale")
        self._run("initdb", "-D", data, "-U", USER, *how)
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": str(self.folder),
            "fsync": "off",  # nothing here outlives the test
            "shared_buffers": "32MB",
            "max_connections": "500",  # MLflow keeps some open of every test's database
        }
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        with open(self.folder / "log", "ab") as log:
            self._process = subprocess.Popen(
                [str(self._programs / "postgres"), "-D", data, *options],
                stdout=log,
                stderr=log,
                user=self._user,
                start_new_session=True,
            )
        self._wait()

    def _wait(self) -> None:
        deadline = time.monotonic() + 120
        while self._runs("pg_isready", "-h", "127.0.0.1", "-p", str(self.port)) != 0:
            log = (self.folder / "log").read_text()
            assert self._process.poll() is None, log
            assert time.monotonic() < deadline, log
            time.sleep(0.1)

    def uri(self, database: str) -> str:
        """The address of a database, as users give it: the password is in PGPASSWORD."""
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{database}"

    def create(self, database: str, template: str = "template1") -> str:
        """A new database; its address."""
        statement = f'CREATE DATABASE "{database}" TEMPLATE "{template}"'
        address = ("-h", "127.0.0.1", "-p", str(self.port), "-U", USER)
        self._run("psql", "-X", *address, "-d", "postgres", "-qc", statement)
        return self.uri(database)

    def stop(self) -> None:
        """End it and remove its folder."""
        self._process.send_signal(signal.SIGQUIT)
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _runs(self, program: str, *words: str) -> int:
        return self._called(program, words).returncode

    def _run(self, program: str, *words: str) -> None:
        ran = self._called(program, words)
        assert ran.returncode == 0, ran.stdout + ran.stderr

    def _called(self, program: str, words: Sequence[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self._programs / program), *words],
            env=os.environ | {"PGPASSWORD": self.password, "LC_ALL": "C"},
            cwd=self.folder,
            user=self._user,
            capture_output=True,
            text=True,
        )
