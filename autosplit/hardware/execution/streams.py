"""Items inside a pipeline, their streams, and the states that each leaves for the next."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

import numpy as np

from autosplit.errors import ConfigError, StageError, line_of
from autosplit.hardware.execution.wiring import Wiring
from autosplit.hardware.runtimes.arrays import array_of

Stream = Hashable  # any value by which the caller names a stream


class Closed(StageError):
    """The pipeline is closed, and its items are discarded; the text says why."""


class ItemFailed(StageError):
    """Stage ``place`` failed on an item, with the error ``cause``; the pipeline goes on.

    ``is_certain``: the item is at fault, since the replica could still compute an earlier item.
    """

    def __init__(self, place: str, cause: BaseException, is_certain: bool) -> None:
        super().__init__(f"{place} on this item: {type(cause).__name__}: {line_of(cause)}")
        self.place, self.cause, self.is_certain = place, cause, is_certain


class Ticket(Future[Mapping[str, Any]]):
    """One item inside a pipeline: the future of its outputs by name, set once every stage ran it.

    ``inputs[i]`` are those of stage i, which still waits for ``missing[i]`` senders. ``uncomputed``
    are the stages that have not run it. If the model has states, the item is the ``step`` of its
    stream and gets the states that the step ``before`` left. ``started`` is when its first stage
    began, in seconds; ``items`` is how many it holds; ``is_alone``: its caller has no other item.
    """

    items = 1
    started: float | None = None
    is_alone = False
    step: StreamStep | None = None
    before: StreamStep | None = None

    def __init__(
        self, number: int, inputs: list[list[Any]], missing: list[int], outputs: dict[str, Any]
    ) -> None:
        super().__init__()
        self.set_running_or_notify_cancel()  # it cannot be cancelled: its stages would go on
        self.number = number
        self.inputs = inputs
        self.missing = missing
        self.outputs = outputs
        self.uncomputed = set(range(len(inputs)))
        self._failure: StageError | None = None

    @property
    def failure(self) -> StageError | None:
        """The failure of a stage on this item, or on an earlier item of its stream.

        Further stages do not compute the item.
        """
        if self._failure is None and self.step and self.step.failures:
            number, earlier = min(self.step.failures, key=itemgetter(0))
            if number < self.number:
                self._failure = StageError(f"its stream is lost, reset it: {earlier}")
        return self._failure

    def fail(self, failure: ItemFailed) -> None:
        """Set the failure of this item, and so of the later items of its stream."""
        self._failure = failure
        if self.step:
            self.step.failures.append((self.number, failure))


@dataclass(eq=False)
class StreamStep:
    """The states that an item of a stream left in each stage, or the initial states of a stream.

    Each stage with states runs the stream in one of its ``lanes``. ``uncomputed`` are the stages
    that have not run the item; the next item, ``following``, waits for them. If the states are
    ``is_shared``, the next item gets copies, as its stages may overwrite their inputs. ``count`` is
    how many items the stream has had. ``failures`` are those of the whole stream, each with the
    number of its item.
    """

    lanes: Mapping[int, int]
    left: dict[int, list[Any]]
    uncomputed: set[int] = field(default_factory=set)
    following: Ticket | None = None
    is_shared: bool = False
    count: float = 0
    failures: list[tuple[int, ItemFailed]] = field(default_factory=list)


class Streams:
    """The streams of a pipeline that has ``lanes[i]`` lanes for stage i.

    The lock of the engine guards all methods but ``restore`` and ``keep``, which only the thread
    that runs the lane of the stream calls.
    """

    def __init__(self, wiring: Wiring, lanes: Sequence[int]) -> None:
        self._stages = wiring.stages
        self._places = [ports.state_places for ports in wiring.stages]
        self._lanes = {stage: lanes[stage] for stage, places in enumerate(self._places) if places}
        # The outputs that the caller, another stage or a second state gets: a state among them is
        # copied, since the caller may change it, and the next item may overwrite it too early.
        self._shared = {connection.source for connection in wiring.connections}
        renewed = [(s, output) for s, places in enumerate(self._places) for _, output in places]
        self._shared.update(output for output in renewed if renewed.count(output) > 1)
        self._first = wiring.first_states
        self._limit = math.inf if wiring.steps is None else wiring.steps
        self._last: dict[Stream, StreamStep] = {}

    @property
    def lost(self) -> list[str]:
        """The streams that failed or have items inside: lost once the pipeline is stopped."""
        steps = self._last.items()
        return sorted(str(name) for name, step in steps if step.uncomputed or step.failures)

    def require_room(self, name: Stream, advance: int) -> None:
        """Raise ConfigError if the states of a stream have no room for an item."""
        count = self._last[name].count if name in self._last else 0
        if advance > (room := self._limit - count):
            text = f"have room for {room}, not {advance}" if room else "are full"
            raise ConfigError(
                f"stream {name!r} has had {count} items and its states {text}; reset it, or "
                "export the model with a longer cache"
            )

    def begin_item(self, ticket: Ticket, name: Stream, advance: int) -> None:
        """Register an item that enters; stages with states run it after the last of its stream."""
        if not self._first:
            return
        before = ticket.before = self._last.get(name) or self._begun(name, self._first)
        before.following = ticket
        for stage in before.uncomputed & self._lanes.keys():
            ticket.missing[stage] += 1
        step = StreamStep(before.lanes, {}, ticket.uncomputed, failures=before.failures)
        step.count = before.count + advance
        self._last[name] = ticket.step = step

    def is_idle(self, name: Stream) -> bool:
        """Whether no item of a stream is inside."""
        return name not in self._last or not self._last[name].uncomputed

    def restore(self, stage: int, ticket: Ticket, values: list[Any]) -> None:
        """Add the states for an item to the inputs of a stage, which may overwrite them."""
        if ticket.before is None or stage not in self._lanes:
            return
        left = ticket.before.left.pop(stage)
        if ticket.before.is_shared:
            left = [np.array(array_of(value)) for value in left]
        for (place, _), value in zip(self._places[stage], left, strict=True):
            values[place] = value

    def begin(self, stage: int, values: list[Any]) -> None:
        """Add the initial states of a stream to the inputs of a stage."""
        for (place, _), state in zip(self._places[stage], self._stages[stage].states, strict=True):
            values[place] = np.array(self._first[state.input])

    def keep(self, stage: int, ticket: Ticket, results: Sequence[Any]) -> None:
        """Keep the states that an item leaves in a stage."""
        if ticket.step is None or stage not in self._lanes:
            return
        left = [results[output] for _, output in self._places[stage]]
        for place, (_, output) in enumerate(self._places[stage]):
            if (stage, output) in self._shared:
                left[place] = np.array(array_of(left[place]))
        ticket.step.left[stage] = left

    def reset(self, name: Stream, state: Mapping[str, Any] | None) -> None:
        """Let the next item of a stream start from ``state``, or from the model's initial states.

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
        # Copies, since the caller may go on to use its arrays. They are cast, since runtimes know
        # only one of two numpy types that are equal, such as the two of 64 bits.
        values = {k: np.asarray(v).astype(self._first[k].dtype) for k, v in (state or {}).items()}
        if values:
            self._last[name] = self._begun(name, {**self._first, **values})
            self._last[name].count = -math.inf  # how full these states are is not known
        else:
            self._last.pop(name, None)

    def of(self, name: Stream) -> dict[str, Any]:
        """The states by name that the next item of an idle stream gets.

        Raises StageError for a stream that is lost.
        """
        step = self._last.get(name)
        if step is None:
            return self._first
        if step.failures:
            raise StageError(f"stream {name!r} is lost, reset it: {step.failures[0][1]}")
        if step.uncomputed:
            problem = f"stream {name!r} is lost: it had items inside; begin it in a new pipeline"
            raise StageError(problem)
        step.is_shared = True
        return {
            state.input: value
            for stage, left in sorted(step.left.items())
            for state, value in zip(self._stages[stage].states, left, strict=True)
        }

    def _begun(self, name: Stream, values: Mapping[str, Any]) -> StreamStep:
        """The first states of a stream, ``values``, in the form that an item leaves them in.

        In each stage a new stream goes to the lane with the fewest streams.
        """
        left, lanes = {}, {}
        for stage, count in self._lanes.items():
            left[stage] = [values[state.input] for state in self._stages[stage].states]
            streams = Counter(step.lanes[stage] for step in self._last.values())
            lanes[stage] = min(range(count), key=streams.__getitem__)
        before = self._last.get(name)
        return StreamStep(before.lanes if before else lanes, left, is_shared=True)
