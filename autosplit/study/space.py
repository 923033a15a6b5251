"""The search space of a study: the deployments that a question to the planner asks for.

A candidate is a tuple of stages with options. The record of its trial has its ``key``, a canonical
text, because the integer parameters of Optuna's samplers cannot encode every candidate.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import compress
from random import Random

import numpy as np

from autosplit.cuts import TooManyDownsets, full
from autosplit.cuts.stages import cuts_between, stages
from autosplit.deployment import Deployment, Option, Row, Stage, resources_of
from autosplit.errors import SplitError
from autosplit.hardware.measurement.results import Baseline
from autosplit.planner import cut_set
from autosplit.planner.batch import Batch, BatchEvaluator
from autosplit.planner.bound import weights_of
from autosplit.planner.costs import CostModel
from autosplit.planner.cut_set import Words
from autosplit.planner.evaluation import Plan, check_stages, evaluate
from autosplit.planner.moves import Moves
from autosplit.planner.problem import Problem, Question
from autosplit.planner.solver import partition
from autosplit.planner.stage_loads import StageLoads

Candidate = tuple[Stage, ...]
LEAST_SPEEDUP = 1.1  # by more threads; with less, no deployment has as many
LISTED_CUTS = 2_000  # up to this many, a trial searches all cuts, and a report shows them
NEAR_CUTS = 500  # cuts that are searched for every trial if there are more
PLAN_SECONDS = 10.0  # time limit of the first plan
VISITED = 2_000  # candidates that are looked at in search of a free one


@dataclass(frozen=True, eq=False)
class Space:
    """The deployments that ``question`` asks for; ``costs`` are those of the profile.

    ``devices``: each with its kind, in their order; ``cores``: the numbers of those of each kind,
    where the question is for cores.
    """

    costs: CostModel
    question: Question
    devices: tuple[tuple[str, str], ...] = ()
    cores: Mapping[str, Sequence[int]] | None = None

    @cached_property
    def moves(self) -> Moves:
        """Moves from one candidate to another."""
        return Moves(self.costs, self.question)

    @cached_property
    def evaluator(self) -> BatchEvaluator:
        """The evaluator of many candidates at once."""
        return BatchEvaluator(self.costs, self.question)

    @cached_property
    def plan(self) -> Plan:
        """The best candidate under the profile. Raises Infeasible where none fits."""
        end = time.monotonic() + PLAN_SECONDS
        return partition(self.costs, self.question, deadline=lambda: time.monotonic() > end)

    def best(
        self,
        costs: CostModel,
        near: Candidate,
        seed: int = 0,
        max_period: float = 0.0,
        batch: int | None = None,
    ) -> Candidate:
        """The best candidate under some costs; with ``batch`` only of this batch size.

        If the cuts are too many to search all for every trial, only cuts near those of ``near`` are
        searched. ``max_period`` as in ``partition``. Raises Infeasible where none fits.
        """
        cuts = self._cuts or self._cuts_near(near, seed)
        if batch is not None:
            cuts = {batch: cuts[batch]}
            near = near if near[0].options[0].row.batch == batch else ()
        return partition(costs, self.question, max_period=max_period, cuts=cuts, known=near).stages

    def finest(self, costs: CostModel, row: Row, near: Candidate, seed: int = 0) -> Candidate:
        """The best split with a stage on each device that a row has, all in that row.

        Raises Infeasible where none fits.
        """
        devices = self.question.devices[row.kind] // self.question.takes(row)
        question = Question.of_split(min(devices, len(costs.contraction.groups)), row.kind)
        none = (math.inf,) * len(costs.names)
        rows = [each if each.row == row else replace(each, times=none) for each in costs.rows]
        cuts = self._cuts or self._cuts_near(near, seed)
        return partition(replace(costs, rows=tuple(rows)), question, cuts=cuts).stages

    @cached_property
    def _cuts(self) -> Mapping[int, Words] | None:
        """All cuts; None where they are too many."""
        try:
            return {
                batch: cut_set.all_cuts(problem.contraction.predecessors, LISTED_CUTS)
                for batch, problem in self.moves.problems.items()
            }
        except TooManyDownsets:
            return None

    def _cuts_near(self, candidate: Candidate, seed: int) -> Mapping[int, Words]:
        def near(problem: Problem) -> Words:
            split = [stage.ops for stage in candidate]
            some = cut_set.near(problem, split, Random(seed), NEAR_CUTS)
            return cut_set.merge(cut_set.along_orders(problem), some)

        return {batch: near(problem) for batch, problem in self.moves.problems.items()}

    def batch(self, candidates: Iterator[Candidate] | Sequence[Candidate]) -> Batch:
        """The candidates that fit the memory and can run, as a batch."""
        batch = self.evaluator.batch(candidates)
        fits = (batch.memory <= 1) & np.isfinite(self.evaluator.known(batch))
        if fits.all():
            return batch
        return self.evaluator.batch(compress(batch.deployments, fits))

    def fits(self, candidate: Candidate) -> bool:
        """Whether the devices can run a candidate and have the memory for it."""
        return self.moves.allows(candidate) and bool(len(self.batch([candidate])))

    def deployment(self, candidate: Candidate) -> Deployment:
        """The deployment of a candidate, placed on the devices."""
        deployment = Deployment(candidate)
        if self.cores is not None:
            return deployment.on_cores(self.cores)
        return deployment.on_devices(self.devices, in_order=bool(self.question.order))

    def key(self, candidate: Candidate) -> str:
        """The canonical text: for each stage the ops up to its end, and its options."""
        ends = (*cuts_between([stage.ops for stage in candidate]), full(self.costs))
        document = []
        for stage, end in zip(candidate, ends, strict=True):
            options = [[*vars(o.row).values(), o.replicas] for o in stage.options]
            document.append([f"{end:x}", *options])
        return json.dumps(document, separators=(",", ":"))

    def candidate(self, key: str) -> Candidate:
        """The candidate of a key. Raises SplitError if it is not in the space."""
        return _parsed(self, key)

    def free(self, starts: Sequence[Candidate], taken: frozenset[str]) -> Candidate | None:
        """The candidate nearest to ``starts`` that fits and is not ``taken``; None if not found."""
        fitting = self.batch(list(filter(self.moves.allows, starts))).deployments
        near = dict.fromkeys(map(self.key, fitting))
        visited, queue = set(near), list(near)
        for key in queue:
            free = next((each for each in near if each not in taken), None)
            if free is not None:
                return self.candidate(free)
            if len(queue) >= VISITED:
                return None
            around = self.batch(self.moves.neighbours(self.candidate(key))).deployments
            near = dict.fromkeys(each for each in map(self.key, around) if each not in visited)
            visited.update(near)
            queue += near
        return None

    def whole_model(self, baseline: Baseline) -> Candidate | None:
        """The candidate of one stage that a baseline measured; None if it is not in the space."""
        kinds = {name: kind for kind, name in self.devices}
        for kind, numbers in (self.cores or {}).items():
            kinds |= {f"core {number}": kind for number in numbers}
        names = [resources_of(name) if self.cores else (name,) for name in baseline.devices]
        of_kinds = {kinds.get(name) for resources in names for name in resources}
        if len(of_kinds) != 1 or len(set(map(len, names))) != 1:
            return None
        row = Row(of_kinds.pop() or "", baseline.runtime, len(names[0]), baseline.batch)
        if row not in self.costs.row_index:
            return None
        candidate = self.whole(row, len(names))
        return candidate if self.fits(candidate) else None

    def whole(self, row: Row, replicas: int = 1) -> Candidate:
        """The candidate of one stage with all ops."""
        return (Stage(tuple(range(len(self.costs.names))), (Option(row, replicas),)),)

    def holds(self, baseline: Baseline) -> bool:
        """Whether every device of a baseline has the memory for the whole model."""
        used = {name for d in baseline.devices for name in (d, *resources_of(d))}
        # A question for cores has no devices, and a baseline may use cores of every kind.
        kinds = set(self.cores or ())
        kinds |= {kind for kind, name in self.devices if used & {name, *resources_of(name)}}
        of_kinds = [row for row in self.costs.row_index if row.kind in kinds]
        rows = [row for row in of_kinds if row.batch == baseline.batch] or of_kinds
        return bool((self.evaluator.batch(map(self.whole, rows)).memory <= 1).all())

    def cut_periods(self) -> dict[int, float]:
        """For each legal cut the least period of a split into two stages, of one replica each.

        Empty if there are too many cuts.
        """
        periods: dict[int, float] = {}
        # There must be devices for both stages, whatever number of stages the study has.
        moves = Moves(self.costs, replace(self.question, stages=None))
        for batch, words in (self._cuts or {}).items():
            problem, cuts = self.moves.problems[batch], np.arange(len(words))
            rows, loads = problem.rows, StageLoads(problem, words, weights_of(problem))
            before = [loads.loads(row, cuts[:1], cuts)[0] for row in range(len(rows))]
            after = [loads.loads(row, cuts, cuts[-1:])[:, 0] for row in range(len(rows))]
            fit = [[moves.allows(self.whole(a) + self.whole(b)) for b in rows] for a in rows]
            pairs = [np.maximum(before[a], after[b]) for a, b in np.argwhere(fit)]
            least = np.min([np.full(len(cuts), math.inf), *pairs], axis=0).tolist()
            for place in range(1, len(cuts) - 1):
                cut = problem.contraction.expand(cut_set.to_int(loads.words[place]))
                periods[cut] = min(least[place], periods.get(cut, math.inf))
        return {cut: period for cut, period in periods.items() if period < math.inf}


# The history of a study is read again for every trial.
@lru_cache(maxsize=4096)
def _parsed(space: Space, key: str) -> Candidate:
    candidate: Candidate = ()
    try:
        document = json.loads(key)
        ends = [int(end, 16) for end, *_ in document]
        split = stages(space.costs, ends[:-1])
        candidate = tuple(
            Stage(ops, tuple(Option(Row(*row), count) for *row, count in options))
            for ops, (_, *options) in zip(split, document, strict=True)
        )
        check_stages(space.costs, split)
        is_known = evaluate(space.costs, candidate) and space.moves.allows(candidate)
    except (ValueError, TypeError, KeyError, IndexError, RecursionError, SplitError):
        is_known = False
    if not is_known or space.key(candidate) != key:
        raise SplitError(f"'{key[:60]}' is not the key of a candidate of this study")
    return candidate


def useful_threads(costs: CostModel) -> CostModel:
    """The costs without rows whose additional threads save little time."""
    rows = []
    least: dict[tuple[str, str, int, bytes], float] = {}
    for row_costs in sorted(costs.rows, key=lambda each: each.row.threads):
        row, times = row_costs.row, np.array(row_costs.times)
        able = np.isfinite(times)  # the ops that the row can run
        series = row.kind, row.runtime, row.batch, able.tobytes()
        total = times[able].sum() or np.inf
        # One thread is always useful: it allows the most replicas.
        if row.threads == 1 or total * LEAST_SPEEDUP < least.get(series, np.inf):
            least[series] = total
            rows.append(row_costs)
    return replace(costs, rows=tuple(each for each in costs.rows if each in rows))
