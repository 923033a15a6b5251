"""Channels that tensors travel through between processes, of one machine or of several.

Both ends prove that they know a secret before anything else is read. Messages are JSON and raw
arrays, so what arrives is data and never code. Where Ray uses TLS, channels use its certificates;
where it uses none, arrays for a process of the same machine go through shared memory.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import secrets
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from autosplit.hardware.execution.shared_memory import (
    IS_AVAILABLE,
    Shape,
    SharedArrays,
    SharedMemory,
    room,
    views,
)
from autosplit.hardware.runtimes.arrays import (
    aligned_copy,
    aligned_empty,
    array_of,
    bytes_of,
    dtype_of,
)

HANDSHAKE_S = 10.0
_RETRY_S = 0.1
MAX_HEADER = 1 << 20  # bytes
_LENGTH = struct.Struct("!I")
_PROOF = 32  # bytes of a nonce and of a proof
_LOCAL = socket.AF_UNIX

Array = np.ndarray[Any, Any]


class Channel:
    """One end of a connection; one thread uses it at a time, and any thread may close it.

    The ends send in turns, because a sender may overwrite the arrays of its last message.
    Every method but ``close`` raises OSError where the other end is gone.
    """

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._shared = SharedMemory(connected) if connected.family == _LOCAL else None
        if self._shared:
            return
        # A reader waits for each message, so none may be held back to join the next one.
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def send(self, message: Mapping[str, Any], values: Sequence[Any] = ()) -> None:
        """Send a message of JSON's types, and tensors."""
        arrays = list(map(array_of, values))
        header = json.dumps([message, _entries(arrays)]).encode()
        frame = _LENGTH.pack(len(header)) + header
        if self._shared:
            self._shared.send(frame, arrays)
            return
        self._socket.sendall(frame)
        for array in arrays:
            self._socket.sendall(bytes_of(array))

    def receive(self, are_lasting: bool = True) -> tuple[dict[str, Any], list[Array]]:
        """The next message and its tensors; waits for it.

        Without ``are_lasting`` they may change once this end sends again, which saves a copy.
        """
        (length,) = _LENGTH.unpack(self._read(_LENGTH.size))
        if length > MAX_HEADER:
            raise ConnectionError(f"a header of {length} bytes")
        message, entries = json.loads(self._read(length))
        shapes = _shapes(entries)
        if self._shared:
            arrays = self._shared.receive(shapes)
            return message, list(map(aligned_copy, arrays)) if are_lasting else arrays
        arrays = [aligned_empty(*shape) for shape in shapes]
        for array in arrays:
            self._fill(bytes_of(array))
        return message, arrays

    @property
    def is_shared(self) -> bool:
        """Whether the other end is on this machine and shares memory."""
        return self._shared is not None

    def lend(self, message: Mapping[str, Any], shared: SharedArrays) -> None:
        """Send a message, and let the other end keep the arrays mapped; see ``is_shared``."""
        assert self._shared is not None
        self.send({**message, "lent": _entries(shared.arrays)})
        self._shared.lend(shared)

    def borrow(self, message: Mapping[str, Any]) -> list[Array]:
        """The arrays that the other end lends, of which it sent ``message``."""
        assert self._shared is not None
        shapes = _shapes(message["lent"])
        return views(self._shared.borrow(room(shapes)), shapes)

    def prove(self, key: bytes, role: bytes, other_role: bytes) -> None:
        """Raises ConnectionError unless the other end knows ``key`` too, in its own role.

        The roles differ, so that nobody can answer with what it was asked.
        """
        nonce = secrets.token_bytes(_PROOF)
        self._socket.sendall(nonce)
        self._socket.sendall(hmac.digest(key, role + self._read(_PROOF), "sha256"))
        expected = hmac.digest(key, other_role + nonce, "sha256")
        if not hmac.compare_digest(self._read(_PROOF), expected):
            raise ConnectionError("the other end does not know the secret of this pipeline")
        self._socket.settimeout(None)

    def close(self) -> None:
        """End the connection; a thread that waits for it gets OSError. Idempotent."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _read(self, size: int) -> bytearray:
        buffer = bytearray(size)
        self._fill(memoryview(buffer))
        return buffer

    def _fill(self, buffer: memoryview) -> None:
        while buffer:
            count = self._socket.recv_into(buffer)
            if not count:
                raise ConnectionError("the other end closed the connection")
            buffer = buffer[count:]


def _entries(arrays: Sequence[Array]) -> list[tuple[str, Sequence[int]]]:
    """What a message says of arrays: type and shape."""
    return [(str(array.dtype), array.shape) for array in arrays]


def _shapes(entries: Sequence[tuple[str, Sequence[int]]]) -> list[Shape]:
    return [(shape, dtype_of(name)) for name, shape in entries]


def connect(address: tuple[str, int], key: bytes) -> Channel:
    """A channel to the listener at ``address``. Raises OSError where there is none."""
    connected = _local_socket(address, key) or open_socket(address)
    try:
        channel = Channel(connected)
        channel.prove(key, b"client", b"server")
    except BaseException:
        connected.close()
        raise
    return channel


def open_socket(address: tuple[str, int], protocols: Sequence[str] = ()) -> socket.socket:
    """A connection, with TLS where Ray uses it. Raises OSError where nothing answers in time."""
    connected = socket.create_connection(address, HANDSHAKE_S)
    context = _tls(ssl.Purpose.SERVER_AUTH)
    if context is None:
        return connected
    if protocols:
        context.set_alpn_protocols(list(protocols))
    try:
        return context.wrap_socket(connected, server_hostname=address[0])
    except BaseException:
        connected.close()
        raise


def listen(host: str, key: bytes, serve: Callable[[Channel], None]) -> tuple[str, int]:
    """Serve each channel to this process in a thread of its own; returns the address."""
    family = socket.getaddrinfo(host, None)[0][0]
    listener = socket.create_server((host, 0), family=family)
    address = host, listener.getsockname()[1]
    context = _tls(ssl.Purpose.CLIENT_AUTH)

    def accept(listener: socket.socket) -> None:
        while True:
            try:
                connected, _ = listener.accept()
            except OSError:  # too many descriptors, or the client is gone
                time.sleep(_RETRY_S)
                continue
            threading.Thread(target=greet, args=(connected,), daemon=True).start()

    def greet(connected: socket.socket) -> None:
        connected.settimeout(HANDSHAKE_S)
        # A client that does not know the secret, or went away, must not affect the others.
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            stack.callback(connected.close)
            if context:
                connected = context.wrap_socket(connected, server_side=True)
            channel = Channel(connected)
            stack.callback(channel.close)
            channel.prove(key, b"server", b"client")
            serve(channel)

    listeners = [listener]
    if IS_AVAILABLE and context is None:
        listeners.append(socket.socket(_LOCAL))
        listeners[-1].bind(_local_name(address, key))
        listeners[-1].listen()
    for each in listeners:
        threading.Thread(target=accept, args=(each,), name="listen", daemon=True).start()
    return address


def _local_socket(address: tuple[str, int], key: bytes) -> socket.socket | None:
    """A connection to a listener on this machine; None where there is none, or Ray uses TLS."""
    if not IS_AVAILABLE or _tls(ssl.Purpose.SERVER_AUTH):
        return None
    connected = socket.socket(_LOCAL)
    connected.settimeout(HANDSHAKE_S)
    try:
        connected.connect(_local_name(address, key))
    except OSError:
        connected.close()
        return None
    return connected


def _local_name(address: tuple[str, int], key: bytes) -> bytes:
    """An abstract socket name of Linux, which nobody can take without knowing the secret."""
    host, port = address
    return b"\0" + hmac.digest(key, f"{host} {port}".encode(), "sha256")


def _tls(purpose: ssl.Purpose) -> ssl.SSLContext | None:
    """TLS with the certificates that Ray uses, which both ends show; None where it uses none."""
    if os.environ.get("RAY_USE_TLS", "0").lower() not in ("1", "true"):
        return None
    context = ssl.create_default_context(purpose, cafile=os.environ["RAY_TLS_CA_CERT"])
    context.load_cert_chain(os.environ["RAY_TLS_SERVER_CERT"], os.environ["RAY_TLS_SERVER_KEY"])
    context.verify_mode = ssl.CERT_REQUIRED
    return context
