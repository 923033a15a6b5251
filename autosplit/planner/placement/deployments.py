"""Stages, replicas and threads on equal cores: the deployment of least period.

With D[I, q] the least period of the ops of a downset I on q cores,
    D[I, q] = min over downsets I' inside I, w threads and r replicas with r w <= q
              of max(D[I', q - r w], L_w(I - I') / r),
where L_w is the load of a stage with w threads. A stage that meets a period P needs
w ceil(L_w / P) cores. One with states, of which a replica holds whole streams, needs
w ceil(S / m) for S streams, where m = floor(S P / L_w) is how many a replica can hold. P is met
where the cheapest path from the empty to the full downset has at most N cores. One such path costs
each stage once, for any number of cores; the least P is searched between a bound and a known
deployment.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from random import Random

import numpy as np
from numpy.typing import NDArray

from autosplit.cuts import TooManyDownsets
from autosplit.errors import ConfigError, Infeasible
from autosplit.planner.exact.downset_table import (
    Words,
    chunks,
    exceeds_live_limits,
    list_rows,
    live_tensors,
    merge,
    ops_between,
    prefixes,
    to_bits,
)
from autosplit.planner.exact.search import row_limit, start_rows
from autosplit.planner.exact.stage_loads import Block, Side, loads
from autosplit.planner.near_orders import rows_around
from autosplit.planner.problem.constraints import FREE, Constraints
from autosplit.planner.problem.cost_model import CostModel
from autosplit.planner.problem.deployment import PlannedDeployment, evaluate_deployment, sharing
from autosplit.planner.problem.problem import (
    Array,
    Deadline,
    Index,
    NotFound,
    OutOfTime,
    Problem,
    RuntimeTables,
    pose,
)
from autosplit.planner.problem.scaling import ScaledProblem, scale

MOST_CORES = 1024
_SAME = 1e-11  # periods nearer than this, relative, count as equal
_FEW_ROWS = 4000  # rows of a table that is searched in a moment
_ROUNDS, _PATIENT_ROUNDS = 8, 24  # such tables, before all cuts and where those are too many
_CLOSE = 1e-4  # from this relative gap on, the rest of it is tried at once


def plan_deployment(
    costs: CostModel,
    cores: int,
    *,
    thread_counts: Sequence[int] = (1,),
    deadline: Deadline | None = None,
    constraints: Constraints = FREE,
) -> PlannedDeployment:
    """The deployment of least period on ``cores`` equal cores, then of fewest cores and latency.

    Row i of a table of ``costs`` is for a replica with ``thread_counts[i]`` threads; one row serves
    all. Memory limits hold for each replica. ``deadline`` is as in ``plan``.

    Raises:
        Infeasible: No deployment satisfies the constraints.
        ConfigError: A number makes no sense, or a constraint names stages or devices.
    """
    _check(costs, cores, thread_counts, constraints)
    if not costs.names:
        raise Infeasible(f"model '{costs.name}' has no op; there is nothing to plan")
    # The rows of the problem are numbers of threads; its stages are as many, and not used.
    problem = pose(costs, len(thread_counts), constraints, allow_empty=True)
    bound = proven = cores_bound(problem, cores, thread_counts)
    note, limit = "", row_limit(problem)
    # Without a deadline, so that there is a deployment to return in any case.
    order = prefixes(range(problem.size), problem.size)
    search = _Search(problem, order, cores, thread_counts, None)
    best, _ = search.least(bound, None)
    met = best is not None and best.period <= bound * (1 + _SAME)
    # Nothing has fewer cores or less latency than a whole model that meets the bound.
    if not (met and best and len(best.stages) == len(thread_counts) == 1):
        random = Random(0)
        try:
            words, rounds = list_rows(problem.contraction.predecessors, limit), _ROUNDS
        except TooManyDownsets:
            words, rounds = start_rows(problem), _PATIENT_ROUNDS
            note = f"more than {limit} legal cuts: searched among some of them"
        # A good deployment spares the search over all cuts most of its steps.
        for _ in range(rounds if note or len(words) > _FEW_ROWS else 0):
            near = rows_around(problem, best, random, _FEW_ROWS)
            near_search = _Search(problem, near, cores, thread_counts, deadline, best)
            best, _ = near_search.least(bound, best)
            if note:
                words = merge(words, near)
        known = best.period if best else math.inf
        while True:
            search = _Search(problem, words, cores, thread_counts, deadline, best)
            best, searched_bound = search.least(bound, best)
            # Far below the last period, costs were rounded too much to tell what is better.
            if best is None or 2 * best.period >= known:
                break
            known = best.period
        # A table of some cuts proves nothing about the others.
        proven = bound if note else searched_bound
    if best is None:
        remedy = "satisfies all conditions; loosen one, or give more memory or cores"
        error: type[Infeasible] = Infeasible
        if proven < math.inf:
            error, remedy = NotFound, "was found among some of the cuts; give more memory or cores"
            if deadline is not None and deadline():
                remedy = "was found in the time given; give more time"
        raise error(f"no deployment of '{costs.name}' on {cores} cores {remedy}")
    best = search.cheapest(best)
    optimal = best.period <= proven * (1 + _SAME)
    return replace(best, lower_bound=best.period if optimal else proven, optimal=optimal, note=note)


class _Search:
    """The search over the cuts of one table; ``best`` is a deployment that is known already."""

    def __init__(
        self,
        problem: Problem,
        words: Words,
        cores: int,
        thread_counts: Sequence[int],
        deadline: Deadline | None,
        best: PlannedDeployment | None = None,
    ) -> None:
        self.problem, self.cores, self.deadline = problem, cores, deadline
        self.thread_counts = tuple(thread_counts)
        # No stage of a better one has a load above its period on all cores.
        self.scaled = scale(problem, cores * best.period if best else math.inf)
        words = words[allowed_rows(problem, words)]
        per_core = Side(_core_time(self.scaled, self.thread_counts), words, 0)
        order = np.argsort(per_core.times[0], kind="stable")
        self.words = words[order]
        self.states_before = states_before(problem, self.words)
        # The cores that the ops before and after a cut need at least, in core time and in memory.
        time, memory = per_core.times[0][order], per_core.weight_bytes[order]
        self.before = time + per_core.send[order]
        self.after = time[-1] - time + per_core.receive[order]
        replica, fewest = float(problem.memory.max()) * (1 + 1e-9), min(self.thread_counts)
        replica = max(replica, 1e-300)  # a limit of 0 holds ops without weights
        self.fewest_before = np.ceil(memory / replica) * fewest
        self.fewest_after = np.ceil((memory[-1] - memory) / replica) * fewest

    def least(
        self, bound: float, best: PlannedDeployment | None
    ) -> tuple[PlannedDeployment | None, float]:
        """The best deployment of the table, None without one, and the proven bound of its period.

        ``best``: one whose cuts are in the table.
        """
        low, galloping, step = bound, bound > 0, 0.002
        confirming = best is not None
        try:
            best = best or self._within(self.scaled.top)
            while best is not None and best.period > low * (1 + _SAME):
                strictly_better = best.period - self._same(best.period)
                # Low limits leave few cuts to look at, so the limit moves up from the bound.
                limit = low * (1 + step) if galloping else (low + best.period) / 2
                if confirming or best.period < low * (1 + _CLOSE) or limit > strictly_better:
                    limit = strictly_better
                better = self._within(limit)
                if better is not None and better.period < best.period:
                    best, confirming = better, False
                    galloping = galloping and limit == strictly_better
                elif limit == strictly_better:
                    low = best.period
                else:
                    # Once something was better, the best so far may well be the best of all.
                    low, step, confirming = limit, step * 2, not galloping
        except OutOfTime:
            return best, low
        return best, math.inf if best is None else low

    def cheapest(self, best: PlannedDeployment) -> PlannedDeployment:
        """The deployment of fewest cores, then least latency, among those as quick as ``best``."""
        try:
            cheapest = self._within(best.period + self._same(best.period))
        except OutOfTime:
            return best
        if cheapest is None or cheapest.period > best.period * (1 + _SAME):
            return best
        return cheapest

    def _same(self, period: float) -> float:
        """By how much two periods may differ that count as equal."""
        return max(period * _SAME, 4 * self.scaled.rounding * self.scaled.unit)

    def _within(self, period: float) -> PlannedDeployment | None:
        """The deployment of fewest cores, then least latency, within a period.

        Raises:
            OutOfTime: The deadline passed.
        """
        limit = period / self.scaled.unit
        lowest = np.maximum(np.ceil(self.before / limit), self.fewest_before)
        highest = self.cores - np.maximum(np.ceil(self.after / limit), self.fewest_after)
        rows = np.flatnonzero(lowest <= highest)
        if len(rows) < 2 or rows[0] != 0 or rows[-1] != len(self.words) - 1:
            return None
        words, highest = self.words[rows], highest[rows]
        paths = _Paths(len(rows), self.states_before[rows], self.problem.costs.streams)
        heads = [Side(self.scaled, words, row) for row in range(len(self.thread_counts))]
        for used in range(self.cores):
            if paths.cores[-1] <= used:
                break
            tails = np.flatnonzero((paths.cores == used) & (highest >= used))
            if not len(tails):
                continue
            for row, threads in enumerate(self.thread_counts):
                longest = min((self.cores - used) // threads * limit, self.scaled.limit)
                side = Side(self.scaled, words[tails], row)
                for block in loads(self.scaled, row, side, heads[row], longest):
                    if self.deadline is not None and self.deadline():
                        raise OutOfTime
                    # Ops that cannot run count as more than the scale's limit.
                    block.load[block.load > longest] = math.inf
                    paths.extend(block, tails[block.left], highest[block.right], limit, threads)
        return self._deployment(words, paths) if paths.cores[-1] <= self.cores else None

    def _deployment(self, words: Words, paths: _Paths) -> PlannedDeployment:
        """The deployment of the path to the full downset, the last of ``words``."""
        stages, replicas, threads = [], [], []
        node = len(words) - 1
        while node:
            parent = int(paths.parent[node])
            stages.append(ops_between(self.problem, words[parent], words[node]))
            threads.append(int(paths.threads[node]))
            replicas.append(int(paths.cores[node] - paths.cores[parent]) // threads[-1])
            node = parent
        return evaluate_deployment(
            self.problem.costs, stages[::-1], replicas[::-1], threads[::-1], self.thread_counts
        )


class _Paths:
    """The best partial path to each row: fewest cores, then least latency.

    Rows are settled in the order of their cores (Dijkstra 1959), so each is extended once.
    """

    def __init__(self, count: int, states_before: Index, streams: int) -> None:
        self.states_before, self.streams = states_before, streams
        self.cores, self.latency = np.full(count, math.inf), np.full(count, math.inf)
        self.parent, self.threads = np.zeros(count, dtype=np.intp), np.zeros(count, dtype=np.intp)
        self.cores[0] = self.latency[0] = 0

    def extend(
        self, block: Block, tails: Index, highest: Array, limit: float, threads: int
    ) -> None:
        """Extend the paths to ``tails``, of equal cores, by a stage to each row on the right.

        ``highest``: the most cores that may be used up to each of those rows.
        """
        # A stage without any cost has a replica too.
        cores = np.maximum(np.ceil(block.load / limit), 1)
        if self.states_before[-1]:
            has_state = self.states_before[block.right] > self.states_before[tails, None]
            with np.errstate(divide="ignore"):
                streams_each = np.floor(self.streams * limit / np.maximum(block.load, 0))
                whole = np.ceil(self.streams / np.minimum(streams_each, self.streams))
            cores = np.where(has_state, whole, cores)
        cores *= threads
        least = cores.min(axis=0)
        reached = least + self.cores[tails[0]]
        column = np.flatnonzero(reached <= np.minimum(self.cores[block.right], highest))
        if not len(column):
            return
        latency = block.load[:, column] + self.latency[tails, None]
        latency[cores[:, column] > least[column]] = math.inf
        parent = latency.argmin(axis=0)
        shortest = latency[parent, np.arange(len(column))]
        at = block.right.start + column
        better = (reached[column] < self.cores[at]) | (shortest < self.latency[at])
        at, column = at[better], column[better]
        self.cores[at], self.latency[at] = reached[column], shortest[better]
        self.parent[at], self.threads[at] = tails[parent[better]], threads


def cores_bound(problem: Problem, cores: int, thread_counts: Sequence[int]) -> float:
    """A proven lower bound of the period: all work shared evenly, and the largest group."""
    threads = np.array(thread_counts, dtype=np.float64)
    overheads = np.broadcast_to(problem.overheads, len(threads))
    times = np.broadcast_to(problem.times, (len(threads), problem.size))
    # A replica with w threads spends w cores for as long as it runs.
    shared = (times * threads[:, None]).min(axis=0).sum() + (overheads * threads).min()
    replicas = (cores // threads)[:, None]
    has_state = [bool(ops & problem.costs.stateful) for ops in problem.contraction.groups]
    at_once = sharing(replicas, problem.costs.streams, has_state)
    largest = ((times + overheads[:, None]) / at_once).min(axis=0).max()
    return float(max(shared / cores, largest))


def _core_time(scaled: ScaledProblem, thread_counts: Sequence[int]) -> ScaledProblem:
    """The scaled costs in time of a core, each op and tensor at its best number of threads."""
    threads = np.array(thread_counts, dtype=np.float64)[:, None]

    def cheapest(table: Array) -> Array:
        least: Array = (table * threads).min(axis=0, keepdims=True)
        return least

    times = cheapest(scaled.times)
    return replace(
        scaled,
        times=times,
        send=cheapest(scaled.send),
        receive=cheapest(scaled.receive),
        runtimes=(RuntimeTables(times, np.zeros(1)),),
    )


def states_before(problem: Problem, words: Words) -> Index:
    """How many groups with states each row holds."""
    stateful = problem.costs.stateful
    groups = [n for n, ops in enumerate(problem.contraction.groups) if ops & stateful]
    counts = [to_bits(words[part], problem.size)[:, groups].sum(axis=1) for part in chunks(words)]
    return np.concatenate(counts).astype(np.intp)


def allowed_rows(problem: Problem, words: Words) -> NDArray[np.bool_]:
    """Which rows have no more tensors and bytes live than the constraints allow."""
    allowed = np.ones(len(words), dtype=bool)
    if min(problem.live_tensors, problem.live_bytes) < math.inf:
        for part in chunks(words):
            live = live_tensors(problem, to_bits(words[part], problem.size)).live
            allowed[part] = ~exceeds_live_limits(problem, live)
    return allowed


def _check(
    costs: CostModel, cores: int, thread_counts: Sequence[int], constraints: Constraints
) -> None:
    if not 1 <= cores <= MOST_CORES:
        raise ConfigError(f"number of cores is {cores}; give 1 to {MOST_CORES}")
    counts = set(thread_counts)
    if (
        not counts
        or len(counts) < len(thread_counts)
        or not 1 <= min(counts) <= max(counts) <= cores
    ):
        raise ConfigError(f"thread counts {tuple(thread_counts)}; give distinct ones, 1 to {cores}")
    if costs.devices not in (None, len(thread_counts)):
        raise ConfigError(
            f"costs of {costs.devices} devices, but a deployment is for equal cores; "
            "give costs of one device, or one row for each number of threads"
        )
    if constraints.stages or constraints.devices or constraints.require:
        raise ConfigError(
            "a deployment chooses its own stages and devices; "
            "instead of pins and required cuts keep ops together"
        )
