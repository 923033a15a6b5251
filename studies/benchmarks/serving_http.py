"""The server of an export under load: what HTTP adds to a pipeline, and a soak with bad clients."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil

import autosplit
from autosplit.deploy.server import protocol
from autosplit.hardware.execution.pipeline import Item
from autosplit.hardware.measurement.open_loop import open_latencies
from autosplit.hardware.measurement.parity import compare
from autosplit.planner.workload import Workload, items_measured, quantile
from studies.benchmarks.result import Bar, at_least, at_most

CLIENTS = 8
ROUNDS = 3  # of the pipeline and the server in turns
SHARES = {0.5: 0.3, 0.99: 1.0}  # of the items, and the ms that the server may add to them
GROWTH = 1.05  # of the server's memory, that is still flat
LINGER = struct.pack("ii", 1, 0)  # a socket that is reset where it is closed


class Client:
    """A connection that sends requests and reads answers, with as little work as possible."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, timeout=60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, request: bytes) -> tuple[int, bytes, bytes]:
        """The status, the headers and the body of the answer."""
        self.socket.sendall(request)
        data, end, size = b"", -1, 0
        while end < 0 or len(data) < end + 4 + size:
            part = self.socket.recv(1 << 20)
            if not part:
                raise ConnectionError("the server closed the connection")
            data += part
            if end < 0 and (end := data.find(b"\r\n\r\n")) >= 0:
                size = int(data[:end].lower().partition(b"\r\ncontent-length: ")[2].split()[0])
        return int(data[9:12]), data[:end], data[end + 4 :]


class Clients:
    """What ``load_test`` takes as a pipeline: each item is a request of one of some clients."""

    batch, threads, wiring = 1, {}, SimpleNamespace(steps=None)  # type: ignore[var-annotated]

    def __init__(self, ask: Callable[[Item], Any], count: int) -> None:
        self._ask, self._pool = ask, ThreadPoolExecutor(count)

    def with_delay(self, _: float) -> None:
        """The server has its own."""

    def enter(self, item: Item, _: object = 0) -> Future[Any]:
        """The future of an answer."""
        return self._pool.submit(self._ask, item)

    def run(self, items: Sequence[Item]) -> list[Any]:
        """The answers."""
        return [ticket.result() for ticket in list(map(self.enter, items))]

    def result(self, ticket: Future[Any]) -> Any:
        """An answer."""
        return ticket.result()


