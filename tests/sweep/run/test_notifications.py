"""News reaches a real webhook or command, keeps its secret, and never holds a sweep up."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sweep.doctor.machine import check_notification
from sweep.run import notifications
from sweep.run.events import Event
from sweep.run.notifications import Notifier, check_target, notifying, redact
from sweep.run.signals import KNOWN
from tests.support.command_line import refused, sweep
from tests.support.servers.webhooks import Webhook, webhook_server
from trainables.errors import BadData, Failure, Misuse

NEWS = Event("finished", "mine", "mine is finished.", {"arms_done": 2})
SECRET = "secret-of-mine"  # in the address of the webhook


@pytest.fixture
def webhook() -> Iterator[Webhook]:
    with webhook_server() as server:
        yield server


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifications, "TIMEOUT_S", 5.0)
    monkeypatch.setattr(notifications, "NEWS_WAITS_S", (0.01, 0.01))


def told(target: str, *event: Event) -> list[str]:
    """Tell the target and wait for it; what was warned of."""
    warnings: list[str] = []
    notifier = Notifier(target, warn=warnings.append)
    for one in event:
        notifier.send(one)
    notifier.close()
    return warnings


def test_a_webhook_gets_every_piece_of_news_as_json_in_order(webhook: Webhook) -> None:
    first = Event("first_winner", "mine", "a winner", {"objective": 0.5})
    assert told(webhook.url, first, NEWS) == []
    assert [body["event"] for body in webhook.got] == ["first_winner", "finished"]
    body = webhook.got[1]
    assert set(body) == {"event", "sweep", "text", "time_ms", "details"}
    assert (body["sweep"], body["text"], body["details"]) == (
        "mine",
        "mine is finished.",
        {"arms_done": 2},
    )
    assert abs(body["time_ms"] / 1000 - time.time()) < 60
    assert webhook.headers[0]["Content-Type"] == "application/json"


@pytest.mark.parametrize("answers", [[503], [500, 429]])
def test_what_a_webhook_cannot_take_now_is_sent_again(webhook: Webhook, answers: list[int]) -> None:
    webhook.answers = answers
    assert told(webhook.url, NEWS) == []
    assert [body["event"] for body in webhook.got] == ["finished"]


@pytest.mark.parametrize("answer", [301, 302, 303, 307, 400, 404])
def test_what_a_webhook_will_never_take_is_told_once_without_its_secret(
    webhook: Webhook, answer: int
) -> None:
    webhook.answers = [answer]
    (warning,) = told(webhook.url, NEWS)
    assert webhook.tries == 1
    assert f"answered {answer}" in warning
    assert "'finished'" in warning
    assert SECRET not in warning


def test_a_webhook_that_is_away_is_tried_three_times_and_told_without_its_secret() -> None:
    with webhook_server() as server:
        url = server.url
    (warning,) = told(url, NEWS)
    assert "refused" in warning
    assert SECRET not in warning


@pytest.mark.parametrize("host", ["no-such-host.invalid", "\u00fc" * 70, "a..b"])
def test_a_host_that_cannot_be_found_is_told_without_the_secret(host: str) -> None:
    (warning,) = told(f"http://{host}/{SECRET}", NEWS)
    assert "could not be reached" in warning
    assert SECRET not in warning


def test_a_webhook_that_hangs_does_not_hold_the_sweep_up(
    webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifications, "TIMEOUT_S", 30.0)
    monkeypatch.setattr(notifications, "END_S", 0.1)
    webhook.released.clear()
    warnings: list[str] = []
    notifier = Notifier(webhook.url, warn=warnings.append)
    notifier.send(NEWS)  # returns at once: nothing below could run otherwise
    notifier.close()
    assert webhook.got == []
    (warning,) = warnings
    assert "does not answer" in warning
    assert SECRET not in warning


def test_a_command_gets_the_news_on_its_standard_input_alone(tmp_path: Path) -> None:
    out = tmp_path / "out"
    evil = Event("failed", "mine", "$(touch evil); `touch evil`", {})
    assert told(f"cd {tmp_path} && cat > {out}", evil) == []
    assert json.loads(out.read_text())["text"] == evil.text
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (f"exit 3 # {SECRET}", "ended with exit code 3"),
        (f"no-such-command {SECRET}", "ended with exit code 127"),
        (f"echo {SECRET}; echo {SECRET} >&2; exit 1", "exit code 1"),
    ],
)
def test_a_command_that_fails_is_told_without_what_it_is(
    command: str, why: str, capfd: pytest.CaptureFixture[str]
) -> None:
    (warning,) = told(command, NEWS)
    assert why in warning
    assert SECRET not in warning
    captured = capfd.readouterr()
    assert SECRET not in captured.out + captured.err


def test_a_command_that_hangs_is_ended_with_all_that_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifications, "TIMEOUT_S", 0.5)
    pid = tmp_path / "pid"
    (warning,) = told(f"sleep 600 & echo $! > {pid}; wait", NEWS)
    assert "more than 0.5 s" in warning
    state = Path(f"/proc/{int(pid.read_text())}/status")
    assert not state.exists() or "zombie" in state.read_text()


def test_a_command_that_does_not_read_is_no_failure() -> None:
    long = Event("failed", "mine", "x" * 900, {"more": "y" * 200_000})  # more than a pipe holds
    assert told("true", long) == []


# --- targets --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "target",
    [
        *("", "  ", "ftp://host/x", "file:///etc/passwd", "http://", "https:///path"),
        *(f"https://me:{SECRET}@host/x", f"https://host:port/{SECRET}", f"http://host/{SECRET} x"),
    ],
)
def test_what_nobody_can_be_told_through_is_refused_without_showing_it(target: str) -> None:
    with pytest.raises(Misuse, match="SWEEP_NOTIFY") as refusal:
        check_target(target)
    assert SECRET not in str(refusal.value)


def test_a_target_is_shown_without_its_secret() -> None:
    assert redact(f"https://Hooks.Example.org:8443/{SECRET}?t={SECRET}") == (
        "https://hooks.example.org:8443"
    )
    assert redact(f"curl -d @- https://host/{SECRET}") == "the command to notify"


# --- sweeps ---------------------------------------------------------------------------------------


def test_an_error_that_ends_a_driver_is_news_and_a_misuse_is_not(webhook: Webhook) -> None:
    with (
        pytest.raises(Failure),
        notifying(webhook.url, "mine", "sweep resume mine", warn=pytest.fail),
    ):
        raise Failure("Ray could not be started.")
    with (
        pytest.raises(BadData),
        notifying(webhook.url, "mine", "sweep resume mine", warn=pytest.fail),
    ):
        raise BadData("no such folder.")
    (body,) = webhook.got
    assert body["event"] == "failed"
    assert "Ray could not be started." in body["text"]


@pytest.mark.slow
def test_a_sweep_tells_of_its_end_and_of_its_secret_nothing_stays(
    webhook: Webhook, root: Path, space_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWEEP_NOTIFY", webhook.url)
    ran = sweep("run", space_file, "--where", "inline", "--set", "steps=2")
    events = [body["event"] for body in webhook.got]
    assert events[-1] == "finished"
    assert set(events) <= {"first_winner", "finished"}
    assert "2 of 2 arms are final" in webhook.got[-1]["text"]
    assert webhook.got[-1]["sweep"] == "mine"
    assert SECRET not in ran.output
    kept = [p for p in root.rglob("*") if p.is_file()]
    assert kept
    assert not [p for p in kept if SECRET.encode() in p.read_bytes()]


def test_what_a_supervisor_mends_is_no_news_and_what_it_cannot_is(
    webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KNOWN, "0")
    with notifying(webhook.url, "mine", "sweep resume mine", warn=pytest.fail) as tell:
        tell(Event("failed", "mine", "the disk is full.", may_resume=True))
        tell(Event("failed", "mine", "finished, with problems."))
        tell(Event("stalled", "mine", "no report."))
    with (
        pytest.raises(Failure),
        notifying(webhook.url, "mine", "sweep resume mine", warn=pytest.fail),
    ):
        raise Failure("Ray is gone.")
    assert [body["text"] for body in webhook.got] == ["finished, with problems.", "no report."]


@pytest.mark.slow
def test_a_webhook_that_refuses_does_not_change_what_a_sweep_comes_to(
    webhook: Webhook, root: Path, space_file: str
) -> None:
    webhook.answers = [404] * 10
    words = ("run", space_file, "--where", "inline", "--set", "steps=2", "--notify", webhook.url)
    ran = sweep(*words)
    assert "answered 404" in ran.stderr
    assert SECRET not in ran.output


def test_doctor_tries_the_target_out(webhook: Webhook) -> None:
    assert check_notification(webhook.url).passed
    assert webhook.got[0]["event"] == "test"
    webhook.answers = [503]
    check = check_notification(webhook.url)
    assert (check.passed, webhook.tries) == (False, 2)  # once: somebody watches
    assert "answered 503" in check.finding
    assert SECRET not in str(check)


def test_a_target_that_cannot_be_one_is_refused_before_anything_is_written(
    root: Path, space_file: str
) -> None:
    message = refused("run", space_file, "--where", "inline", "--notify", "ftp://host")
    assert "ftp://" in message
    assert not root.exists()
