"""Neighbours of a deployment, random deployments, and deployments encoded as integer parameters.

Samplers choose the parameters: ``order``, one of the plain orders of the ops; ``stages``, where
their number is free; ``cut_1`` and so on, the places of the cuts along that order; and for each
stage its ``row`` of the cost table and how many ``devices`` it takes. All values decode to a legal
deployment, but some deployments have no encoding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise
from random import Random

import numpy as np

from autosplit.cuts import bitset, full, members
from autosplit.cuts.orders import PLAIN_ORDERS, random_order, successors
from autosplit.cuts.stages import cuts_between
from autosplit.deployment import Option, Stage
from autosplit.planner.costs import CostModel
from autosplit.planner.problem import Problem, Question, Step, problems, useful_replicas

Stages = tuple[Stage, ...]
Choose = Callable[[int, Sequence[Step]], Step]  # picks one of the steps that stage i may take


@dataclass(frozen=True, eq=False)
class Moves:
    """Moves among the deployments that a question asks for; ``allows`` says which these are."""

    costs: CostModel
    question: Question

    @cached_property
    def problems(self) -> Mapping[int, Problem]:
        """The problem of each batch."""
        return {problem.batch: problem for problem in problems(self.costs, self.question)}

    @cached_property
    def most_stages(self) -> int:
        """The largest number of stages for which there are devices and groups of ops."""
        most = self.question.stages or self.question.count
        return min(most, len(self.costs.contraction.groups))

    def neighbours(self, stages: Stages) -> Iterator[Stages]:
        """The deployments one move away, each once.

        A move shifts a group of ops to an adjacent stage, changes the row or the replicas of a
        stage, exchanges devices between two stages, merges two stages, or divides one.
        """
        of_ops = (*self._shifted(stages), *self._merged(stages), *self._divided(stages))
        near = (*of_ops, *self._resized(stages))
        for other in dict.fromkeys(map(self.useful, near)):
            if other != stages and self.allows(other):
                yield other

    def allows(self, stages: Stages) -> bool:
        """Whether the question has the devices for the stages; memory limits are not checked."""
        question = self.question
        if question.stages not in (None, len(stages)):
            return False
        used = self._used(stages)
        if any(count > question.devices.get(kind, 0) for kind, count in used.items()):
            return False
        if not question.replicas and any(stage.replicas > 1 for stage in stages):
            return False
        free = iter(question.order)
        # Each stage takes the next device of its kind, so the kinds are in order.
        return not question.order or all(s.options[0].row.kind in free for s in stages)

    def useful(self, stages: Stages) -> Stages:
        """The stages without replicas that do not serve their streams faster."""
        if not self.costs.stateful:
            return stages
        return tuple(map(self._useful, stages))

    def _useful(self, stage: Stage) -> Stage:
        option, *others = stage.options
        if others or not self.costs.has_state(stage.ops):
            return stage
        count = useful_replicas(stage.replicas, self.costs.streams)
        return Stage(stage.ops, (replace(option, replicas=count),))

    def random(self, rng: np.random.Generator) -> Stages:
        """A random deployment, which may exceed the memory."""
        count = self.question.stages or int(rng.integers(1, self.most_stages + 1))
        problem = self.problems[int(rng.choice(list(self.problems)))]
        groups = len(self.costs.contraction.groups)
        order = random_order(problem.contraction.predecessors, Random(int(rng.integers(1 << 31))))
        places = sorted((1 + rng.choice(groups - 1, count - 1, replace=False)).tolist())
        return self._along(
            problem, order, places, lambda _, steps: steps[int(rng.integers(len(steps)))]
        )

    @cached_property
    def ranges(self) -> Mapping[str, range]:
        """The parameters of a deployment, each with the values that it may have."""
        question, most = self.question, self.most_stages
        ranges: dict[str, range] = {"order": range(len(PLAIN_ORDERS))}
        if question.stages is None:
            ranges["stages"] = range(1, most + 1)
        for stage in range(1, most + 1):
            if stage < most:
                ranges[f"cut_{stage}"] = range(1, len(self.costs.contraction.groups))
            ranges[f"row_{stage}"] = range(len(self.costs.rows))
            if question.replicas:
                ranges[f"devices_{stage}"] = range(1, question.count + 1)
        return {name: values for name, values in ranges.items() if len(values) > 1}

    def names(self, stages: int) -> list[str]:
        """The parameters that describe ``stages`` stages; no cut follows the last stage."""

        def is_used(name: str) -> bool:
            part, _, number = name.partition("_")
            return not number or int(number) <= stages - (part == "cut")

        return list(filter(is_used, self.ranges))

    def decode(self, values: Mapping[str, int]) -> Stages:
        """The legal deployment nearest to some parameters; the cuts may be in any order."""
        numbers = range(1, (self.question.stages or values.get("stages", 1)) + 1)
        rows = [self.costs.rows[values.get(f"row_{n}", 0)].row for n in numbers]
        devices = [values.get(f"devices_{n}", 1) for n in numbers]
        problem = self.problems[rows[0].batch]
        before = problem.contraction.predecessors
        places = sorted(values.get(f"cut_{n}", 1) for n in numbers[:-1])

        def choose(stage: int, steps: Sequence[Step]) -> Step:
            asked = rows[stage]

            def distance(step: Step) -> tuple[bool, bool, float, float]:
                row = problem.rows[step.rows[0]]
                is_other = row.kind != asked.kind or len(step.rows) > 1
                pairs = zip(step.rows, step.replicas, strict=True)
                taken = sum(problem.takes[place] * count for place, count in pairs)
                threads = abs(row.threads - asked.threads)
                return is_other, row.runtime != asked.runtime, threads, abs(taken - devices[stage])

            return min(steps, key=distance)

        order = PLAIN_ORDERS[values.get("order", 0)](before)
        return self._along(problem, order, spread_places(places, len(before)), choose)

    def encode(self, stages: Stages) -> dict[str, int]:
        """The parameters of a deployment, or of one near it if it has no encoding."""
        values = {"stages": len(stages), "order": self._order_of(stages)}
        group_of, place = self.costs.contraction.group_of, 0
        for n, stage in enumerate(stages, 1):
            place += len({group_of[op] for op in stage.ops})
            values[f"cut_{n}"] = place
            values[f"row_{n}"] = self.costs.row_index[stage.options[0].row]
            values[f"devices_{n}"] = self.devices((stage,))
        return {name: values[name] for name in self.names(len(stages))}

    def _order_of(self, stages: Stages) -> int:
        """The index of the first plain order through all cuts of a deployment, else 0."""
        contraction = self.costs.contraction
        cuts = cuts_between([stage.ops for stage in stages])
        for number, order_of in enumerate(PLAIN_ORDERS):
            ops = (contraction.groups[group] for group in order_of(contraction.predecessors))
            if set(accumulate(ops, int.__or__)).issuperset(cuts):
                return number
        return 0

    def _along(
        self, problem: Problem, order: Sequence[int], places: Sequence[int], choose: Choose
    ) -> Stages:
        """The stages between places along an order of the groups; ``choose`` picks their steps."""
        groups = problem.contraction.groups
        downsets = list(accumulate((groups[g] for g in order), int.__or__, initial=0))
        stages: list[Stage] = []
        state = 0
        for stage, (start, end) in enumerate(pairwise((0, *places, len(order)))):
            ops = downsets[end] & ~downsets[start]
            step = choose(stage, self._steps(problem, state, len(places) - stage))
            options = problem.options(step, bool(ops & self.costs.stateful))
            stages.append(Stage(tuple(members(ops)), options))
            state = step.state
        return tuple(stages)

    def _steps(self, problem: Problem, state: int, after: int) -> list[Step]:
        """The steps from a state that leave devices for ``after`` further stages."""
        steps = []
        for step in problem.steps(state):
            if not step.rows:
                steps += self._steps(problem, step.state, after)
            elif self.question.count - sum(problem.states[step.state]) >= after:
                steps.append(step)
        return steps

    def _used(self, stages: Stages) -> dict[str, int]:
        """How many devices of each kind are taken."""
        used: dict[str, int] = {}
        for stage in stages:
            for option in stage.options:
                kind = option.row.kind
                taken = self.question.takes(option.row) * option.replicas
                used[kind] = used.get(kind, 0) + taken
        return used

    def devices(self, stages: Stages) -> int:
        """How many devices a deployment takes."""
        return sum(self._used(stages).values())

    def _shifted(self, stages: Stages) -> Iterator[Stages]:
        """The deployments with one group of ops moved to the stage before or after its own."""
        ends = (0, *cuts_between([stage.ops for stage in stages]), full(self.costs))
        for place, (before, cut, after) in enumerate(zip(ends, ends[1:], ends[2:], strict=False)):
            for other in self._adjacent(cut):
                if not before & ~other and not other & ~after and other not in (before, after):
                    first = replace(stages[place], ops=tuple(members(other & ~before)))
                    second = replace(stages[place + 1], ops=tuple(members(after & ~other)))
                    yield (*stages[:place], first, second, *stages[place + 2 :])

    def _adjacent(self, cut: int) -> Iterator[int]:
        """The legal cuts that hold one group of ops more or fewer than ``cut``."""
        contraction = self.costs.contraction
        inside = bitset(g for g, ops in enumerate(contraction.groups) if not ops & ~cut)
        for g, ops in enumerate(contraction.groups):
            # A group can leave a cut that holds none of its readers, and join one that holds all
            # of its producers.
            if ops & cut:
                blocking = self._readers[g] & inside
            else:
                blocking = contraction.predecessors[g] & ~inside
            if not blocking:
                yield cut ^ ops

    @cached_property
    def _readers(self) -> list[int]:
        return [bitset(readers) for readers in successors(self.costs.contraction.predecessors)]

    def _resized(self, stages: Stages) -> Iterator[Stages]:
        """The deployments with another row or number of replicas for one or two stages."""
        used = self._used(stages)
        free = {kind: most - used.get(kind, 0) for kind, most in self.question.devices.items()}
        for place, stage in enumerate(stages):
            taken = self._used((stage,))
            batch = stage.options[0].row.batch
            for row in self.problems[batch].rows:
                room = (free[row.kind] + taken.get(row.kind, 0)) // self.question.takes(row)
                same = taken.get(row.kind, 0) // self.question.takes(row)
                for count in {1, same, stage.replicas, stage.replicas - 1, room}:
                    if 1 <= count <= room:
                        yield _with_option(stages, place, Option(row, count))
            for giver, other in enumerate(stages):
                yield from self._exchanged(stages, free, place, giver, other)

    def _exchanged(
        self, stages: Stages, free: Mapping[str, int], place: int, giver: int, other: Stage
    ) -> Iterator[Stages]:
        """The deployments in which a stage gets devices of another one."""
        option, theirs = stages[place].options[0], other.options[0]
        if giver == place or len(stages[place].options) > 1 or len(other.options) > 1:
            return
        if theirs.row.kind != option.row.kind:
            swapped = _with_option(stages, place, theirs)
            yield _with_option(swapped, giver, option)
        elif theirs.replicas > 1:
            fewer = _with_option(stages, giver, replace(theirs, replicas=theirs.replicas - 1))
            devices = free[option.row.kind] + self.question.takes(theirs.row)
            more = option.replicas + devices // self.question.takes(option.row)
            yield _with_option(fewer, place, replace(option, replicas=more))

    def _merged(self, stages: Stages) -> Iterator[Stages]:
        """The deployments with two adjacent stages merged, on the devices of both if alike."""
        for place, (first, second) in enumerate(pairwise(stages)):
            ops = tuple(sorted((*first.ops, *second.ops)))
            used = self._used((first, second))
            for options in (first.options, second.options):
                if len(options) == 1 and self.question.replicas:
                    row = options[0].row
                    options = (Option(row, max(1, used[row.kind] // self.question.takes(row))),)
                yield (*stages[:place], Stage(ops, options), *stages[place + 2 :])

    def _divided(self, stages: Stages) -> Iterator[Stages]:
        """Divide one stage in its row, and share its devices and the free ones in all ways."""
        used = self._used(stages)
        for place, stage in enumerate(stages):
            option, *others = stage.options
            if others:
                continue
            row = option.row
            free = self.question.devices[row.kind] - used[row.kind]
            most = (
                stage.replicas + free // self.question.takes(row) if self.question.replicas else 2
            )
            for first in range(1, most) if free or self.question.replicas else ():
                parts = self._halves(stage, first / most)
                counts = (first, most - first) if self.question.replicas else (1, 1)
                if all(parts):
                    pairs = zip(parts, counts, strict=True)
                    two = [Stage(ops, (Option(row, count),)) for ops, count in pairs]
                    yield (*stages[:place], *two, *stages[place + 1 :])

    def _halves(self, stage: Stage, share: float) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Divide the ops of a stage, in their order, at a share of its time."""
        times = self.costs.rows[self.costs.row_index[stage.options[0].row]].times
        ops, taken = bitset(stage.ops), 0
        groups = [g for g in self.costs.contraction.groups if g & ops]
        work = [sum(times[i] for i in members(group)) for group in groups]
        before = 0.0
        for group, time in zip(groups[:-1], work, strict=False):
            if taken and before + time / 2 > share * sum(work):
                break
            taken, before = taken | group, before + time
        return tuple(members(taken)), tuple(members(ops & ~taken))


def _with_option(stages: Stages, place: int, option: Option) -> Stages:
    return (*stages[:place], Stage(stages[place].ops, (option,)), *stages[place + 1 :])


def spread_places(places: Sequence[int], size: int) -> list[int]:
    """Places along an order of ``size`` groups, spread so that no stage is empty."""
    spread: list[int] = []
    for n, place in enumerate(places):
        lowest = spread[-1] + 1 if spread else 1
        # Each later cut needs a group of its own.
        spread.append(min(max(place, lowest), size - len(places) + n))
    return spread
