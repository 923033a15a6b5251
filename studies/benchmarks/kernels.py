"""Untuned TVM stages against onnxruntime, one thread each: the whole net, in turns.

    python -m studies.benchmarks.kernels [NET ...] [--rounds N] [--threads N] [-o FILE]

NET is a net of the zoo or an ONNX file. Each net is measured in a process of its own, in which the
two take turns; TVM has as many threads as onnxruntime. The ratio is the median over the rounds,
its spread the middle half of them. Bars: geometric mean of the zoo at most 1.1, no net above 1.5.
Leave the machine alone while it runs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import geometric_mean, median, quantiles
from typing import Any

import numpy as np

from autosplit import api
from autosplit.hardware.devices.device import Cores
from autosplit.hardware.measurement.parity import compare
from autosplit.hardware.runtimes.onnxruntime.session import onnxruntime_session
from autosplit.zoo import catalog
from studies.benchmarks.result import arguments, at_most, finish

MEAN, WORST = 1.1, 1.5


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("nets", nargs="*", default=catalog.NAMES)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--measure", action="store_true", help="measure one net and print JSON")
    args = parser.parse_args()
    if args.measure:
        print(json.dumps(measure(args.nets[0], args.rounds, args.threads)))
        return 0
    rows, ratios = [], []
    for net in args.nets:
        tvm, onnxruntime = apart(net, args.rounds, args.threads)
        each = [a / b for a, b in zip(tvm, onnxruntime, strict=True)]
        low, _, high = quantiles(each, n=4)
        ratios.append(median(each))
        times = (f"{median(tvm):.2f}", f"{median(onnxruntime):.2f}")
        rows.append((Path(net).stem, *times, f"{ratios[-1]:.2f}", f"{low:.2f} to {high:.2f}"))
        print(*rows[-1], file=sys.stderr, flush=True)
    mean = geometric_mean(ratios)
    bars = [
        at_most("geometric mean of the ratios", mean, MEAN, ".2f"),
        at_most("largest ratio", max(ratios), WORST, ".2f"),
    ]
    columns = ("net", "TVM, ms", "onnxruntime, ms", "ratio", "middle half")
    return finish("kernels", columns, rows, bars=bars, file=args.file)


def apart(net: str, rounds: int, threads: int) -> tuple[list[float], list[float]]:
    """``measure`` in a process of its own, whose TVM has so many threads from the start."""
    command = [sys.executable, "-m", "studies.benchmarks.kernels", net, "--measure"]
    command += ["--rounds", str(rounds), "--threads", str(threads)]
    environment = os.environ | {"TVM_NUM_THREADS": str(threads)}
    printed = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True).stdout
    tvm, onnxruntime = json.loads(printed)
    return tvm, onnxruntime


def measure(net: str, rounds: int, threads: int) -> tuple[list[float], list[float]]:
    """Milliseconds of each round by TVM and by onnxruntime; their outputs are equal first."""
    path = Path(net) if Path(net).exists() else catalog.cached(net)
    model = api.load_model(path)
    (item,) = model.items(1)
    session: Any = onnxruntime_session(path, threads=threads)
    ports = model.stage_source.whole
    (stage,) = model.runtime.whole(ports, Cores(tuple(range(threads))))
    stage.open()
    values = [item[port.name] for port in ports.inputs]
    names = [port.name for port in ports.outputs]
    arrays = [np.from_dlpack(value) for value in stage.run(values)]
    outputs = dict(zip(names, arrays, strict=True))
    if not compare([outputs], model.expected([item])).equal:
        raise SystemExit(f"{net}: outputs differ from onnxruntime's")
    feeds = dict(item)
    ways: list[Callable[[], Any]] = [lambda: stage.run(values), lambda: session.run(None, feeds)]
    # With one thread all work is the caller's, and its own time does not count other programs'.
    clock = time.thread_time if threads == 1 else time.perf_counter
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for way, samples in zip(ways, times, strict=True):
            start = clock()
            way()
            samples.append((clock() - start) * 1e3)
    stage.close()
    return times


if __name__ == "__main__":
    sys.exit(main())
