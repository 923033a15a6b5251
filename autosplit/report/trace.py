"""A pipeline run in Chrome's trace event format, which Perfetto and chrome://tracing open.

A stage is a process, each of its replicas a thread. An item is a flow from replica to replica.
Between two items a replica waits for input, or for room for its results or its core.

Format: Google, "Trace Event Format", 2016.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from autosplit.files import atomic_write
from autosplit.hardware.execution.engine import StageEvent
from autosplit.hardware.execution.wiring import Wiring
from autosplit.printable import printable

_US = 1e6  # microseconds in a second, the unit of the format


def write(
    events: Sequence[StageEvent],
    submitted: Sequence[float],
    wiring: Wiring,
    names: Sequence[Sequence[str]],
    file: Path,
) -> None:
    """Write a run to ``file``. Raises MachineError if it cannot be written.

    ``events`` and ``submitted`` are those of the pipeline. ``names`` has the devices of the
    replicas of each stage.
    """
    ready = _ready_times(events, submitted, wiring)
    begin = min([*submitted, *(event.start for event in events)], default=0.0)
    entries = [*_tracks(names), *_spans(events, ready, begin), *_flows(events, begin)]
    with atomic_write(file) as temporary:
        document = {"displayTimeUnit": "ms", "traceEvents": entries}
        temporary.write_text(json.dumps(document), encoding="utf-8")


def _tracks(names: Sequence[Sequence[str]]) -> Iterator[dict[str, Any]]:
    for stage, devices in enumerate(names):
        process = {"ph": "M", "name": "process_name", "pid": stage, "tid": 0}
        yield {**process, "args": {"name": f"stage {stage}"}}
        for replica, device in enumerate(devices):
            name = printable(f"replica {replica} on {device}")
            thread = {"name": "thread_name", "tid": replica, "args": {"name": name}}
            yield {**process, **thread}


def _spans(
    events: Iterable[StageEvent], ready: Mapping[tuple[int, int], float], begin: float
) -> Iterator[dict[str, Any]]:
    """A box for each item on the track of its replica, and boxes for the waits before it."""
    ends: dict[tuple[int, int], float] = {}
    for event in sorted(events, key=lambda event: event.start):
        track = event.stage, event.replica
        previous_end = ends.get(track, begin)
        # The clocks of two threads may differ slightly: keep the time within the gap.
        ready_at = min(max(ready[event.stage, event.item], previous_end), event.start)
        ends[track] = event.end
        times = previous_end, ready_at, event.start, event.end
        names = "waiting for input", "waiting for room or core", f"item {event.item}"
        for name, (start, end) in zip(names, pairwise(times), strict=True):
            if end > start:
                place = {"pid": event.stage, "tid": event.replica, "args": {"item": event.item}}
                span = {"ts": (start - begin) * _US, "dur": (end - start) * _US}
                yield {"ph": "X", "name": name, "cat": name.split()[0], **span, **place}


def _flows(events: Iterable[StageEvent], begin: float) -> Iterator[dict[str, Any]]:
    """An arrow from each stage of an item to the next."""
    by_item: dict[int, list[StageEvent]] = {}
    for event in sorted(events, key=lambda event: event.start):
        by_item.setdefault(event.item, []).append(event)
    for item, steps in by_item.items():
        phases = ["s", *"t" * (len(steps) - 2), "f"]
        for phase, event in zip(phases, steps, strict=False):
            # A point inside the box binds the arrow to it.
            time = (event.start + event.end) / 2 - begin
            flow = {"ph": phase, "id": item, "name": "item", "cat": "flow", "ts": time * _US}
            yield {**flow, "pid": event.stage, "tid": event.replica, "bp": "e"}


def _ready_times(
    events: Iterable[StageEvent], submitted: Sequence[float], wiring: Wiring
) -> Mapping[tuple[int, int], float]:
    """When each stage had all inputs of each item."""
    senders: list[set[int]] = [set() for _ in wiring.stages]
    for connection in wiring.connections:
        if not isinstance(connection.source, str):
            for reader in connection.stages:
                senders[reader].add(connection.source[0])
    ends = {(event.stage, event.item): event.end for event in events}
    return {
        (stage, item): max(
            [submitted[item], *(ends.get((sender, item), 0.0) for sender in senders[stage])]
        )
        for stage, item in ends
    }
