"""The HTTP server of the dashboard: waitress, with limits on the resources of clients."""

from __future__ import annotations

import logging
import sys
import threading
from typing import Any
from wsgiref.types import WSGIApplication

from waitress import wasyncore
from waitress.server import create_server

from autosplit.deploy.server.app import listen

THREADS = 8
CONNECTIONS = 100
IDLE_SECONDS = 30  # without a byte read or written
MAX_REQUEST = 2**15  # bytes of a header, and of a body, which no request needs
_POLL_SECONDS = 0.5


class Server:
    """Listens on one address and answers with a WSGI application, until it is stopped.

    Port 0 picks a free one, see ``port``.

    Raises:
        ConfigError: the port is invalid.
        MachineError: the address or port is not available.
    """

    def __init__(self, app: WSGIApplication, host: str, port: int) -> None:
        listener = listen(host, port)
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
