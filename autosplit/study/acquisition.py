"""Choice of the next candidate: the one of largest expected improvement over the best measured.

The corrected costs are drawn many times. A gain is the mean over the draws of how much less a
candidate takes than the best measured one, a loss counting as 0 (expected improvement: Jones,
Schonlau and Welch, Efficient global optimization of expensive black-box functions, 1998, section
4.1). The candidates considered are the best ones for the mean costs and for some draws, each found
by the planner, and the neighbours of the first of these and of the best measured ones.
"""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import product, starmap

import numpy as np

from autosplit.errors import Infeasible
from autosplit.hardware.measurement.results import Measurement
from autosplit.planner.batch import Batch
from autosplit.planner.workload import Workload, served, simulated
from autosplit.study.history import History
from autosplit.study.space import Candidate, Space
from autosplit.study.surrogate.correction import Corrected, Factors, Measured, correct, rounded
from autosplit.study.surrogate.posterior import Array

DRAWS = 64  # of the costs, over which a gain is averaged
PLANNED = 4  # draws for which the planner searches the best candidate
PLANNED_TRIALS = 32  # measured trials after which it searches for the mean costs alone
TEACHERS = 2  # trials after the first that are chosen to learn most about the costs
CENTRES = 2  # measured candidates whose neighbours are considered
WORTH = 0.02  # the expected gain that is worth a trial, as a share of half the noise
# The error of the costs is known well enough after three trials and ten stage times.
FEWEST_MEASURED, FEWEST_TIMES = 3, 10


@dataclass(frozen=True)
class Goal:
    """What a study minimises; ``latency_ms`` is the limit of the latency, or infinite.

    For goodput the value is the ms of an item at that rate, for cores their number.
    """

    objective: str = "throughput"
    latency_ms: float = math.inf
    workload: Workload = field(default_factory=Workload)

    @property
    def is_served(self) -> bool:
        """Whether the objective depends on the limit of the workload."""
        return self.objective in ("goodput", "cores")

    def values(self, corrected: Corrected, batch: Batch, costs: Factors) -> Array:
        """The value of each deployment; infinite where its latency is too high.

        Several costs give a row each.
        """
        loads = corrected.loads(batch, costs)
        latencies = corrected.latency_ratio * batch.latencies(loads)
        is_latency = self.objective == "latency"
        values = latencies if is_latency else corrected.ratio * batch.periods(loads)
        if self.is_served:
            with np.errstate(divide="ignore", invalid="ignore"):
                values = values / _shares(self.workload, corrected, batch)
            values = self._of_rates(np.nan_to_num(values, nan=math.inf), batch.busy)
        return np.asarray(np.where(latencies <= self.latency_ms, values, math.inf))

    def measured_value(self, candidate: Candidate, measured: Measurement) -> float:
        """The measured value of a candidate; infinite where its latency is too high."""
        period, latency = measured.period_ms.median, measured.latency_ms.median
        if latency > self.latency_ms:
            return math.inf
        if not self.is_served:
            return latency if self.objective == "latency" else period
        rate, _ = served(self.workload, candidate, measured.stage_ms, period)
        cores = sum(stage.threads * stage.replicas for stage in candidate)
        return float(self._of_rates(np.array(1e3 / rate if rate else math.inf), np.array(cores)))

    def _of_rates(self, item_ms: Array, cores: Array) -> Array:
        """The value of deployments by their ms of an item at the goodput and number of cores."""
        if self.objective == "goodput":
            return item_ms
        is_enough = item_ms <= 1e3 / (self.workload.rate or math.inf)
        return np.asarray(np.where(is_enough, cores, math.inf))


