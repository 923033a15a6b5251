"""Measuring a pipeline: period in steady state, latency, and busy time of each replica."""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain, cycle, islice, takewhile
from statistics import median

from autosplit import phases
from autosplit.hardware.execution.engine import StageEvent
from autosplit.hardware.execution.pipeline import Item, Pipeline
from autosplit.hardware.execution.streams import Stream
from autosplit.hardware.measurement.results import Spread, spread

MS = 1e3
_GROUPS = 16  # groups of neighbouring results; the gaps in each group are averaged
_MIN_GAPS = 6  # fewer give no 95 % interval
_MIN_ITEMS = 4  # in each turn of an interleaved comparison
# Rounds of an interleaved comparison. After an even number, each contender has been first and last
# equally often, which cancels a steady drift. With six, a disturbance of two turns in a row leaves
# two thirds of the samples of each contender.
ROUNDS = 6
_NEVER = 1_000_000  # collections of younger objects before a full collection
_REPORT_S = 60.0  # after so long, and a group of results, a phase has its whole time limit again


@dataclass(frozen=True)
class Budget:
    """When a measurement ends: after ``seconds``, or when the period is known well enough.

    That is when half the width of its interval is at most ``share`` of the median. At least
    ``items`` results are timed in steady state, and ``latency_items`` one by one.
    """

    seconds: float = 5.0
    share: float = 0.01
    items: int = 16
    latency_items: int = 3


Contender = Callable[[Budget], Spread]  # runs within a budget; returns its period in ms
Clock = Callable[[], float]  # the time in seconds


@contextlib.contextmanager
def without_full_collections() -> Iterator[None]:
    """Keep Python's garbage collector from full collections, as a server does.

    A full collection takes 0.1 s where a compiler was imported, and stops all stages.
    """
    thresholds = gc.get_threshold()
    gc.set_threshold(*thresholds[:2], _NEVER)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


def items_in_turn(
    pipeline: Pipeline, items: Sequence[Item], streams: int
) -> Iterator[tuple[Stream, Item]]:
    """Repeat the items endlessly, dealt to the streams in turn; full streams are reset."""
    steps = pipeline.wiring.steps
    for number, item in enumerate(cycle(items)):
        step, stream = divmod(number, streams)
        if steps and step % steps == 0:
            pipeline.reset(stream)
        yield stream, item


