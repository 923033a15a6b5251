"""The answer of a study, and optuna-dashboard over it; read-only unless asked otherwise.

Read-only, the storage of the study is never opened for writing. The study is copied into memory and
decorated there. The copy is made again when the study has changed, so that a running study can be
watched.
"""

from __future__ import annotations

import logging
import socket
import sys
import threading
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING

from autosplit.errors import AutosplitError, ConfigError
from autosplit.extras import require
from autosplit.printable import printable
from autosplit.report.dashboard.artifacts import LazyPictures, PictureFolder, identity
from autosplit.report.dashboard.front import Front
from autosplit.report.dashboard.guard import Guard, is_loopback
from autosplit.report.dashboard.snapshot import copy, decorate, fingerprint
from autosplit.report.documents.record import read
from autosplit.report.documents.study_reader import StudyReader

if TYPE_CHECKING:
    import optuna
    from _typeshed.wsgi import WSGIApplication

    from autosplit.report.dashboard.server import Server

REFRESH = 5.0  # seconds after which a request looks whether the study has changed


def open_server(
    reader: StudyReader,
    host: str = "127.0.0.1",
    port: int = 8080,
    *,
    writable: bool = False,
    allow_remote: bool = False,
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
    for package in ("optuna_dashboard", "plotly", "waitress"):
        require(package, "dashboard")
    from autosplit.report.dashboard.server import Server, address

    # It logs a traceback for every malformed request.
    logging.getLogger("optuna_dashboard").setLevel(logging.CRITICAL)
    view: _View = _WritableStudy(reader) if writable else _StudyCopy(reader)
    hosts = {"localhost", "127.0.0.1", "[::1]", f"[{host}]" if ":" in host else host.lower()}
    if allow_remote:
        hosts |= {socket.gethostname().lower(), socket.getfqdn().lower()}
    guard = Guard(view.current_app, hosts, any_address=allow_remote, writable=writable)
    server = Server(guard, host, port)
    return server, f"http://{address(host, server.port)}/"


class _View(ABC):
    """A study to serve, brought up to date at most every ``REFRESH`` seconds by one thread."""

    app: WSGIApplication

    def __init__(self, reader: StudyReader) -> None:
        self._reader, self._fingerprint = reader, ""
        self._lock = threading.Lock()
        self._updated, self._last_error = time.monotonic(), ""

    @abstractmethod
    def update(self) -> None:
        """Take over what has changed in the study."""

    def current_app(self) -> WSGIApplication:
        """The application for one request."""
        is_due = time.monotonic() - self._updated >= REFRESH
        # Requests that come while one thread updates are answered from what was read before.
        if is_due and self._lock.acquire(blocking=False):
            try:
                self.update()
                self._last_error = ""
            except AutosplitError as error:
                # what was read before can still be looked at
                self._print_once(str(error))
            finally:
                self._updated = time.monotonic()
                self._lock.release()
        return self.app

    def _print_once(self, error: str) -> None:
        if error != self._last_error:
            line = f"autosplit: showing what was read before: {printable(error)}"
            print(line, file=sys.stderr, flush=True)
        self._last_error = error


class _StudyCopy(_View):
    """The study in memory, decorated; nothing can be changed through it."""

    def __init__(self, reader: StudyReader) -> None:
        super().__init__(reader)
        self.update()

    def update(self) -> None:
        """Copy the study again if it has changed."""
        from optuna_dashboard import wsgi

        with self._reader.open() as study:
            current = fingerprint(study)
            if current == self._fingerprint:
                return
            pictures = LazyPictures()
            record, shown = read(study), copy(study)
        decorate(shown, record, pictures)
        app = wsgi(shown._storage, artifact_store=pictures)
        self.app = Front(app, record, _page_of(shown), current)
        self._fingerprint = current


class _WritableStudy(_View):
    """The study itself. Notes, pictures and plots are written into it; a person's notes stay."""

    def __init__(self, reader: StudyReader) -> None:
        from optuna_dashboard import wsgi

        super().__init__(reader)
        self._pictures = PictureFolder(_picture_folder(reader))
        with reader.open_writable() as study:
            self._study = study
            self._dashboard = wsgi(study._storage, artifact_store=self._pictures.store)
        self.update()

    def update(self) -> None:
        """Write the notes of trials that have ended since."""
        with self._reader.one_line_errors():
            current = fingerprint(self._study)
            if current != self._fingerprint:
                record = read(self._study)
                decorate(self._study, record, self._pictures)
                path = _page_of(self._study)
                self.app = Front(self._dashboard, record, path, current, writable=True)
                self._fingerprint = current


def _page_of(study: optuna.Study) -> str:
    """The path of a study's page in optuna-dashboard."""
    return f"/dashboard/studies/{study._study_id}"


def _picture_folder(reader: StudyReader) -> Path:
    """Where pictures are written: beside a SQLite file, else among the user's data."""
    import platformdirs

    if reader.file:
        return reader.file.with_name(reader.file.name + ".artifacts")
    folder = platformdirs.user_data_path("autosplit") / "artifacts"
    return folder / identity(reader.location, reader.name)
