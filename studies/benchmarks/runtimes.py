"""The unsplit model in every runtime, on one core and on two, in turns.

    python -m studies.benchmarks.runtimes [NET ...] [--seconds S] [-o FILE]

Each runtime runs the whole model as the baselines of a study do, and OpenVINO also by its own hint
for throughput, which chooses streams by itself. All work in turns, A B B A, in one process, and all
are right first. Shown are the periods, and the throughput of each over that of onnxruntime on as
many cores. Leave the machine alone while it runs.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Sequence
from functools import partial
from itertools import cycle
from typing import Any

from autosplit.hardware.devices.device import Cores, available
from autosplit.hardware.execution.pipeline import Item
from autosplit.hardware.measurement import measure
from autosplit.hardware.measurement.measure import Budget, Contender, compare_interleaved
from autosplit.hardware.measurement.parity import compare, require_equal
from autosplit.hardware.measurement.results import Spread, spread
from autosplit.hardware.runtimes.openvino.stage import compile_model
from autosplit.hardware.runtimes.registry import ONNXRUNTIME, RUNTIMES
from autosplit.zoo import catalog
from studies.benchmarks.finished_study import load, streamed
from studies.benchmarks.result import arguments, finish, shown

HINT = "openvino, throughput hint"


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("nets", nargs="*", default=catalog.NAMES)
    parser.add_argument(
        "--seconds", type=float, default=10.0, help="each works on a number of cores (default 10)"
    )
    args = parser.parse_args()
    rows = []
    for net in args.nets:
        for count in range(1, min(2, len(available())) + 1):
            periods = periods_of(net, Cores(available()[:count]), Budget(seconds=args.seconds))
            base = periods[ONNXRUNTIME]
            for runtime, period in periods.items():
                rows.append((net, count, runtime, shown(period), ratio(base, period)))
    columns = ("net", "cores", "runtime", "period, ms", "throughput over onnxruntime's")
    return finish("runtimes", columns, rows, file=args.file)


def periods_of(net: str, cores: Cores, budget: Budget) -> dict[str, Spread]:
    """The period in ms of each runtime on ``cores``, measured in turns."""
    contenders: dict[str, Contender] = {}
    with contextlib.ExitStack() as stack:
        for runtime in RUNTIMES:
            model = load(net, runtime)
            items = model.items()
            pipeline = stack.enter_context(model.unsplit(cores, trace=True))
            require_equal(compare(pipeline.run(items), model.expected(items)))
            contenders[runtime] = partial(streamed, pipeline, items)
        if len(cores.numbers) > 1:
            contenders[HINT] = partial(queued, hinted_queue(net, cores), items)
        return dict(
            zip(contenders, compare_interleaved([*contenders.values()], budget), strict=True)
        )


def hinted_queue(net: str, cores: Cores) -> Any:
    """OpenVINO's queue of the inferences that it computes at the same time, on any cores."""
    import openvino

    compiled = compile_model(
        catalog.cached(net), cores, NUM_STREAMS="AUTO", PERFORMANCE_HINT="THROUGHPUT"
    )
    return openvino.AsyncInferQueue(compiled)


def queued(queue: Any, items: Sequence[Item], budget: Budget) -> Spread:
    """The time in ms between two results of a queue that is kept full."""
    ends: list[float] = []
    queue.set_callback(lambda request, _: ends.append(time.perf_counter()))
    stream = cycle(items)
    deadline = time.perf_counter() + budget.seconds
    while len(ends) <= budget.items or time.perf_counter() < deadline:
        queue.start_async(dict(next(stream)))
    queue.wait_all()
    return spread(measure.gaps(ends))


def ratio(base: Spread, period: Spread) -> str:
    """The throughput of one over that of another, and the least and the most by the intervals."""
    low, high = base.low / period.high, base.high / period.low
    return f"{base.median / period.median:.2f} ({low:.2f} to {high:.2f})"


if __name__ == "__main__":
    sys.exit(main())