@without_full_collections()
def period_and_busy(
    pipeline: Pipeline,
    items: Sequence[Item],
    budget: Budget,
    streams: int = 1,
    clock: Clock = time.perf_counter,
) -> tuple[Spread, tuple[tuple[float, ...], ...]]:
    """Measure the period, and how long each replica of each stage works per result, in ms.

    The replicas of a stage together work as long as an item takes there. The pipeline needs
    ``trace``. ``items`` are repeated, dealt to the streams in turn. Results count from when the
    pipeline is full until the last item enters. The results of a batch come all at once, so whole
    batches are timed.
    """
    begin = len(pipeline.events)
    last = len(pipeline.submitted)
    warm = last + warm_up_items(pipeline)
    deadline = clock() + budget.seconds
    next_look, next_report = warm, deadline + _REPORT_S
    # The results of replicas come in groups; at least one whole group is timed.
    least = max(-(-budget.items // pipeline.batch), *pipeline.replicas)
    is_enough = False
    in_turn = takewhile(lambda _: not is_enough, items_in_turn(pipeline, items, streams))
    for number, _ in enumerate(pipeline.map_streams(in_turn), start=1):
        if is_enough or number % pipeline.batch:
            continue  # the last item has entered and the pipeline drains, or a batch is incomplete
        last += 1
        if last % _GROUPS == 0 and clock() > next_report:
            phases.report("running", pipeline.threads)
            next_report = clock() + _REPORT_S
        if last - warm < least:
            continue
        is_enough = clock() > deadline
        if budget.share and last >= next_look and not is_enough:
            samples = _period_samples(pipeline, pipeline.events[begin:], warm, last)
            is_enough = is_known(samples, budget)
            # This check takes time in proportion to the results, on the cores of the stages.
            next_look = last + max(4, sum(pipeline.replicas), (last - warm) // 4)
    events = pipeline.events[begin:]
    period = spread(_period_samples(pipeline, events, warm, last))
    return period, _busy(pipeline, events, warm, last, period)


def warm_up_items(pipeline: Pipeline) -> int:
    """How many results, or batches, are not timed because the pipeline is not full yet."""
    return pipeline.capacity // pipeline.batch + sum(pipeline.replicas)


def latency(
    pipeline: Pipeline, items: Sequence[Item], budget: Budget, clock: Clock = time.perf_counter
) -> Spread:
    """The time in ms from handing one item to the empty pipeline to the end of its last stage.

    At least one item is timed, and no more once the time of the budget is over.
    """
    samples: list[float] = []
    deadline = clock() + budget.seconds
    for stream, item in islice(items_in_turn(pipeline, items, 1), budget.latency_items):
        if samples and clock() > deadline:
            break
        number, begin = len(pipeline.submitted), len(pipeline.events)
        list(pipeline.map_streams([(stream, item)]))
        end = completions(pipeline.events[begin:], number, number + 1)[0]
        samples.append((end - pipeline.submitted[number]) * MS)
    return spread(samples)


def completions(events: Sequence[StageEvent], first: int, last: int) -> list[float]:
    """The times in seconds at which items ``first`` to ``last - 1`` left their last stage."""
    ends: dict[int, float] = {}
    for event in events:
        if first <= event.item < last:
            ends[event.item] = max(ends.get(event.item, 0.0), event.end)
    return [ends[item] for item in sorted(ends)]


def gaps(ends: Sequence[float], sources: int = 1) -> list[float]:
    """The times between results in ms, from completion times in seconds.

    A median would hide a stage that alternates between fast and slow, so gaps are averaged over a
    sixteenth of the stream. Results of several ``sources`` come in groups, and an average is
    over whole groups.
    """
    width = sources * max(1, (len(ends) - 1) // (_GROUPS * sources))
    starts = range(0, len(ends) - width, width)
    return [(ends[i + width] - ends[i]) / width * MS for i in starts]


def _period_samples(
    pipeline: Pipeline, events: Sequence[StageEvent], warm: int, last: int
) -> list[float]:
    # With replicas, items overtake each other and leave the stage in groups.
    ends = sorted(completions(events, warm - 1, last))
    return [gap / pipeline.batch for gap in gaps(ends, max(pipeline.replicas, default=1))]


def is_known(samples: Sequence[float], budget: Budget) -> bool:
    """Whether the samples give an interval as narrow as the budget asks for."""
    return len(samples) >= _MIN_GAPS and spread(samples).relative_half_width <= budget.share


def _busy(
    pipeline: Pipeline, events: Sequence[StageEvent], first: int, last: int, period: Spread
) -> tuple[tuple[float, ...], ...]:
    """The busy time per result of each replica; for several replicas, their shares of the period.

    Never more than the period, since a replica computes one item at a time.
    """
    ends = completions(events, first - 1, last)
    start, end = min(ends), max(ends)
    spent: list[list[float]] = [[] for _ in pipeline.replicas]
    worked = [[0.0] * count for count in pipeline.replicas]
    for event in events:
        if first <= event.item < last:
            spent[event.stage].append((event.end - event.start) / pipeline.batch)
        # Replicas compute different numbers of these items, so their total time is needed.
        inside = min(event.end, end) - max(event.start, start)
        worked[event.stage][event.replica] += max(0.0, inside)
    busy = []
    for stage, count in enumerate(pipeline.replicas):
        shares = [seconds / (end - start) for seconds in worked[stage]]
        # A replica on another machine may have two calls at once, one of which waits.
        several = tuple(min(share, 1.0) * period.median for share in shares)
        # The same statistic as the period; a median of single items would hide skewed times.
        times = list(accumulate(spent[stage], initial=0.0))
        single = min(median(gaps(times)), period.median)
        busy.append(several if count > 1 else (single,))
    return tuple(busy)


def compare_interleaved(contenders: Sequence[Contender], budget: Budget) -> list[Spread]:
    """The period of each contender in ms, over the samples of all rounds without their drift.

    A contender works for ``budget.seconds`` in all, and longer where items are slow.
    """
    rounds = _without_drift(list(measure_rounds(contenders, budget, ROUNDS)))
    return [spread(list(chain.from_iterable(turns))) for turns in zip(*rounds, strict=True)]


def _without_drift(rounds: Sequence[Sequence[Spread]]) -> list[list[list[float]]]:
    """The samples of each turn divided by the drift of its round, a median over the contenders.

    The drift is how much longer than usual they took in that round. A slow round would widen all
    intervals until they overlap, although it shows as well as any other which contender is faster.
    The rounds are blocks: Box, Hunter and Hunter, Statistics for Experimenters, chapter 4.
    """
    usual = [median(turn.median for turn in turns) for turns in zip(*rounds, strict=True)]
    samples = []
    for turns in rounds:
        ratios = [turn.median / period for turn, period in zip(turns, usual, strict=True)]
        # With one contender, drift and noise cannot be told apart.
        drift = median(ratios) if len(ratios) > 1 else 1.0
        samples.append([[sample / drift for sample in turn.samples] for turn in turns])
    return samples


def measure_rounds(
    contenders: Sequence[Contender], budget: Budget, rounds: int
) -> Iterator[list[Spread]]:
    """The periods of all contenders in ms, round after round: A B, B A, and so on.

    This way a drift of the machine affects all contenders equally, and the periods of one round can
    be compared in pairs.
    """
    items = max(_MIN_ITEMS, budget.items // rounds)
    turn = replace(budget, seconds=budget.seconds / rounds, items=items, share=0.0)
    order = list(range(len(contenders)))
    for _ in range(rounds):
        by_contender = {i: contenders[i](turn) for i in order}
        yield [by_contender[i] for i in range(len(contenders))]
        order.reverse()
