"""Cost tables of small graphs, and graphs of known shape with seeded costs."""

import json
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from autosplit.planner import CostModel, Kind, Row, RowCosts, Transfer

WORKLOADS = Path(__file__).parents[2] / ".." / "shared" / "workloads"


def workload(name):
    """The document of a public graph; a test without it is skipped."""
    file = WORKLOADS / f"{name}.json"
    if not file.exists():
        pytest.skip(f"the public workloads are not at {WORKLOADS}")
    return json.loads(file.read_text())


class Clock:
    """A deadline that passes when it has been asked so often, and counts how often it is."""

    def __init__(self, most):
        self.most, self.asked = most, 0

    def __call__(self):
        self.asked += 1
        return self.asked > self.most


def table(predecessors, times, overhead=0.0, send=(), receive=(), memory=float("inf"), **fields):
    """Costs of equal devices."""
    names = tuple(f"op{i}" for i in range(len(predecessors)))
    rows = (RowCosts(Row(), tuple(times), overhead),)
    kinds = (Kind("", tuple(send), tuple(receive), memory),)
    return CostModel("graph", names, tuple(predecessors), rows, kinds, **fields)


def on_unlike_devices(model, *times, overheads=()):
    """The costs with a row of times for each of the devices 0, 1, …."""
    rows = []
    for place, row in enumerate(times):
        overhead = overheads[place] if overheads else 0.0
        rows.append(RowCosts(Row(str(place)), tuple(row), overhead))
    kinds = tuple(replace(model.kinds[0], name=row.row.kind) for row in rows)
    return replace(model, rows=tuple(rows), kinds=kinds)


def in_runtimes(model, **runtimes):
    """The costs in several runtimes, each given by its RowCosts but for the row."""
    rows = [replace(costs, row=Row("", name)) for name, costs in runtimes.items()]
    return replace(model, rows=tuple(rows))


def with_times(model, *times):
    """The costs with other times in its rows."""
    pairs = zip(model.rows, times, strict=True)
    return replace(model, rows=tuple(replace(row, times=tuple(new)) for row, new in pairs))


def chain(*times, **options):
    """Ops in a row whose tensors cost nothing."""
    return table([1 << i >> 1 for i in range(len(times))], times, **options)


def replicas_of(plan):
    return tuple(stage.replicas for stage in plan.stages)


def costed(n, edges, seed=0, transfer=0.1, size=0.0, **options):
    """A model of n ops with times 0.2 to 2 and transfers of ``transfer`` times that."""
    random = Random(seed)
    predecessors, readers = [0] * n, {}
    for a, b in edges:
        predecessors[b] |= 1 << a
        readers.setdefault(a, set()).add(b)
    times = tuple(random.uniform(0.2, 2) for _ in range(n))
    readers = {a: tuple(sorted(ops)) for a, ops in sorted(readers.items())}
    tensors = tuple(Transfer(f"t{a}", a, readers[a], 1000 * random.random()) for a in readers)
    return table(
        predecessors,
        times,
        tensors=tensors,
        send=[transfer * random.uniform(0.2, 2) for _ in tensors],
        receive=[transfer * random.uniform(0.2, 2) for _ in tensors],
        sizes=tuple(size * random.random() for _ in range(n)),
        **options,
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


def decoder(layers):
    """A decoder as exporters write it: parallel projections, caches, small ops at every layer."""
    reads, hidden = [()] * 4, 0  # op 0 embeds; 1 to 3 make the position tables and the mask

    def op(*producers):
        reads.append(producers)
        return len(reads) - 1

    for _ in range(layers):
        small = [op() for _ in range(6)]
        normed = op(hidden)
        query, key, value = op(normed), op(normed), op(normed)
        keys = op(op(key, 1, 2), *small[:3])
        context = op(op(op(query, 1, 2), keys, 3), op(value, *small[3:]))
        normed = op(op(context, hidden))
        hidden = op(op(op(normed), op(normed)))
    edges = [(a, b) for b, producers in enumerate(reads) for a in producers]
    model = costed(len(reads), edges, transfer=0.02)
    times = [1.0 if producers else 0.01 for producers in model.predecessors]
    return with_times(model, times)
