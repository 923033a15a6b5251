"""The server of an export under load: overhead of HTTP, and a soak test with bad clients."""

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
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil

import autosplit
from autosplit.deploy.server.protocol import DATATYPES, HEADER_LENGTH, read
from autosplit.hardware.execution.pipeline import Item
from autosplit.hardware.measurement.open_loop import open_latencies
from autosplit.hardware.measurement.parity import compare
from autosplit.planner.workload import QUANTILES, Workload, items_measured, quantile
from studies.benchmarks.result import Bar, at_least, at_most

CLIENTS = 8
ROUNDS = 3  # of the pipeline and the server in turns
ADDED_MS = {"p50": 0.3, "p99": 1.0}  # that the server may add
GROWTH = 1.05  # of the server's memory at most
LINGER = struct.pack("ii", 1, 0)  # closing such a socket resets the connection


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
    """A stand-in for a pipeline in ``load_test``: each item is a request of one of the clients."""

    batch, threads, wiring = 1, {}, SimpleNamespace(steps=None)  # type: ignore[var-annotated]

    def __init__(self, ask: Callable[[Item], Any], count: int) -> None:
        self._ask, self._pool = ask, ThreadPoolExecutor(count)

    def with_delay(self, _: float) -> None:
        """Do nothing: the server has a delay of its own."""

    def enter(self, item: Item, _: object = 0) -> Future[Any]:
        """The future of an answer."""
        return self._pool.submit(self._ask, item)

    def run(self, items: Sequence[Item], _: object = 0) -> list[Any]:
        """The answers."""
        return [ticket.result() for ticket in list(map(self.enter, items))]

    def result(self, ticket: Future[Any]) -> Any:
        """An answer."""
        return ticket.result()


def asking(address: tuple[str, int], request: Callable[[Item], bytes]) -> Callable[[Item], bytes]:
    """A function that sends an item's request on its thread's connection and returns the body."""
    local = threading.local()

    def ask(item: Item) -> bytes:
        if not hasattr(local, "client"):
            local.client = Client(address)
        status, _, body = local.client.ask(request(item))
        assert status == 200, body
        return bytes(body)

    return ask


def http(path: str, body: bytes, *headers: str) -> bytes:
    """A request as bytes."""
    lines = [f"POST {path} HTTP/1.1", "host: here", f"content-length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


def inference(name: str, item: Item) -> bytes:
    """The request for an item, in binary."""
    tensors = []
    for key, array in item.items():
        tensor = {"name": key, "shape": array.shape, "datatype": DATATYPES[str(array.dtype)]}
        tensors.append({**tensor, "parameters": {"binary_data_size": array.nbytes}})
    document = {"inputs": tensors, "parameters": {"binary_data_output": True}}
    head, data = json.dumps(document).encode(), b"".join(map(np.ndarray.tobytes, item.values()))
    return http(f"/v2/models/{name}/infer", head + data, f"{HEADER_LENGTH}: {len(head)}")


def outputs_of(headers: bytes, body: bytes) -> dict[str, Any]:
    """The outputs in an answer, by name."""
    length = int(headers.lower().partition(HEADER_LENGTH.encode() + b": ")[2].split()[0])
    head = json.dumps({"inputs": json.loads(body[:length])["outputs"]}).encode()
    return dict(read(head + body[length:], str(len(head)), ()).item)


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


def overhead(
    folder: Path, items: Sequence[Item], rate: float, seconds: float
) -> tuple[dict[str, float], list[Bar]]:
    """Latencies of ``pipeline.run`` and of the server at a rate, and what the server may add."""
    times = dict[str, list[list[float]]](run=[], server=[])
    with served(folder) as (_, address, name), autosplit.load(folder) as pipeline:
        pipeline.with_delay(pipeline.delay_ms or 0.0)
        requests = {id(item): inference(name, item) for item in items}
        ask = asking(address, lambda item: requests[id(item)])
        ways: dict[str, Callable[[Item], Any]]
        ways = {"run": lambda item: pipeline.run([item]), "server": ask}
        for way in list(ways) * ROUNDS:
            clients: Any = Clients(ways[way], CLIENTS)  # new: the server closes idle connections
            all_ms = open_latencies(clients, items, Workload(rate), items_measured(rate, seconds))
            times[way].append(all_ms[len(all_ms) // 10 :])
    figures, bars = dict[str, float](), list[Bar]()
    for at, most in ADDED_MS.items():
        for way, rounds in times.items():
            figures[f"{way} {at}"] = median(quantile(np.array(ms), QUANTILES[at]) for ms in rounds)
        added = figures[f"server {at}"] - figures[f"run {at}"]
        bars.append(at_most(f"ms that the server adds, {at}", added, most))
    return figures, bars


def soak(folder: Path, items: Sequence[Item], rate: float, minutes: float) -> list[Bar]:
    """Run the server at a rate for some minutes, with killed clients and bad requests in between.

    A killed client is a connection that is reset while a request is being sent.
    """
    counts, memory = Counter[str](), list[float]()
    with autosplit.load(folder) as pipeline:
        expected = pipeline.run(items)
    with served(folder) as (process, address, name), ThreadPoolExecutor(CLIENTS + 1) as pool:
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
                kind = "refused" if status == 503 else "wrong"
                if status == 200 and compare([outputs_of(headers, body)], [expected[each]]).equal:
                    kind = "right"
                counts[kind] += 1

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
                    with contextlib.suppress(ConnectionError):  # it may stop reading a long body
                        is_right = Client(address).ask(request)[0] == status
                        counts["refused rightly" if is_right else "wrong"] += 1
                    client = Client(address)
                    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER)
                    client.socket.sendall(requests[0][: len(requests[0]) // (1 + status % 2)])
                    client.socket.close()
                    counts["killed"] += 1
                memory.append(process.memory_info().rss)
                time.sleep(0.5)

        tasks = [pool.submit(bad), *(pool.submit(good, number) for number in range(CLIENTS))]
        for task in tasks:
            task.result()
    third = len(memory) // 3
    grown = median(memory[-third:]) / median(memory[third : 2 * third]) if third else float("nan")
    what = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
    asked = sum(counts[kind] for kind in ("right", "wrong", "lost", "refused"))
    return [
        at_least(f"share of right answers ({what})", counts["right"] / max(1, asked), 1.0),
        at_most(f"growth of the memory ({median(memory) / 2**20:.0f} MiB)", grown, GROWTH, ".3f"),
    ]
