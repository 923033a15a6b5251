"""A PostgreSQL server for a test, in a temporary folder and on a socket there."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from autosplit.errors import MachineError

OPTIONS = "-c listen_addresses='' -c fsync=off -c max_connections=40 -k {}"


class Server:
    """A running server; as root it runs as nobody, since PostgreSQL refuses root."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self._programs, self._folder = programs, folder
        self._as: dict[str, Any] = {}
        if os.geteuid() == 0:
            shutil.chown(folder, "nobody")
            self._as = {"user": "nobody", "group": "nogroup", "extra_groups": []}
        self._call("initdb", "-U", "tester", "-A", "trust", "-E", "UTF8", "--no-sync")
        self.start()

    @property
    def url(self) -> str:
        return f"postgresql+psycopg://tester@/postgres?host={self._folder}"

    @contextlib.contextmanager
    def database(self, name: str) -> Iterator[str]:
        """The URL of a new database on the server, dropped afterwards."""
        self._psql(f"CREATE DATABASE {name}")
        try:
            yield self.url.replace("/postgres?", f"/{name}?")
        finally:
            self._psql(f"DROP DATABASE {name} WITH (FORCE)")

    def start(self) -> None:
        log, options = str(self._folder / "log"), OPTIONS.format(self._folder)
        self._call("pg_ctl", "start", "-w", "-l", log, "-o", options)

    def stop(self) -> None:
        self._call("pg_ctl", "stop", "-m", "immediate")

    def _call(self, program: str, *arguments: str) -> None:
        self._run([str(self._programs / program), "-D", str(self._folder / "data"), *arguments])

    def _psql(self, statement: str) -> None:
        connection = ["-h", str(self._folder), "-U", "tester", "-d", "postgres"]
        self._run([str(self._programs / "psql"), *connection, "-c", statement])

    def _run(self, command: Sequence[str]) -> None:
        environment = {"PATH": os.environ["PATH"], "LC_ALL": "C"}
        # A pipe would stay open in the server that pg_ctl starts.
        with tempfile.TemporaryFile() as output:
            done = subprocess.run(
                command,
                cwd=self._folder,
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                **self._as,
            )
            if done.returncode:
                output.seek(0)
                raise RuntimeError(f"{command[0]} failed: {output.read()!r}")


@contextlib.contextmanager
def postgresql() -> Iterator[Server]:
    """A server for a test, or a skip that says why there is none."""
    import pytest

    try:
        programs = installed()
    except MachineError as error:
        pytest.skip(str(error))
    with running(programs) as server:
        yield server


def installed() -> Path:
    """The folder of PostgreSQL's programs. Raises MachineError without it or its driver."""
    if importlib.util.find_spec("psycopg") is None:
        raise MachineError("package psycopg is not installed; pip install 'autosplit[postgres]'")
    packaged = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    on_path = shutil.which("initdb")
    if not packaged and not on_path:
        raise MachineError(
            "PostgreSQL is not installed: no initdb in /usr/lib/postgresql/*/bin or on the path"
        )
    return packaged[-1].parent if packaged else Path(str(on_path)).parent


@contextlib.contextmanager
def running(programs: Path) -> Iterator[Server]:
    """A server in a folder of its own, gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="autosplit-pg-"))
    server = None
    try:
        server = Server(programs, folder)
        yield server
    finally:
        if server is not None:
            with contextlib.suppress(RuntimeError):
                server.stop()
        shutil.rmtree(folder, ignore_errors=True)
