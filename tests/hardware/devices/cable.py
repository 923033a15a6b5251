"""A network cable as a process: forwards connections to a server and acts amid their traffic.

It is a process because TVM holds Python's global lock in some calls of a server.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterable

HOST = "127.0.0.1"


class Cable:
    """Forwards every connection to ``port`` to the port ``server``."""

    def __init__(self, server: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(server)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout
        self.port = int(self._process.stdout.readline())

    def unplug_at_next_request(self) -> None:
        """With the next bytes for the server forward nothing more, and close nothing."""
        self._tell("unplug")

    def signal_at_next_request(self, number: int, processes: Iterable[int]) -> None:
        """With the next bytes for the server send a signal to some processes."""
        self._tell(f"signal {number} {' '.join(map(str, processes))}")

    def close(self) -> None:
        """End the process and with it the connections."""
        self._process.kill()
        self._process.communicate()

    def _tell(self, line: str) -> None:
        assert self._process.stdin
        assert self._process.stdout
        print(line, file=self._process.stdin, flush=True)
        self._process.stdout.readline()


def forward(source: socket.socket, sink: socket.socket, events: list[str]) -> None:
    """Copy until either end closes; ``events`` says what to do before the next bytes."""
    with contextlib.suppress(OSError), source, sink:
        while data := source.recv(1 << 16):
            if events:
                event, *numbers = events[0].split()
                if event == "unplug":
                    threading.Event().wait()
                for process in numbers[1:]:
                    os.kill(int(process), int(numbers[0]))
                events.clear()
            sink.sendall(data)


def main(server: int) -> None:
    """Accept connections; the lines of the standard input are events."""
    listener = socket.create_server((HOST, 0))
    print(listener.getsockname()[1], flush=True)
    events: list[str] = []

    def accept() -> None:
        while True:
            client, _ = listener.accept()
            upstream = socket.create_connection((HOST, server))
            # Answers need no event: without a request there is none.
            for ends in ((client, upstream, events), (upstream, client, [])):
                threading.Thread(target=forward, args=ends, daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    for line in sys.stdin:
        events[:] = [line]
        print(flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
