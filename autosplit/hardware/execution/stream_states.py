"""The states of streams, from one item to the next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from autosplit.errors import ConfigError, StageError
from autosplit.hardware.execution.edges import Stream, Ticket
from autosplit.hardware.execution.wiring import Wiring
from autosplit.hardware.runtimes.arrays import array_of


@dataclass
class _Stream:
    """A stream that has begun, with what its last item left in each stage.

    ``initial`` has states where the next item begins anew: at these, and else as the model begins.
    """

    left: dict[int, list[Any]] = field(default_factory=dict)
    inside: int = 0
    initial: Mapping[str, Any] | None = field(default_factory=dict)
    is_lost: bool = False


class StreamStates:
    """The states of all streams.

    The lock of the engine guards all but ``restore`` and ``keep``: those are called by the replica
    that holds the stream.
    """

    def __init__(self, wiring: Wiring) -> None:
        self._stages = wiring.stages
        self._places = [ports.state_places for ports in wiring.stages]
        # Outputs of stages that others get too: the caller may change them, and the next item may
        # overwrite the state while another stage reads it.
        self._shared = {connection.source for connection in wiring.connections}
        self._first = wiring.first_states
        self._streams: dict[Stream, _Stream] = {}

    @property
    def lost(self) -> list[str]:
        """The streams that had items inside when the pipeline stopped."""
        return sorted(str(name) for name, stream in self._streams.items() if stream.is_lost)

    def begin_item(self, name: Stream) -> Mapping[str, Any] | None:
        """Note that an item enters; returns the states where its stream begins anew, else None."""
        if not self._first:
            return None
        stream = self._streams.setdefault(name, _Stream())
        stream.inside += 1
        initial, stream.initial = stream.initial, None
        return initial

    def end_item(self, name: Stream) -> bool:
        """Note that an item left; returns whether its stream, which was reset, ended with it."""
        if not self._first:
            return False
        stream = self._streams[name]
        stream.inside -= 1
        has_ended = not stream.inside and stream.initial == {}
        if has_ended:
            del self._streams[name]
        return has_ended

    def is_idle(self, name: Stream) -> bool:
        """Whether no item of a stream is inside."""
        return name not in self._streams or not self._streams[name].inside

    def restore(self, stage: int, ticket: Ticket, values: list[Any]) -> None:
        """Add its states to the inputs of a stage, which may overwrite them."""
        if not self._places[stage]:
            return
        if ticket.initial is not None:
            begun = {**self._first, **ticket.initial}
            left = [np.array(array_of(begun[s.input])) for s in self._stages[stage].states]
        else:
            left = self._streams[ticket.stream].left[stage]
        for (place, _), value in zip(self._places[stage], left, strict=True):
            values[place] = value

    def keep(self, stage: int, ticket: Ticket, results: Sequence[Any]) -> None:
        """Keep what an item leaves in a stage."""
        if not self._places[stage]:
            return
        left = [results[output] for _, output in self._places[stage]]
        for place, (_, output) in enumerate(self._places[stage]):
            if (stage, output) in self._shared:
                left[place] = np.array(array_of(left[place]))
        stream = self._streams.get(ticket.stream)
        if stream is not None:  # else the pipeline stopped meanwhile
            stream.left[stage] = left

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
        # The caller may go on to use its arrays.
        values = {key: np.array(value) for key, value in (state or {}).items()}
        if values or not self.is_idle(name):
            self._streams.setdefault(name, _Stream()).initial = values
        else:
            self._streams.pop(name, None)

    def of(self, name: Stream) -> dict[str, Any]:
        """The states by name that the next item of an idle stream gets.

        Raises StageError for a stream that is lost.
        """
        stream = self._streams.get(name, _Stream())  # one that has not begun is as one reset
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

    def lose(self, names: Iterable[Stream]) -> None:
        """Note that the items of some streams were discarded halfway."""
        for name in names:
            if name in self._streams:
                self._streams[name].is_lost = True
