"""Costs as whole numbers, so that equal loads compare equal in whatever order they are added."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from autosplit.planner.problem.problem import Array, Problem

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
    finite = [a[np.isfinite(a)].sum() for a in (problem.times, problem.overheads, problem.send)]
    most = float(sum(finite) + (problem.receive * problem.readers).sum())
    # A limit above all costs together is no limit.
    if not limit < most:
        limit = most
    # An op of twice the limit exceeds it on every device.
    ceiling = 2 * limit if limit > 0 else 1.0
    tables = (problem.times, problem.send, problem.receive, problem.overheads)
    times, send, receive, overheads = (np.minimum(table, ceiling) for table in tables)
    work = times.max(axis=0).sum() + send.max(axis=0).sum()
    transfers = (receive.max(axis=0) * problem.readers).sum()
    most = float(work + transfers + problem.stages * overheads.max())
    unit = 1.0
    if most > 0:
        # A power of two, so that costs that are whole numbers stay exact.
        exponent = math.ceil(math.log2(most) - math.log2(_MOST_UNITS))
        unit = 2.0 ** max(exponent, int(np.finfo(float).minexp))
    return ScaledProblem(
        problem=problem,
        unit=unit,
        limit=limit / unit + _rounding(problem),
        times=np.rint(times / unit),
        send=np.rint(send / unit),
        receive=np.rint(receive / unit),
        overheads=np.rint(overheads / unit),
    )


def _rounding(problem: Problem) -> float:
    return problem.size + 2.0 * len(problem.producer) + 2
