"""Exports a program as ONNX by torch's own exporter, and finds its nodes in the ONNX graph."""

from __future__ import annotations

import contextlib
import io
import logging
import math
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from copy import copy
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import Any

from autosplit.errors import ModelError, line_of
from autosplit.extras import torch
from autosplit.frontend.onnx.importer import source_nodes
from autosplit.frontend.onnx.nodes import scopes_of
from autosplit.frontend.source import SourceNode, SourceState, unused
from autosplit.frontend.torch.buffers import expose_states
from autosplit.frontend.torch.checks import target_name

_FAILED_NODE = re.compile(r"translating node %(\w+)[^\n]*target=([\w.]+)")
# Composite ops that torch decomposes first. Its exporter writes a wrong Conv for conv3d without
# bias, stacks by a function of sequences, mixes operands of different types, overflows in
# log_sigmoid, converts what softmax returns instead of what it takes, compares integers exactly in
# isclose, and smooths no labels.
_COMPOSITE = """
    atleast_1d.Sequence atleast_2d.Sequence atleast_3d.Sequence column_stack.default conv3d.default
    cross_entropy_loss.default divide.Scalar_mode divide.Tensor divide.Tensor_mode dstack.default
    hstack.default isclose.default log_sigmoid.default log_softmax.int multiply.Tensor softmax.int
    subtract.Tensor true_divide.Tensor vstack.default
"""


def export(program: Any, outputs: Sequence[str]) -> tuple[Any, Any, tuple[SourceState, ...]]:
    """Export a program that returns ``outputs``: a ModelProto, the decomposed program, its states.

    States become further inputs and outputs. Raises ModelError, naming the node that cannot be
    exported.
    """
    states: list[SourceState] = []

    def decomposed(table: Any) -> Any:
        functional = program.run_decompositions(table | _decompositions())
        states.extend(expose_states(functional, outputs))
        return functional

    # The exporter drops updates of buffers, so they are read when it decomposes the program.
    observed = copy(program)
    observed.run_decompositions = decomposed
    # With gradients, attention returns other strides, which a view of its result may not allow.
    with quiet(), torch.no_grad():
        try:
            exported = torch.onnx.export(observed, dynamo=True, optimize=False, verbose=False)
            _name_entries(exported.model.graph, exported.exported_program)
            return exported.model_proto, exported.exported_program, tuple(states)
        except Exception as error:
            raise ModelError(_refusal(error)) from error


def _name_entries(graph: Any, program: Any) -> None:
    """Name inputs and weights after their placeholders, names that no node of the program has."""
    for value, name in zip(graph.inputs, program.graph_signature.user_inputs, strict=True):
        value.name = name
    for value in list(graph.initializers.values()):
        value.name = value.metadata_props.get("pkg.torch.onnx.original_node_name", value.name)


def named_nodes(graph: Any, decomposed: Any, program: Any) -> list[SourceNode]:
    """The nodes of an ONNX graph, each named after the node of the program that it was made for."""
    names = _names(decomposed, program)
    return [
        replace(node, name=names.get((scopes_of(proto) or [""])[-1], node.name))
        for proto, node in zip(graph.node, source_nodes(graph), strict=True)
    ]


def joined(nodes: Iterable[SourceNode], program: Any) -> tuple[SourceNode, ...]:
    """The nodes, with nodes of one name joined, then the program's nodes that have no ONNX node."""
    parts: dict[str, list[SourceNode]] = {}
    for node in nodes:
        parts.setdefault(node.name, []).append(node)
    others = {name: kind for name, kind in _plain(program).items() if name not in parts}
    return (
        *map(_joined, parts.values()),
        *(SourceNode(name, kind, (), ()) for name, kind in others.items()),
    )


def _joined(parts: Sequence[SourceNode]) -> SourceNode:
    outputs = dict.fromkeys(name for node in parts for name in node.outputs)
    read = dict.fromkeys(name for node in parts for name in node.inputs)
    inputs = tuple(name for name in read if name not in outputs)
    return replace(parts[-1], inputs=inputs, outputs=tuple(outputs))


def _names(decomposed: Any, program: Any) -> dict[str, str]:
    """For each node of a decomposed program, the node of the program that it came from.

    Nodes inside a call that wraps a part of the program have names of their own.
    """
    plain = _plain(program)
    names: dict[str, str] = {}
    used = set(plain)
    for node in decomposed.graph.nodes:
        if node.op != "call_function":
            continue
        if target_name(node.target) == "getitem" and node.args[0].name in names:
            names[node.name] = names[node.args[0].name]
            continue
        origin = _origin(node, id(program.graph))
        names[node.name] = origin if origin in plain else unused(node.name, used)
    return names


def _plain(program: Any) -> dict[str, str]:
    """The ops of a program's nodes by node name, without getitem and calls that wrap a part."""
    kinds = {node.name: node.target for node in program.graph.nodes if node.op == "call_function"}
    aside = ("getitem", "wrap_with_")
    return {n: str(op) for n, op in kinds.items() if not target_name(op).startswith(aside)}


def _origin(node: Any, graph_id: int) -> str:
    """The name of the node in graph ``graph_id`` that a node came from; empty if there is none."""
    sources = list(node.meta.get("from_node", ()))
    while sources:
        source = sources.pop()
        if source.graph_id == graph_id:
            return str(source.name)
        sources.extend(source.from_node)
    return ""


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence torch, which prints, warns and logs what it is about to raise."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    sink = io.StringIO()
    try:
        with redirect_stdout(sink), redirect_stderr(sink), warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logging.disable(disabled)


