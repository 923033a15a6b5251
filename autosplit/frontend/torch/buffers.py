"""Buffers and inputs that a program updates: they become states if outputs depend on them.

An exported program keeps buffers from call to call, and may change its caller's tensors. A split
has no memory except its states, so buffers become inputs, and their new values outputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from autosplit.extras import torch
from autosplit.frontend.source import SourceState, unused
from autosplit.frontend.torch.checks import require_array


def expose_states(program: Any, outputs: Sequence[str]) -> tuple[SourceState, ...]:
    """Make the states of a functional program inputs and outputs of it, and return them.

    States are the buffers and inputs that the program updates and that its outputs depend on, in
    the order of its inputs. Their new values precede ``outputs``. The program's graph and signature
    are changed. Raises ModelError for a buffer of a type that numpy lacks.
    """
    signature, kinds = program.graph_signature, torch.export.graph_signature
    renewals = _renewals(signature)
    states = _states(program, renewals, outputs)
    nodes = {node.name: node for node in program.graph.nodes}
    added = [renewals[name] for name, state in states.items() if state.output not in outputs]
    added += signature.user_outputs
    returned = [nodes[name] for name in added]
    for i, spec in enumerate(signature.input_specs):
        state = states.get(spec.arg.name)
        if state is not None and state.name:
            nodes[spec.arg.name].name = state.input
            arg = replace(spec.arg, name=state.input)
            signature.input_specs[i] = kinds.InputSpec(kinds.InputKind.USER_INPUT, arg, None)
    signature.output_specs[:] = [
        kinds.OutputSpec(kinds.OutputKind.USER_OUTPUT, kinds.TensorArgument(node.name), None)
        for node in returned
    ]
    return tuple(states.values())


def _renewals(signature: Any) -> dict[str, str]:
    """Map the placeholder of each updated buffer or input to the node that makes its new value."""
    placeholder_of = {spec.target: spec.arg.name for spec in signature.input_specs if spec.target}
    renewals = {}
    for spec in signature.output_specs:
        if spec.kind.name in ("BUFFER_MUTATION", "PARAMETER_MUTATION"):
            renewals[placeholder_of[spec.target]] = spec.arg.name
        if spec.kind.name == "USER_INPUT_MUTATION":
            renewals[spec.target] = spec.arg.name
    return renewals


def _states(
    program: Any, renewals: Mapping[str, str], outputs: Sequence[str]
) -> dict[str, SourceState]:
    """The states of a functional program that returns ``outputs``, by placeholder.

    Each has the name of its buffer, or of its placeholder if something else has that name. The
    new value of an input may be an output already.
    """
    values = {**program.constants, **program.state_dict}
    names = {node.name for node in program.graph.nodes}
    signature = program.graph_signature
    returned = list(signature.user_outputs)
    deciding = _deciding(program, renewals)
    states = {}
    for spec in signature.input_specs:
        name = spec.arg.name
        if name not in deciding:
            continue
        if spec.target is not None:
            require_array("buffer", spec.target, values[spec.target].dtype)
            unique = name if {spec.target, f"{spec.target}_next"} & names else spec.target
            initial = values[spec.target].detach().cpu().numpy().copy()
            states[name] = SourceState(spec.target, unique, f"{unique}_next", initial)
        elif renewals[name] in returned:
            output = outputs[returned.index(renewals[name])]
            states[name] = SourceState("", name, output, np.zeros(()))
        else:
            states[name] = SourceState("", name, unused(f"{name}_next", names), np.zeros(()))
    return states


def _deciding(program: Any, renewals: Mapping[str, str]) -> set[str]:
    """The placeholders that a program updates and its outputs depend on.

    An output may depend on a state through other states, in a later step.
    """
    needed = set(program.graph_signature.user_outputs)
    while True:
        # Nodes come after what they read, so one pass backwards finds all that is needed.
        for node in reversed(program.graph.nodes):
            if node.name in needed:
                needed.update(n.name for n in node.all_input_nodes)
        deciding = needed & renewals.keys()
        successors = {renewals[name] for name in deciding}
        if successors <= needed:
            return deciding
        needed |= successors
