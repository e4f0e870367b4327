"""A webhook on loopback that remembers what it was sent, and can be slow, refuse, or redirect."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest


class Webhook:
    """A real HTTP server; ``answers`` are the next ones, then it answers 200."""

    def __init__(self) -> None:
        self.got: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.tries = 0
        self.answers: list[int] = []
        self.released = threading.Event()  # where cleared, answers wait for it
        self.released.set()
        self.url = ""


@contextmanager
def webhook_server() -> Iterator[Webhook]:
    webhook = Webhook()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            webhook.tries += 1
            body = self.rfile.read(int(self.headers["Content-Length"]))
            webhook.released.wait(30)
            status = webhook.answers.pop(0) if webhook.answers else 200
            if status == 200:
                webhook.got.append(json.loads(body))
                webhook.headers.append(dict(self.headers))
            self.send_response(status)
            if status in (301, 302, 303):
                self.send_header("Location", "/elsewhere")
            self.end_headers()

        def do_GET(self) -> None:
            pytest.fail("a redirected POST must not become a GET")

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    webhook.url = f"http://127.0.0.1:{server.server_port}/services/secret-of-mine"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield webhook
    finally:
        webhook.released.set()
        server.shutdown()
        thread.join()
        server.server_close()
