"""The HTTP server of the dashboard: waitress, with bounds on what a client can take."""

from __future__ import annotations

import errno
import logging
import socket
import sys
import threading
from typing import TYPE_CHECKING, Any

from waitress import wasyncore
from waitress.server import create_server

from autosplit.errors import ConfigError, MachineError

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

THREADS = 8
CONNECTIONS = 100
IDLE_SECONDS = 30  # without a byte read or written
MAX_REQUEST = 2**15  # bytes of a header, and of a body, which no request needs
_POLL_SECONDS = 0.5


class Server:
    """Listens on one address and answers with a WSGI application, until it is stopped.

    Port 0 picks a free one, see ``port``.

    Raises:
        ConfigError: the port is no port.
        MachineError: the address or port cannot be had.
    """

    def __init__(self, app: WSGIApplication, host: str, port: int) -> None:
        listener = _listen(host, port)
        self.port = int(listener.getsockname()[1])
        # Standard error is for what the user can act on, not for clients that go away.
        logging.getLogger("waitress").setLevel(logging.ERROR)
        self._waitress: Any = create_server(
            app,
            sockets=[listener],
            threads=THREADS,
            connection_limit=CONNECTIONS,
            channel_timeout=IDLE_SECONDS,
            cleanup_interval=IDLE_SECONDS,
            max_request_header_size=MAX_REQUEST,
            max_request_body_size=MAX_REQUEST,
            # A thread never waits for a client: what is not read goes to a temporary file.
            outbuf_high_watermark=sys.maxsize,
            log_socket_errors=False,
        )
        self._stopped = threading.Event()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def serve_forever(self) -> None:
        """Answer requests until ``stop`` is called from another thread."""
        while not self._stopped.is_set():
            wasyncore.loop(_POLL_SECONDS, use_poll=True, map=self._waitress._map, count=1)

    def stop(self) -> None:
        """Let ``serve_forever`` return."""
        self._stopped.set()
        self._waitress.pull_trigger()

    def close(self) -> None:
        """Close all connections, stop listening and let the threads go."""
        self._waitress.task_dispatcher.shutdown(timeout=1)
        wasyncore.close_all(self._waitress._map)


def _listen(host: str, port: int) -> socket.socket:
    if not 0 <= port <= 65535:
        raise ConfigError(
            f"port {port} is out of range; give --port 1 to 65535, or 0 for a free one"
        )
    try:
        family, *_, resolved = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(resolved, family=family)
    except OSError as error:
        raise MachineError(_reason(host, port, error)) from error


def address(host: str, port: int) -> str:
    """Host and port as they stand in a URL."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _reason(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"port {port} on {host} is in use; give another with --port, or --port 0 for a free one"
        )
    if error.errno == errno.EACCES:
        return f"port {port} needs more rights than this user has; give one above 1023 with --port"
    reason = error.strerror or error
    return f"cannot listen on {address(host, port)}: {reason}; give an address of this machine"
