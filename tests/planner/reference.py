"""Costs of splits, and the best of all, in the plainest way: sets, loops and exact fractions.

Nothing is shared with the planner.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import product


def file_loads(document, stages):
    """Loads and sizes of stages of node ids, straight from the text of the workloads' README."""
    nodes = {n["id"]: n for n in document["nodes"]}
    where = {node: s for s, ids in enumerate(stages) for node in ids}
    assert sorted(map(str, where)) == sorted(map(str, nodes)), "each node on one stage"
    assert sum(map(len, stages)) == len(nodes)
    load = [sum(Fraction(nodes[i]["fpgaLatency"]) for i in ids) for ids in stages]
    cost = {e["sourceId"]: Fraction(e["cost"]) for e in document["edges"]}
    moves = {(e["sourceId"], where[e["destId"]]) for e in document["edges"]}
    for e in document["edges"]:
        assert where[e["sourceId"]] <= where[e["destId"]], "data flows forward"
    for source, stage in moves:
        if where[source] != stage:
            load[stage] += cost[source]
    for source in {s for s, stage in moves if stage != where[s]}:
        load[where[source]] += cost[source]
    colours = {}
    for i, n in nodes.items():
        if n.get("colorClass") is not None:
            assert colours.setdefault(n["colorClass"], where[i]) == where[i], (
                "one colour, one stage"
            )
    sizes = [sum(Fraction(nodes[i]["size"]) for i in ids) for ids in stages]
    return [float(x) for x in load], [float(x) for x in sizes]


def least_time(model, device, ops):
    """Overhead and ops of a stage in its best runtime, 10**12 and more where there is none."""
    pick = lambda rows: rows[device] if len(rows) > 1 else rows[0]  # noqa: E731
    totals = []
    for runtime in model.runtimes or (model,):
        total = Fraction(pick(runtime.overheads)) if ops else Fraction(0)
        for i in ops:
            time = pick(runtime.times)[i]
            total += Fraction(time) if time != float("inf") else Fraction(10**12)
        for group in runtime.groups:
            inside = {i in ops for i in range(len(model.names)) if group >> i & 1}
            total += Fraction(10**12) if len(inside) > 1 else 0
        totals.append(total)
    return min(totals)


def model_cost(model, stages):
    """(period, latency, bytes moved, memory per stage, loads) of stages under a CostModel."""
    where = {i: s for s, ops in enumerate(stages) for i in ops}
    pick = lambda rows, d: rows[d] if len(rows) > 1 else rows[0]  # noqa: E731
    loads, memory, bytes_moved = [], [], Fraction(0)
    for d, ops in enumerate(stages):
        load = least_time(model, d, ops)
        memory_bytes = sum((Fraction(model.sizes[i]) for i in ops), Fraction(0))
        for t, tensor in enumerate(model.tensors):
            maker = -1 if tensor.producer is None else where[tensor.producer]
            readers = {where[c] for c in tensor.consumers}
            reads = d in readers and maker != d
            sends = maker == d and any(r > d for r in readers)
            if reads:
                load += Fraction(pick(model.receive, d)[t])
                bytes_moved += Fraction(tensor.bytes) if maker >= 0 else 0
            if sends:
                load += Fraction(pick(model.send, d)[t])
            if (reads or sends) and model.activations:
                memory_bytes += Fraction(tensor.bytes)
        loads.append(load)
        memory.append(memory_bytes)
    return max(loads), sum(loads), bytes_moved, memory, loads


def all_splits(model, k, allow_empty=False):
    """Every legal split into k stages: all assignments in which data flows forward."""
    n = len(model.names)
    edges = [(p, i) for i in range(n) for p in range(n) if model.predecessors[i] >> p & 1]
    groups = [[i for i in range(n) if g >> i & 1] for g in model.groups]
    for assigned in product(range(k), repeat=n):
        if any(assigned[a] > assigned[b] for a, b in edges):
            continue
        if any(len({assigned[i] for i in g}) > 1 for g in groups):
            continue
        if not allow_empty and len(set(assigned)) < k:
            continue
        yield tuple(tuple(i for i in range(n) if assigned[i] == s) for s in range(k))


def brute_force(model, k, allow_empty=False, accept=lambda stages: True):
    """All splits that fit, as (period, latency, bytes, stages), best first."""
    result = []
    for stages in all_splits(model, k, allow_empty):
        period, latency, bytes_moved, memory, _ = model_cost(model, stages)
        limits = [model.memory[d] if len(model.memory) > 1 else model.memory[0] for d in range(k)]
        if (
            period < 10**12
            and all(m <= limit for m, limit in zip(memory, limits, strict=True))
            and accept(stages)
        ):
            result.append((period, latency, bytes_moved, stages))
    return sorted(result)
