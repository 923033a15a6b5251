"""A split made by hand, told to the one who made it: what each cut took along and which tensors cross it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from autosplit import cuts
from autosplit.graph import FusedGraph
from autosplit.report.documents.inspection import spelled, tensor
from autosplit.units import counted, size

if TYPE_CHECKING:
    from autosplit.api import Split


def document(split: Split, after: Sequence[Sequence[str]]) -> dict[str, Any]:
    """The document of ``split -f json``: ``cuts`` and ``stages`` of a split made with ``Model.split(after)``."""
    graph = split.model.graph
    ends = cuts.cuts_of(graph, split.stages)
    starts = (0, *ends)
    return {
        "model": graph.name,
        "cuts": [
            _cut(graph, number, names, end & ~start, cuts.live(graph, end))
            for number, (names, start, end) in enumerate(zip(after, starts, ends, strict=False), 1)
        ],
        "stages": [_stage(split, i) for i in range(len(split.stages))],
    }


def title(cut: dict[str, Any]) -> str:
    """A cut in one line."""
    took = cut["took"]
    along = f"; took along {', '.join(map(_spelled, took))}" if took else ""
    return f"cut {cut['number']} after {', '.join(cut['after'])}{along}"


def rows(cut: dict[str, Any]) -> Iterator[tuple[object, ...]]:
    """One row a tensor that crosses the cut: name, shape, dtype, size, who makes it, who reads it."""
    for crossing in cut["tensors"]:
        shape, held = spelled(crossing["shape"]), size(crossing["bytes"])
        yield (
            crossing["name"],
            shape,
            crossing["dtype"],
            held,
            crossing["producer"],
            " ".join(crossing["consumers"]),
        )


def stage_line(stage: dict[str, Any]) -> str:
    """A stage in one line."""
    return (
        f"stage {stage['index']}: {counted(len(stage['ops']), 'op')}, "
        f"reads {', '.join(stage['inputs']) or 'nothing'}, makes {', '.join(stage['outputs'])}"
    )


def _cut(
    graph: FusedGraph, number: int, names: Sequence[str], added: int, live: Sequence[str]
) -> dict[str, Any]:
    """``added`` are the ops between this cut and the one before; ``took`` those of them that nobody named."""
    ops = [graph.ops[i] for i in cuts.members(added)]
    tensors = [tensor(graph, name) for name in live]
    return {
        "number": number,
        "after": list(names),
        "ops": [op.name for op in ops],
        "took": [
            {"name": op.name, "sources": list(op.sources)}
            for op in ops
            if not {op.name, *op.sources}.intersection(names)
        ],
        "tensors": tensors,
        "bytes": sum(t["bytes"] for t in tensors),
    }


def _stage(split: Split, index: int) -> dict[str, Any]:
    graph = split.model.graph
    ports = split.model.wiring(split.stages).stages[index]
    return {
        "index": index,
        "ops": [
            {"name": graph.ops[i].name, "sources": list(graph.ops[i].sources)} for i in ports.ops
        ],
        "inputs": [p.name for p in ports.inputs],
        "outputs": [p.name for p in ports.outputs],
    }


def _spelled(op: dict[str, Any]) -> str:
    return f"{op['name']} ({' '.join(op['sources'])})" if op["sources"] else str(op["name"])
