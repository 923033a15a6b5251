"""The client of a TVM RPC tracker, which may be down, slow or no tracker at all.

TVM's own client waits without a limit and reads answers of any size.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from typing import Any

CONNECT_S = 5.0
MAX_ANSWER = 1 << 16  # bytes


def request_server(host: str, port: int, key: str, seconds: float) -> tuple[str, int, str]:
    """Host, port and match key of a server that a tracker has registered under ``key``.

    A tracker answers when a server is free. Raises OSError where it cannot be reached or does not
    answer in ``seconds``, ValueError for an answer that is not a tracker's.
    """
    from tvm.rpc import base

    deadline = time.monotonic() + seconds
    with socket.create_connection((host, port), min(CONNECT_S, seconds)) as tracker:
        tracker.sendall(struct.pack("<i", base.RPC_TRACKER_MAGIC))
        if _receive_integer(tracker, deadline) != base.RPC_TRACKER_MAGIC:
            raise ValueError("what listens there is not a TVM tracker")
        base.sendjson(tracker, [base.TrackerCode.REQUEST, key, "", 1])
        size = _receive_integer(tracker, deadline)
        if not 0 < size <= MAX_ANSWER:
            raise ValueError(f"its answer has {size} bytes")
        return _server_of(_receive(tracker, size, deadline))


def _server_of(answer: bytes) -> tuple[str, int, str]:
    try:
        code, server = json.loads(answer)
        host, port, match_key = server
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError("its answer names no server") from error
    is_address = isinstance(host, str) and type(port) is int and 0 < port < 1 << 16
    if code != 0 or not is_address or not isinstance(match_key, str):
        raise ValueError("its answer names no server")
    return host, port, match_key


def _receive_integer(tracker: socket.socket, deadline: float) -> int:
    (value,) = struct.unpack("<i", _receive(tracker, 4, deadline))
    return int(value)


def _receive(tracker: socket.socket, size: int, deadline: float) -> bytes:
    """So many bytes. A peer that sends them one by one does not prolong the deadline."""
    received = b""
    while len(received) < size:
        seconds = deadline - time.monotonic()
        if seconds <= 0:
            raise TimeoutError("no answer in time")
        tracker.settimeout(seconds)
        chunk: Any = tracker.recv(size - len(received))
        if not chunk:
            raise ValueError("it closed the connection")
        received += chunk
    return received
