"""The best deployment for a question, over all cuts or over some near good op orders."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

from autosplit.cuts import TooManyDownsets
from autosplit.deployment import Stage
from autosplit.planner import cut_set
from autosplit.planner.bound import Weights, weights_of
from autosplit.planner.costs import CostModel
from autosplit.planner.cut_set import Words
from autosplit.planner.evaluation import Plan, evaluate
from autosplit.planner.explain import infeasible, not_found, too_many_stages
from autosplit.planner.problem import SAME, Deadline, OutOfTime, Problem, Question, problems
from autosplit.planner.search import FEW_CUTS, Search

# Rounds without a better plan that end the local search: before an exact one, or instead of it.
_QUICK_ROUNDS, _PATIENT_ROUNDS = 4, 24
_CLOSE = 1e-4  # a gap not worth another round


@dataclass(frozen=True)
class Solution:
    """The problem of one batch with its weights and ``words``: all cuts, None if not listed."""

    problem: Problem
    weights: Weights
    words: Words | None


def partition(
    costs: CostModel,
    question: Question,
    *,
    deadline: Deadline | None = None,
    max_period: float = 0.0,
    cuts: Mapping[int, Words] | None = None,
    known: Sequence[Stage] = (),
) -> Plan:
    """The deployment of least period, then least latency, then fewest bytes moved.

    With replicas, fewest devices come before latency.
    ``deadline`` returns true when the time is up: the best plan so far is returned, with
    ``optimal`` false and the lower bound proven by then. ``max_period``: find the plan of least
    latency among those with at most this period. ``cuts``: search only these batches and, for each,
    only these cuts, which must be legal. ``known``: the stages of a deployment that satisfies the
    question; a good one shortens the search.

    Raises:
        Infeasible: No deployment satisfies the question; the message names the reason.
        ConfigError: The question is not valid, or the costs are of other devices.
    """
    return solve(costs, question, deadline, max_period, cuts, known)[0]


def solve(
    costs: CostModel,
    question: Question,
    deadline: Deadline | None,
    max_period: float = 0.0,
    cuts: Mapping[int, Words] | None = None,
    known: Sequence[Stage] = (),
) -> tuple[Plan, list[Solution]]:
    """As ``partition``, with the ``Solution`` of each batch beside the plan."""
    plans: list[Plan] = []
    bound, unsure, notes, solutions = math.inf, False, [], []
    every_problem = problems(costs, question)
    start = evaluate(costs, known) if known else None
    if start is not None and 0 < max_period < start.period:
        start = None
    too_many = too_many_stages(every_problem[0].costs, question.stages or 1)
    if too_many is not None:
        raise too_many
    for problem in every_problem:
        if cuts is not None and problem.batch not in cuts:
            continue
        solver = _Solver(problem, deadline, max_period)
        plan = solver.solve(start, None if cuts is None else cuts[problem.batch])
        bound, unsure = min(bound, solver.bound), unsure or not solver.proven
        notes.append(solver.note)
        solutions.append(Solution(problem, solver.weights, solver.words))
        if plan is not None:
            plans.append(plan)
    if not plans:
        if unsure:
            raise not_found(costs, question, late=deadline is not None and deadline())
        raise infeasible(costs, question, max_period)
    # With a limit of the period, the plan of least latency is asked for.
    best = min(plans, key=lambda plan: plan.rank[1:] if max_period else plan.rank)
    is_shortest = best.period <= bound * (1 + SAME)
    optimal = not unsure if max_period else is_shortest
    lower_bound = best.period if is_shortest else bound
    note = "; ".join(dict.fromkeys(filter(None, notes)))
    return replace(best, lower_bound=lower_bound, optimal=optimal, note=note), solutions


class _Solver:
    """Solves the problem of one batch; ``bound``, ``proven`` and ``note`` go with the plan."""

    def __init__(self, problem: Problem, deadline: Deadline | None, max_period: float) -> None:
        self.problem, self.deadline, self.max_period = problem, deadline, max_period
        self.weights: Weights = weights_of(problem)
        self.bound, self.proven, self.note = self.weights.bound, False, ""
        self.words: Words | None = None
        self._is_complete = self._finished = False  # of the last search

    def solve(self, best: Plan | None, cuts: Words | None) -> Plan | None:
        """The best plan, over some cuts or all; None where there is none or none was found.

        ``best``: the best plan known so far.
        """
        if cuts is not None:
            return self._improved(cuts, best, self.deadline)
        words = self.words = self._all_cuts()
        # Without a deadline, so that there is a plan to return in any case.
        best = self._improved(cut_set.along_orders(self.problem), best, None)
        if words is None or len(words) > FEW_CUTS:
            best = self._near(best, _PATIENT_ROUNDS if words is None else _QUICK_ROUNDS)
        if words is not None:
            return self._exact(words, best)
        return best

    def _all_cuts(self) -> Words | None:
        """All cuts; None where they are too many, or the time was up."""
        limit = cut_set.row_limit(self.problem)
        try:
            return cut_set.all_cuts(self.problem.contraction.predecessors, limit, self.deadline)
        except TooManyDownsets:
            self.note = f"more than {limit} legal cuts: searched among those near some op orders"
        except OutOfTime:
            self.note = "the time was up before all legal cuts were listed"
        return None

    def _exact(self, words: Words, best: Plan | None) -> Plan | None:
        """The best plan over all cuts."""
        self._is_complete = self.problem.mixes is not None
        plan = self._improved(words, best, self.deadline)
        # A mix of devices may shorten a period, but no deployment is possible only by a mix.
        self.proven = self._finished and (self._is_complete or not self.max_period)
        if not self._finished:
            self.note = "the time was up before all legal cuts were searched"
        elif self._is_complete:
            if plan is None or not self.max_period:  # a plan of least latency bounds no period
                self.bound = math.inf if plan is None else plan.period
        else:
            self.note = "too many mixes of devices: each stage was planned on devices of one kind"
        return plan

    def _near(self, best: Plan | None, rounds: int) -> Plan | None:
        """Search near the best plan until the deadline, a closed gap, or some idle rounds."""
        random, idle = Random(0), 0
        while idle < rounds and not (self.deadline is not None and self.deadline()):
            if best is not None and best.period <= self.bound * (1 + _CLOSE):
                break
            words = cut_set.near(self.problem, best.split if best else (), random)
            plan = self._improved(words, best, self.deadline)
            best, idle = plan, 0 if self._is_better(plan, best) else idle + 1
        return best

    def _is_better(self, plan: Plan | None, best: Plan | None) -> bool:
        """Whether a plan has a shorter period or, with ``max_period``, a shorter latency."""
        if plan is None or best is None:
            return plan is not None
        if self.max_period:
            return plan.latency < best.latency * (1 - SAME)
        return plan.period < best.period * (1 - SAME)

    def _improved(self, words: Words, best: Plan | None, deadline: Deadline | None) -> Plan | None:
        """The best plan over a set of cuts, or ``best`` if none is better; sets ``_finished``."""
        while True:
            known = best.period if best else math.inf
            if known == 0 and not self.max_period:
                self._finished = True
                return best
            try:
                limit = self.max_period or known
                search = Search(self.problem, words, self.weights, deadline, limit)
                if self.max_period:
                    return self._of_least_latency(search, self.max_period, best)
                plan = search.least_period(self.bound, known)
            except OutOfTime as stop:
                self._finished = False
                if self._is_complete:
                    self.bound = max(self.bound, stop.bound)
                return best
            if plan is not None and (best is None or plan.period < best.period):
                best = plan
            # Search again if the period fell far, since large costs had hidden small differences.
            if best is None or not (self._is_wide and 2 * best.period < known):
                break
        self._finished = True
        return best if best is None else self._of_least_latency(search, best.period, best)

    @property
    def _is_wide(self) -> bool:
        """Whether some costs are so large that sums with them lose small ones to rounding."""
        times = self.problem.times
        largest = max(float(t[t < math.inf].max(initial=0.0)) for t in (times, self.problem.send))
        return largest > 1e6 * self.bound > 0

    def _of_least_latency(self, search: Search, limit: float, best: Plan | None) -> Plan | None:
        """The plan of least latency within a period; with replicas first of fewest devices."""
        fewest_devices = self.problem.question.replicas and not self.max_period
        try:
            plan = search.least_latency(limit, fewest_devices)
        except OutOfTime:
            self._finished = not self.max_period  # without it the period is what was asked for
            return best
        self._finished = True
        if plan is None or best is None:
            return plan or best
        if self.max_period:
            return min(plan, best, key=lambda each: (each.latency, each.bytes_moved))
        # Rounding may let in a plan of a longer period, which is no better.
        return best if plan.period > best.period * (1 + 10 * SAME) else plan
