"""The least period by a mixed-integer programme in HiGHS: an independent statement of the problem.

x[i, s] = 1 where op i lies on a stage up to s (rows are monotone in s); r[t, s] >= 1 where stage s
reads a tensor from outside, w[t, s] >= 1 where the maker is on stage s and a reader later. Minimise
P over P >= load of each stage.
"""

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import lil_matrix


class Chain:
    """The variables and rows of a chain of ``stages`` stages, any of which may be empty.

    One device row for transfers, model inputs not supported.
    """

    def __init__(self, model, stages, extra=0):
        self.model, self.stages = model, stages
        self.n, self.t = len(model.names), len(model.tensors)
        self.first_extra = (self.n + 2 * self.t) * stages
        self.period = self.first_extra + extra
        self.rows = []
        self._order()
        self._transfers()

    def x(self, i, s):
        return i * self.stages + s

    def r(self, j, s):
        return (self.n + j) * self.stages + s

    def w(self, j, s):
        return (self.n + self.t + j) * self.stages + s

    def add(self, terms, low):
        self.rows.append((terms, low))

    def on(self, i, s, factor):
        """factor * [op i on stage s]"""
        return [(self.x(i, s), factor)] + ([(self.x(i, s - 1), -factor)] if s else [])

    def all_on(self, s, factors):
        return [term for i in range(self.n) for term in self.on(i, s, factors[i])]

    def minus_load(self, s, times):
        """The negative load of stage s without its overhead."""
        moves = []
        for j in range(self.t):
            moves.append((self.r(j, s), -self.model.kinds[0].receive[j]))
            moves.append((self.w(j, s), -self.model.kinds[0].send[j]))
        return self.all_on(s, [-time for time in times]) + moves

    def _order(self):
        for i in range(self.n):
            self.add([(self.x(i, self.stages - 1), 1)], 1)
            for s in range(1, self.stages):
                self.add([(self.x(i, s), 1), (self.x(i, s - 1), -1)], 0)
            for p in range(self.n):
                if self.model.predecessors[i] >> p & 1:
                    for s in range(self.stages):
                        self.add([(self.x(p, s), 1), (self.x(i, s), -1)], 0)
        for group in self.model.groups:
            ops = [i for i in range(self.n) if group >> i & 1]
            for i in ops[1:]:
                for s in range(self.stages):
                    self.add([(self.x(i, s), 1), (self.x(ops[0], s), -1)], 0)
                    self.add([(self.x(i, s), -1), (self.x(ops[0], s), 1)], 0)

    def _transfers(self):
        for j, tensor in enumerate(self.model.tensors):
            maker = tensor.producer
            for c in tensor.consumers:
                for s in range(self.stages):
                    # On stage s and the maker before it; the maker up to s and the reader after
                    # it, less the maker before s.
                    before = [(self.x(maker, s - 1), -1)] if s else []
                    self.add([(self.r(j, s), 1), *self.on(c, s, -1), *before], -1)
                    self.add([(self.w(j, s), 1), *self.on(maker, s, -1), (self.x(c, s), 1)], 0)


def least_period(model, stages, cores=0):
    """The optimum, None where there is no split. One kind of devices, model inputs not supported.

    y[s, k] = 1 where stage s has option k: a row of the costs and a number of replicas. Only the
    load in that row counts. With ``cores`` stages may be fewer; replicas and threads take them.
    """
    rows = model.rows
    options = [(row, r) for row in rows for r in range(1, cores // row.row.threads + 1)]
    options = options or [(row, 1) for row in rows]
    chain = Chain(model, stages, stages * len(options))
    y = lambda s, k: chain.first_extra + s * len(options) + k  # noqa: E731
    most = sum(model.kinds[0].send) + sum(model.kinds[0].receive)
    most += sum(sum(row.times) + row.overhead for row in rows)
    memory, slack = model.kinds[0].memory, sum(model.sizes)
    if cores:
        spent = [r * row.row.threads for row, r in options]
        chain.add([(y(s, k), -cost) for s in range(stages) for k, cost in enumerate(spent)], -cores)
    for s in range(stages):
        of_stage = [(y(s, k), 1) for k in range(len(options))]
        chain.add([(column, -1) for column, _ in of_stage], -1)
        for i in range(chain.n):
            chain.add([*of_stage, *chain.on(i, s, -1)], 0)
        if not cores:
            chain.add(chain.all_on(s, [1] * chain.n), 1)
        for k, (row, r) in enumerate(options):
            load = chain.minus_load(s, row.times)
            chain.add([(chain.period, r), *load, (y(s, k), -most)], row.overhead - most)
            for group in row.groups:
                ops = [i for i in range(chain.n) if group >> i & 1]
                for i, j in zip(ops, ops[1:] + ops[:1], strict=True):
                    together = [*chain.on(i, s, 1), *chain.on(j, s, -1)]
                    chain.add([*together, (y(s, k), -1)], -1)
            if memory < float("inf"):
                sizes = chain.all_on(s, [-size for size in model.sizes])
                chain.add([*sizes, (y(s, k), -slack)], -memory - slack)
    return minimised(chain.rows, chain.period)


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
