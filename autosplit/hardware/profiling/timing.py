"""Repeating and timing of calls, and running them on given cores."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from autosplit.hardware.devices.device import Cores

T = TypeVar("T")
MS = 1e3
MIN_ROUNDS = 6  # the first is a warm-up


def repeated_ms(
    work: Callable[[], object], seconds: float, least: int = MIN_ROUNDS, most: float = float("inf")
) -> list[float]:
    """The times in ms of calls for about ``seconds``, between ``least`` and ``most`` of them."""
    samples: list[float] = []
    deadline = time.perf_counter() + seconds
    while len(samples) < least or (len(samples) < most and time.perf_counter() < deadline):
        start = time.perf_counter()
        work()
        samples.append((time.perf_counter() - start) * MS)
    return samples


def on_cores(cores: Cores, work: Callable[[], T]) -> T:
    """Return the result of ``work`` in a new thread on ``cores``; kernel threads end with it."""

    def bound() -> T:
        cores.bind()
        return work()

    # A new thread inherits the affinity of the one that starts it.
    with ThreadPoolExecutor(1, "profile") as executor:
        return executor.submit(bound).result()
