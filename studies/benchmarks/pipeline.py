"""How much of its own limit a pipeline reaches: the slowest stage alone on its core against the
measured period.

    python -m studies.benchmarks.pipeline [NET ...] [--seconds S] [-o FILE]

For each net the plan's two-stage split runs as a pipeline and, in turns with it, each of its stages
alone on its own core, in many short rounds. The share of a round is the slowest stage's period over
the pipeline's; that of a net is the median over its rounds, so that a processor that is slower for
some seconds slows both alike. Then the cost of a hop: a 1 MB tensor through stages that do nothing.
Bars: median share 0.95, none below 0.90, 60 microseconds a hop.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from statistics import median
from typing import Any

import numpy as np

from autosplit import api
from autosplit.deployment import Deployment
from autosplit.hardware.measurement.measure import Budget, measure_rounds
from autosplit.hardware.measurement.results import Spread, spread
from autosplit.zoo import catalog
from studies.benchmarks.finished_study import streamed
from studies.benchmarks.result import arguments, at_least, at_most, finish
from tests.hardware.fakes import FakeStage, fake_pipeline, graph

ROUNDS = 15
TITLES = ("pipeline ms", "stage 0 alone ms", "stage 1 alone ms")
MEDIAN_BAR, LEAST_BAR, HOP_BAR_US = 0.95, 0.90, 60.0


class Idle(FakeStage):
    """A stage that hands its inputs on."""

    def run(self, values: Sequence[Any]) -> Sequence[Any]:
        return values


def main() -> int:
    nets = [name for name in catalog.NAMES if name != "vgg19"]
    args = arguments(__doc__, nets, seconds=5.0).parse_args()
    rows, shares = [], []
    for net in args.nets:
        rounds = contest(net, Budget(seconds=args.seconds))
        share = spread(
            [max(s.median for s in alone) / pipeline.median for pipeline, *alone in rounds]
        )
        shares.append(share.median)
        turns = zip(*rounds, strict=True)
        periods = [spread([s for turn in some for s in turn.samples]) for some in turns]
        row = {
            "net": net,
            **dict(zip(TITLES, periods, strict=True)),
            "share of the limit": f"{share.median:.3f}",
            "its interval": f"{share.low:.3f} to {share.high:.3f}",
        }
        rows.append(row)
    bars = [
        at_least("median share of the limit", median(shares), MEDIAN_BAR),
        at_least("least share of the limit", min(shares), LEAST_BAR),
        at_most("a hop of 1 MB, microseconds", hop_us(), HOP_BAR_US),
    ]
    return finish("pipeline", rows, bars=bars, file=args.file)


def contest(net: str, budget: Budget) -> list[list[Spread]]:
    """The periods, in ms, of the pipeline and of each of its stages alone, round by round."""
    model = api.load_model(catalog.cached(net))
    split = api.plan(model, 2)
    with contextlib.ExitStack() as stack:
        pipeline = stack.enter_context(split.pipeline(trace=True))
        contenders = [partial(streamed, pipeline, model.items(3))]
        results: dict[str, Any] = dict(model.items(1)[0])
        for stage in split.deployment.stages:
            wiring = api.Part(model, stage.ops).wiring
            one = stack.enter_context(model.run_on(wiring, Deployment((stage,)), trace=True))
            item = {port.name: results[port.name] for port in wiring.inputs}
            results |= one.run([item])[0]
            contenders.append(partial(streamed, one, [item]))
        return list(measure_rounds(contenders, budget, ROUNDS))


def hop_us(items: int = 3000) -> float:
    """Microseconds that a further stage adds to the period of idle stages that pass 1 MB on."""
    return max(0.0, (idle_period(4, items) - idle_period(1, items)) / 3) * 1e6


def idle_period(stages: int, items: int) -> float:
    names = [f"t{number}" for number in range(stages + 1)]
    chain = graph([(after, [before]) for before, after in pairwise(names)], names[:1], names[-1:])
    large = {name: replace(t, shape=(1 << 17,), bytes=1 << 20) for name, t in chain.tensors.items()}
    chain, numbers = replace(chain, tensors=large), [[number] for number in range(stages)]
    item = {"t0": np.zeros(1 << 17)}
    with fake_pipeline(chain, numbers, names[-1:], kind=Idle)[0] as pipeline:
        pipeline.run([item] * 100)
        start = time.perf_counter()
        pipeline.run([item] * items)
        return (time.perf_counter() - start) / items


if __name__ == "__main__":
    sys.exit(main())
