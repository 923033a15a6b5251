"""A server of the live report of a study and of optuna-dashboard, both read-only.

The storage of the study is never opened for writing. The study is copied into memory, and copied
again when it has changed, so that a running study can be watched.
"""

from __future__ import annotations

import logging
import socket
import sys
import threading
import time
from importlib import resources
from typing import Any
from wsgiref.types import WSGIApplication

from autosplit.deploy.server.app import listen
from autosplit.errors import AutosplitError, ConfigError
from autosplit.extras import require
from autosplit.printable import printable
from autosplit.report.dashboard.guard import Guard, is_loopback
from autosplit.report.dashboard.optuna_copy import STUDY_ID, copy
from autosplit.report.documents.record import read
from autosplit.report.documents.study_reader import StudyReader
from autosplit.report.html.page import page

REFRESH = 3.0  # seconds after which a request looks whether the study has changed
THREADS = 8
CONNECTIONS = 100
IDLE_SECONDS = 30  # without a byte read or written
MAX_REQUEST = 2**15  # bytes of a header, and of a body, which no request needs
# optuna-dashboard has no read-only mode: controls with these icons, which edit, are hidden.
_EDITORS = ", ".join(
    f'{tag}:has([data-testid="{icon}Icon"])'
    for icon in ("Edit", "Delete", "AddBox", "DriveFileRenameOutline")
    for tag in ("button", "label")
)
_MARK = (
    "<style>#autosplit { position: fixed; right: 12px; bottom: 12px; z-index: 2000; margin: 0; "
    "padding: 6px 12px; border-radius: 6px; background: #1c1f24; color: #fff; "
    "font: 14px system-ui, sans-serif; } #autosplit a { color: #8cc4ff; } "
    f"{_EDITORS} {{ display: none !important; }}</style>"
    '<p id="autosplit">Read-only. <a href="/">The report</a></p></body>'
)


def open_server(
    reader: StudyReader, host: str = "127.0.0.1", port: int = 8080, *, allow_remote: bool = False
) -> tuple[Any, str]:
    """A waitress server for the study, which serves once ``run`` is called, and its URL.

    Raises:
        ConfigError: the address is outside this machine, without ``allow_remote``, or the storage
            has no such study.
        MachineError: a package is missing, or the storage or the port is not available.
    """
    if not is_loopback(host) and not allow_remote:
        raise ConfigError(
            f"address '{host}' can be reached from other machines, and the dashboard has no "
            "password; add --allow-remote to serve it there"
        )
    for package in ("optuna_dashboard", "waitress"):
        require(package, "dashboard")
    # It logs a traceback for every malformed request.
    logging.getLogger("optuna_dashboard").setLevel(logging.CRITICAL)
    hosts = {"localhost", "127.0.0.1", "[::1]", f"[{host}]" if ":" in host else host.lower()}
    if allow_remote:
        hosts |= {socket.gethostname().lower(), socket.getfqdn().lower()}
    guard = Guard(_StudyCopy(reader).current_app, hosts, any_address=allow_remote)
    server = http_server(guard, host, port)
    address = f"[{host}]" if ":" in host else host
    return server, f"http://{address}:{server.effective_port}/"


def http_server(app: WSGIApplication, host: str, port: int) -> Any:
    """A waitress server with limits on the resources that clients can use. Raises as ``listen``."""
    from waitress.server import create_server

    # Standard error is for what the user can act on, not for clients that go away.
    logging.getLogger("waitress").setLevel(logging.ERROR)
    return create_server(
        app,
        sockets=[listen(host, port)],
        threads=THREADS,
        connection_limit=CONNECTIONS,
        channel_timeout=IDLE_SECONDS,
        cleanup_interval=IDLE_SECONDS,
        max_request_header_size=MAX_REQUEST,
        max_request_body_size=MAX_REQUEST,
        # A thread never waits for a client: what is not read goes to a temporary file.
        outbuf_high_watermark=sys.maxsize,
        log_socket_errors=False,
        asyncore_use_poll=True,
    )


class _StudyCopy:
    """The study in memory, brought up to date at most every ``REFRESH`` seconds by one thread."""

    def __init__(self, reader: StudyReader) -> None:
        self._reader, self._report = reader, ""
        self._lock = threading.Lock()
        self._updated, self._last_error = time.monotonic(), ""
        self._app: WSGIApplication
        self._update()

    def current_app(self) -> WSGIApplication:
        """The application for one request."""
        is_due = time.monotonic() - self._updated >= REFRESH
        # While one thread updates, other requests are answered from the previous copy.
        if is_due and self._lock.acquire(blocking=False):
            try:
                self._update()
                self._last_error = ""
            except AutosplitError as error:
                # the previous copy is still served
                self._print_once(str(error))
            finally:
                self._updated = time.monotonic()
                self._lock.release()
        return self._app

    def _update(self) -> None:
        """Read the study again, and replace the copy if something has changed.

        The report is the start page; pages of optuna-dashboard link to it, and say "Read-only".
        """
        from optuna_dashboard import wsgi

        with self._reader.open() as study:
            record = read(study)
            report = page(record, f"/dashboard/studies/{STUDY_ID}")
            if report == self._report:
                return
            app: Any = wsgi(copy(study, record)._storage)  # bottle: later routes replace earlier
        index = resources.files("optuna_dashboard").joinpath("index.html").read_text("utf-8")
        marked = index.replace("</body>", _MARK)
        app.route("/", callback=lambda: report)
        app.route("/dashboard<:re:(/.*)?>", callback=lambda: marked)
        self._app, self._report = app, report

    def _print_once(self, error: str) -> None:
        if error != self._last_error:
            line = f"autosplit: showing what was read before: {printable(error)}"
            print(line, file=sys.stderr, flush=True)
        self._last_error = error
