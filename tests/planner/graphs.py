"""Graphs of known shape with seeded costs."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from autosplit.planner import CostModel, Transfer


def costed(n, edges, seed=0, transfer=0.1, size=0.0, memory=float("inf")):
    """A model of n ops with times 0.2 to 2 and transfers of ``transfer`` times that."""
    random = Random(seed)
    predecessors, readers = [0] * n, {}
    for a, b in edges:
        predecessors[b] |= 1 << a
        readers.setdefault(a, set()).add(b)
    times = tuple(random.uniform(0.2, 2) for _ in range(n))
    tensors = tuple(
        Transfer(f"t{a}", a, tuple(sorted(readers[a])), 1000 * random.random())
        for a in sorted(readers)
    )
    return CostModel(
        name="graph",
        names=tuple(f"op{i}" for i in range(n)),
        predecessors=tuple(predecessors),
        times=(times,),
        tensors=tensors,
        send=(tuple(transfer * random.uniform(0.2, 2) for _ in tensors),),
        receive=(tuple(transfer * random.uniform(0.2, 2) for _ in tensors),),
        sizes=tuple(size * random.random() for _ in range(n)),
        memory=(memory,),
    )


def random_dag(n, seed, **costs):
    """Ops that read from one to three of the ten before them."""
    random = Random(seed)
    edges = [
        (a, b)
        for b in range(1, n)
        for a in random.sample(range(max(0, b - 10), b), min(b, random.randint(1, 3)))
    ]
    return costed(n, edges, seed, **costs)


def parallel_chains(number, length, seed=0, **costs):
    return costed(
        number * length,
        [(c * length + i, c * length + i + 1) for c in range(number) for i in range(length - 1)],
        seed,
        **costs,
    )


def cells(number, seed=0, **costs):
    """NASNet-like: each cell joins five pairs of branches of the two cells before it."""
    random = Random(seed)
    edges, n, before, last = [(0, 1)], 2, 0, 1
    for _ in range(number):
        states, used = [n, n + 1], set()
        edges += [(before, n), (last, n + 1)]
        n += 2
        for _ in range(5):
            ends = []
            for _ in range(2):
                source = random.choice(states)
                used.add(source)
                edges += [(source, n), (n, n + 1)]
                ends.append(n + 1)
                n += 2
            edges += [(end, n) for end in ends]
            states.append(n)
            n += 1
        edges += [(s, n) for s in states[2:] if s not in used]
        before, last = last, n
        n += 1
    return costed(n, edges, seed, **costs)


def branchy(blocks, branches, seed=0, **costs):
    """Blocks one after the other: an op that parallel branches of two ops read, then one that joins
    them.
    """
    edges, n = [], 0
    for block in range(blocks):
        fork, join = n, n + 2 * branches + 1
        if block:
            edges.append((fork - 1, fork))
        for branch in range(fork + 1, join, 2):
            edges += [(fork, branch), (branch, branch + 1), (branch + 1, join)]
        n = join + 1
    return costed(n, edges, seed, **costs)


def half_without_time(seed):
    """(model, stages): half of the ops take time, and few of these fit one stage."""
    random, ops = Random(seed), range(6)
    stages = random.choice([2, 3])
    devices = random.choice([1, 1, stages])
    predecessors, tensors = [0] * 6, []
    for i in ops[:-1]:
        later = range(i + 1, min(6, i + 4))
        for part in range(random.choice([1, 1, 2])):
            readers = sorted(random.sample(later, random.choice([1, 1, min(2, len(later))])))
            tensors.append(Transfer(f"t{i}.{part}", i, tuple(readers), random.choice([0.0, 8.0])))
            for reader in readers:
                predecessors[reader] |= 1 << i
    heavy = [random.random() < 0.5 for _ in ops]

    def rows(values, width):
        drawn = [tuple(random.choice(values) for _ in range(width)) for _ in range(devices)]
        return tuple(drawn)

    times = tuple(tuple(map(float.__mul__, row, map(float, heavy))) for row in rows([2.0, 3.0], 6))
    model = CostModel(
        name="random",
        names=tuple(f"op{i}" for i in ops),
        predecessors=tuple(predecessors),
        times=times,
        tensors=tuple(tensors),
        send=rows([0.0, 1.0, 2.0, 3.0], len(tensors)),
        receive=rows([0.0, 1.0, 2.0, 3.0], len(tensors)),
        sizes=tuple(map(float, heavy)),
        memory=(float(max(1, -(-sum(heavy) // stages))),),
    )
    return model, stages


def decoder(layers):
    """A decoder as exporters write it: parallel projections, caches, small ops at every layer."""
    edges, number = [], 4  # op 0 embeds; 1 to 3 make the position tables and the mask
    hidden = 0

    def op(*producers):
        nonlocal number
        edges.extend((producer, number) for producer in producers)
        number += 1
        return number - 1

    for _ in range(layers):
        small = [op() for _ in range(6)]
        normed = op(hidden)
        query, key, value = op(normed), op(normed), op(normed)
        keys = op(op(key, 1, 2), *small[:3])
        context = op(op(op(query, 1, 2), keys, 3), op(value, *small[3:]))
        normed = op(op(context, hidden))
        hidden = op(op(op(normed), op(normed)))
    model = costed(number, edges, transfer=0.02)
    times = [1.0 if producers else 0.01 for producers in model.predecessors]
    return replace(model, times=(tuple(times),))
