"""Secrets planted wherever a sweep can be given one: nothing that it writes or prints holds any."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sweep.tracking.address import TrackingError, tracking_uri
from sweep.tracking.tracker import Tracker
from tests.support.command_line import refused, sweep
from tests.support.servers.mlflow_servers import content, free_port
from tests.support.servers.webhooks import Webhook, webhook_server
from tests.support.tracked_arms import history

WEBHOOK = "secret-of-mine"  # in the address that tests/support/servers/webhooks.py makes
PLANTED = {
    name: f"planted-{name.lower()}"
    for name in (
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "HF_TOKEN",
        "MLFLOW_TRACKING_PASSWORD",
        "MLFLOW_TRACKING_TOKEN",
        "PGPASSWORD",
        "RAY_AUTH_TOKEN",
    )
}
SECRETS = (*PLANTED.values(), WEBHOOK)


@pytest.fixture
def webhook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Webhook]:
    """Whom a sweep tells, by an address in the environment that holds a secret, beside others."""
    for name, secret in PLANTED.items():
        monkeypatch.setenv(name, secret)
    with webhook_server() as server:
        monkeypatch.setenv("SWEEP_NOTIFY", server.url)
        yield server


def found_in(folder: Path) -> list[tuple[str, str]]:
    """Which files below hold which secret, in their names or their content."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    texts = {str(path): str(path).encode() + path.read_bytes() for path in files}
    return [(name, s) for name, text in texts.items() for s in SECRETS if s.encode() in text]


def found_among(printed: str) -> list[str]:
    return [secret for secret in SECRETS if secret in printed]


def test_the_search_finds_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "binary").write_bytes(b"\0\xff" + SECRETS[0].encode() + b"\0")
    (tmp_path / WEBHOOK).touch()
    assert {secret for _, secret in found_in(tmp_path)} == {SECRETS[0], WEBHOOK}
    assert found_among(f"a line with {SECRETS[1]}") == [SECRETS[1]]


def test_no_secret_of_the_environment_is_stored_tracked_exported_logged_or_printed(
    webhook: Webhook,
    root: Path,
    space_file: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The store holds records, checkpoints, weights and MLflow's database; the export manifests."""
    caplog.set_level(logging.DEBUG)
    webhook.answers = [404] * 10  # what cannot be delivered is told of
    out = str(tmp_path / "export")
    ran = sweep("run", space_file, "--where", "inline")
    verbs = (
        ("status", "mine"),
        ("list", "--json"),
        ("best", "mine", "--json"),
        ("export", "mine", "--out", out),
        ("sync", "mine"),
    )
    printed = ran.output + "".join(sweep(*words).output for words in verbs)
    assert "answered 404" in ran.stderr
    assert found_among(printed + caplog.text) == []
    # one that leaks nothing because nothing was tracked would be no proof
    assert len(content(tracking_uri(str(root)), "mine")) == 4
    assert Path(out, "manifest.json").exists()
    assert found_in(tmp_path) == []
    assert found_in(root) == []
    home = Path(os.environ["HOME"])
    assert not any(home.iterdir()) or found_in(home) == []


@pytest.mark.slow
def test_no_secret_is_in_what_ray_writes_of_a_sweep(
    webhook: Webhook, ray_home: Path, root: Path, space_file: str
) -> None:
    """Ray keeps its logs, and everybody who may use the machine can often read them.

    A process of its own: Ray remembers the first token that a process has.
    """
    token = ray_home / "token"
    words = ("run", space_file, "--where", "local", "--workers", "1")
    command = (sys.executable, "-m", "sweep.cli", *words)
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    assert found_among(ran.stdout + ran.stderr) == []
    assert found_in(root) == []
    logs = [place for place in found_in(ray_home) if place[0] != str(token)]
    assert logs == []


# --- errors ---------------------------------------------------------------------------------------

SECRET = "planted/se+cret"


@pytest.mark.parametrize(
    "uri",
    [
        f"http://me:{SECRET}@host:5000",
        f"postgresql://me:{SECRET}@host/db",
        f"mysql://host/db?password={SECRET}",
    ],
)
def test_an_address_of_mlflow_that_holds_a_password_is_refused_by_every_verb(
    uri: str, root: Path, space_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def message(*words: str) -> str:
        told = refused(*words)
        assert "without a password" in told
        return told

    told = message("run", space_file, "--where", "inline", "--mlflow", uri)
    # Nobody listens there: it is refused before anything is sent.
    there = ("--address", f"http://127.0.0.1:{free_port()}")
    told += message("doctor", *there, "--mlflow", uri)
    told += message("submit", space_file, *there, "--mlflow", uri)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    told += message("run", space_file, "--where", "inline")
    assert "se+cret" not in told
    assert not [p for p in root.rglob("*") if p.is_file() and b"se+cret" in p.read_bytes()]


@pytest.mark.parametrize(
    "target",
    [f"https://me:{SECRET}@host/path", f"slack://host/{SECRET}", f"https://host:port/{SECRET}"],
)
def test_a_target_of_news_that_cannot_be_one_is_refused_without_it(
    target: str, root: Path, space_file: str
) -> None:
    told = refused("run", space_file, "--where", "inline", "--notify", target)
    assert "SWEEP_NOTIFY" in told
    assert "se+cret" not in told
    assert not root.exists()


def test_a_server_of_mlflow_that_is_away_is_told_without_its_password(
    webhook: Webhook, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "me")
    with pytest.raises(TrackingError) as error:
        Tracker(f"http://127.0.0.1:{free_port()}").sync(history(1)[0][-1])
    assert found_among(f"{error.value} {caplog.text}") == []


@pytest.mark.parametrize("key", [SECRET, "planted%2Fse%2Bcret"])
def test_a_storage_root_that_holds_a_key_is_refused_by_every_verb(
    key: str, space_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = f"127.0.0.1:{free_port()}"
    storage = f"s3://someone:{key}@bucket/root?endpoint_override={place}&scheme=http"
    told = refused("list", "--storage", storage)
    told += refused("run", space_file, "--where", "inline", "--storage", storage)
    for verb in (("doctor",), ("submit", space_file)):
        told += refused(*verb, "--address", f"http://{place}", "--storage", storage)
    monkeypatch.setenv("SWEEP_STORAGE", storage)
    told += refused("status", "mine")
    assert "cret" not in told
