"""The document of ``inspect``, and the same as lines and tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from autosplit import cuts
from autosplit.errors import SplitError, nearest
from autosplit.graph import FusedGraph, Op, op_title
from autosplit.hardware.compiled_model import CompiledModel
from autosplit.hardware.execution.stage_spec import SourceOp
from autosplit.hardware.measurement.results import Profile
from autosplit.hardware.profiling.cost_table import cost_table
from autosplit.lowering.states import propose_states
from autosplit.planner import Question, partition
from autosplit.planner.explain import forbidden_by_states
from autosplit.report.documents.table import Table
from autosplit.units import counted, digits, size


def document(model: CompiledModel) -> dict[str, Any]:
    """The document of ``inspect -f json``; its keys are stable."""
    graph, lowered = model.graph, model.lowered
    outputs = []
    for name, source in lowered.outputs:
        value = graph.tensors[source]
        shape = list(value.shape)
        outputs.append({"name": name, "tensor": source, "shape": shape, "dtype": value.dtype})
    proposed, ambiguous = propose_states(graph, lowered.outputs)
    return {
        "model": {"name": graph.name, "sha256": model.sha256, "weight_bytes": lowered.weight_bytes},
        "inputs": [asdict(signature) for signature in lowered.inputs],
        "outputs": outputs,
        "folded": [asdict(node) for node in graph.folded],
        "ops": [asdict(op) for op in graph.ops],
        "tensors": [tensor(graph, name) for name in graph.tensors],
        "cuts": asdict(cuts.count(graph)),
        "unscheduled": sorted(model.kernels.unscheduled),
        "states": _states(model),
        "balance": _balance(graph),
        "proposed_states": proposed,
        "ambiguous_states": ambiguous,
    }


def _states(model: CompiledModel) -> list[dict[str, Any]]:
    """Each state with the ops that it binds to one stage, and their share of the arithmetic."""
    graph = model.graph
    bound = graph.ops_of_states
    contraction = cuts.contract(graph.predecessors, map(cuts.bitset, bound))
    group_of = contraction.group_of
    total = sum(op.flops for op in graph.ops) or 1.0
    rows = []
    for state, ops in zip(graph.states, bound, strict=True):
        group = [graph.ops[i] for i in cuts.members(contraction.groups[group_of[ops[0]]])]
        share = sum(op.flops for op in group) / total
        names = [op.name for op in group]
        rows.append({"input": state.input, "output": state.output, "ops": names, "share": share})
    return rows


def _balance(graph: FusedGraph) -> dict[str, Any] | None:
    """The least share of the arithmetic that the larger of two stages has; None without states.

    ``with_states``: that share where each state is kept in one stage, ``without_states``: in any
    split. ``forbidden``: why no split exists; empty if one does.
    """
    total = sum(op.flops for op in graph.ops)
    if not graph.states or not total:
        return None
    arithmetic = tuple(float(op.flops) for op in graph.ops)
    costs = cost_table(graph, [Profile("", arithmetic, ())])
    bound, shares = costs.with_groups(graph.ops_of_states), []
    for model in (bound, costs):
        can_split = len(model.contraction.groups) > 1
        halves = Question.of_split(2)
        shares.append(partition(model, halves).period / total if can_split else 1.0)
    forbidden = forbidden_by_states(bound, 2)
    return {"with_states": shares[0], "without_states": shares[1], "forbidden": forbidden}


def _state_lines(document: dict[str, Any]) -> Iterator[str]:
    """What the states of a model bind together, and which further pairs look like states."""
    for state in document["states"]:
        ops = state["ops"]
        yield (
            f"state {state['input']}={state['output']}: keeps {', '.join(ops)} on one stage "
            f"({state['share']:.0%} of the arithmetic)"
        )
    balance = document["balance"]
    if balance and balance["forbidden"]:
        yield balance["forbidden"]
    elif balance:
        yield (
            f"the larger of two stages has at least {balance['with_states']:.0%} of the "
            f"arithmetic; without states {balance['without_states']:.0%}"
        )
    known = {state["input"] for state in document["states"]}
    pairs = [f"{i}={o}" for i, o in document["proposed_states"].items() if i not in known]
    if pairs:
        options = " ".join(f"--state {pair}" for pair in pairs)
        yield f"these look like states, which a stream keeps; --state auto takes all: {options}"
    for name, outputs in document["ambiguous_states"].items():
        if name not in known:
            options = " or ".join(f"--state {name}={output}" for output in outputs)
            yield f"input '{name}' looks like a state; choose the output that renews it: {options}"


def tensor(graph: FusedGraph, name: str) -> dict[str, Any]:
    """A tensor with the op that produces it, None for a model input, and the ops that read it."""
    value = graph.tensors[name]
    return {
        "name": name,
        "shape": list(value.shape),
        "dtype": value.dtype,
        "bytes": value.bytes,
        "producer": None if value.producer is None else graph.ops[value.producer].name,
        "consumers": [graph.ops[reader].name for reader in value.consumers],
    }


def op_names(ops: Sequence[Op | SourceOp]) -> list[dict[str, Any]]:
    """Ops by name, with the names of their source nodes."""
    return [{"name": op.name, "sources": list(op.sources)} for op in ops]


def shown(document: dict[str, Any], graph: FusedGraph, folded: bool) -> Iterator[str | Table]:
    """What ``inspect`` prints; with ``folded`` each source node that left no op."""
    yield _title(document)
    for side in ("inputs", "outputs"):
        texts = (f"{p['name']} {p['dtype']} {shape_text(p['shape'])}" for p in document[side])
        yield f"{side}: {', '.join(texts)}"
    yield _op_table(graph, document.get("op_ms", ()))
    yield from _state_lines(document)
    for op in graph.ops:
        if op.opaque:
            yield f"opaque: {op.name} ({op.opaque}; its stage needs onnxruntime or OpenVINO)"
    nodes = document["folded"]
    if folded:
        yield from (f"folded: {node['name']} ({node['reason']})" for node in nodes)
    elif nodes:
        yield f"folded: {counted(len(nodes), 'source node')} left no op; --folded lists them"
    for kernel in document["unscheduled"]:
        ops = [op.name for op in graph.ops if op.kernel == kernel]
        yield f"no schedule: {kernel} ({', '.join(ops)})"


def _title(document: dict[str, Any]) -> str:
    """The graph in one line."""
    count = document["cuts"]
    ops = f"{document['model']['name']}: {counted(len(document['ops']), 'fused op')}"
    if not count["complete"]:
        return f"{ops}, more than {count['total']:,} downsets"
    inner = max(count["total"] - 2, 0)  # the empty and the full one cut nothing off
    cut = "cut" if inner == 1 else "cuts"
    return f"{ops}, {count['total']:,} downsets: {inner:,} {cut} into two stages"


def shape_text(shape: Sequence[int]) -> str:
    """A shape as ``--shape`` takes it: 1x3x224x224."""
    return "x".join(map(str, shape)) or "scalar"


def _op_table(graph: FusedGraph, op_ms: Sequence[float]) -> Table:
    """One row per op, with its time where it is known."""
    rows = []
    for i, op in enumerate(graph.ops):
        # An op may compute only parts of nodes; these are the sources of other ops.
        sources = " ".join(op.sources) or f"(part of {' '.join(op.parts)})"
        produced = size(sum(graph.tensors[t].bytes for t in op.outputs))
        shapes = " ".join(shape_text(graph.tensors[t].shape) for t in op.outputs)
        tensors = " ".join(op.inputs), " ".join(op.outputs), shapes, produced
        rows.append((i, op_title(op), sources, *tensors, *map(digits, op_ms[i : i + 1])))
    columns = ("#", "fused op", "source nodes", "reads", "makes", "shape", "size")
    return Table("", (*columns, "ms") if op_ms else columns, rows)


def find(graph: FusedGraph, node: str) -> dict[str, Any]:
    """Where a source node went: the ops that compute it or parts of it, or why it was folded.

    Raises SplitError if no source node has that name.
    """
    ops = [op.name for op in graph.ops if node in op.sources]
    parts = [op.name for op in graph.ops if node in op.parts]
    reason = next((f.reason for f in graph.folded if f.name == node), None)
    if not ops and reason is None:
        known = [f.name for f in graph.folded]
        for op in graph.ops:
            known += op.sources
        raise SplitError(
            f"unknown source node '{node}'; `autosplit inspect` lists them{nearest(node, known)}"
        )
    return {"node": node, "op": ops[0] if ops else None, "parts": parts, "folded": reason}


def sentence(place: dict[str, Any]) -> str:
    """The result of ``find`` in one line."""
    if place["op"] is None:
        return f"{place['node']} was folded: {place['folded']}"
    text = f"{place['node']} is in fused op {place['op']}"
    if place["parts"]:
        verb = "computes" if len(place["parts"]) == 1 else "compute"
        text += f"; {', '.join(place['parts'])} {verb} a part"
    return text
