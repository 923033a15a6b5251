"""One stream with states: a pipeline of two cores against one core and two threads.

    python -m studies.benchmarks.streams [NET ...] [--seconds S] [-o FILE]

NET is a net of the zoo with states. For each runtime the best split into two stages is planned from
its profile. The splits and, in each runtime, the unsplit model with one thread and with two are
measured in turns. The bar holds for nets whose plan allows it: at least 1.6 times the throughput of
the fastest single core. Leave the machine alone while it runs.
"""

from __future__ import annotations

import contextlib
import sys
from functools import partial
from pathlib import Path

import autosplit
from autosplit.hardware.devices.device import Cores, available
from autosplit.hardware.measurement.measure import Budget, Contender, compare_interleaved
from autosplit.hardware.measurement.parity import compare
from autosplit.hardware.measurement.results import Spread
from autosplit.hardware.runtimes.registry import EXACT, is_installed
from autosplit.lowering.states import propose_states
from autosplit.zoo import catalog
from studies.benchmarks.finished_study import streamed
from studies.benchmarks.result import Bar, arguments, at_least, finish, shown

LEAST = 1.6
COLUMNS = (
    "net",
    "pipeline, ms",
    "runtime",
    "one core, ms",
    "runtime",
    "two threads, ms",
    "throughput ratio",
    "planned ratio",
)


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("nets", nargs="*", default=list(catalog.STREAMS))
    parser.add_argument("--seconds", type=float, default=5.0, help="for each way (default 5)")
    args = parser.parse_args()
    rows, bars = [], []
    for net in args.nets:
        row, bar = _measured(net, args.seconds)
        rows.append(row)
        bars += bar
    return finish("streams", COLUMNS, rows, bars=bars, file=args.file)


def _measured(net: str, seconds: float) -> tuple[tuple[str, ...], list[Bar]]:
    path = catalog.cached(net)
    cores = available()[:2]
    contenders: dict[tuple[str, str], Contender] = {}
    planned: dict[str, float] = {}
    with contextlib.ExitStack() as stack:
        for runtime in filter(is_installed, EXACT):
            model = _model(path, runtime)
            items = model.items(32)
            best = autosplit.plan(model, stages=2)
            op_ms = model.profile(Cores(cores[:1]), runtime=runtime).op_ms
            assert best.predicted_ms is not None  # a plan has a period
            planned[runtime] = sum(op_ms) / best.predicted_ms
            ways = {
                "pipeline": best.pipeline(trace=True),
                "one core": model.whole(runtime, Cores(cores[:1]), trace=True),
                "two threads": model.whole(runtime, Cores(cores), trace=True),
            }
            expected = model.expected(items)
            for way, open_pipeline in ways.items():
                pipeline = stack.enter_context(open_pipeline)
                accuracy = compare(pipeline.run(items), expected)
                assert accuracy.equal, accuracy
                contenders[way, runtime] = partial(streamed, pipeline, items)
        periods = compare_interleaved(list(contenders.values()), Budget(seconds=seconds))
    spreads = dict(zip(contenders, periods, strict=True))
    fastest = {way: _fastest(spreads, way) for way in ("pipeline", "one core", "two threads")}
    split, one_core = spreads[fastest["pipeline"]], spreads[fastest["one core"]]
    ratio = one_core.median / split.median
    allowed = planned[fastest["pipeline"][1]]
    row = (
        net,
        shown(split),
        fastest["pipeline"][1],
        shown(one_core),
        fastest["one core"][1],
        shown(spreads[fastest["two threads"]]),
        f"{ratio:.2f}",
        f"{allowed:.2f}",
    )
    bars = [at_least(f"{net}: throughput of a stream over one core", ratio, LEAST)]
    return row, bars if allowed >= LEAST else []


def _model(path: Path, runtime: str) -> autosplit.Model:
    model = autosplit.load_model(path, runtime=runtime)
    states, _ = propose_states(model.graph, model.lowered.outputs)
    return autosplit.load_model(path, runtime=runtime, states=states)


def _fastest(spreads: dict[tuple[str, str], Spread], way: str) -> tuple[str, str]:
    return min((key for key in spreads if key[0] == way), key=lambda key: spreads[key].median)


if __name__ == "__main__":
    sys.exit(main())
