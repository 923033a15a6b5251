"""optuna-dashboard over a study, prepared for this job: notes, pictures and plots; read-only unless asked otherwise.

Read-only, nothing of the study's storage is ever opened for writing: the study is copied into memory, decorated there,
and served from there; the copy is made again when the study has moved on, so a running study can be watched.
"""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from autosplit.errors import AutosplitError, ConfigError
from autosplit.extras import require
from autosplit.printable import printable
from autosplit.report.dashboard.artifacts import Drawn, Folder, identity
from autosplit.report.dashboard.guard import Guard, address, bind, is_loopback
from autosplit.report.dashboard.snapshot import decorate, fingerprint, prepare
from autosplit.report.documents.record import read
from autosplit.report.documents.study_reader import StudyReader

if TYPE_CHECKING:
    from wsgiref.simple_server import WSGIServer

    from _typeshed.wsgi import WSGIApplication

REFRESH = 5.0  # seconds a view may be old before a request looks again


class _View(Protocol):
    """Something to serve that can be brought up to date."""

    app: WSGIApplication
    path: str

    def update(self) -> None: ...


def open_server(
    source: StudyReader,
    host: str = "127.0.0.1",
    port: int = 8080,
    *,
    writable: bool = False,
    allow_remote: bool = False,
) -> tuple[WSGIServer, str]:
    """A server over the study, bound and ready for ``serve_forever``, and the URL of the study's page.

    Raises ConfigError for an address outside this machine without ``allow_remote`` and for a storage that holds no such
    study, MachineError where a package is missing, the storage cannot be reached or the port cannot be had.
    """
    if not is_loopback(host) and not allow_remote:
        raise ConfigError(
            f"address '{host}' can be reached from other machines and the dashboard asks for no password; "
            "add --allow-remote to serve it there"
        )
    _require("optuna_dashboard", "matplotlib", "plotly")
    view = _Live(source) if writable else _Copy(source)
    hosts = {"localhost", "127.0.0.1", "[::1]", f"[{host}]" if ":" in host else host.lower()}
    if allow_remote:
        hosts |= {socket.gethostname().lower(), socket.getfqdn().lower()}
    guard = Guard(_fresh(view, source), hosts, any_address=allow_remote, writable=writable)
    server = bind(host, port, guard)
    return server, f"http://{address(host, server.server_port)}{view.path}"


class _Copy:
    """The study in memory, decorated; nothing can be changed through it."""

    def __init__(self, source: StudyReader) -> None:
        self._source, self._seen = source, ""
        self.update()

    def update(self) -> None:
        """Copy the study again where it has moved on."""
        from optuna_dashboard import wsgi

        with self._source.open() as study:
            if (seen := fingerprint(study)) == self._seen:
                return
            pictures = Drawn()
            target = prepare(study, pictures)
        self.app = wsgi(target._storage, artifact_store=pictures)
        self.path = f"/dashboard/studies/{target._study_id}"
        self._seen = seen


class _Live:
    """The study itself; notes, pictures and plots are written into it, a person's notes are kept."""

    def __init__(self, source: StudyReader) -> None:
        from optuna_dashboard import wsgi

        self._source, self._seen = source, ""
        self._pictures = Folder(_beside(source))
        with source.open_writable() as study:
            self._study = study
            self.app = wsgi(study._storage, artifact_store=self._pictures.store)
            self.path = f"/dashboard/studies/{study._study_id}"
        self.update()

    def update(self) -> None:
        """Write the notes of trials that ended since."""
        with self._source.one_line_errors():
            if (seen := fingerprint(self._study)) != self._seen:
                decorate(self._study, read(self._study), self._pictures)
                self._seen = seen


def _fresh(
    view: _View, source: StudyReader, clock: Callable[[], float] = time.monotonic
) -> Callable[[], WSGIApplication]:
    """Gives the application for each request, brought up to date at most every few seconds by one thread."""
    lock, last, told = threading.Lock(), [clock()], [""]

    def current() -> WSGIApplication:
        if clock() - last[0] >= REFRESH and lock.acquire(blocking=False):
            try:
                view.update()
                told[0] = ""
            except AutosplitError as error:  # what was read before can still be looked at
                if str(error) != told[0]:
                    print(
                        printable(f"autosplit: showing what was read before: {error}"),
                        file=sys.stderr,
                        flush=True,
                    )
                told[0] = str(error)
            finally:
                last[0] = clock()
                lock.release()
        return view.app

    return current


def _beside(source: StudyReader) -> Path:
    """The folder for pictures that are written: beside a SQLite file, else among the user's data."""
    import platformdirs

    if source.file:
        return source.file.with_name(source.file.name + ".artifacts")
    return (
        platformdirs.user_data_path("autosplit")
        / "artifacts"
        / identity(source.location, source.name)
    )


def _require(*packages: str) -> None:
    for package in packages:
        require(package, "dashboard")