def _decompositions() -> dict[Any, Any]:
    """Decompositions of ops that the exporter or TVM misreads."""
    aten, composite = torch.ops.aten, torch._C.DispatchKey.CompositeImplicitAutograd
    ops = [attrgetter(name)(aten) for name in _COMPOSITE.split()]
    # Their method ``decompose`` would look them up in this table again.
    table: dict[Any, Any] = {op: partial(op._op_dk, composite) for op in ops}
    for op in (aten.mean.dim, aten.sum.default, aten.sum.dim_IntList):
        table[op] = partial(_converted, op)
    # The exporter overflows in these, and reads what a copy overwrites to know its type.
    table |= torch._decomp.get_decompositions([aten.logaddexp, aten.logaddexp2])
    table[aten.copy.default] = lambda old, new, *_: new.expand_as(old).to(old.dtype).clone()
    table[aten.div.Tensor_mode] = table[aten.div.Scalar_mode] = _quotient
    table[aten.floor_divide.default] = table[aten.floor_divide.Scalar] = _floor_quotient
    table[aten.remainder.Tensor] = table[aten.remainder.Scalar] = _remainder
    table[aten.remainder.Scalar_Tensor] = _remainder
    table[aten.signbit.default] = lambda number: torch.where(number == 0, 1 / number, number) < 0
    table[aten.atan2.default], table[aten.angle.default] = _atan2, _angle
    table[aten.scaled_dot_product_attention.default] = _attention
    # It is safe against masks that hide all, of which ``_attention`` takes care.
    table[aten._safe_softmax.default] = aten.softmax.int
    return table


def _converted(op: Any, operand: Any, *arguments: Any, dtype: Any = None) -> Any:
    """Convert the operand of a reduction; the exporter would convert the result."""
    return NotImplemented if dtype is None else op(operand.to(dtype), *arguments)


def _quotient(dividend: Any, divisor: Any, *, rounding_mode: str | None) -> Any:
    """The exact quotient; the exporter would divide integers as 32-bit floats."""
    if rounding_mode == "floor":
        return torch.floor_divide(dividend, divisor)
    if rounding_mode is None or torch.result_type(dividend, divisor).is_floating_point:
        return NotImplemented
    return torch.floor_divide(dividend - torch.fmod(dividend, divisor), divisor)


def _floor_quotient(dividend: Any, divisor: Any) -> Any:
    """The quotient of floats by their exact rest, as torch has it; the exporter rounds it twice."""
    dtype = torch.result_type(dividend, divisor)
    if not dtype.is_floating_point:
        return NotImplemented
    dividend, divisor = _tensor(dividend, dtype), _tensor(divisor, dtype)
    rest = torch.fmod(dividend, divisor)
    is_above = rest != torch.remainder(dividend, divisor)
    quotient = (dividend - rest) / divisor - is_above.to(dtype)
    floor = quotient.floor()
    floor = torch.where(quotient - floor > 0.5, floor + 1, floor)
    return torch.where(divisor == 0, dividend / divisor, floor)


def _remainder(number: Any, divisor: Any) -> Any:
    """The exact rest of floats; the exporter's rounded quotient is wrong where it is large."""
    dtype = torch.result_type(number, divisor)
    if not dtype.is_floating_point:
        return NotImplemented
    rest = torch.fmod(_tensor(number, dtype), divisor)
    return torch.where((rest != 0) & ((rest < 0) != (divisor < 0)), rest + divisor, rest)


def _tensor(number: Any, dtype: Any) -> Any:  # torch 2.13 loses the constants of as_tensor
    return number.to(dtype) if torch.is_tensor(number) else torch.full((), number, dtype=dtype)


def _atan2(y: Any, x: Any) -> Any:
    """The angle of a point; the exporter's is wrong for NaN, zeros and infinities."""
    quotient = y / x  # NaN for two zeros and for two infinities
    ratio = torch.where(y.abs() == x.abs(), (y != 0).to(quotient.dtype), quotient.abs())
    angle = torch.where(torch.signbit(x), math.pi - ratio.atan(), ratio.atan())
    return torch.where(torch.signbit(y), -angle, angle)


def _angle(number: Any) -> Any:
    if number.is_complex():
        return torch.atan2(number.imag, number.real)
    return torch.where(number < 0, math.pi, torch.where(number > 0, 0.0, number))


def _attention(query: Any, key: Any, value: Any, mask: Any = None, *more: Any, **other: Any) -> Any:
    """Attention by products; where a mask hides all keys it gives 0, the exporter's their mean."""
    if mask is not None and mask.dtype == torch.bool:
        mask = torch.where(mask, 0.0, -math.inf).to(query.dtype)
    by_products = torch.ops.aten._scaled_dot_product_attention_math.default
    result = by_products(query, key, value, mask, *more, **other)[0]
    if mask is None:
        return result
    return torch.where((mask == -math.inf).all(-1, keepdim=True), 0.0, result)


def _refusal(error: BaseException) -> str:
    """The error message: the node at which the exporter stopped, and the reason."""
    chain = [error]
    while chain[-1].__cause__ is not None:
        chain.append(chain[-1].__cause__)
    if isinstance(chain[-1], ModelError):
        return str(chain[-1])
    reason = line_of(chain[-1]).rstrip(".")
    if reason.startswith("No ONNX function found"):
        reason = "torch has no ONNX function for it"
    match = _FAILED_NODE.search("\n".join(map(str, chain)))
    if match is None:
        return f"torch cannot export the program as ONNX: {reason}"
    op = match[2].removeprefix("torch.ops.")
    return f"node '{match[1]}' ({op}) cannot be exported as ONNX: {reason}; replace it"
