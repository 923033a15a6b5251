"""A PostgreSQL server of the tests' own: in a folder of its own, on a socket there, gone with the test."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
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

    def start(self) -> None:
        self._call(
            "pg_ctl",
            "start",
            "-w",
            "-l",
            str(self._folder / "log"),
            "-o",
            OPTIONS.format(self._folder),
        )

    def stop(self) -> None:
        self._call("pg_ctl", "stop", "-m", "immediate")

    def _call(self, program: str, *arguments: str) -> None:
        command = [str(self._programs / program), "-D", str(self._folder / "data"), *arguments]
        environment = {"PATH": os.environ["PATH"], "LC_ALL": "C"}
        done = (
            subprocess.run(
                command,
                cwd=self._folder,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                **self._as,
            )
            if program != "pg_ctl"
            else subprocess.run(
                command,
                cwd=self._folder,
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                **self._as,
            )
        )  # the server keeps what pg_ctl was given open
        if done.returncode:
            raise RuntimeError(f"{program} failed: {done.stdout!r}")


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
    """The folder of PostgreSQL's programs. Raises MachineError where it, or its driver, is not installed."""
    if importlib.util.find_spec("psycopg") is None:
        raise MachineError("package psycopg is not installed; pip install 'autosplit[postgres]'")
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    on_path = shutil.which("initdb")
    if not found and not on_path:
        raise MachineError(
            "PostgreSQL is not installed: no initdb in /usr/lib/postgresql/*/bin or on the path"
        )
    return found[-1].parent if found else Path(str(on_path)).parent


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
