"""The document of a placement of least latency, and the solver of its integer program."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from itertools import chain
from typing import Any

from autosplit.extras import require
from autosplit.planner import CostModel, least_latency_placement
from autosplit.planner.accelerators.integer_program import IntegerProgram


def placement(
    costs: CostModel, cpu_times: Sequence[float], accelerators: int, seconds: float | None = None
) -> dict[str, Any]:
    """The document of ``plan --objective latency -f json`` without ``seconds``.

    ``seconds``: at most, of which the search of a pipeline takes up to a half.

    Raises:
        MachineError: scipy is missing.
    """
    half = math.inf if seconds is None else time.monotonic() + seconds / 2
    best = least_latency_placement(
        costs, cpu_times, accelerators, Solver(seconds), deadline=lambda: time.monotonic() > half
    )
    gap = best.latency / best.lower_bound - 1 if best.lower_bound > 0 else math.inf
    return {
        "stages": [[costs.ids[i] for i in ops] for ops in best.accelerators],
        "cpu": [costs.ids[i] for i in best.cpu],
        "loads": list(best.loads),
        "memory": list(best.memory),
        "latency": best.latency,
        "lower_bound": best.lower_bound,
        "gap": gap if best.latency > best.lower_bound else 0.0,
        "optimal": best.optimal,
    }


_FAILED = 4  # scipy's status for a solver that stopped with an error, which presolving can cause


class Solver:
    """Solves integer programs with HiGHS (Huangfu and Hall 2018), which scipy has.

    ``seconds``: from now on.
    """

    def __init__(self, seconds: float | None) -> None:
        self.seconds = math.inf if seconds is None else seconds
        self._end = time.monotonic() + self.seconds

    def __call__(
        self, program: IntegerProgram, share: float
    ) -> tuple[Sequence[float] | None, float] | None:
        """The values and the bound, None if no time is left; ``share``: of the time."""
        limit = min(self._end - time.monotonic(), share * self.seconds)
        if limit <= 0:
            return None
        result = _solve(program, limit)
        if result.status == _FAILED:
            result = _solve(program, limit, presolve=False)
        # Stopped before its first bound, a solver has proven nothing.
        return result.x, max(0.0, result.mip_dual_bound or 0.0)


def _solve(program: IntegerProgram, seconds: float, *, presolve: bool = True) -> Any:
    optimize, sparse = require("scipy.optimize", "plan"), require("scipy.sparse", "plan")
    terms, lows, highs = zip(*program.rows, strict=True)
    rows = [number for number, row in enumerate(terms) for _ in row]
    columns, values = zip(*chain.from_iterable(row.items() for row in terms), strict=True)
    shape = len(terms), len(program.bounds)
    options = {"mip_rel_gap": 1e-7, "presolve": presolve}
    if seconds < math.inf:
        options["time_limit"] = seconds
    return optimize.milp(
        [*[0.0] * (len(program.bounds) - 1), 1.0],
        integrality=program.integer,
        bounds=optimize.Bounds(*zip(*program.bounds, strict=True)),
        constraints=optimize.LinearConstraint(
            sparse.csr_array((values, (rows, columns)), shape=shape), lows, highs
        ),
        options=options,
    )
