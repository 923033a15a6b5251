"""The connections of this process to TVM RPC servers.

A server serves one session at a time, so a process has one connection a server, which all users
share. It is closed with its last user, because an idle one would keep
other processes out.
"""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterable, Iterator
from weakref import WeakValueDictionary

from autosplit.hardware.devices.device import Device, Rpc
from autosplit.hardware.devices.server_connection import ServerConnection
from autosplit.hardware.devices.session import open_session

RETURN_S = 120.0  # for a server that was there before to be back

_CONNECTIONS: WeakValueDictionary[Rpc, ServerConnection] = WeakValueDictionary()
_OPENING: dict[Rpc, threading.Lock] = {}  # a server that is silent holds up nobody else


def connect(device: Rpc, wait_s: float = 0.0) -> ServerConnection:
    """The connection to a server, opened if there is none that answers; keep it while in use.

    A server that refuses is tried again for ``wait_s`` seconds. Raises MachineError, with the
    address and the remedy, where it does not answer.
    """
    with _OPENING.setdefault(device, threading.Lock()):
        connection = _CONNECTIONS.get(device)
        if connection is None or not connection.is_alive:
            session = open_session(device, wait_s)
            connection = ServerConnection(device, session.remote, session.socket)
            _CONNECTIONS[device] = connection
        return connection


def is_connected(device: Rpc) -> bool:
    """Whether this process has a connection to a server."""
    return device in _CONNECTIONS


@contextlib.contextmanager
def reached(devices: Iterable[Device], wait_s: float = 0.0) -> Iterator[list[ServerConnection]]:
    """Keep the connections to the servers among some devices open in the block.

    Raises MachineError where a server does not answer in ``wait_s`` seconds.
    """
    servers = [d for d in dict.fromkeys(devices) if isinstance(d, Rpc)]
    connections = [connect(d, wait_s) for d in servers]
    try:
        yield connections
    finally:
        connections.clear()
        if any(map(is_connected, servers)):
            gc.collect()  # the traceback of an error may hold a connection
