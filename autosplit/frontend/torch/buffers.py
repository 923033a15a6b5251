"""Buffers and inputs that a program updates: states of a stream where they decide its outputs.

An exported program keeps buffers from call to call, and changes the caller's tensors. A split has
no memory outside of its states, so buffers become inputs, and new values outputs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from autosplit.extras import torch
from autosplit.frontend.source import SourceState, unused
from autosplit.frontend.torch.checks import require_array, user


def deciding_states(program: Any) -> frozenset[str]:
    """The placeholders that a functional program updates and its outputs depend on.

    They may depend on one through others, in a later step.
    """
    signature = program.graph_signature
    renewed_by = {name: spec.arg.name for name, spec in _renewals(signature).items()}
    needed = {spec.arg.name for spec in user(signature.output_specs)}
    while True:
        # Ops come after what they read, so that one pass backwards meets all.
        for node in reversed(program.graph.nodes):
            if node.name in needed:
                needed.update(n.name for n in node.all_input_nodes)
        successors = {renewed_by[name] for name in renewed_by if name in needed}
        if successors <= needed:
            return frozenset(name for name in renewed_by if name in needed)
        needed |= successors


def _renewals(signature: Any) -> Mapping[str, Any]:
    """By its placeholder, the output that becomes the new value of a buffer or of an input."""
    placeholder_of = {spec.target: spec.arg.name for spec in signature.input_specs if spec.target}
    renewals = {}
    for spec in signature.output_specs:
        if spec.kind.name == "BUFFER_MUTATION":
            renewals[placeholder_of[spec.target]] = spec
        if spec.kind.name == "USER_INPUT_MUTATION":
            renewals[spec.target] = spec
    return renewals


def states_of(
    program: Any, placeholders: Collection[str], outputs: Sequence[str]
) -> tuple[SourceState, ...]:
    """The states of a functional program that returns ``outputs``, in the order of its inputs.

    Each has the name of its buffer, or of its placeholder where something else has that name. The
    new value of an input may be an output already. Raises ModelError for a buffer of a type that
    numpy lacks.
    """
    values = {**program.constants, **program.state_dict}
    names = {node.name for node in program.graph.nodes}
    signature = program.graph_signature
    returned = [spec.arg.name for spec in user(signature.output_specs)]
    states = []
    for spec in signature.input_specs:
        name = spec.arg.name
        if name not in placeholders:
            continue
        renewal = _renewals(signature)[name].arg.name
        if spec.target is not None:
            require_array("buffer", spec.target, values[spec.target].dtype)
            unique = name if {spec.target, f"{spec.target}_next"} & names else spec.target
            initial = values[spec.target].detach().cpu().numpy().copy()
            states.append(SourceState(spec.target, unique, f"{unique}_next", initial))
        elif renewal in returned:
            output = outputs[returned.index(renewal)]
            states.append(SourceState("", name, output, np.zeros(())))
        else:
            states.append(SourceState("", name, unused(f"{name}_next", names), np.zeros(())))
    return tuple(states)


def as_inputs(program: Any, states: Collection[SourceState], outputs: Collection[str]) -> Any:
    """A functional program of ``outputs`` that takes and returns its states, by their names.

    The program's graph is changed. Buffers that decide no output are no longer updated.
    """
    signature, kinds = program.graph_signature, torch.export.graph_signature
    input_of = {state.name: state.input for state in states if state.name}
    returned = {state.input for state in states if state.output not in outputs}
    placeholders = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    inputs = []
    for spec in signature.input_specs:
        if spec.target in input_of:
            placeholders[spec.arg.name].name = input_of[spec.target]
            arg = replace(spec.arg, name=input_of[spec.target])
            spec = kinds.InputSpec(kinds.InputKind.USER_INPUT, arg, None)
        inputs.append(spec)
    output_node = program.graph.output_node()
    output_specs, values = [], []
    for spec, value in zip(signature.output_specs, output_node.args[0], strict=True):
        if spec.kind.name != "USER_OUTPUT" and _input(spec, input_of) not in returned:
            continue
        if spec.kind.name != "USER_OUTPUT" and value.op == "placeholder":
            value = _copied(program.graph, value)
        arg = replace(spec.arg, name=value.name)
        output_specs.append(kinds.OutputSpec(kinds.OutputKind.USER_OUTPUT, arg, None))
        values.append(value)
    output_node.args = (tuple(values),)
    program.graph.eliminate_dead_code()
    program.graph_module.recompile()
    return torch.export.ExportedProgram(
        program.graph_module,
        program.graph,
        type(signature)(inputs, output_specs),
        {name: value for name, value in program.state_dict.items() if name not in input_of},
        program.range_constraints,
        [_called_flat(program.module_call_graph[0], inputs, output_specs)],
        constants={n: value for n, value in program.constants.items() if n not in input_of},
        verifiers=program.verifiers,
    )


def _input(spec: Any, input_of: Mapping[str, str]) -> str | None:
    """The input of the state that an output renews; ``input_of`` has those of buffers."""
    if spec.kind.name == "USER_INPUT_MUTATION":
        return str(spec.target)
    return input_of.get(spec.target)


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
    program: Any, states: Collection[SourceState], outputs: Sequence[str]
) -> tuple[str, ...]:
    """The names of all outputs in the order of a functional program; ``outputs``: the caller's."""
    input_of = {state.name: state.input for state in states if state.name}
    added = {state.input: state.output for state in states if state.output not in outputs}
    renewed = [_input(spec, input_of) for spec in program.graph_signature.output_specs]
    return (*(added[name] for name in renewed if name in added), *outputs)
