"""The answer of a study, and optuna-dashboard over it, both read-only.

The storage of the study is never opened for writing. The study is copied into memory and decorated
there. The copy is made again when the study has changed, so that a running study can be watched.
"""

from __future__ import annotations

import logging
import socket
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from autosplit.errors import AutosplitError, ConfigError
from autosplit.extras import require
from autosplit.printable import printable
from autosplit.report.dashboard.front import Front
from autosplit.report.dashboard.guard import Guard, is_loopback
from autosplit.report.dashboard.snapshot import Pictures, copy, decorate, fingerprint
from autosplit.report.documents.record import read
from autosplit.report.documents.study_reader import StudyReader

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

    from autosplit.report.dashboard.server import Server

REFRESH = 5.0  # seconds after which a request looks whether the study has changed


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
    from autosplit.report.dashboard.server import Server, address

    # It logs a traceback for every malformed request.
    logging.getLogger("optuna_dashboard").setLevel(logging.CRITICAL)
    hosts = {"localhost", "127.0.0.1", "[::1]", f"[{host}]" if ":" in host else host.lower()}
    if allow_remote:
        hosts |= {socket.gethostname().lower(), socket.getfqdn().lower()}
    guard = Guard(_StudyCopy(reader).current_app, hosts, any_address=allow_remote)
    server = Server(guard, host, port)
    return server, f"http://{address(host, server.port)}/"


class _StudyCopy:
    """The study in memory, brought up to date at most every ``REFRESH`` seconds by one thread."""

    def __init__(self, reader: StudyReader) -> None:
        self._reader, self._fingerprint = reader, ""
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
        """Copy the study again if it has changed."""
        from optuna_dashboard import wsgi

        with self._reader.open() as study:
            current = fingerprint(study)
            if current == self._fingerprint:
                return
            record, shown = read(study), copy(study)
        pictures: Any = Pictures()  # what optuna-dashboard calls of an artifact store
        decorate(shown, record, pictures)
        app = wsgi(shown._storage, artifact_store=pictures)
        self._app = Front(app, record, f"/dashboard/studies/{shown._study_id}", current)
        self._fingerprint = current

    def _print_once(self, error: str) -> None:
        if error != self._last_error:
            line = f"autosplit: showing what was read before: {printable(error)}"
            print(line, file=sys.stderr, flush=True)
        self._last_error = error
