"""A proven lower bound of the period from work alone, transfers left out.

Give each kind of device a weight such that the weights of all devices sum to 1. Within a period P a
device computes for at most P, so the weighted sum of the times of all ops, each at its cheapest
weighted row, is at most P. With the best weights, which are its dual variables, this is the bound
of the linear program that shares the ops out to the devices.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from autosplit.planner.problem import Array, Problem

_ROUNDS = 40


@dataclass(frozen=True)
class Weights:
    """Device weights, and the lower ``bound`` of the period that they prove.

    ``of_row``: of the devices of a replica in each row; ``of_state``: of those taken in each state.
    """

    of_row: Array
    of_state: Array
    bound: float


def weights_of(problem: Problem) -> Weights:
    """Weights of the devices that prove a large bound, and that bound."""
    kinds = list(problem.question.devices)
    counts = np.array(list(problem.question.devices.values()), dtype=np.float64)
    axis = np.array([kinds.index(row.kind) for row in problem.rows])
    takes = np.array(problem.takes, dtype=np.float64)
    # The least device time of each op on each kind.
    spent = np.full((len(kinds), problem.size), math.inf)
    np.minimum.at(spent, axis, problem.times * takes[:, None])
    of_kind = _device_weights(spent, counts)
    if problem.question.order:
        along = [of_kind[kinds.index(kind)] for kind in problem.question.order]
        of_state = np.cumsum([0.0, *along])
    else:
        of_state = np.array(problem.states, dtype=np.float64) @ of_kind
    work = float((spent * of_kind[:, None]).min(axis=0).sum())
    return Weights(of_kind[axis] * takes, of_state, max(work, _largest_op(problem)))


def _largest_op(problem: Problem) -> float:
    """The longest of the least periods of single groups, each on its best devices."""
    alone = problem.times + problem.overheads[:, None]
    question, streams = problem.question, problem.costs.streams
    pairs = zip(problem.rows, problem.takes, strict=True)
    most = [question.devices[row.kind] // take for row, take in pairs]
    replicas = np.array(most if question.replicas else [1] * len(most), dtype=np.float64)[:, None]
    is_mixed = question.replicas and not question.cores
    if not is_mixed:
        # A replica of a stage with states holds whole streams.
        of_streams = streams / np.ceil(streams / replicas)
        replicas = np.where(problem.stateful, of_streams, replicas)
    with np.errstate(divide="ignore", over="ignore"):
        rates = replicas / alone
    best = rates.max(axis=0)
    if is_mixed:
        # Replicas on several kinds add up.
        axis = [list(question.devices).index(row.kind) for row in problem.rows]
        by_kind = np.zeros((len(question.devices), problem.size))
        np.maximum.at(by_kind, axis, rates)
        best = by_kind.sum(axis=0)
    with np.errstate(divide="ignore"):
        return float(np.where(best > 0, np.divide(1.0, best), math.inf).max(initial=0.0))


def _device_weights(spent: Array, counts: Array) -> Array:
    """The weight of a device of each kind, none of them 0; those of all devices sum to 1.

    ``spent``: kinds x ops, infinite where a kind cannot run an op. Multiplicative weights (Arora,
    Hazan and Kale 2012): a kind that the cheapest choice overloads gets a larger weight.
    """
    kinds, ops = spent.shape
    even = np.full(kinds, 1 / counts.sum())
    if kinds == 1 or not ops or (spent == spent[0]).all():
        return even
    finite = np.isfinite(spent)
    mean = np.where(finite, spent, 0.0).sum(axis=1) / np.maximum(finite.sum(axis=1), 1)
    # The lower limit keeps a kind without any work from being infinitely fast.
    speed = 1 / np.maximum(mean, mean.max() * 1e-9 + 1e-300)
    weights, best, most = speed / (speed * counts).sum(), even, 0.0
    for n in range(_ROUNDS):
        kind = (spent * weights[:, None]).argmin(axis=0)
        loads = np.bincount(kind, spent[kind, np.arange(ops)], kinds) / counts
        bound = float((weights * counts) @ loads)
        if bound > most:
            best, most = weights, bound
        if not 0 < bound < math.inf:
            break
        weights = weights * np.exp(np.minimum((loads / bound - 1) / (2 * n + 2), 1.0))
        weights = np.maximum(weights / (weights * counts).sum(), 1e-9)
        weights /= (weights * counts).sum()
    return best
