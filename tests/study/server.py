"""A PostgreSQL server for a test, in a temporary folder and on a socket there."""

import contextlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

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
            pipes = {"stdout": output, "stderr": subprocess.STDOUT}
            options = {"cwd": self._folder, "env": environment, **pipes, **self._as}
            done = subprocess.run(command, **options)
            if done.returncode:
                output.seek(0)
                raise RuntimeError(f"{command[0]} failed: {output.read()!r}")


@contextlib.contextmanager
def postgresql():
    """A server in a folder of its own, gone afterwards, or a skip that says why there is none."""
    pytest.importorskip("psycopg", reason="psycopg is not installed; see autosplit[postgres]")
    packaged = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    initdb = shutil.which("initdb", path=os.pathsep.join([*map(str, packaged), os.environ["PATH"]]))
    if not initdb:
        pytest.skip("PostgreSQL is not installed: no initdb in /usr/lib/postgresql or on the path")
    folder = Path(tempfile.mkdtemp(prefix="autosplit-pg-"))
    try:
        server = Server(Path(initdb).parent, folder)
        try:
            yield server
        finally:
            with contextlib.suppress(RuntimeError):
                server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
