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
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from autosplit import api
from autosplit.hardware.devices.device import along
from autosplit.hardware.execution.pipeline import Pipeline
from autosplit.hardware.execution.stage_spec import Port, StageSpec
from autosplit.hardware.execution.wiring import Connection, Wiring
from autosplit.hardware.measurement.measure import Budget, measure_rounds
from autosplit.hardware.measurement.results import Spread, spread
from autosplit.zoo import catalog
from studies.benchmarks.finished_study import streamed
from studies.benchmarks.result import Bar, arguments, at_least, at_most, finish, shown

ROUNDS = 15
MEDIAN_BAR, LEAST_BAR, HOP_BAR_US = 0.95, 0.90, 60.0


class Idle:
    """A stage that hands its inputs on."""

    def open(self) -> None:
        """Nothing to prepare."""

    def run(self, values: Sequence[Any]) -> Sequence[Any]:
        return values

    def close(self) -> None:
        """Nothing to release."""


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("nets", nargs="*", default=[n for n in catalog.NAMES if n != "vgg19"])
    parser.add_argument("--seconds", type=float, default=5.0, help="for each contender")
    args = parser.parse_args()
    rows, shares = [], []
    for net in args.nets:
        rounds = contest(net, Budget(seconds=args.seconds))
        share = spread(
            [max(s.median for s in alone) / pipeline.median for pipeline, *alone in rounds]
        )
        shares.append(share.median)
        periods = [
            shown(spread([s for turn in times for s in turn.samples]))
            for times in zip(*rounds, strict=True)
        ]
        rows.append((net, *periods, f"{share.median:.3f}", f"{share.low:.3f} to {share.high:.3f}"))
    columns = (
        "net",
        "pipeline ms",
        "stage 0 alone ms",
        "stage 1 alone ms",
        "share of the limit",
        "its interval",
    )
    return finish("pipeline", columns, rows, bars=bars(shares, hop_us()), file=args.file)


def bars(shares: Sequence[float], hop: float) -> list[Bar]:
    """What the shares of the limit, and the microseconds of a hop, must reach."""
    return [
        at_least("median share of the limit", median(shares), MEDIAN_BAR),
        at_least("least share of the limit", min(shares), LEAST_BAR),
        at_most("a hop of 1 MB, microseconds", hop, HOP_BAR_US),
    ]


def contest(net: str, budget: Budget) -> list[list[Spread]]:
    """The periods, in ms, of the pipeline and of each of its stages alone, round by round."""
    model = api.load_model(catalog.cached(net))
    devices = along(2)
    split = api.plan(model, 2)
    with contextlib.ExitStack() as stack:
        pipeline = stack.enter_context(split.pipeline(trace=True))
        contenders = [partial(streamed, pipeline, model.items(3))]
        results: dict[str, Any] = dict(model.items(1)[0])
        stages = model.wiring(split.stages).stages
        runtimes = split.runtimes or [model.runtime_in_use] * len(stages)
        for ports, device, runtime in zip(stages, devices, runtimes, strict=True):
            stage = model.runtime_of(runtime).stage(ports, device)
            one = stack.enter_context(Pipeline(by_itself(ports), [[stage]], trace=True))
            item = {p.name: results[p.name] for p in ports.inputs}
            results |= one.run([item])[0]
            contenders.append(partial(streamed, one, [item]))
        return list(measure_rounds(contenders, budget, ROUNDS))


def by_itself(ports: StageSpec) -> Wiring:
    """One stage as a pipeline: the tensors it reads are the inputs, those it makes the outputs."""
    read = [Connection(p.name, 0, p.name, (0,), ()) for p in ports.inputs]
    results = [Connection(p.name, 0, (0, j), (), (p.name,)) for j, p in enumerate(ports.outputs)]
    return Wiring(ports.inputs, ports.outputs, (ports,), (*read, *results))


def hop_us(items: int = 3000) -> float:
    """Microseconds that a further stage adds to the period of idle stages that pass 1 MB on."""
    return max(0.0, (idle_period(4, items) - idle_period(1, items)) / 3) * 1e6


def idle_period(stages: int, items: int) -> float:
    ports = tuple(StageSpec.planned((), [tensor(i)], [tensor(i + 1)], i) for i in range(stages))
    inner = [Connection(f"t{i + 1}", 1 << 20, (i, 0), (i + 1,), ()) for i in range(stages - 1)]
    first = Connection("t0", 1 << 20, "t0", (0,), ())
    last = Connection(f"t{stages}", 1 << 20, (stages - 1, 0), (), (f"t{stages}",))
    wiring = Wiring((tensor(0),), (tensor(stages),), ports, (first, *inner, last))
    item = {"t0": np.zeros(1 << 18, np.float32)}
    with Pipeline(wiring, [[Idle()] for _ in range(stages)]) as pipeline:
        pipeline.run([item] * 100)
        start = time.perf_counter()
        pipeline.run([item] * items)
        return (time.perf_counter() - start) / items


def tensor(number: int) -> Port:
    return Port(f"t{number}", (1 << 18,), "float32")


if __name__ == "__main__":
    sys.exit(main())
