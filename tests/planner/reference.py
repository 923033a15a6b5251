"""Costs of stages in the plainest way: sets, loops and exact fractions.

Nothing is shared with the planner.
"""

from fractions import Fraction


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


def plain_cost(costs, stages):
    """(loads, memory, bytes moved) of stages of (ops, row) as exact fractions.

    A load that cannot be is None.
    """
    where = {op: s for s, (ops, _) in enumerate(stages) for op in ops}
    loads, memory, bytes_moved = [], [], Fraction(0)
    for s, (ops, row) in enumerate(stages):
        kind = next(kind for kind in costs.kinds if kind.name == row.row.kind)
        parts = [Fraction(row.overhead)]
        size = sum((Fraction(costs.sizes[op]) for op in ops), Fraction(0))
        for t, tensor in enumerate(costs.tensors):
            maker = None if tensor.producer is None else where[tensor.producer]
            readers = {where[op] for op in tensor.consumers}
            is_read = s in readers and maker != s
            is_sent = maker == s and bool(readers - {s})
            if is_read:
                parts.append(Fraction(kind.receive[t]) if kind.receive else 0)
                bytes_moved += 0 if maker is None else Fraction(tensor.bytes)
            if is_sent:
                parts.append(Fraction(kind.send[t]) if kind.send else 0)
            if (is_read or is_sent) and costs.activations:
                size += row.row.batch * Fraction(tensor.bytes)
        times = [row.times[op] for op in ops]
        torn = [g for g in row.groups if 0 < sum(g >> op & 1 for op in ops) < g.bit_count()]
        can_run = float("inf") not in times and not torn
        loads.append(sum([*parts, *map(Fraction, times)]) if can_run else None)
        memory.append(size)
    return loads, memory, bytes_moved
