"""Open ports: what listens here is listed as it is, and what answers from here is found."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from sweep.doctor.ports import Listener, answering, listeners


@pytest.fixture(params=["127.0.0.1", "0.0.0.0", "::1", "::"])
def listening(request: pytest.FixtureRequest) -> Iterator[tuple[str, int]]:
    """A socket that listens on an address; it and its port."""
    address: str = request.param
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        server = socket.socket(family)
        server.bind((address, 0))
    except OSError:
        pytest.skip(f"this machine has no {address}")
    with server:
        server.listen()
        yield address, server.getsockname()[1]


def test_a_socket_that_listens_is_listed_with_its_address_and_program(
    listening: tuple[str, int],
) -> None:
    address, port = listening
    (one,) = [found for found in listeners() if found.port == port and found.address == address]
    assert one.program == Path("/proc/self/comm").read_text().strip()
    assert one.is_loopback == (address in ("127.0.0.1", "::1"))
    assert str(one) == f"{port} {one.program}"


def test_a_socket_that_is_closed_or_connected_is_not_listed(listening: tuple[str, int]) -> None:
    address, port = listening
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address)
    with socket.create_connection((host, port)) as client:
        own = client.getsockname()[1]
        assert own not in {found.port for found in listeners()}


@pytest.mark.parametrize(
    ("address", "is_loopback"),
    [("127.0.1.1", True), ("::ffff:127.0.0.1", True), ("::ffff:10.0.0.1", False), ("10.0.0.1", 0)],
)
def test_loopback_has_many_names(address: str, is_loopback: bool) -> None:
    assert Listener(1, address, "").is_loopback == bool(is_loopback)


def test_a_machine_without_these_tables_lists_nothing(tmp_path: Path) -> None:
    assert listeners(tmp_path) == []


def test_what_answers_is_found_among_what_does_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as bound:
        open_port = server.getsockname()[1]
        bound.bind(("127.0.0.1", 0))  # taken, and nobody listens
        closed_port = bound.getsockname()[1]
        assert answering("127.0.0.1", [open_port, closed_port], timeout_s=5) == [open_port]
        assert answering("127.0.0.1", []) == []


def test_a_host_that_does_not_exist_answers_nowhere() -> None:
    assert answering("no-such-host.invalid", [22], timeout_s=0.2) == []
