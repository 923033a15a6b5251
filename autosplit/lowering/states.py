"""States: tensors that one item leaves for the next item of its stream. This module is pure.

A state is a model input and the model output that takes its place in the next step. The ops that
read the input and the op that makes the output share a stage, which the state never leaves.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

from autosplit.errors import ConfigError, nearest
from autosplit.graph import FusedGraph, State, Tensor


def match_states(
    graph: FusedGraph, outputs: Iterable[tuple[str, str]], pairs: Mapping[str, str]
) -> tuple[State, ...]:
    """The states of a graph; ``pairs`` maps each input to the output that becomes its next value.

    ``outputs`` pairs each model output with its tensor.

    Raises:
        ConfigError: A name is unknown or used twice, the tensors differ, or an input is an output.
    """
    tensor_of = dict(outputs)
    states: list[State] = []
    for name, output in pairs.items():
        if name not in graph.inputs:
            raise ConfigError(
                f"state '{name}={output}': the model has no input '{name}'"
                f"{nearest(name, graph.inputs)}"
            )
        if output not in tensor_of:
            raise ConfigError(
                f"state '{name}={output}': the model has no output '{output}'"
                f"{nearest(output, list(tensor_of))}"
            )
        if any(state.output == output for state in states):
            raise ConfigError(f"output '{output}' is the successor of two states; give one input")
        if name in tensor_of.values():
            raise ConfigError(f"an output is state '{name}' unchanged; let an op make that output")
        _require_pair(graph.tensors[name], graph.tensors[tensor_of[output]], name, output)
        states.append(State(name, output, tensor_of[output]))
    return tuple(states)


def _require_pair(before: Tensor, after: Tensor, name: str, output: str) -> None:
    if (before.shape, before.dtype) != (after.shape, after.dtype):
        raise ConfigError(
            f"state '{name}={output}': the input is {before.dtype}{list(before.shape)}, "
            f"the output {after.dtype}{list(after.shape)}; pair tensors of one shape and type"
        )
    if after.producer is None:
        raise ConfigError(
            f"state '{name}={output}': output '{output}' is an unchanged input; let an op "
            "make it, or drop the state and pass the previous item's input with each item"
        )


# The words that distinguish the name of a state from that of its successor: past_3 and present_3,
# mem_in and mem_out, h and next_h, p1 and n1.
_BEFORE = r"past(_key_values)?|prev(ious)?|old|in(put)?|last|p(?=_?\d)"
_AFTER = r"present(_key_values)?|next|new|updated|out(put)?|n(?=_?\d)"
_PORTS = {"in", "input", "out", "output"}  # a name that is one of these words suggests no state


def _stems(name: str, words: str) -> set[str]:
    """The stems of a name: the name without all matches of ``words``, and without the first one."""
    if name.lower() in _PORTS:
        return set()
    name = re.sub(r"(?<![^\W_])([hc])_?[0n](?![^\W_])", r"\1", name)  # h0 and hn
    word = rf"(?<![^\W_])({words})(?![^\W\d_])"
    parts = [re.split(r"[\W_]+", re.sub(word, "", name, count=count)) for count in (0, 1)]
    return {".".join(filter(None, part)) for part in parts}


def propose_states(
    graph: FusedGraph, outputs: Sequence[tuple[str, str]]
) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Propose states by name, shape and type: map each input to the only output that fits it.

    An output fits an input of the same shape and type if their names have a stem in common. The
    second mapping has all fitting outputs of each input for which the choice is ambiguous.
    """
    stems = {output: _stems(output, _AFTER) for output, _ in outputs}
    fitting: dict[str, list[str]] = {}
    for name in graph.inputs:
        names = _stems(name, _BEFORE)
        for output, _ in outputs:
            if output == name or stems[output].isdisjoint(names):
                continue
            try:
                match_states(graph, outputs, {name: output})
            except ConfigError:
                continue
            fitting.setdefault(name, []).append(output)
    count = Counter(chain.from_iterable(fitting.values()))
    clear = {name: o[0] for name, o in fitting.items() if len(o) == 1 and count[o[0]] == 1}
    return clear, {name: o for name, o in fitting.items() if name not in clear}


def proposed_pairs(graph: FusedGraph, outputs: Sequence[tuple[str, str]]) -> dict[str, str]:
    """The proposed states. Raises ConfigError if there are none, or if any of them is ambiguous."""
    clear, ambiguous = propose_states(graph, outputs)
    if ambiguous:
        fitting = "; ".join(f"'{name}': {', '.join(o)}" for name, o in ambiguous.items())
        raise ConfigError(f"states are ambiguous ({fitting}); give each as INPUT=OUTPUT")
    if not clear:
        raise ConfigError(
            "no output looks like the successor of an input; give each state as INPUT=OUTPUT"
        )
    return clear
