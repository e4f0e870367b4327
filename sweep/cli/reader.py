"""Reader process on a cluster's head that answers a laptop's verbs.

Started as ``python -m sweep.cli.reader JOB``. It has everything imported and runs each verb in a
process forked from it, as ``sweep.cli.answer`` does in one of its own. It listens on the head's
loopback alone, and ends when no question comes or other code is installed. Questions and answers
are signed (``sweep/cluster/questions.py``).
"""

from __future__ import annotations

import hmac
import json
import math
import os
import signal
import sys
import time
from contextlib import suppress
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler
from importlib import import_module
from socketserver import ForkingMixIn, TCPServer

from sweep.cluster import route, tunnel
from sweep.cluster.questions import SIGNATURE, SignedQuestion, key_of, signature
from sweep.cluster.submission import Question
from sweep.tracking.client import make_client
from trainables.code_version import code_version

IDLE_S = 900.0  # without a question
CODE_CHECK_S = 20.0  # between two checks of the installed code
READ_S = 10.0  # for a complete question to arrive
LONGEST = 2**20  # bytes of a question
MODULES = (  # imports of the verbs, some of them made only once a verb runs
    "sweep.cli.answer",
    "sweep.cli.reading",
    "sweep.cli.running",
    "sweep.cli.upkeep",
    "sweep.cli.written_files",
    "sweep.results.export",
    "pandas",
    "scipy.special",
)


class _Server(ForkingMixIn, TCPServer):
    """Server of one process that listens; each question is answered in another."""

    allow_reuse_address = True
    block_on_close = False
    request_queue_size = 64
    timeout = CODE_CHECK_S

    def __init__(self, port: int, key: bytes) -> None:
        super().__init__(("127.0.0.1", port), _Questions, bind_and_activate=False)
        self.server_bind()  # no connection is accepted yet
        self.key = key
        self._questioned_s = time.monotonic()
        self.is_needed = True

    def verify_request(self, request: object, client_address: object) -> bool:
        """True when this code is current; else the connection closes, and a job answers."""
        self._questioned_s = time.monotonic()
        self.is_needed = is_current()
        return self.is_needed

    def handle_timeout(self) -> None:
        """Stop after a while without questions, or when other code is installed."""
        super().handle_timeout()
        self.is_needed = time.monotonic() < self._questioned_s + IDLE_S and is_current()


class _Questions(BaseHTTPRequestHandler):
    """Handler of one connection, in a process of its own."""

    server: _Server
    timeout = READ_S

    def setup(self) -> None:
        """Limit the time of this connection's process."""
        signal.alarm(math.ceil(READ_S))
        self.server.socket.close()  # this process may outlive the reader, whose port is then free
        super().setup()

    def do_POST(self) -> None:
        """Answer a question that is signed, by a laptop of this version, to this very port."""
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > LONGEST:
            self.send_error(413)
            return
        body = self.rfile.read(int(length))
        signed = signature(self.server.key, body).encode()
        if not hmac.compare_digest(self.headers.get(SIGNATURE, "").encode(), signed):
            self.send_error(403)
            return
        signed_question = SignedQuestion.from_json(json.loads(body))
        meant_for = (signed_question.version, signed_question.port)
        if meant_for != (code_version(), self.server.server_address[1]):
            self.send_error(409)
            return
        signal.alarm(math.ceil(signed_question.wait_s) + 1)  # then the laptop no longer waits
        from sweep.cli.answer import answer

        reply = answer(Question.parse(signed_question.question))
        content = json.dumps(asdict(reply)).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.send_header(SIGNATURE, signature(self.server.key, signed, content))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Log no requests: the laptop reports failures."""


def is_current() -> bool:
    """True when the installed code is still the code that this process started with."""
    with suppress(OSError):  # it is just being replaced
        return code_version.__wrapped__() == code_version()
    return False


def _prepare() -> None:
    """Import the modules of the verbs, but no plug-in: the code's version does not cover those."""
    for name in MODULES:
        import_module(name)
    make_client("http://127.0.0.1")  # mlflow; connects to nothing


def main() -> None:
    """Answer until no question has come for a while, or other code is installed."""
    code_version()  # before more of the code is read
    port = int(os.environ.get(route.READER_VARIABLE, route.READER_PORT))
    try:
        server = _Server(port, key_of(tunnel.token(None), sys.argv[1]))
        _prepare()
        server.server_activate()
    except OSError as error:
        raise SystemExit(
            f"port {port} of this machine's loopback is not available ({error}): export another "
            f"{route.READER_VARIABLE} in cluster.yaml, and run `ray up`."
        ) from error
    with server:
        print(f"answers on 127.0.0.1:{port}", flush=True)
        while server.is_needed:
            server.handle_request()
            server.service_actions()


if __name__ == "__main__":
    main()
