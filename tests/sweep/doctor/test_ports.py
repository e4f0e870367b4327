"""Open ports: what answers from here is found."""

from __future__ import annotations

import socket

from sweep.doctor.ports import find_open_ports


def test_what_answers_is_found_among_what_does_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as bound:
        open_port = server.getsockname()[1]
        bound.bind(("127.0.0.1", 0))  # taken, and nobody listens
        closed_port = bound.getsockname()[1]
        assert find_open_ports("127.0.0.1", [open_port, closed_port], timeout_s=5) == [open_port]
        assert find_open_ports("127.0.0.1", []) == []


def test_a_host_that_does_not_exist_answers_nowhere() -> None:
    assert find_open_ports("no-such-host.invalid", [22], timeout_s=0.2) == []
