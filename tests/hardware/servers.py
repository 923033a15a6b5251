"""TVM RPC servers and trackers as processes on this machine, each pinned to a core."""

import contextlib
import itertools
import os
import signal
import socket
import subprocess
import sys

import psutil
import pytest

from autosplit.hardware.devices import device as devices
from tests.hardware.fakes import wait_for

HOST = "127.0.0.1"
_PINNED = (
    "import os, runpy, sys; os.sched_setaffinity(0, {int(sys.argv.pop(1))}); "
    "runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"
)


class Server:
    """A server, or with ``is_tracker`` a tracker, in a session of its own."""

    def __init__(self, log, core=-1, tracker=0, key="", is_tracker=False, wait=True):
        self.port, self.core, self._log = free_port(), core if core >= 0 else own_core(-1), log
        self._tracker, self._key, self._is_tracker = tracker, key, is_tracker
        self.device = f"rpc:{HOST}:{self.port}"
        self._processes = []
        self._launch()
        if wait:
            self.wait()

    def start(self):
        """Start it again."""
        self._launch()
        self.wait()

    def wait(self):
        """Wait until it takes connections, or its tracker knows it."""
        wait_for(self._is_up)

    def kill(self):
        """End it with all it started, as a power cut would."""
        while self._processes:
            process = self._processes.pop()
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            wait_for(lambda leader=process.pid: not session_of(leader))

    def stop(self):
        """Stop its processes, which stay there and answer no more."""
        for process in self._processes:
            for number in session_of(process.pid):
                os.kill(number, signal.SIGSTOP)

    def _launch(self):
        command = [sys.executable, "-c", _PINNED, str(self.core), *self._words()]
        # TVM would take the first core.
        environment = {**os.environ, "TVM_NUM_THREADS": "1", "TVM_BIND_THREADS": "0"}
        with self._log.open("ab") as log:
            started = subprocess.Popen(
                command, start_new_session=True, stdout=log, stderr=log, env=environment
            )
        self._processes.append(started)

    def _is_up(self):
        assert self._processes[0].poll() is None, self._log.read_text()
        if self._tracker:  # a connection that ends at once would make the server register anew
            from tvm import rpc

            known = rpc.connect_tracker(HOST, self._tracker).summary()["server_info"]
            return any(server["addr"][1] == self.port for server in known)
        with contextlib.suppress(OSError):
            socket.create_connection((HOST, self.port), 1).close()
            return True
        return False

    def _words(self):
        port, end = str(self.port), str(self.port + 1)
        where = ["--host", HOST, "--port", port, "--port-end", end]
        if self._is_tracker:
            return ["tvm.exec.rpc_tracker", *where]
        tracker = ["--tracker", f"{HOST}:{self._tracker}"] if self._tracker else []
        key = ["--key", self._key] if self._key else []
        return ["tvm.exec.rpc_server", *where, *tracker, *key]


@pytest.fixture(scope="session")
def servers(tmp_path_factory):
    """Starts servers that end with the session."""
    folder, numbers = tmp_path_factory.mktemp("servers"), itertools.count()
    with contextlib.ExitStack() as stack:

        def start(**how):
            server = Server(folder / f"server{next(numbers)}.log", **how)
            stack.callback(server.kill)
            return server

        yield start


def own_core(number):
    """A core this process may use; -1 is the last."""
    there = devices.available()
    return there[number % len(there)]


def free_port():
    with socket.socket() as free:
        free.bind((HOST, 0))
        return free.getsockname()[1]


def session_of(leader):
    """The processes that still run in a session."""
    members = []
    for process in psutil.process_iter(["status"]):
        with contextlib.suppress(ProcessLookupError):
            if os.getsid(process.pid) == leader and process.info["status"] != psutil.STATUS_ZOMBIE:
                members.append(process.pid)
    return members
