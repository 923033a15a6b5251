"""The least period by a mixed-integer programme in HiGHS: an independent statement of the problem.

x[i, s] = 1 where op i lies on a stage up to s (rows are monotone in s); r[t, s] >= 1 where stage s
reads a tensor from outside, w[t, s] >= 1 where the maker is on stage s and a reader later. Minimise
P over P >= load of each stage.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import lil_matrix


def least_period(model, stages):
    """The optimum, None where there is no split. One device row, model inputs not supported."""
    n, t = len(model.names), len(model.tensors)
    x = lambda i, s: i * stages + s  # noqa: E731
    r = lambda j, s: n * stages + j * stages + s  # noqa: E731
    w = lambda j, s: n * stages + t * stages + j * stages + s  # noqa: E731
    period = n * stages + 2 * t * stages
    rows = []

    def add(terms, low):
        rows.append((terms, low))

    def on(i, s, factor):
        """factor * [op i on stage s]"""
        return [(x(i, s), factor)] + ([(x(i, s - 1), -factor)] if s else [])

    for i in range(n):
        add([(x(i, stages - 1), 1)], 1)
        for s in range(1, stages):
            add([(x(i, s), 1), (x(i, s - 1), -1)], 0)
        for p in range(n):
            if model.predecessors[i] >> p & 1:
                for s in range(stages):
                    add([(x(p, s), 1), (x(i, s), -1)], 0)
    for group in model.groups:
        ops = [i for i in range(n) if group >> i & 1]
        for i in ops[1:]:
            for s in range(stages):
                add([(x(i, s), 1), (x(ops[0], s), -1)], 0)
                add([(x(i, s), -1), (x(ops[0], s), 1)], 0)
    for j, tensor in enumerate(model.tensors):
        for c in tensor.consumers:
            for s in range(stages):
                # on stage s and the maker before it; the maker up to s and the reader after it,
                # less the maker before s
                add(
                    [
                        (r(j, s), 1),
                        *on(c, s, -1),
                        *([(x(tensor.producer, s - 1), -1)] if s else []),
                    ],
                    -1,
                )
                add([(w(j, s), 1), *on(tensor.producer, s, -1), (x(c, s), 1)], 0)
    for s in range(stages):
        add([term for i in range(n) for term in on(i, s, 1)], 1)
        load = [term for i in range(n) for term in on(i, s, -model.times[0][i])]
        load += [(r(j, s), -model.receive[0][j]) for j in range(t)] + [
            (w(j, s), -model.send[0][j]) for j in range(t)
        ]
        add([(period, 1), *load], model.overheads[0])
        if model.memory[0] < float("inf"):
            add([term for i in range(n) for term in on(i, s, -model.sizes[i])], -model.memory[0])
    return minimised(rows, period)


def minimised(rows, period):
    """The least value of column ``period``, the last, where all others are 0 or 1.

    None where nothing satisfies the rows.
    """
    matrix = lil_matrix((len(rows), period + 1))
    for row, (terms, _) in enumerate(rows):
        for column, factor in terms:
            matrix[row, column] += factor
    cost = np.zeros(period + 1)
    cost[period] = 1
    upper = np.ones(period + 1)
    upper[period] = np.inf
    whole = np.ones(period + 1)
    whole[period] = 0
    result = milp(
        cost,
        constraints=LinearConstraint(matrix.tocsr(), [low for _, low in rows], np.inf),
        bounds=Bounds(0, upper),
        integrality=whole,
        options={"mip_rel_gap": 0},
    )
    assert result.status in (0, 2), result.message
    return None if result.status == 2 else float(result.fun)
