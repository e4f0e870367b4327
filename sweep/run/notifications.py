"""Delivery of notifications to a webhook or a command; never blocks training.

A webhook gets the news as JSON in a POST, a command gets it on standard input. Both are the user's
secret: addresses of webhooks carry tokens, so no message, record or MLflow run ever shows more of
one than its host. `SWEEP_NOTIFY` keeps it out of the list of processes, too.
"""

from __future__ import annotations

import http.client
import json
import os
import queue
import re
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

from sweep.run.events import Event, OnEvent, error_event
from sweep.run.signals import KNOWN
from trainables.errors import Failure, Misuse
from trainables.plain import Json
from trainables.retries import NEWS_WAITS_S

VARIABLE = "SWEEP_NOTIFY"
TIMEOUT_S = 10.0  # of one try
END_S = 20.0  # how long the end of a sweep waits for what is not delivered yet
_LATER = {408, 425, 429}  # answers of a server, beside 5xx, after which another try may succeed


class Undelivered(Failure):
    """The webhook or command did not take the news; the message shows no part of its secret."""


class _Refused(Undelivered):
    """Another try would be in vain."""


def check_target(target: str) -> str:
    """Return the target; Misuse unless it is an address like https://host/path, or a command."""
    rule = f"Give --notify or {VARIABLE} an address like https://host/path, or a command."
    if not target.strip():
        raise Misuse(f"there is nobody to notify: the target is empty. {rule}")
    if not is_webhook(target):
        if re.match(r"[a-zA-Z][a-zA-Z0-9+.-]*://", target):
            scheme = target.partition(":")[0]
            raise Misuse(f"cannot notify an address of kind {scheme}://. {rule}")
        return target
    try:
        parts = urlsplit(target)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or "@" in parts.netloc or re.search(r"\s", target):
        raise Misuse(f"the address to notify must have a host, and neither user nor blanks. {rule}")
    return target


def redact(target: str) -> str:
    """Keep the part of the target that may be printed.

    >>> redact("https://hooks.example.org/T0/B0/secret"), redact("mail -s secret me")
    ('https://hooks.example.org', 'the command to notify')
    """
    if not is_webhook(target):
        return "the command to notify"
    parts = urlsplit(target)
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{parts.hostname}{port}"


def deliver(target: str, event: Event) -> None:
    """Try once to deliver the news. Raises Undelivered."""
    body = json.dumps(
        {
            "event": event.kind,
            "sweep": event.sweep,
            "text": event.text,
            "time_ms": time.time_ns() // 1_000_000,
            "details": dict(event.details),
        }
    ).encode()
    if is_webhook(target):
        _post(target, body)
    else:
        _run(target, body)


class Notifier:
    """A thread that delivers news, so that nobody waits for it."""

    def __init__(self, target: str, *, warn: Callable[[str], None]) -> None:
        """Start the thread; ``warn`` is called with a text for news that was not delivered."""
        self._target, self._warn = target, warn
        self._events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        # A daemon: a target that hangs must not keep a driver alive that has ended.
        self._thread = threading.Thread(target=self._deliver_all, name="notify", daemon=True)
        self._thread.start()

    def send(self, event: Event) -> None:
        """Queue the news for delivery. Neither blocks nor raises."""
        self._events.put(event)

    def close(self) -> None:
        """Deliver the news that waits, for at most END_S."""
        self._events.put(None)
        self._thread.join(END_S)
        if self._thread.is_alive():
            self._warn(f"{redact(self._target)} does not answer; the last news is not delivered.")

    def _deliver_all(self) -> None:
        while (event := self._events.get()) is not None:
            try:
                self._deliver(event)
            except Undelivered as error:
                self._warn(
                    f"the news that {event.sweep} is '{event.kind}' could not be delivered: "
                    f"{error} The sweep does not mind."
                )

    def _deliver(self, event: Event) -> None:
        for wait_s in (*NEWS_WAITS_S, None):
            try:
                return deliver(self._target, event)
            except Undelivered as error:
                if wait_s is None or isinstance(error, _Refused):
                    raise
            time.sleep(wait_s)


@contextmanager
def notifying(
    target: str | None, sweep: str, again: str, *, warn: Callable[[str], None]
) -> Iterator[OnEvent]:
    """Yield a callback for news. An error that ends the block is news itself, and raised again.

    Misuse is no news: whoever made the request reads the message. Where a supervisor starts the
    driver again, failures that are not the end are no news either. ``again`` is the command that
    continues the sweep; ``warn`` is called with a text for news that could not be delivered.
    """
    if target is None:
        yield lambda event: None
        return
    notifier = Notifier(check_target(target), warn=warn)

    def send(event: Event) -> None:
        if not (event.may_resume and KNOWN in os.environ):
            notifier.send(event)

    try:
        yield send
    except Misuse:
        raise
    except Exception as error:
        send(error_event(sweep, error, again))
        raise
    finally:
        notifier.close()


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirected POST would arrive as a GET without its body, and look delivered."""

    def redirect_request(self, *args: Json, **kwargs: Json) -> None:
        """Follow none: the answer is an error."""


def _post(url: str, body: bytes) -> None:
    headers = {"Content-Type": "application/json", "User-Agent": "descent-sweep"}
    request = urllib.request.Request(url, data=body, headers=headers, method="POST")
    opener = urllib.request.build_opener(_NoRedirect)
    try:
        with opener.open(request, timeout=TIMEOUT_S):
            return
    except urllib.error.HTTPError as error:
        status = error.code
        error.close()
        kind = Undelivered if status >= 500 or status in _LATER else _Refused
        # Not its text: a server may repeat the address, which is a secret.
        raise kind(f"{redact(url)} answered {status}.") from None
    except (OSError, http.client.HTTPException, ValueError) as error:  # a host that no name can be
        reason = getattr(error, "reason", error)
        why = reason if isinstance(reason, OSError) else type(error).__name__
        raise Undelivered(f"{redact(url)} could not be reached: {why}.") from None


def _run(command: str, body: bytes) -> None:
    """Run the command once, through the shell, with the news on its standard input alone."""
    try:
        process = subprocess.Popen(
            command,
            shell=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C ends the sweep gently, and not this
        )
    except (OSError, ValueError) as error:
        raise _Refused(f"{redact(command)} did not start: {type(error).__name__}.") from None
    try:
        process.communicate(body, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise _Refused(f"{redact(command)} took more than {TIMEOUT_S:g} s.") from None
    if process.returncode != 0:
        raise _Refused(f"{redact(command)} ended with exit code {process.returncode}.")


def is_webhook(target: str) -> bool:
    """True if the target is an address, and not a command."""
    return target.lower().startswith(("http://", "https://"))
