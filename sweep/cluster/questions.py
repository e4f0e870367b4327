"""Signed questions to the reader on a cluster's head, and how they are asked.

The reader is ``sweep/cli/reader.py``. Questions and answers are signed with a key that takes the
cluster's token to make.
"""

from __future__ import annotations

import hmac
import json
import secrets
import socket
import time
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from threading import Timer

from sweep.cluster.submission import Answer, Question
from trainables.code_version import code_version
from trainables.plain import Plain

SIGNATURE = "Sweep-Signature"


@dataclass(frozen=True, kw_only=True)
class SignedQuestion(Plain):
    """The body of a question, which its signature covers."""

    once: str  # no answer to another question is taken for this one's
    version: str  # the laptop's ``code_version``
    port: int  # the reader's
    wait_s: float  # for the answer
    question: str  # a Question as JSON


def key_of(token: str | None, job: str) -> bytes:
    """The key that signs questions to the reader of this job; each reader has its own."""
    return hmac.digest((token or "").encode(), f"sweep.cli.reader {job}".encode(), "sha256")


def signature(key: bytes, *parts: bytes) -> str:
    """The signature of a question's body, or of an answer: question's signature and body."""
    # With the number of parts in it, no question can be taken for an answer.
    return hmac.new(key, b"\n".join((b"%d" % len(parts), *parts)), "sha256").hexdigest()


def ask(
    port: int, key: bytes, question: Question, wait_s: float, heads_port: int | None = None
) -> Answer | None:
    """The reader's answer to a question, on a port of this machine's loopback.

    Through a tunnel that leads to ``heads_port`` there. It is signed, so that another program that
    collects questions at a port cannot hand them on to the reader.

    None when there is no reader, it refuses, or what answers is not that reader. Raises
    TimeoutError.
    """
    plain = SignedQuestion(
        once=secrets.token_hex(16),
        version=code_version(),
        port=heads_port or port,
        wait_s=wait_s,
        question=json.dumps(question.to_json()),
    )
    body = json.dumps(plain.to_json()).encode()
    signed = signature(key, body)
    give_up = time.monotonic() + wait_s
    reader = HTTPConnection("127.0.0.1", port, timeout=wait_s)
    try:
        reader.connect()
        assert isinstance(reader.sock, socket.socket)
        late = Timer(wait_s, reader.sock.shutdown, (socket.SHUT_RDWR,))  # however much still comes
        late.daemon = True
        late.start()
        try:
            reader.request("POST", "/", body, {SIGNATURE: signed})
            reply = reader.getresponse()
            content = reply.read()
        finally:
            late.cancel()
        received = reply.headers.get(SIGNATURE, "").encode()
        # Before it is parsed: another program may listen at this port.
        if hmac.compare_digest(received, signature(key, signed.encode(), content).encode()):
            return Answer(**json.loads(content))
    except (OSError, HTTPException):
        pass
    finally:
        reader.close()
    if time.monotonic() >= give_up:
        raise TimeoutError(f"no answer within {wait_s:.0f} s")
    return None
