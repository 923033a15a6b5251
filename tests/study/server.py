"""A PostgreSQL server for a test, in a temporary folder and on a socket there."""

import contextlib
import importlib.util
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from autosplit.errors import MachineError

OPTIONS = "-c listen_addresses='' -c fsync=off -c max_connections=40 -k {}"


class Server:
    """A running server; as root it runs as nobody, since PostgreSQL refuses root."""

    def __init__(self, programs, folder):
        self._programs, self._folder = programs, folder
        self._as = {}
        if os.geteuid() == 0:
            shutil.chown(folder, "nobody")
            self._as = {"user": "nobody", "group": "nogroup", "extra_groups": []}
        self._call("initdb", "-U", "tester", "-A", "trust", "-E", "UTF8", "--no-sync")
        self.start()

    @property
    def url(self):
        return f"postgresql+psycopg://tester@/postgres?host={self._folder}"

    @contextlib.contextmanager
    def database(self, name):
        """The URL of a new database on the server, dropped afterwards."""
        self._psql(f"CREATE DATABASE {name}")
        try:
            yield self.url.replace("/postgres?", f"/{name}?")
        finally:
            self._psql(f"DROP DATABASE {name} WITH (FORCE)")

    def start(self):
        log, options = str(self._folder / "log"), OPTIONS.format(self._folder)
        self._call("pg_ctl", "start", "-w", "-l", log, "-o", options)

    def stop(self):
        self._call("pg_ctl", "stop", "-m", "immediate")

    def _call(self, program, *arguments):
        self._run([str(self._programs / program), "-D", str(self._folder / "data"), *arguments])

    def _psql(self, statement):
        connection = ["-h", str(self._folder), "-U", "tester", "-d", "postgres"]
        self._run([str(self._programs / "psql"), *connection, "-c", statement])

    def _run(self, command):
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
def postgresql():
    """A server for a test, or a skip that says why there is none."""
    import pytest

    try:
        programs = installed()
    except MachineError as error:
        pytest.skip(str(error))
    with running(programs) as server:
        yield server


def installed():
    """The folder of PostgreSQL's programs. Raises MachineError without it or its driver."""
    if importlib.util.find_spec("psycopg") is None:
        raise MachineError("package psycopg is not installed; pip install 'autosplit[postgres]'")
    packaged = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    on_path = shutil.which("initdb")
    if not packaged and not on_path:
        needed = "no initdb in /usr/lib/postgresql/*/bin or on the path"
        raise MachineError(f"PostgreSQL is not installed: {needed}")
    return packaged[-1].parent if packaged else Path(str(on_path)).parent


@contextlib.contextmanager
def running(programs):
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
