"""Which source nodes each fused op came from, and what its results are called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autosplit.extras import relax, tvm
from autosplit.frontend.source import SourceModel
from autosplit.graph import Folded
from autosplit.lowering.fuse.flat_calls import (
    Environment,
    FlatCalls,
    content_of,
    parameters,
    results_of,
    walk,
)
from autosplit.lowering.fuse.passes import FusedModule

MERGED = "merged away by simplification"


@dataclass(frozen=True)
class Attribution:
    """The source names of fused ops, by the position of their call in the fused ``main``.

    ``sources`` are the nodes whose result the op computes, ``parts`` those of which it computes
    only a part, ``results`` the names of its results (None where no source tensor matches).
    ``channels_last`` are the source tensors in that layout.
    """

    sources: Mapping[int, tuple[str, ...]]
    parts: Mapping[int, tuple[str, ...]]
    results: Mapping[int, tuple[str | None, ...]]
    folded: tuple[Folded, ...]
    channels_last: frozenset[str]


def attribute(source: SourceModel, module: FusedModule) -> Attribution:
    """Match the calls of the fused ``main`` with the nodes of ``source``."""
    flat = FlatCalls(source, module.flat)
    members, results = match(flat, module.grouped)
    reasons = folded_reasons(source)
    op_of = _op_of_node(source, flat, members, reasons)
    names = [node.name for node in source.nodes]
    sources, parts = {}, {}
    for position, calls in members.items():
        whole = [node for node, op in op_of.items() if op == position]
        touched = {flat.node_of[call] for call in calls if call in flat.node_of}
        sources[position] = tuple(names[node] for node in sorted(whole))
        parts[position] = tuple(names[node] for node in sorted(touched.difference(whole)))
    folded = [Folded(names[i], reasons[i]) for i in range(len(names)) if i not in op_of]
    return Attribution(sources, parts, results, tuple(folded), flat.channels_last)


def match(
    flat: FlatCalls, module: Any
) -> tuple[dict[int, list[int]], dict[int, tuple[str | None, ...]]]:
    """The flat calls inside each call of a grouped ``main``, and the names of its results."""
    members: dict[int, list[int]] = {}
    results: dict[int, tuple[str | None, ...]] = {}
    taken: list[int] = []

    def take(call: Any, environment: Environment) -> Any:
        """The content of a call, whose flat calls, inside a function too, join ``taken``."""
        if not isinstance(call.op, tvm.ir.GlobalVar):
            taken.append(flat.take(call, environment))
            return results_of(taken[-1], call)
        function = module[call.op]
        arguments = [content_of(argument, environment) for argument in call.args]
        inner = dict(zip(function.params, arguments, strict=True))
        for _ in walk(function, inner, take):
            pass
        return content_of(function.body.body, inner)

    main = module["main"]
    for binding, content in walk(main, parameters(main), take):
        if isinstance(binding.value, relax.Call):
            position = len(members)
            members[position], taken = taken, []
            results[position] = tuple(
                map(flat.name, content if isinstance(content, list) else [content])
            )
    return members, results


def _op_of_node(
    source: SourceModel, flat: FlatCalls, members: Mapping[int, list[int]], reasons: Sequence[str]
) -> dict[int, int]:
    """By source node the position of the op that computes it or took it in; folded ones absent."""
    op_of: dict[int, int] = {}
    for position, calls in members.items():
        for call in calls:
            for tensor in flat.tensors[call].values():
                if tensor in flat.producer:
                    op_of[flat.producer[tensor]] = position
    # A node that simplification merged away went into the op of its first reader. Readers come
    # later, so walking backwards meets them first.
    first_reader: dict[str, int] = {}  # node by tensor
    for i, node in reversed(list(enumerate(source.nodes))):
        readers = [first_reader[tensor] for tensor in node.outputs if tensor in first_reader]
        if i not in op_of and reasons[i] == MERGED and readers:
            op_of[i] = op_of[min(readers)]
        if i in op_of:
            first_reader.update(dict.fromkeys(node.inputs, i))
    return op_of


def folded_reasons(source: SourceModel) -> list[str]:
    """Why each source node may have left no op; MERGED where the source does not explain it.

    The nodes of a source are in topological order.
    """
    needed, live = set(source.outputs), set()
    for i, node in reversed(list(enumerate(source.nodes))):
        if needed.intersection(node.outputs):
            live.add(i)
            needed.update(node.inputs)
    varying = {i.name for i in source.inputs}
    reasons = []
    for i, node in enumerate(source.nodes):
        depends = bool(varying.intersection(node.inputs))
        varying.update(node.outputs if depends else ())
        reasons.append(_reason(source, node.outputs, i in live, depends))
    return reasons


def _reason(source: SourceModel, outputs: Sequence[str], is_live: bool, depends: bool) -> str:
    if outputs and all(t in source.constants or t in source.alias for t in outputs):
        # The mask of a dropout is a constant beside the tensor that is passed on.
        if outputs[0] in source.alias and outputs[0] not in source.constants:
            return f"identity: passes '{source.alias[outputs[0]]}' on"
        return "constant: known without running the model"
    if not is_live:
        return "dead: no output of the model needs it"
    return MERGED if depends else "constant: depends on weights alone"
