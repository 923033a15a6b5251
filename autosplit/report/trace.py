"""A pipeline run in Chrome's trace event format, which Perfetto and chrome://tracing open.

A stage is a process, each of its replicas a thread. An item is a flow from replica to replica.
Between two items a replica waits for input, or for room for its results or its core.

Format: Google, "Trace Event Format", 2016.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    """Write a run as ``file``; raises MachineError where the disk refuses.

    ``events`` and ``submitted`` are those of the pipeline. ``names`` has the devices of the
    replicas of each stage.
    """
    document = {
        "displayTimeUnit": "ms",
        "traceEvents": list(_trace(events, submitted, wiring, names)),
    }
    with atomic_write(file) as temporary:
        temporary.write_text(json.dumps(document), encoding="utf-8")


def _trace(
    events: Sequence[StageEvent],
    submitted: Sequence[float],
    wiring: Wiring,
    names: Sequence[Sequence[str]],
) -> Iterator[dict[str, Any]]:
    yield from _tracks(names)
    if not events:
        return
    begin = min(min(submitted, default=events[0].start), min(event.start for event in events))
    ready = _ready_times(events, submitted, wiring)
    for track in _by_replica(events).values():
        previous_end = begin
        for event in track:
            # Clocks of two threads may disagree by a little, so it stays within the gap.
            ready_at = min(max(ready[event.stage, event.item], previous_end), event.start)
            yield from _span("waiting for input", event, previous_end, ready_at, begin)
            yield from _span("waiting for room or core", event, ready_at, event.start, begin)
            yield from _span(f"item {event.item}", event, event.start, event.end, begin)
            previous_end = event.end
    yield from _flows(events, begin)


def _tracks(names: Sequence[Sequence[str]]) -> Iterator[dict[str, Any]]:
    for stage, devices in enumerate(names):
        yield _named("process_name", f"stage {stage}", stage, 0)
        for replica, device in enumerate(devices):
            yield _named("thread_name", printable(f"replica {replica} on {device}"), stage, replica)


def _named(kind: str, name: str, stage: int, replica: int) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": stage, "tid": replica, "args": {"name": name}}


def _span(
    name: str, event: StageEvent, start: float, end: float, begin: float
) -> Iterator[dict[str, Any]]:
    """A box on the track of a replica; nothing where it takes no time."""
    if end > start:
        place = {"pid": event.stage, "tid": event.replica, "args": {"item": event.item}}
        times = {"ts": (start - begin) * _US, "dur": (end - start) * _US}
        yield {"ph": "X", "name": name, "cat": name.split()[0], **times, **place}


def _flows(events: Sequence[StageEvent], begin: float) -> Iterator[dict[str, Any]]:
    """An arrow from each stage of an item to the next."""
    by_item: dict[int, list[StageEvent]] = {}
    for event in sorted(events, key=lambda event: event.start):
        by_item.setdefault(event.item, []).append(event)
    for item, steps in by_item.items():
        for number, event in enumerate(steps):
            phase = "t"
            if number == 0:
                phase = "s"
            elif number == len(steps) - 1:
                phase = "f"
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


def _by_replica(events: Iterable[StageEvent]) -> Mapping[tuple[int, int], list[StageEvent]]:
    tracks: dict[tuple[int, int], list[StageEvent]] = {}
    for event in sorted(events, key=lambda event: event.start):
        tracks.setdefault((event.stage, event.replica), []).append(event)
    return tracks