@dataclass(frozen=True, eq=False)
class Acquisition:
    """The expected gains of candidates under the corrected costs."""

    space: Space
    goal: Goal
    history: History
    corrected: Corrected

    @property
    def margin(self) -> float:
        """The relative gain that counts: half the noise, about what a final comparison resolves."""
        return self.corrected.noise / 2

    def nearest(self, *starts: Candidate) -> Candidate | None:
        """The free candidate nearest to ``starts`` or to the plan; None where none is left."""
        return self.space.free([*starts, self.space.plan.stages], self.history.taken)

    @property
    def converged(self) -> bool:
        """Whether no free candidate is expected to gain what is worth a trial."""
        times = sum(len(m.stage_ms) for m in self.history.trials)
        if len(self.history.trials) < FEWEST_MEASURED or times < FEWEST_TIMES:
            return False
        return max(self.gains.values(), default=0.0) < WORTH * self.margin

    @cached_property
    def best(self) -> Candidate | None:
        """The free candidate of largest expected gain; among equal ones that of least value.

        The first trials are the plan and candidates that tell most about the costs.
        """
        if not self.gains:
            return None
        if not self.history.trials:
            # Little is known of the costs, so draws are far apart: the plan comes first.
            planned = self._planned[0]
            if planned in self.gains:
                return planned
        elif len(self.history.taken) <= TEACHERS and (teacher := self._teacher):
            return teacher
        most = max(self.gains.values())
        equal = [candidate for candidate, gain in self.gains.items() if gain == most]
        return equal[int(self._values(equal).argmin())]

    @cached_property
    def gains(self) -> dict[Candidate, float]:
        """The relative expected gain of each free candidate that is considered."""
        if gains := self._gains(self._planned):
            return gains
        free = self.space.free(self._planned, self.history.taken)
        return {} if free is None else self._gains([free])

    @cached_property
    def _planned(self) -> list[Candidate]:
        """The best candidates for the mean costs and some draws, and neighbours of the best."""
        centres = [*self._plans[:1], *self._best_measured[:CENTRES]]
        around = [n for centre in centres for n in self.space.moves.neighbours(centre)]
        return list(dict.fromkeys([*self._plans, *self._whole_models, *around]))

    @cached_property
    def _plans(self) -> list[Candidate]:
        """The best candidates for the mean costs and some draws, of least expected value first."""
        near = self._best_measured[0] if self._best_measured else self.space.plan.stages
        plans: list[Candidate] = []
        count = 0 if len(self.history.trials) > PLANNED_TRIALS else PLANNED
        for costs in [self.corrected.mean, *(self._draws[n] for n in range(count))]:
            plans += self._best_under(costs, near)
        return [plans[n] for n in np.argsort(self._values(plans), kind="stable")] if plans else []

    @property
    def _teacher(self) -> Candidate | None:
        """A free candidate whose stage times tell most about single ops in a row that plans use.

        It has a stage on each device that there is for the row. None unless it has more stages than
        the first trial had, and therefore fewer ops in each.
        """
        if self.space.question.stages:
            return None
        first, *others = [m.stages for m in self.history.trials]
        taught = {stages[0].options[0].row for stages in others}
        model = self.corrected.model(self.corrected.mean)
        uses = Counter(o.row for plan in self._plans for stage in plan for o in stage.options)
        for row in [row for row, _ in uses.most_common() if row not in taught]:
            with contextlib.suppress(Infeasible):
                split = self.space.finest(model, row, first, len(self.history.measured))
                if len(split) > len(first) and self._is_unknown(split):
                    return split
        return None

    def _is_unknown(self, candidate: Candidate) -> bool:
        """Whether a candidate is free, fits, and has a less certain period than if measured."""
        if self.space.key(candidate) in self.history.taken or not self.space.fits(candidate):
            return False
        batch = self.space.evaluator.batch([candidate])
        periods = batch.periods(self.corrected.loads(batch, self._draws))
        return bool(periods.std() > self.corrected.noise * periods.mean())

    @property
    def _whole_models(self) -> list[Candidate]:
        """The whole model with each number of replicas, if the objective is few cores."""
        if self.goal.objective != "cores":
            return []
        pairs = product(self.space.costs.row_index, range(1, self.space.question.count + 1))
        return list(filter(self.space.fits, starmap(self.space.whole, pairs)))

    def _best_under(self, costs: Factors, near: Candidate) -> Iterator[Candidate]:
        """The candidates of least period and of least latency, as far as the goal needs them.

        With a limit of the latency, which large batches may exceed, those of each batch size.
        """
        limits, batches = [0.0], list[int | None]([None])
        if self.goal.objective == "latency":
            limits = [math.inf]
        elif self.goal.is_served or self.goal.latency_ms < math.inf:
            limits, batches = [0.0, math.inf], list(self.space.moves.problems)
        model, seed = self.corrected.model(costs), len(self.history.measured)
        for batch, limit in product(batches, limits):
            with contextlib.suppress(Infeasible):
                yield self.space.best(model, near, seed, limit, batch)

    def _gains(self, candidates: Iterable[Candidate]) -> dict[Candidate, float]:
        """The expected gains of those candidates that are free and fit."""
        taken = self.history.taken
        free = [each for each in candidates if self.space.key(each) not in taken]
        if not free:
            return {}
        batch = self.space.batch(free)
        values = self.goal.values(self.corrected, batch, self._draws)
        # The gain is 1 where no measured candidate keeps the limit but this one does, and 0 where
        # the best measured one takes no time.
        least = self._least[:, None]
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            saved = np.where(np.isfinite(values) & (least > 0), 1 - values / least, 0.0)
        gains = rounded(np.maximum(saved, 0.0).mean(axis=0))
        return dict(zip(batch.deployments, gains.tolist(), strict=True))

    @cached_property
    def _draws(self) -> Factors:
        # The same draws for the same history, so that a resumed study chooses as it would have.
        return self.corrected.draw(np.random.default_rng(len(self.history.measured)), DRAWS)

    @cached_property
    def _least(self) -> Array:
        """For each draw the least value of the measured candidates that are likely the best.

        Errors that they share with other candidates in a draw cancel.
        """
        chosen = self.space.evaluator.batch(self._best_measured or [self.space.plan.stages])
        return np.asarray(self.goal.values(self.corrected, chosen, self._draws).min(axis=-1))

    @cached_property
    def _best_measured(self) -> list[Candidate]:
        """The measured candidates of least expected value, best first; of equal ones the first."""
        measured = list(dict.fromkeys(m.stages for m in self.history.measured))
        if not measured:
            return []
        values = self._values(measured)
        return [measured[n] for n in np.argsort(values, kind="stable")[:8]]

    def _values(self, candidates: Sequence[Candidate]) -> Array:
        """The values of candidates by the mean costs."""
        batch = self.space.evaluator.batch(candidates)
        return rounded(self.goal.values(self.corrected, batch, self.corrected.mean))


def _shares(workload: Workload, corrected: Corrected, batch: Batch) -> Array:
    """The share of its capacity that each deployment serves within the limit, by the mean costs.

    Simulated once, for the mean costs; draws are taken to scale the whole deployment.
    """
    periods = corrected.ratio * batch.stage_periods(corrected.loads(batch, corrected.mean))
    parts = []
    for stages, stage_periods in zip(batch.deployments, periods, strict=True):
        slowest = stage_periods.max(initial=0.0)
        rate, _ = simulated(workload, stages, stage_periods[: len(stages)].tolist())
        parts.append(rate * slowest / 1e3 if 0 < slowest < math.inf else 0.0)
    return np.array(parts)


# The caches serve all queries at the same state of a study.
@lru_cache(maxsize=4)
def corrected_costs(space: Space, measured: tuple[Measured, ...]) -> Corrected:
    """The costs of a space corrected by all that was measured."""
    return correct(space.evaluator, measured)


@lru_cache(maxsize=4)
def acquisition(space: Space, goal: Goal, history: History) -> Acquisition:
    """The acquisition after all that was measured."""
    return Acquisition(space, goal, history, corrected_costs(space, history.measured))
