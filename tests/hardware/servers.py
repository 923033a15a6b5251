"""TVM RPC servers and trackers as processes on this machine, each pinned to a core."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

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

    def __init__(
        self,
        log: Path,
        core: int = -1,
        tracker: int = 0,
        key: str = "",
        is_tracker: bool = False,
        wait: bool = True,
    ) -> None:
        self.port, self.core, self._log = free_port(), core if core >= 0 else own_core(-1), log
        self._tracker, self._key, self._is_tracker = tracker, key, is_tracker
        self._processes: list[subprocess.Popen[bytes]] = []
        self._launch()
        if wait:
            self.wait()

    @property
    def device(self) -> str:
        return f"rpc:{HOST}:{self.port}"

    def start(self) -> None:
        """Start it again."""
        self._launch()
        self.wait()

    def wait(self) -> None:
        """Wait until it takes connections, or its tracker knows it."""
        wait_for(self._is_up)

    def kill(self) -> None:
        """End it with all it started, as a power cut would."""
        while self._processes:
            process = self._processes.pop()
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            wait_for(lambda leader=process.pid: not session_of(leader))

    def stop(self) -> None:
        """Stop its processes, which stay there and answer no more."""
        for process in self._processes:
            for number in session_of(process.pid):
                os.kill(number, signal.SIGSTOP)

    def _launch(self) -> None:
        command = [sys.executable, "-c", _PINNED, str(self.core), *self._words()]
        # TVM would take the first core.
        environment = {**os.environ, "TVM_NUM_THREADS": "1", "TVM_BIND_THREADS": "0"}
        with self._log.open("ab") as log:
            started = subprocess.Popen(
                command, start_new_session=True, stdout=log, stderr=log, env=environment
            )
        self._processes.append(started)

    def _is_up(self) -> bool:
        assert self._processes[0].poll() is None, self._log.read_text()
        if self._tracker:  # a connection that ends at once would make the server register anew
            from tvm import rpc

            known = rpc.connect_tracker(HOST, self._tracker).summary()["server_info"]
            return any(server["addr"][1] == self.port for server in known)
        try:
            socket.create_connection((HOST, self.port), 1).close()
        except OSError:
            return False
        return True

    def _words(self) -> list[str]:
        port, end = str(self.port), str(self.port + 1)
        where = ["--host", HOST, "--port", port, "--port-end", end]
        if self._is_tracker:
            return ["tvm.exec.rpc_tracker", *where]
        tracker = ["--tracker", f"{HOST}:{self._tracker}"] if self._tracker else []
        key = ["--key", self._key] if self._key else []
        return ["tvm.exec.rpc_server", *where, *tracker, *key]


class Servers:
    """Starts servers that end with the test."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self._stack, self._folder, self._count = stack, folder, 0

    def __call__(self, **how: object) -> Server:
        self._count += 1
        server = Server(self._folder / f"server{self._count}.log", **how)  # type: ignore[arg-type]
        self._stack.callback(server.kill)
        return server


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with ExitStack() as stack:
        yield Servers(stack, tmp_path_factory.mktemp("servers"))


def own_core(number: int) -> int:
    """A core this process may use; -1 is the last."""
    there = devices.available()
    return there[number % len(there)]


def free_port() -> int:
    with socket.socket() as free:
        free.bind((HOST, 0))
        return int(free.getsockname()[1])


def session_of(leader: int) -> list[int]:
    """The processes that still run in a session."""
    members = []
    for process in psutil.process_iter(["status"]):
        with contextlib.suppress(ProcessLookupError):
            if os.getsid(process.pid) == leader and process.info["status"] != psutil.STATUS_ZOMBIE:
                members.append(process.pid)
    return members
