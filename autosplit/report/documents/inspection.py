"""A graph put into words and into the JSON document of ``inspect``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from autosplit import cuts
from autosplit.errors import SplitError, nearest
from autosplit.graph import FusedGraph
from autosplit.units import counted, size

if TYPE_CHECKING:
    from autosplit.hardware.compiled_model import CompiledModel


def document(model: CompiledModel) -> dict[str, Any]:
    """The document of ``inspect -f json``; DESIGN fixes its keys."""
    graph = model.graph
    count = cuts.count(graph)
    return {
        "model": {
            "name": graph.name,
            "sha256": model.sha256,
            "weight_bytes": model.lowered.weight_bytes,
        },
        "inputs": [
            {"name": i.name, "shape": list(i.shape), "dtype": i.dtype} for i in model.lowered.inputs
        ],
        "outputs": [
            {
                "name": name,
                "tensor": t,
                "shape": list(graph.tensors[t].shape),
                "dtype": graph.tensors[t].dtype,
            }
            for name, t in model.lowered.outputs
        ],
        "folded": [{"name": f.name, "reason": f.reason} for f in graph.folded],
        "ops": [
            {
                "name": op.name,
                "kernel": op.kernel,
                "sources": list(op.sources),
                "parts": list(op.parts),
                "inputs": list(op.inputs),
                "outputs": list(op.outputs),
                "weight_bytes": op.weight_bytes,
                "flops": op.flops,
            }
            for op in graph.ops
        ],
        "tensors": [tensor(graph, name) for name in graph.tensors],
        "cuts": {"total": count.total, "complete": count.complete},
    }


def tensor(graph: FusedGraph, name: str) -> dict[str, Any]:
    """A tensor with the op that produces it, None for an input, and those that read it."""
    value = graph.tensors[name]
    return {
        "name": name,
        "shape": list(value.shape),
        "dtype": value.dtype,
        "bytes": value.bytes,
        "producer": None if value.producer is None else graph.ops[value.producer].name,
        "consumers": [graph.ops[reader].name for reader in value.consumers],
    }


def title(document: dict[str, Any]) -> str:
    """The graph in one line."""
    count = document["cuts"]
    ops = f"{document['model']['name']}: {counted(len(document['ops']), 'fused op')}"
    if not count["complete"]:
        return f"{ops}, more than {count['total']:,} downsets"
    inner = count["total"] - 2  # the empty and the full one cut nothing off
    return f"{ops}, {count['total']:,} downsets: {inner:,} cut{'' if inner == 1 else 's'} into two stages"


def ports(document: dict[str, Any]) -> Iterator[str]:
    """The inputs and the outputs of the model, a line each: name, type and shape."""
    for what in ("inputs", "outputs"):
        told = (f"{p['name']} {p['dtype']} {spelled(p['shape'])}" for p in document[what])
        yield f"{what}: {', '.join(told)}"


def spelled(shape: Sequence[int]) -> str:
    """A shape as ``--shape`` takes it: 1x3x224x224."""
    return "x".join(map(str, shape)) or "scalar"


def rows(graph: FusedGraph) -> Iterator[tuple[object, ...]]:
    """One row an op: number, name, sources, tensors read and made, bytes made."""
    for i, op in enumerate(graph.ops):
        sources = " ".join(op.sources) or f"(part of {' '.join(op.parts)})"
        yield (
            i,
            op.name,
            sources,
            " ".join(op.inputs),
            " ".join(op.outputs),
            size(sum(graph.tensors[t].bytes for t in op.outputs)),
        )


def find(graph: FusedGraph, node: str) -> dict[str, Any]:
    """Where a source node went: the op that makes its result and those that make parts of it, or why it was folded.

    Raises SplitError where no source node is called so.
    """
    made = [op.name for op in graph.ops if node in op.sources]
    parts = [op.name for op in graph.ops if node in op.parts]
    reason = next((f.reason for f in graph.folded if f.name == node), None)
    if not made and reason is None:
        known = [*(n for op in graph.ops for n in op.sources), *(f.name for f in graph.folded)]
        raise SplitError(
            f"no source node is called '{node}'; `autosplit inspect` lists them{nearest(node, known)}"
        )
    return {"node": node, "op": made[0] if made else None, "parts": parts, "folded": reason}


def tuning_hint(untuned: float) -> str:
    """What to do about kernels without a schedule that do the share ``untuned`` of the arithmetic; empty where it is little."""
    if untuned <= 0.1:
        return ""
    return (
        f"{untuned:.0%} of the arithmetic is done by kernels that no schedule is known for, often several times slower than "
        'they could be; `autosplit tune MODEL -o tuned` finds schedules, and tuning = "tuned" or --tuning tuned uses them'
    )


def sentence(place: dict[str, Any]) -> str:
    """``find`` in one line."""
    if place["op"] is None:
        return f"{place['node']} was folded: {place['folded']}"
    parts = (
        f"; {', '.join(place['parts'])} compute{'s' if len(place['parts']) == 1 else ''} a part"
        if place["parts"]
        else ""
    )
    return f"{place['node']} is in fused op {place['op']}{parts}"