def http(path: str, body: bytes, *headers: str) -> bytes:
    """A request as bytes."""
    lines = [f"POST {path} HTTP/1.1", "host: here", f"content-length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


def inference(name: str, item: Item) -> bytes:
    """The request for an item, in binary."""
    tensors, data = [], b""
    for key, array in item.items():
        tensor = {
            "name": key,
            "shape": array.shape,
            "parameters": {"binary_data_size": array.nbytes},
        }
        tensors.append({**tensor, "datatype": protocol.DATATYPES[str(array.dtype)]})
        data += array.tobytes()
    document = {"inputs": tensors, "parameters": {"binary_data_output": True}}
    head = json.dumps(document).encode()
    length = f"{protocol.HEADER_LENGTH}: {len(head)}"
    return http(f"/v2/models/{name}/infer", head + data, length)


def outputs_of(headers: bytes, body: bytes) -> dict[str, Any]:
    """The outputs in an answer, by name."""
    length = int(headers.lower().partition(protocol.HEADER_LENGTH.encode() + b": ")[2].split()[0])
    head = json.dumps({"inputs": json.loads(body[:length])["outputs"]}).encode()
    return dict(protocol.read(head + body[length:], str(len(head)), ()).item)


@contextlib.contextmanager
def served(folder: Path) -> Iterator[tuple[psutil.Process, tuple[str, int], str]]:
    """The process, the address and the model of a server of an export."""
    command = [sys.executable, "-m", "autosplit", "serve", str(folder), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            url, _, name = process.stdout.readline().partition(" serves ")
            host, _, port = url.removeprefix("http://").partition(":")
            yield psutil.Process(process.pid), (host, int(port)), name.strip().strip("'")
        finally:
            process.terminate()


def overhead(folder: Path, items: Sequence[Item], rate: float, seconds: float) -> dict[str, float]:
    """Latencies of ``pipeline.run`` and of the server at a rate, for the same clients.

    Also the time of the processor that an item takes with its client in the process of the
    pipeline, and a request in that of the server.
    """
    local, count = threading.local(), items_measured(rate, seconds)
    times, cpu_ms = dict[str, list[list[float]]](run=[], server=[]), {"run": 0.0, "server": 0.0}
    with served(folder) as (process, address, name), autosplit.load(folder) as pipeline:
        requests = {id(item): inference(name, item) for item in items}

        def ask(item: Item) -> None:
            if not hasattr(local, "client"):
                local.client = Client(address)
            status, _, body = local.client.ask(requests[id(item)])
            assert status == 200, body

        pipeline.with_delay(pipeline.delay_ms or 0.0)
        ways: dict[str, tuple[Callable[[Item], Any], psutil.Process]] = {
            "run": (lambda item: pipeline.run([item]), psutil.Process()),
            "server": (ask, process),
        }
        for _ in range(ROUNDS):
            for way, (answer, worker) in ways.items():
                clients = Clients(answer, CLIENTS)  # anew: the server ends idle connections
                before = sum(worker.cpu_times()[:2])
                all_ms = open_latencies(clients, items, Workload(rate), count)  # type: ignore[arg-type]
                cpu_ms[way] += 1e3 * (sum(worker.cpu_times()[:2]) - before) / len(all_ms) / ROUNDS
                times[way].append(all_ms[len(all_ms) // 10 :])
    quantiles = {
        f"{way} p{100 * share:g}": median(quantile(np.array(each), share) for each in rounds)
        for way, rounds in times.items()
        for share in SHARES
    }
    return quantiles | {f"{way} CPU ms": ms for way, ms in cpu_ms.items()}


def bars_of_overhead(figures: Mapping[str, float]) -> list[Bar]:
    """What the server may add to ``pipeline.run``."""
    bars = []
    for share, bar in SHARES.items():
        at = f"p{100 * share:g}"
        added = figures[f"server {at}"] - figures[f"run {at}"]
        bars.append(at_most(f"ms that the server adds, {at}", added, bar))
    return bars


def soak(folder: Path, items: Sequence[Item], rate: float, minutes: float) -> list[Bar]:
    """The server at a rate for some minutes, with killed clients and bad requests in between.

    A client that is killed is a connection that is reset, with a request on its way.
    """
    counts, memory = Counter[str](), list[float]()
    with autosplit.load(folder) as pipeline:
        expected = pipeline.run(items)
    with served(folder) as (process, address, name):
        requests = [inference(name, item) for item in items]
        end = time.monotonic() + 60 * minutes

        def good(number: int) -> None:
            client, random = Client(address), np.random.default_rng(number)
            due = time.monotonic()
            while time.monotonic() < end:
                due += random.exponential(CLIENTS / rate)
                time.sleep(max(0.0, due - time.monotonic()))
                each = int(random.integers(len(items)))
                try:
                    status, headers, body = client.ask(requests[each])
                except OSError:
                    counts["lost"] += 1
                    client = Client(address)
                    continue
                is_right = status == 200
                if is_right:
                    is_right = compare([outputs_of(headers, body)], [expected[each]]).equal
                counts["right" if is_right else "refused" if status == 503 else "wrong"] += 1

        def bad() -> None:
            path = f"/v2/models/{name}/infer"
            answers = {
                http(path, b"{"): 400,
                http(path, json.dumps({"inputs": [{"name": "?"}]}).encode()): 400,
                http("/v2/models/other/infer", b"{}"): 404,
                http(path, b" " * 100_000_001): 413,
            }
            while time.monotonic() < end:
                for request, status in answers.items():
                    with contextlib.suppress(ConnectionError):  # it stops reading what is too long
                        is_right = Client(address).ask(request)[0] == status
                        counts["refused rightly" if is_right else "wrong"] += 1
                    client = Client(address)
                    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER)
                    client.socket.sendall(requests[0][: len(requests[0]) // (1 + status % 2)])
                    client.socket.close()
                    counts["killed"] += 1
                memory.append(process.memory_info().rss)
                time.sleep(0.5)

        targets = [*(lambda n=n: good(n) for n in range(CLIENTS)), bad]
        threads = [threading.Thread(target=target) for target in targets]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    third = len(memory) // 3
    grown = median(memory[-third:]) / median(memory[third : 2 * third]) if third else float("nan")
    what = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
    asked = sum(counts[kind] for kind in ("right", "wrong", "lost", "refused"))
    return [
        at_least(f"share of right answers ({what})", counts["right"] / max(1, asked), 1.0),
        at_most(f"growth of the memory ({median(memory) / 2**20:.0f} MiB)", grown, GROWTH, ".3f"),
    ]
