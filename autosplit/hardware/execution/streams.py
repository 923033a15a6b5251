"""Streams of items, and the states that each item leaves for the next one of its stream."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from autosplit.errors import ConfigError, StageError
from autosplit.hardware.execution.edges import Stream, StreamRecord, Ticket
from autosplit.hardware.execution.wiring import Wiring
from autosplit.hardware.runtimes.arrays import array_of


class Streams:
    """The streams of a pipeline that has ``lanes[i]`` lanes for stage i.

    The lock of the engine guards all but ``restore`` and ``keep``: those are called by whoever runs
    the lane that has the stream.
    """

    def __init__(self, wiring: Wiring, lanes: Sequence[int]) -> None:
        self._stages = wiring.stages
        self._places = [ports.state_places for ports in wiring.stages]
        self._lanes = {stage: lanes[stage] for stage, places in enumerate(self._places) if places}
        # Outputs of stages that others get too: the caller may change them, and the next item may
        # overwrite the state while another stage reads it.
        self._shared = {connection.source for connection in wiring.connections}
        self._first = wiring.first_states
        self._records: dict[Stream, StreamRecord] = {}

    @property
    def lost(self) -> list[str]:
        """The streams that had items inside when the pipeline stopped."""
        return sorted(str(name) for name, record in self._records.items() if record.is_lost)

    def begin_item(self, ticket: Ticket, name: Stream) -> None:
        """Note that an item enters; stages with states begin it after the last of its stream."""
        if not self._first:
            return
        record = ticket.stream = self._record(name)
        ticket.initial, record.initial = record.initial, None
        if record.last is not None:
            record.last.following = ticket
            for stage in record.last.uncomputed & self._lanes.keys():
                ticket.missing[stage] += 1
        record.last = ticket

    def end_item(self, ticket: Ticket) -> None:
        """Note that an item left; a stream that was reset ends with its last one."""
        ticket.following, record = None, ticket.stream
        if record is None or record.last is not ticket:
            return
        record.last = None
        if record.initial == {}:
            del self._records[record.name]

    def is_idle(self, name: Stream) -> bool:
        """Whether no item of a stream is inside."""
        return name not in self._records or self._records[name].last is None

    def restore(self, stage: int, ticket: Ticket, values: list[Any]) -> None:
        """Add its states to the inputs of a stage, which may overwrite them."""
        if ticket.stream is None or stage not in self._lanes:
            return
        if ticket.initial is not None:
            begun = {**self._first, **ticket.initial}
            left = [np.array(array_of(begun[s.input])) for s in self._stages[stage].states]
        else:
            left = ticket.stream.left[stage]
        for (place, _), value in zip(self._places[stage], left, strict=True):
            values[place] = value

    def keep(self, stage: int, ticket: Ticket, results: Sequence[Any]) -> None:
        """Keep what an item leaves in a stage."""
        if ticket.stream is None or stage not in self._lanes:
            return
        left = [results[output] for _, output in self._places[stage]]
        for place, (_, output) in enumerate(self._places[stage]):
            if (stage, output) in self._shared:
                left[place] = np.array(array_of(left[place]))
        ticket.stream.left[stage] = left

    def reset(self, name: Stream, state: Mapping[str, Any] | None) -> None:
        """Let the next item of a stream begin anew: at ``state``, or at what the model begins with.

        Raises ConfigError for values that are no states of the model.
        """
        for key, value in (state or {}).items():
            first = self._first.get(key)
            if first is None:
                known = ", ".join(self._first) or "none"
                raise ConfigError(f"unknown state '{key}'; the states are {known}")
            if np.shape(value) != first.shape or np.asarray(value).dtype != first.dtype:
                raise ConfigError(
                    f"state '{key}' is {np.asarray(value).dtype}{list(np.shape(value))}, "
                    f"but the model takes {first.dtype}{list(first.shape)}"
                )
        # Copies, since the caller may go on to use its arrays; of two types that are equal, as are
        # those of 64 bits, runtimes know one.
        values = {k: np.asarray(v).astype(self._first[k].dtype) for k, v in (state or {}).items()}
        if values or not self.is_idle(name):
            self._record(name).initial = values
        else:
            self._records.pop(name, None)

    def of(self, name: Stream) -> dict[str, Any]:
        """The states by name that the next item of an idle stream gets.

        Raises StageError for a stream that is lost.
        """
        # One that has not begun is as one reset.
        stream = self._records.get(name, StreamRecord(name, {}))
        if stream.is_lost:
            raise StageError(
                f"stream {name!r} is lost: it had items inside; begin it in a new pipeline"
            )
        if stream.initial is not None:
            return {**self._first, **stream.initial}
        values = {
            state.input: value
            for stage, left in sorted(stream.left.items())
            for state, value in zip(self._stages[stage].states, left, strict=True)
        }
        # The next item begins with copies, for its stage may overwrite what it gets.
        stream.initial = values
        return values

    def lose(self, tickets: Iterable[Ticket]) -> None:
        """Note that items were discarded halfway."""
        for ticket in tickets:
            if ticket.stream is not None:
                ticket.stream.is_lost = True

    def _record(self, name: Stream) -> StreamRecord:
        """The record of a stream. A new one goes to the lane with the fewest in each stage."""
        if name not in self._records:
            lanes = {}
            for stage, count in self._lanes.items():
                streams = Counter(record.lanes[stage] for record in self._records.values())
                lanes[stage] = min(range(count), key=streams.__getitem__)
            self._records[name] = StreamRecord(name, lanes)
        return self._records[name]
