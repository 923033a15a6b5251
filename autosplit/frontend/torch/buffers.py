"""Buffers that a program updates: states of a stream wherever they decide its outputs.

An exported program keeps them from call to call. A split has no memory outside of its states, so
they become inputs and outputs.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from autosplit.extras import torch
from autosplit.frontend.source import SourceState
from autosplit.frontend.torch.checks import require_array, user


def deciding_buffers(program: Any) -> frozenset[str]:
    """The buffers that a functional program updates and its outputs depend on.

    They may depend on one through others, in a later step.
    """
    signature = program.graph_signature
    placeholder_of = {spec.target: spec.arg.name for spec in signature.input_specs}
    mutations = [s for s in signature.output_specs if s.kind.name == "BUFFER_MUTATION"]
    renewed_by = {placeholder_of[spec.target]: spec.arg.name for spec in mutations}
    needed = {spec.arg.name for spec in user(signature.output_specs)}
    while True:
        # Ops come after what they read, so that one pass backwards meets all.
        for node in reversed(program.graph.nodes):
            if node.name in needed:
                needed.update(n.name for n in node.all_input_nodes)
        successors = {renewed_by[buffer] for buffer in renewed_by if buffer in needed}
        if successors <= needed:
            return frozenset(s.target for s in mutations if placeholder_of[s.target] in needed)
        needed |= successors


def states_of(program: Any, buffers: Collection[str]) -> tuple[SourceState, ...]:
    """The buffers of a functional program as states, in the order of its inputs.

    Each has the name of its buffer, or of its placeholder where something else has that name.
    Raises ModelError for a buffer of a type that numpy lacks.
    """
    values = {**program.constants, **program.state_dict}
    taken = {node.name for node in program.graph.nodes}
    states = []
    for spec in program.graph_signature.input_specs:
        if spec.target not in buffers:
            continue
        name, value = spec.target, values[spec.target]
        require_array("buffer", name, value.dtype)
        unique = spec.arg.name if {name, f"{name}_next"} & taken else name
        initial = value.detach().cpu().numpy().copy()
        states.append(SourceState(name, unique, f"{unique}_next", initial))
    return tuple(states)


def as_inputs(program: Any, states: Collection[SourceState]) -> Any:
    """A functional program that takes and returns its states, by their names.

    The program's graph is changed. Buffers that decide no output are no longer updated.
    """
    signature, kinds = program.graph_signature, torch.export.graph_signature
    input_of = {state.name: state.input for state in states}
    placeholders = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    inputs = []
    for spec in signature.input_specs:
        if spec.target in input_of:
            placeholders[spec.arg.name].name = input_of[spec.target]
            arg = replace(spec.arg, name=input_of[spec.target])
            spec = kinds.InputSpec(kinds.InputKind.USER_INPUT, arg, None)
        inputs.append(spec)
    output_node = program.graph.output_node()
    outputs, values = [], []
    for spec, value in zip(signature.output_specs, output_node.args[0], strict=True):
        if spec.kind.name != "USER_OUTPUT" and spec.target not in input_of:
            continue
        if spec.target in input_of and value.op == "placeholder":
            value = _copied(program.graph, value)
        arg = replace(spec.arg, name=value.name)
        outputs.append(kinds.OutputSpec(kinds.OutputKind.USER_OUTPUT, arg, None))
        values.append(value)
    output_node.args = (tuple(values),)
    program.graph.eliminate_dead_code()
    program.graph_module.recompile()
    return torch.export.ExportedProgram(
        program.graph_module,
        program.graph,
        type(signature)(inputs, outputs),
        {name: value for name, value in program.state_dict.items() if name not in input_of},
        program.range_constraints,
        [_called_flat(program.module_call_graph[0], inputs, outputs)],
        constants={n: value for n, value in program.constants.items() if n not in input_of},
        verifiers=program.verifiers,
    )


def _copied(graph: Any, value: Any) -> Any:
    """An input as the result of a node, because an op has to make the new value of a state.

    The maximum of a number and itself is that number, NaN and -0 included. A node that copies would
    be removed by the export.
    """
    with graph.inserting_before(graph.output_node()):
        node = graph.call_function(torch.ops.aten.maximum.default, (value, value))
    node.meta = {"val": value.meta["val"]}
    return node


def _called_flat(entry: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
    """How a program is called that takes and returns flat tuples."""
    arguments: Any = ((0,) * len(user(inputs)), {})
    called = replace(
        entry.signature,
        in_spec=torch.utils._pytree.tree_structure(arguments),
        out_spec=torch.utils._pytree.tree_structure((0,) * len(outputs)),
        forward_arg_names=None,
    )
    return replace(entry, signature=called)


def all_outputs(
    program: Any, states: Collection[SourceState], outputs: Collection[str]
) -> tuple[str, ...]:
    """The names of all outputs in the order of a functional program; ``outputs``: the caller's."""
    successor_of, rest = {state.name: state.output for state in states}, iter(outputs)
    names = []
    for spec in program.graph_signature.output_specs:
        if spec.kind.name == "USER_OUTPUT":
            names.append(next(rest))
        elif spec.target in successor_of:
            names.append(successor_of[spec.target])
    return tuple(names)
