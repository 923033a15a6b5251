"""Costs as whole numbers, so that equal loads compare equal in whatever order they are added."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from autosplit.planner.problem.problem import Array, Problem, RuntimeTables, least_table

# All costs together, in units: whole numbers below 2**53 add exactly in double precision.
_MOST_UNITS = 2.0**50


@dataclass(frozen=True)
class ScaledProblem:
    """A Problem with costs as whole numbers of ``unit``.

    Costs too large for a load up to ``limit`` are reduced to just above it.
    """

    problem: Problem
    unit: float
    limit: float
    times: Array
    send: Array
    receive: Array
    overheads: Array
    runtimes: tuple[RuntimeTables, ...]

    @property
    def rounding(self) -> float:
        """By how many units a load may differ from its exact value."""
        return _rounding(self.problem)

    @property
    def top(self) -> float:
        """The limit in the model's unit of time; no finite load exceeds it where none was given."""
        return self.limit * self.unit


def scale(problem: Problem, limit: float) -> ScaledProblem:
    """Whole-number costs that are exact for loads up to ``limit``; infinite for no limit."""
    tables = [problem.send]
    for runtime in problem.runtimes:
        tables += [runtime.times, runtime.overheads]
    finite = [table[np.isfinite(table)].sum() for table in tables]
    most = float(sum(finite) + (problem.receive * problem.readers).sum())
    # A limit above all costs together is no limit.
    if not limit < most:
        limit = most
    # An op of twice the limit exceeds it on every device.
    ceiling = 2 * limit if limit > 0 else 1.0
    send, receive = np.minimum(problem.send, ceiling), np.minimum(problem.receive, ceiling)
    times = [np.minimum(runtime.times, ceiling) for runtime in problem.runtimes]
    overheads = [np.minimum(runtime.overheads, ceiling) for runtime in problem.runtimes]
    work = np.max([rows.max(axis=0) for rows in times], axis=0).sum() + send.max(axis=0).sum()
    transfers = (receive.max(axis=0) * problem.readers).sum()
    most = float(work + transfers + problem.stages * max(map(np.max, overheads)))
    unit = 1.0
    if most > 0:
        # A power of two, so that costs that are whole numbers stay exact.
        exponent = math.ceil(math.log2(most) - math.log2(_MOST_UNITS))
        unit = 2.0 ** max(exponent, int(np.finfo(float).minexp))
    runtimes = tuple(
        replace(runtime, times=np.rint(rows / unit), overheads=np.rint(costs / unit))
        for runtime, rows, costs in zip(problem.runtimes, times, overheads, strict=True)
    )
    return ScaledProblem(
        problem=problem,
        unit=unit,
        limit=limit / unit + _rounding(problem),
        times=least_table(runtime.times for runtime in runtimes),
        send=np.rint(send / unit),
        receive=np.rint(receive / unit),
        overheads=least_table(runtime.overheads for runtime in runtimes),
        runtimes=runtimes,
    )


def _rounding(problem: Problem) -> float:
    return problem.size + 2.0 * len(problem.producer) + 2
