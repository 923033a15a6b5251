"""Trackers that are not what they say: each ends in one line, within the time limit."""

import contextlib
import json
import socket
import struct
import threading
import time

import pytest

from autosplit.errors import MachineError
from autosplit.hardware.devices import rpc, session
from autosplit.hardware.devices.device import Rpc
from tests.hardware.fakes import PATIENCE_S
from tests.hardware.servers import HOST, free_port

MAGIC = struct.pack("<i", 0x2F271)


def answer(content):
    """A tracker's greeting and what it sends after it."""
    return MAGIC + struct.pack("<i", len(content)) + content


@pytest.fixture
def listen():
    """Starts a peer that sends each connection some bytes, then goes on until it is closed."""
    with contextlib.ExitStack() as stack:

        def start(*parts, is_endless=False):
            listener = stack.enter_context(socket.create_server((HOST, 0)))

            def serve():
                with contextlib.suppress(OSError):
                    while True:
                        peer, _ = listener.accept()
                        for part in parts:
                            peer.sendall(part)
                        while is_endless:
                            peer.sendall(b"x" * 4096)
                        stack.callback(peer.close)

            threading.Thread(target=serve, daemon=True).start()
            return listener.getsockname()[1]

        yield start


def refusal(tracker):
    """The one line that a server of the tracker's key cannot be reached with."""
    with pytest.raises(MachineError) as caught:
        rpc.connect(Rpc(HOST, tracker, "key", by_tracker=True))
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    "content", [b"no JSON", b"{}", b"[0, 3]", b'[0, ["a", "b", "k"]]', b'[0, [1, 1, "k"]]']
)
def test_an_answer_that_names_no_server_is_one_error(listen, content):
    assert "no server registered under key 'key'" in refusal(listen(answer(content)))


@pytest.mark.integration
@pytest.mark.parametrize("server", ["nobody listens", "another program", "silent"])
def test_a_server_that_is_not_what_its_tracker_says_is_one_error(listen, monkeypatch, server):
    monkeypatch.setattr(session, "ANSWER_S", 2.0)
    port = {
        "nobody listens": free_port,
        "another program": lambda: listen(b"SSH-2.0-OpenSSH_9.6\r\n" * 9),
        "silent": listen,  # as a server that serves somebody else
    }[server]()
    tracker = listen(answer(json.dumps([0, [HOST, port, "key:0.5"]]).encode()))
    start = time.monotonic()
    assert "no server registered under key 'key'" in refusal(tracker)
    assert time.monotonic() - start < PATIENCE_S


def test_a_tracker_that_is_endless_silent_or_not_there_is_one_error_in_time(listen, monkeypatch):
    monkeypatch.setattr(session, "ANSWER_S", 0.2)
    endless = [listen(*parts, is_endless=True) for parts in ([b"HTTP/1.1 400"], [MAGIC])]
    for port in (*endless, listen(), free_port()):
        assert f"tracker at {HOST}:{port}" in refusal(port)
