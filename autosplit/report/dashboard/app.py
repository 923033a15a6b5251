"""The report of a study, live, and optuna-dashboard over it, both read-only.

The storage of the study is never opened for writing. The study is copied into memory, again when it
has changed, so that a running study can be watched.
"""

from __future__ import annotations

import logging
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from autosplit.errors import AutosplitError, ConfigError
from autosplit.extras import require
from autosplit.printable import printable
from autosplit.report.dashboard.guard import Guard, is_loopback
from autosplit.report.dashboard.optuna_copy import STUDY_ID, copy
from autosplit.report.documents.record import read
from autosplit.report.documents.study_reader import StudyReader
from autosplit.report.html.page import page

if TYPE_CHECKING:
    from autosplit.report.dashboard.server import Server

REFRESH = 3.0  # seconds after which a request looks whether the study has changed
# optuna-dashboard has no read-only look: what could change the study is hidden by its icons.
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
) -> tuple[Server, str]:
    """A server over the study, ready for ``serve_forever``, and the URL of its first page.

    Raises:
        ConfigError: the address is outside this machine, without ``allow_remote``, or the storage
            has no such study.
        MachineError: a package is missing, or the storage or the port cannot be had.
    """
    if not is_loopback(host) and not allow_remote:
        raise ConfigError(
            f"address '{host}' can be reached from other machines, and the dashboard has no "
            "password; add --allow-remote to serve it there"
        )
    for package in ("optuna_dashboard", "waitress"):
        require(package, "dashboard")
    from autosplit.report.dashboard.server import Server

    # It logs a traceback for every malformed request.
    logging.getLogger("optuna_dashboard").setLevel(logging.CRITICAL)
    hosts = {"localhost", "127.0.0.1", "[::1]", f"[{host}]" if ":" in host else host.lower()}
    if allow_remote:
        hosts |= {socket.gethostname().lower(), socket.getfqdn().lower()}
    guard = Guard(_StudyCopy(reader).current_app, hosts, any_address=allow_remote)
    server = Server(guard, host, port)
    return server, f"http://{f'[{host}]' if ':' in host else host}:{server.port}/"


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
        # Requests that come while one thread updates are answered from what was read before.
        if is_due and self._lock.acquire(blocking=False):
            try:
                self._update()
                self._last_error = ""
            except AutosplitError as error:
                # what was read before can still be looked at
                self._print_once(str(error))
            finally:
                self._updated = time.monotonic()
                self._lock.release()
        return self._app

    def _update(self) -> None:
        """Read the study again, and take it over if something has changed."""
        from optuna_dashboard import wsgi

        with self._reader.open() as study:
            record = read(study)
            report = page(record, f"/dashboard/studies/{STUDY_ID}")
            if report == self._report:
                return
            storage = copy(study, record)._storage
        self._app, self._report = _Pages(wsgi(storage), report.encode()), report

    def _print_once(self, error: str) -> None:
        if error != self._last_error:
            line = f"autosplit: showing what was read before: {printable(error)}"
            print(line, file=sys.stderr, flush=True)
        self._last_error = error


class _Pages:
    """The report at ``/``, and the pages of optuna-dashboard, marked as read-only."""

    def __init__(self, optuna_app: WSGIApplication, report: bytes) -> None:
        self._optuna_app, self._report = optuna_app, report

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer one request."""
        path = environ.get("PATH_INFO", "")
        if path == "/":
            headers = [("Content-Type", "text/html; charset=utf-8"), ("Cache-Control", "no-store")]
            start_response("200 OK", [*headers, ("Content-Length", str(len(self._report)))])
            return [] if environ["REQUEST_METHOD"] == "HEAD" else [self._report]
        if path.startswith("/dashboard"):
            return self._marked(environ, start_response)
        return self._optuna_app(environ, start_response)

    def _marked(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """A page with a line that leads back and says that it is read-only."""
        # Without conditions, so that no page from before is shown that has no such line.
        for condition in ("HTTP_IF_MODIFIED_SINCE", "HTTP_IF_NONE_MATCH", "HTTP_RANGE"):
            environ.pop(condition, None)
        started: list[Any] = []

        def start(*answer: Any) -> Callable[[bytes], object]:
            started[:] = answer
            return lambda data: None

        body = b"".join(self._optuna_app(environ, start))
        status, headers = started[0], started[1]
        if dict(headers).get("Content-Type", "").startswith("text/html") and body:
            body = body.replace(b"</body>", _MARK.encode())
            headers = [h for h in headers if h[0] not in ("Content-Length", "Last-Modified")]
            headers.append(("Content-Length", str(len(body))))
        start_response(status, headers)
        return [body]
