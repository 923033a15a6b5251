"""The server of the dashboard under clients that are slow, greedy or many."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from multiprocessing.connection import wait
from typing import Any

import pytest

from autosplit.errors import AutosplitError, ConfigError, MachineError
from autosplit.report.dashboard import server as module
from autosplit.report.dashboard.server import Server
from tests.report.serving import Client, running

BIG = b"x" * 2**23  # more than the buffers of a socket take
SOON = 10.0  # seconds in which a client that behaves must be answered


def application(environ: dict[str, Any], start_response: Any) -> list[bytes]:
    parts = [BIG] * 4 if environ["PATH_INFO"] == "/big" else [b"page"]
    start_response("200 OK", [("Content-Length", str(sum(map(len, parts))))])
    return parts


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    monkeypatch.setattr(module, "THREADS", 2)
    monkeypatch.setattr(module, "CONNECTIONS", 8)
    monkeypatch.setattr(module, "REQUEST_SECONDS", 1.0)
    monkeypatch.setattr(module, "IDLE_SECONDS", 1.5)
    monkeypatch.setattr(module, "_POLL_SECONDS", 0.05)
    with running(Server(application, "127.0.0.1", 0)) as asking:
        yield asking


@contextlib.contextmanager
def connected(client: Client, count: int) -> Iterator[list[socket.socket]]:
    with contextlib.ExitStack() as stack:
        address = ("127.0.0.1", client.port)
        yield [stack.enter_context(socket.create_connection(address)) for _ in range(count)]


@contextlib.contextmanager
def dribbling(sockets: list[socket.socket], pause: float) -> Iterator[None]:
    """Each socket sends a header that never ends, one byte at a time."""
    stop = threading.Event()

    def dribble() -> None:
        while not stop.wait(pause):
            for each in sockets:
                with contextlib.suppress(OSError):
                    each.send(b"x")

    for each in sockets:
        each.send(b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
    thread = threading.Thread(target=dribble)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def is_answered(client: Client) -> bool:
    start = time.monotonic()
    answer = client.ask("/")
    return answer.body == b"page" and time.monotonic() - start < SOON


def closed_within(each: socket.socket, seconds: float) -> bool:
    """Whether the server closes the connection, whatever it still sends before."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        if wait([each], left):
            try:
                if not each.recv(2**16):
                    return True
            except ConnectionResetError:
                return True
    return False


def test_clients_that_dribble_block_nobody(client: Client) -> None:
    with connected(client, 40) as sockets, dribbling(sockets, 0.05):
        assert all(is_answered(client) for _ in range(5))


def test_a_request_must_arrive_in_time_however_it_is_spread(client: Client) -> None:
    with connected(client, 1) as sockets, dribbling(sockets, 0.05):
        assert closed_within(sockets[0], SOON)


@pytest.mark.parametrize("sent", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"])
def test_an_idle_connection_is_closed(client: Client, sent: bytes) -> None:
    with connected(client, 1) as sockets:
        sockets[0].send(sent)
        assert closed_within(sockets[0], SOON)


def test_a_body_must_arrive_in_time(client: Client) -> None:
    with connected(client, 1) as sockets:
        sockets[0].send(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nabc")
        assert closed_within(sockets[0], SOON)


def test_clients_that_do_not_read_their_answers_block_nobody(client: Client) -> None:
    with connected(client, 5) as sockets:
        for each in sockets:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            each.send(b"GET /big HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert all(is_answered(client) for _ in range(5))


@pytest.mark.parametrize("many", [{"X": "x" * 2**16}, {f"X{i}": "x" * 99 for i in range(999)}])
def test_huge_headers_are_refused(client: Client, many: dict[str, str]) -> None:
    # the connection may be closed before all is sent
    with contextlib.suppress(ConnectionResetError, BrokenPipeError):
        assert client.ask("/", **many).status == 431
    assert is_answered(client)


def test_a_huge_body_is_refused_before_it_is_sent(client: Client) -> None:
    assert client.ask("/", "POST", Content_Length=str(2**40)).status == 413


def test_a_port_in_use_names_the_remedy() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(MachineError, match=rf"port {port} .* in use; give another with --port"):
            Server(application, "127.0.0.1", port)


@pytest.mark.parametrize(
    ("host", "port", "error"), [("127.0.0.1", 70000, ConfigError), ("192.0.2.1", 0, MachineError)]
)
def test_an_impossible_address_is_refused(
    host: str, port: int, error: type[AutosplitError]
) -> None:
    with pytest.raises(error, match="give"):
        Server(application, host, port)


def test_an_address_of_version_6_is_served() -> None:
    try:
        server = Server(application, "::1", 0)
    except MachineError:
        pytest.skip("this machine has no IPv6")
    with running(server), socket.create_connection(("::1", server.port)) as asking:
        asking.send(b"GET / HTTP/1.0\r\n\r\n")
        assert asking.recv(100).startswith(b"HTTP/1.0 200")
