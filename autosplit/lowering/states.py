"""States: tensors that one item leaves for the next item of its stream. Pure.

A state is a pair of a model input and the model output that takes its place in the next step. The
ops that read the input and the op that makes the output share a stage, so that the state never
leaves it.
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
    """The states of a graph; ``pairs`` has the output by the input that it feeds.

    ``outputs`` pairs each model output with its tensor.

    Raises:
        ConfigError: A name is unknown or used twice, the tensors differ, or no op is between them.
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
        _require_pair(graph.tensors[name], graph.tensors[tensor_of[output]], name, output)
        states.append(State(name, output, tensor_of[output]))
    return tuple(states)


def _require_pair(before: Tensor, after: Tensor, name: str, output: str) -> None:
    if (before.shape, before.dtype) != (after.shape, after.dtype):
        raise ConfigError(
            f"state '{name}={output}': the input is {before.dtype}{list(before.shape)}, "
            f"the output {after.dtype}{list(after.shape)}; pair tensors of one shape and type"
        )
    if not before.consumers:
        raise ConfigError(f"state '{name}={output}': no op reads input '{name}'; leave it out")
    if after.producer is None:
        raise ConfigError(
            f"state '{name}={output}': output '{output}' is an input as it is; let an op "
            "make it, or leave the state out and give the last item's input beside the next"
        )


# What an output is called beside its input: past_3 and present_3, p1 and n1, mem_in and mem_out.
_RENAMES = (
    (r"past", "present"),
    (r"past|prev(ious)?", "next"),
    (r"old", "new"),
    (r"past_key_values", "present"),
    (r"\binput\b", "output"),
    (r"\bp(?=_?\d)", "n"),
    (r"\b([hc])_?0\b", r"\1n"),
    (r"\b([hc])_?0\b", r"\1_n"),
    (r"_in\b", "_out"),
    (r"\bin_", "out_"),
    (r"$", "_out"),
    (r"$", "_next"),
    (r"^", "next_"),
    (r"^", "new_"),
)


def propose_states(
    graph: FusedGraph, outputs: Sequence[tuple[str, str]]
) -> tuple[dict[str, str], dict[str, list[str]]]:
    """The states that names and tensors suggest: the output by the input that it alone fits.

    The second mapping has the outputs by each input that several fit, or one that fits another
    input too.
    """
    tensor_of = dict(outputs)
    fitting: dict[str, list[str]] = {}
    for name in graph.inputs:
        for output in dict.fromkeys(re.sub(*rename, name, count=1) for rename in _RENAMES):
            if output == name or output not in tensor_of:
                continue
            try:
                match_states(graph, outputs, {name: output})
            except ConfigError:
                continue
            fitting.setdefault(name, []).append(output)
    count = Counter(chain.from_iterable(fitting.values()))
    clear = {name: o[0] for name, o in fitting.items() if len(o) == 1 and count[o[0]] == 1}
    return clear, {name: o for name, o in fitting.items() if name not in clear}
