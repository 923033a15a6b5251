"""The search of the planner: a deployment is a path over pairs of a cut and the devices taken.

With D[I, q] the least period of the ops of a downset I on devices q,
    D[I, q] = min over downsets I' inside I and options that take devices t
              of max(D[I', q - t], the period of the stage I - I' in that option),
where a stage has the period load / replicas in one row of the costs, and 1 / sum(replicas / load)
on devices of several kinds. Only the best path to each pair is extended (Bellman 1957). With the
device weights of ``bound``, a path of period at most P passes a cut only if the weighted work
before the cut is at most P times the weight of the devices taken, and the work after it at most P
times the weight of the other devices. A short P thus leaves few cuts, so the search raises its
limit step by step from the bound until a path fits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from autosplit.cuts import members
from autosplit.deployment import Stage
from autosplit.planner.bound import Weights
from autosplit.planner.cut_set import Words, to_int
from autosplit.planner.evaluation import Plan, evaluate
from autosplit.planner.problem import SAME, Array, Deadline, Index, OutOfTime, Problem, Step
from autosplit.planner.stage_loads import Mask, StageLoads

Periods = tuple[float, float]  # the least and the longest one of interest

_TAILS, _HEADS = 512, 4096  # most cuts of a block, so that its matrices stay in the cache
FEW_CUTS = 4_000  # up to this many cuts a search without steps of the limit takes a moment
_LABELS = 20_000_000  # up to this many of all states, those that fewer devices beat are left out
_FIRST_STEP = 0.002  # how far the first limit is above the bound, relative


@dataclass(frozen=True)
class PathStage:
    """A stage of a path: its step, and the places of the cuts before and after it."""

    step: Step
    start: int
    end: int


@dataclass
class _Labels:
    """The best paths to the cuts ``heads`` of a state: their cost, and where they come from."""

    heads: Index
    cost: Array
    parent: Index
    state: Index
    step: Index


class _LeastCosts:
    """The least cost of a path to each cut with the devices of a state or a part of them.

    A path is left out if another one costs no more and takes fewer devices.
    """

    def __init__(self, problem: Problem, cuts: int) -> None:
        question = problem.question
        are_free = question.stages is None and not question.order
        self.is_used = are_free and len(problem.states) * cuts <= _LABELS
        self.states = {used: state for state, used in enumerate(problem.states)}
        self.used, self.cuts = problem.states, cuts
        self.least: dict[int, Array] = {}

    def undominated(self, state: int, labels: _Labels) -> Index:
        """The places of the labels of a state that are worth extending."""
        if not self.is_used:
            return np.flatnonzero(labels.cost < math.inf)
        least, used = np.full(self.cuts, math.inf), self.used[state]
        for kind, count in enumerate(used):
            if count:
                fewer = self.states[(*used[:kind], count - 1, *used[kind + 1 :])]
                np.minimum(least, self.least[fewer], out=least)
        reached = np.flatnonzero((labels.cost < least[labels.heads]) & (labels.cost < math.inf))
        least[labels.heads[reached]] = labels.cost[reached]
        self.least[state] = least
        return reached


@dataclass(frozen=True)
class Block:
    """A step from some cuts of one state to cuts of another.

    ``periods``: of the stages, infinite where a stage is not possible; ``loads``: of a replica.
    """

    step: Step
    tails: Index
    heads: Index
    periods: Array
    loads: Array


class Search:
    """The search over one set of cuts, which includes the empty and the full one.

    ``limit``: the longest period of interest. Raises OutOfTime.
    """

    def __init__(
        self,
        problem: Problem,
        words: Words,
        weights: Weights,
        deadline: Deadline | None = None,
        limit: float = math.inf,
    ) -> None:
        self.problem, self.weights, self.deadline = problem, weights, deadline
        self.loads = StageLoads(problem, words, weights, limit, deadline)

    def least_period(self, low: float, high: float) -> Plan | None:
        """The plan of least period from ``low`` up to ``high``, or None. Raises OutOfTime."""
        step = _FIRST_STEP
        high = min(high, self.loads.top)
        while True:
            # The step doubles, so that a distant period is reached in a few rounds. With few cuts
            # a single search up to ``high`` is as fast.
            is_stepwise = low > 0 and len(self.loads) > FEW_CUTS
            limit = min(high, low * (1 + step)) if is_stepwise else high
            try:
                path = self._path(low, limit * (1 + SAME), by_latency=False)
            except OutOfTime as stop:
                stop.bound = low
                raise
            if path is not None or limit >= high:
                return None if path is None else self.plan(path)
            low, step = limit, step * 2

    def least_latency(self, limit: float, fewest_devices: bool = False) -> Plan | None:
        """The plan of least latency, then fewest bytes moved, within a period.

        ``fewest_devices``: only among the plans that take fewest devices. Raises OutOfTime.
        """
        limit *= 1 + SAME
        path = self._path(limit, limit, by_latency=True, fewest_devices=fewest_devices)
        return None if path is None else self.plan(path)

    def plan(self, path: Sequence[PathStage]) -> Plan:
        """The plan of a path, costed by the reference arithmetic."""
        stages = []
        for stage in path:
            groups = to_int(self.loads.words[stage.end] & ~self.loads.words[stage.start])
            ops = self.problem.contraction.expand(groups)
            options = self.problem.options(stage.step, bool(ops & self.problem.costs.stateful))
            stages.append(Stage(tuple(members(ops)), options))
        return evaluate(self.problem.costs, stages)

    def blocks(
        self, state: int, tails: Index, windows: Sequence[Index], within: Periods
    ) -> Iterator[Block]:
        """All stages that may begin at ``tails``, which are cuts of a state.

        ``windows``: the cuts of interest of each state; ``within``: the periods of interest. Stages
        to a cut are left out if all of them take longer, or if with one replica fewer none would.
        Raises OutOfTime.
        """
        by_rows: dict[tuple[int, ...], list[Step]] = {}
        for step in self.problem.steps(state):
            if step.rows and len(windows[step.state]):
                by_rows.setdefault(step.rows, []).append(step)
        for steps in by_rows.values():
            every_head = np.unique(np.concatenate([windows[step.state] for step in steps]))
            # Cuts are sorted, so no head of a block lies before the first of its tails.
            for start in range(0, len(tails), _TAILS):
                part = tails[start : start + _TAILS]
                after = every_head[np.searchsorted(every_head, part[0]) :]
                for first in range(0, len(after), _HEADS):
                    heads = after[first : first + _HEADS]
                    yield from self._steps_between(steps, part, heads, windows, within)

    def _steps_between(
        self,
        steps: Sequence[Step],
        tails: Index,
        heads: Index,
        windows: Sequence[Index],
        within: Periods,
    ) -> Iterator[Block]:
        """The blocks of some steps in the same rows."""
        if self.deadline is not None and self.deadline():
            raise OutOfTime
        loads = [self.loads.loads(row, tails, heads) for row in steps[0].rows]
        longest = loads[0] if len(loads) == 1 else np.maximum.reduce(loads)
        has_state = self.loads.has_state(tails, heads) if self.problem.costs.stateful else None
        useful = np.ones((len(steps), len(heads)), dtype=np.bool_)
        if len(loads) == 1 < len(steps):
            counts = np.array([step.replicas for step in steps])
            useful &= longest.min(axis=0) <= counts * within[1]
            # One more replica of a stage with states may gain nothing, and two more something.
            if has_state is None and self.problem.question.stages is None:
                most = np.where(longest < math.inf, longest, 0.0).max(axis=0)
                useful &= most >= (counts - 1) * within[0] * (1 - SAME)
        for step, is_useful in zip(steps, useful, strict=True):
            here = windows[step.state]
            first, last = np.searchsorted(here, (heads[0], heads[-1] + 1))
            columns = np.searchsorted(heads, here[first:last])
            columns = columns[is_useful[columns]]
            if len(columns):
                # Where all heads are of interest, a slice avoids a copy.
                chosen: Index | slice = columns if len(columns) < len(heads) else slice(None)
                parts = [each[:, chosen] for each in loads]
                periods = self._periods(step, parts, has_state, chosen)
                block_loads = parts[0] if len(parts) == 1 else longest[:, chosen]
                yield Block(step, tails, heads[columns], periods, block_loads)

    def _periods(
        self, step: Step, loads: Sequence[Array], has_state: Mask | None, columns: Index | slice
    ) -> Array:
        """The periods of stages with these loads in the rows of a step."""
        replicas, streams = sum(step.replicas), self.problem.costs.streams
        if len(loads) == 1:
            periods = loads[0] if replicas == 1 else loads[0] / replicas
        else:
            with np.errstate(divide="ignore"):
                rates = sum(n / each for n, each in zip(step.replicas, loads, strict=True))
                periods = np.where(np.isfinite(np.maximum.reduce(loads)), 1 / rates, math.inf)
        if has_state is None or replicas == 1:
            return periods
        share = streams / math.ceil(streams / replicas)
        return np.where(has_state[:, columns], np.maximum.reduce(loads) / share, periods)

    def windows(self, limit: float) -> list[Index]:
        """For each state the cuts that a path of period at most ``limit`` may pass there."""
        loads, problem, taken = self.loads, self.problem, self.weights.of_state
        targets = set(problem.targets)
        can_skip = bool(problem.question.order) and problem.question.stages is None
        limit *= 1 + SAME
        windows = []
        for state, weight in enumerate(taken):
            rest = taken[-1] - weight
            inside = loads.before <= limit * weight + SAME if weight else loads.count == 0
            inside = inside & (loads.after <= limit * rest * (1 + SAME) + 1e-12 * limit)
            if state and not can_skip:
                inside[0] = False
            if state not in targets and not can_skip:
                inside[-1] = False
            if problem.is_last(state):
                inside[:-1] = False
            windows.append(np.flatnonzero(inside))
        return windows

    def _path(
        self, low: float, limit: float, by_latency: bool, fewest_devices: bool = False
    ) -> list[PathStage] | None:
        """The path of least period, all up to ``low`` alike, or latency, within a period."""
        low, limit = (min(period, 2 * self.loads.top) for period in (low, limit))
        windows = self.windows(limit)
        steps: list[Step] = []
        labels = [_Labels(heads, *_none(len(heads))) for heads in windows]
        if not len(windows[0]):
            return None
        labels[0].cost[0] = 0.0 if by_latency else low
        least, most = _LeastCosts(self.problem, len(self.loads)), math.inf if by_latency else limit
        for state, here in enumerate(labels):
            reached = least.undominated(state, here)
            if not len(reached):
                continue
            cost = dict(zip(here.heads[reached].tolist(), here.cost[reached].tolist(), strict=True))
            for block in self.blocks(state, here.heads[reached], windows, (low, limit)):
                before = np.array([[cost[tail]] for tail in block.tails.tolist()])
                if by_latency:
                    values = before + self.latencies(block)
                    values[block.periods > limit] = math.inf
                else:
                    values = np.maximum(before, block.periods)
                _extend(labels[block.step.state], block, values, state, len(steps), most)
                steps.append(block.step)
            for step in self.problem.steps(state):
                if not step.rows:
                    _skip(labels[step.state], here, reached, state, len(steps))
                    steps.append(step)
        return self._best_path(labels, steps, fewest_devices)

    def latencies(self, block: Block) -> Array:
        """The latency of each stage, plus a term for bytes moved that only breaks ties."""
        latencies = block.loads * self.problem.batch
        if self._bytes_weight:
            latencies += self._bytes_weight * self.loads.bytes_moved(block.tails, block.heads)
        return latencies

    @cached_property
    def _bytes_weight(self) -> float:
        """What each byte moved adds to a latency: so little that it only breaks ties."""
        most = float((self.problem.bytes * self.problem.readers).sum())
        return self.loads.top * 1e-10 / most if most > 0 else 0.0

    def _best_path(
        self, labels: Sequence[_Labels], steps: Sequence[Step], fewest_devices: bool
    ) -> list[PathStage] | None:
        """The best path to the full cut; among equal paths the one with fewest devices."""
        best: int | None = None
        full, least = len(self.loads) - 1, math.inf
        count = [sum(used) for used in self.problem.states]
        for state in self.problem.targets:
            if fewest_devices and best is not None and count[state] > count[best]:
                break
            here = labels[state]
            if len(here.heads) and here.heads[-1] == full and here.cost[-1] < least * (1 - SAME):
                best, least = state, here.cost[-1]
        if best is None:
            return None
        path, state, cut = [], best, full
        while state:
            here = labels[state]
            place = int(np.searchsorted(here.heads, cut))
            step, start = steps[here.step[place]], int(here.parent[place])
            if step.rows:
                path.append(PathStage(step, start, cut))
            state, cut = int(here.state[place]), start
        return path[::-1]


def _none(count: int) -> tuple[Array, Index, Index, Index]:
    """The columns of labels that no path has reached."""
    index = np.zeros(count, dtype=np.intp)
    return np.full(count, math.inf), index, index.copy(), index.copy()


def _extend(
    labels: _Labels, block: Block, values: Array, state: int, step: int, limit: float
) -> None:
    """Keep the best path to each cut of a block, where its value is within a limit."""
    parent = values.argmin(axis=0)
    least = values[parent, np.arange(values.shape[1])]
    at = np.searchsorted(labels.heads, block.heads)
    better = np.flatnonzero((least < labels.cost[at]) & (least <= limit))
    at = at[better]
    labels.cost[at], labels.parent[at] = least[better], block.tails[parent[better]]
    labels.state[at], labels.step[at] = state, step


def _skip(labels: _Labels, here: _Labels, reached: Index, state: int, step: int) -> None:
    """Let the paths of one state pass to the next with a device unused."""
    # Both windows are sorted.
    _, at, place = np.intersect1d(labels.heads, here.heads[reached], return_indices=True)
    reached = reached[place]
    better = here.cost[reached] < labels.cost[at]
    at, reached = at[better], reached[better]
    labels.cost[at], labels.parent[at] = here.cost[reached], here.heads[reached]
    labels.state[at], labels.step[at] = state, step
