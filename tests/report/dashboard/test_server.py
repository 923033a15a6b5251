import contextlib
import socket

import pytest

from autosplit.errors import MachineError
from autosplit.report.dashboard import app
from tests.report.serving import running

BIG = b"x" * 2**23  # more than the buffers of a socket take


def application(environ, start_response):
    parts = [BIG] * 4 if environ["PATH_INFO"] == "/big" else [b"page"]
    start_response("200 OK", [("Content-Length", str(sum(map(len, parts))))])
    return parts


@pytest.fixture
def client(monkeypatch):
    monkeypatch.setattr(app, "THREADS", 2)
    monkeypatch.setattr(app, "IDLE_SECONDS", 1)
    with running(app.http_server(application, "127.0.0.1", 0)) as asking:
        yield asking


@pytest.mark.integration
@pytest.mark.parametrize(
    "sent", [b"", b"GET / HT", b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\na"]
)
def test_an_idle_connection_is_closed(client, sent):
    with socket.create_connection(("127.0.0.1", client.port), 10) as asking:
        asking.send(sent)
        while asking.recv(2**16):
            pass


def test_clients_that_do_not_read_their_answers_block_nobody(client):
    with contextlib.ExitStack() as stack:
        for _ in range(5):
            asking = stack.enter_context(socket.create_connection(("127.0.0.1", client.port)))
            asking.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            asking.send(b"GET /big HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert client.ask("/").body == b"page"


@pytest.mark.parametrize("many", [{"X": "x" * 2**16}, {f"X{i}": "x" * 99 for i in range(999)}])
def test_huge_headers_are_refused(client, many):
    # the connection may be closed before all is sent
    with contextlib.suppress(ConnectionResetError, BrokenPipeError):
        assert client.ask("/", **many).status == 431
    assert client.ask("/").body == b"page"


def test_a_huge_body_is_refused_before_it_is_sent(client):
    assert client.ask("/", "POST", Content_Length=str(2**40)).status == 413


def test_an_address_of_version_6_is_served():
    try:
        server = app.http_server(application, "::1", 0)
    except MachineError:
        pytest.skip("this machine has no IPv6")
    with running(server) as client, socket.create_connection(("::1", client.port)) as asking:
        asking.send(b"GET / HTTP/1.0\r\n\r\n")
        assert asking.recv(100).startswith(b"HTTP/1.0 200")
