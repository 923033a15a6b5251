"""The states of streams, from one item to the next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from autosplit.errors import ConfigError, StageError
from autosplit.hardware.execution.edges import Stream, Ticket
from autosplit.hardware.execution.wiring import StageState, Wiring
from autosplit.hardware.runtimes.arrays import array_of


def initial_states(states: Iterable[StageState]) -> dict[str, Any]:
    """What a stream begins with, by the input of each state."""
    return {
        s.port.name: np.zeros(s.port.shape, s.port.dtype) if s.initial is None else s.initial
        for s in states
    }


class StreamStates:
    """What the last item of each stream left in each stage.

    The lock of the engine guards all but ``restore`` and ``keep``: those are called by the replica
    that holds the stream.
    """

    def __init__(self, wiring: Wiring) -> None:
        self._states: list[list[StageState]] = [[] for _ in wiring.stages]
        for state in wiring.states:
            self._states[state.stage].append(state)
        self._ports = {state.port.name: state.port for state in wiring.states}
        # Outputs of stages that the caller gets too, and may change.
        self._shared = {c.source for c in wiring.connections if c.outputs}
        self._first = initial_states(wiring.states)
        self._left: list[dict[Stream, list[Any]]] = [{} for _ in wiring.stages]
        self._open: set[Stream] = set()
        self._lost: set[Stream] = set()
        self._initial: dict[Stream, Mapping[str, Any]] = {}  # of streams that begin anew
        self._inside: Counter[Stream] = Counter()

    def has_any(self, stage: int) -> bool:
        """Whether a stage has states."""
        return bool(self._states[stage])

    @property
    def lost(self) -> list[str]:
        """The streams that had items inside when the pipeline stopped."""
        return sorted(map(str, self._lost))

    def begin_item(self, stream: Stream) -> Mapping[str, Any] | None:
        """Note that an item enters; returns the states where its stream begins anew, else None."""
        if not self._ports:
            return None
        is_new = stream not in self._open
        self._open.add(stream)
        self._inside[stream] += 1
        return self._initial.pop(stream, {} if is_new else None)

    def end_item(self, stream: Stream) -> bool:
        """Note that an item left; returns whether its stream, which was reset, ended with it."""
        if not self._ports:
            return False
        self._inside[stream] -= 1
        has_ended = self.is_idle(stream) and self._initial.get(stream) == {}
        if has_ended:
            self._drop(stream)
        return has_ended

    def is_idle(self, stream: Stream) -> bool:
        """Whether no item of a stream is inside."""
        return not self._inside[stream]

    def restore(self, stage: int, ticket: Ticket, values: list[Any]) -> None:
        """Add its states to the inputs of a stage."""
        states = self._states[stage]
        if not states:
            return
        if ticket.initial is not None:
            begun = {**self._first, **ticket.initial}
            left = [begun[state.port.name] for state in states]
        else:
            left = self._left[stage][ticket.stream]
        for state, value in zip(states, left, strict=True):
            values[state.input] = value

    def keep(self, stage: int, ticket: Ticket, results: Sequence[Any]) -> None:
        """Keep what an item leaves in a stage."""
        if not self._states[stage]:
            return
        left = [results[state.output] for state in self._states[stage]]
        for place, state in enumerate(self._states[stage]):
            if (stage, state.output) in self._shared:
                left[place] = np.array(array_of(left[place]))
        self._left[stage][ticket.stream] = left

    def reset(self, stream: Stream, state: Mapping[str, Any] | None) -> None:
        """Let the next item of a stream begin anew: at ``state``, or at what the model begins with.

        Raises ConfigError for values that are no states of the model.
        """
        for name, value in (state or {}).items():
            port = self._ports.get(name)
            if port is None:
                known = ", ".join(self._ports) or "none"
                raise ConfigError(f"unknown state '{name}'; the states are {known}")
            if np.shape(value) != port.shape or str(np.asarray(value).dtype) != port.dtype:
                raise ConfigError(
                    f"state '{name}' is {np.asarray(value).dtype}{list(np.shape(value))}, "
                    f"but the model takes {port.dtype}{list(port.shape)}"
                )
        # The caller may go on to use its arrays.
        values = {name: np.array(value) for name, value in (state or {}).items()}
        if values or not self.is_idle(stream):
            self._initial[stream] = values
            return
        self._drop(stream)

    def _drop(self, stream: Stream) -> None:
        """Keep nothing of a stream that ended."""
        self._initial.pop(stream, None)
        self._open.discard(stream)
        del self._inside[stream]
        for left in self._left:
            left.pop(stream, None)

    def of(self, stream: Stream) -> dict[str, Any]:
        """The states by name that the next item of an idle stream gets.

        Raises StageError for a stream that is lost.
        """
        if stream in self._lost:
            raise StageError(
                f"stream {stream!r} is lost: it had items inside; begin it in a new pipeline"
            )
        # A stream that has not begun is as one that was reset.
        initial = self._initial.get(stream, None if stream in self._open else {})
        values = {}
        for stage, states in enumerate(self._states):
            for place, state in enumerate(states):
                name = state.port.name
                if initial is not None:
                    value = initial.get(name, self._first[name])
                else:
                    value = self._left[stage][stream][place]
                values[name] = value
        return values

    def lose(self, streams: Iterable[Stream]) -> None:
        """Note that the items of some streams were discarded halfway."""
        if self._ports:
            self._lost.update(streams)
