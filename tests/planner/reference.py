"""Costs of stages in the plainest way: sets, loops and exact fractions.

Nothing is shared with the planner.
"""

from fractions import Fraction

from autosplit.cuts import bitset, contract, downsets, members

INF = float("inf")


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
        can_run = INF not in times and not torn
        loads.append(sum([*parts, *map(Fraction, times)]) if can_run else None)
        memory.append(size)
    return loads, memory, bytes_moved


def least_period(costs, stages, cores=0):
    """The optimum over all chains of cuts, None where there is none: one kind of device, no inputs.

    With ``cores`` stages may be fewer; their replicas and threads take the cores.
    """
    contraction = contract(costs.predecessors, costs.groups)
    cuts = [contraction.expand(cut) for cut in downsets(contraction)]
    best = {(0, 0): 0.0}  # by cut and the devices that the stages before it take
    for after in cuts:
        for before in cuts:
            if before == after or before & ~after:
                continue
            for row in costs.rows:
                load = _load(costs, row, before, after)
                for replicas in range(1, max(1, cores // row.row.threads) + 1):
                    takes = replicas * row.row.threads if cores else 1
                    for taken in range((cores or stages) - takes + 1):
                        period = max(best.get((before, taken), INF), load / replicas)
                        place = after, taken + takes
                        best[place] = min(period, best.get(place, INF))
    ends = [best.get((cuts[-1], taken), INF) for taken in range(1, (cores or stages) + 1)]
    least = min(ends) if cores else ends[-1]
    return least if least < INF else None


def _load(costs, row, before, after):
    """Of a stage between two cuts, infinite where it cannot be."""
    ops, kind = after & ~before, costs.kinds[0]
    is_torn = any(group & ops not in (0, group) for group in row.groups)
    if is_torn or sum(costs.sizes[op] for op in members(ops)) > kind.memory:
        return INF
    load = row.overhead + sum(row.times[op] for op in members(ops))
    for t, tensor in enumerate(costs.tensors):
        readers, is_made = bitset(tensor.consumers), ops >> tensor.producer & 1
        load += kind.send[t] if is_made and readers & ~after else 0
        load += kind.receive[t] if not is_made and readers & ops else 0
    return load
