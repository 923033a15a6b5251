"""A deployment and what it costs: the reference arithmetic of stages, replicas and threads."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, repeat
from typing import Any

import numpy as np

from autosplit.errors import SplitError
from autosplit.planner.problem.cost_model import CostModel
from autosplit.planner.problem.evaluation import Plan, evaluate

MOST_WAYS = 2000  # to use the cores of several kinds, each of which takes a step of the planner


@dataclass(frozen=True)
class PlannedDeployment(Plan):
    """A split with ``replicas`` and ``threads`` for each stage.

    ``loads`` and ``memory`` are those of one replica. ``period`` is the largest load divided by
    ``sharing``; replicas do not shorten ``latency``. ``kinds``: the kind of cores of each stage
    where cores are of several kinds, of which the replicas of a stage have one.
    """

    replicas: tuple[int, ...] = ()
    threads: tuple[int, ...] = ()
    kinds: tuple[int, ...] = ()

    @property
    def cores(self) -> int:
        """How many cores it uses."""
        return sum(r * w for r, w in zip(self.replicas, self.threads, strict=True))


def ways_to_use(cores: Sequence[int]) -> int:
    """In how many ways none, some or all cores of each kind are used."""
    return math.prod(number + 1 for number in cores)


def kinds_of_rows(thread_counts: Sequence[int]) -> list[int]:
    """The kind of cores of each row of costs: the rows of a kind begin with that of one thread."""
    return [max(0, ones - 1) for ones in accumulate(int(count == 1) for count in thread_counts)]


@lru_cache(maxsize=16)
def row_numbers(thread_counts: tuple[int, ...]) -> Mapping[tuple[int, int], int]:
    """The row of costs for a number of threads and a kind of cores."""
    pairs = zip(thread_counts, kinds_of_rows(thread_counts), strict=True)
    return {pair: row for row, pair in enumerate(pairs)}


def sharing(replicas: Any, streams: int, has_state: Any) -> Any:
    """How many items the replicas of a stage compute at once on average; of numbers or arrays.

    With states a replica holds whole streams. The one with the most, and all streams give as many
    items, computes the items of ceil(streams / replicas) of them one after the other.
    """
    return np.where(has_state, streams / np.ceil(streams / replicas), replicas)


def useful_replicas(replicas: int, streams: int) -> int:
    """The fewest replicas of a stage with states that share as much as so many."""
    return -(-streams // -(-streams // replicas))


def shares(
    costs: CostModel, stages: Iterable[Iterable[int]], replicas: Iterable[int]
) -> list[float]:
    """What the load of each stage is divided by, see ``sharing``."""
    has_state = list(map(costs.has_state, stages))
    divisors: list[float] = sharing(np.array(list(replicas)), costs.streams, has_state).tolist()
    return divisors


def evaluate_deployment(
    costs: CostModel,
    stages: Sequence[Iterable[int]],
    replicas: Sequence[int],
    threads: Sequence[int],
    thread_counts: Sequence[int] = (1,),
    kinds: Sequence[int] = (),
) -> PlannedDeployment:
    """The cost of given stages, ``replicas[s]`` of stage s with ``threads[s]`` threads each.

    Row i of a table of ``costs`` is for ``thread_counts[i]`` threads; one row serves all. ``kinds``
    of cores of each stage, where there are several: see ``kinds_of_rows``.

    Raises:
        SplitError: The stages are no legal split, or a number of replicas or threads is wrong.
    """
    if not len(stages) == len(replicas) == len(threads) or min(replicas, default=0) < 1:
        raise SplitError(
            f"replicas {tuple(replicas)} and threads {tuple(threads)} for {len(stages)} stages; "
            "give each stage a number from 1"
        )
    rows = row_numbers(tuple(thread_counts))
    pairs = list(zip(threads, kinds or repeat(0, len(threads)), strict=True))
    if unknown := set(pairs) - rows.keys():
        raise SplitError(
            f"stages with {min(unknown)[0]} threads, for which there are no costs; "
            f"give {', '.join(map(str, thread_counts))}"
        )
    split = evaluate(costs.on_devices([rows[pair] for pair in pairs]), stages)
    loads = zip(split.loads, shares(costs, split.stages, replicas), strict=True)
    period = max(load / count for load, count in loads)
    shape = {"replicas": tuple(replicas), "threads": tuple(threads), "kinds": tuple(kinds)}
    fields: dict[str, Any] = {**vars(split), "period": period, **shape}
    return PlannedDeployment(**fields)
