"""The comparison of a pipeline with the reference, for single items or for streams with states.

Errors may grow along a stream. So each step is compared twice: along the stream, and alone, from
the states that the reference had before it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from autosplit.errors import ConfigError, StageError
from autosplit.hardware.devices import device as devices
from autosplit.hardware.execution.pipeline import Pipeline
from autosplit.hardware.execution.stage_spec import Port
from autosplit.hardware.execution.wiring import Wiring
from autosplit.hardware.measurement.parity import compare
from autosplit.hardware.measurement.reference import Item, Outputs, Reference
from autosplit.hardware.measurement.results import Accuracy

Draw = Callable[..., list[dict[str, Any]]]
ITEMS = 8  # in every comparison, of different scales, see ``random_items``
SEED = 0  # of these items
STEPS = 32  # the fewest steps of a stream that are compared, since errors may grow along it
STREAMS = 3  # streams compared side by side, since they must not see each other's states
ROUNDING = 0.1  # a larger error is not caused by rounding


@dataclass(frozen=True)
class Expected:
    """The outputs of ``items`` by a reference: ``along`` a stream, and of each step ``alone``.

    A step alone also has the states that it leaves; without states, ``alone`` is empty. ``states``
    are those before each item and after the last one; empty where they are not known.
    """

    along: Sequence[Outputs]
    alone: Sequence[Outputs] = ()
    items: Sequence[Item] = ()
    states: Sequence[Outputs] = ()

    @classmethod
    def of_steps(
        cls, outputs: Sequence[Outputs], items: Sequence[Item], states: Sequence[Outputs]
    ) -> Expected:
        """What is expected along a stream, and from each of its steps alone."""
        alone = [o | _named(after) for o, after in zip(outputs, states[1:], strict=False)]
        return cls(outputs, alone, items, states)


def drawn(
    wiring: Wiring, draw: Draw, count: int, seed: int, below: Mapping[str, int]
) -> list[dict[str, Any]]:
    """The items of a comparison: one of each variant, then ``count``, or more along a stream.

    A stream has no more items than its states have room for; ConfigError if that is none.
    """

    def of(inputs: Sequence[Port], number: int) -> list[dict[str, Any]]:
        return draw([(p.name, p.shape, p.dtype) for p in inputs], number, seed, below)

    variants = wiring.variants.values()
    items = [item for variant in variants for item in of(variant.inputs, 1)]
    if wiring.first_states:
        count = max(count, STEPS)
        if wiring.steps is not None:
            count = min(count, wiring.steps - sum(variant.advance for variant in variants))
    if count < 1:
        raise ConfigError(
            f"one item of each variant leaves no room in the states, which have {wiring.steps}; "
            "export the model with a longer cache"
        )
    return items + of(wiring.inputs, count)


def expect(
    reference: Reference, items: Sequence[Item], initial: Outputs, successors: Mapping[str, str]
) -> Expected:
    """What a reference computes for the items of a stream that begins with the states ``initial``.

    Raises as ``Reference.open``; ConfigError unless each successor is an output of its own.
    """
    step, results, states = reference.open(), [], [initial]
    for item in items:
        outputs = step({**item, **states[-1]})
        try:
            states.append({name: outputs.pop(output) for name, output in successors.items()})
        except KeyError as error:
            problem = f"no output {error} is there to renew a state; export again"
            raise ConfigError(problem) from error
        results.append(outputs)
    return Expected.of_steps(results, items, states if successors else ())


def accuracy_of(pipeline: Pipeline, expected: Expected, tolerance: float) -> Accuracy:
    """Compare what a pipeline computes with what is expected.

    A model with states runs in several streams, interleaved, which are reset at the end.
    """
    if not pipeline.wiring.first_states:
        # The items are repeated until they fill a batch, and until no replica is without one. Each
        # round begins with the next item, so that swapped places of a batch differ.
        count = len(expected.items)
        order = [(n + n // count) % count for n in range(max(count, pipeline.batch))]
        items, along = ([each[n] for n in order] for each in (expected.items, expected.along))
        worst = compare(pipeline.run(items), along, tolerance)
        end = time.monotonic() + devices.SILENCE_S
        while worst.equal and pipeline.unused:
            if time.monotonic() > end:
                raise StageError(f"{min(pipeline.unused)} got no item for {devices.SILENCE_S:g} s")
            further = compare(pipeline.run(items), along, tolerance)
            worst = max(worst, further, key=lambda each: (not each.equal, each.max_rel_error))
        return worst
    streams = [("along", number) for number in range(STREAMS)]
    along = list(pipeline.map_streams((s, item) for item in expected.items for s in streams))
    steps = [("alone", number) for number in range(len(expected.alone))]
    for stream, states in zip(steps, expected.states, strict=False):
        pipeline.reset(stream, states)
    results = list(pipeline.map_streams(zip(steps, expected.items, strict=False)))
    alone = [r | _named(pipeline.state(s)) for s, r in zip(steps, results, strict=True)]
    for stream in (*streams, *steps):
        pipeline.reset(stream)
    expected_along = [outputs for outputs in expected.along for _ in streams]
    return compare([*along, *alone], [*expected_along, *expected.alone], tolerance)


def refusal(accuracy: Accuracy, runtimes: Iterable[str], reference: str) -> str:
    """A message on how outputs of ``runtimes`` differ from those of ``reference``, with a remedy.

    Empty where they are equal.
    """
    if accuracy.equal:
        return ""
    error, tolerance = accuracy.max_rel_error, accuracy.tolerance
    text = f"outputs of {' and '.join(dict.fromkeys(runtimes))} differ from {reference}'s"
    if not np.isfinite(error) or error <= tolerance:
        return f"{text} in shape, type, NaN, infinities or integers; choose another --runtime"
    text += f" (relative error {error:.3g}, tolerance {tolerance:.3g}); choose another --runtime"
    if error <= ROUNDING:
        text += f" or, if that is good enough, give --tolerance {1.1 * error:.2g}"
    return text


def _named(states: Outputs) -> Outputs:
    """The states under names that differ from those of all outputs."""
    return {f"state {name}": value for name, value in states.items()}
