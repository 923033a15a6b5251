"""Untuned TVM stages against onnxruntime with as many threads: the whole net, in turns.

    python -m studies.benchmarks.kernels [NET ...] [--rounds N] [--threads N] [--target TEXT]
                                         [-o FILE]

NET is a net of the zoo or one of tests.user_nets. TEXT is a target of TVM, as
``llvm -mcpu=x86-64-v3`` for AVX2; onnxruntime always takes what the machine has. Each net is
measured in a process of its own, in which the two take turns. The ratio is the median over the
rounds, its spread the middle half of them. Leave the machine alone while it runs.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import geometric_mean, median, quantiles
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from autosplit import api
from autosplit.errors import MismatchError
from autosplit.hardware.codegen.target import target_of
from autosplit.hardware.devices.device import Cores
from autosplit.hardware.measurement.parity import compare
from autosplit.hardware.runtimes.onnxruntime.session import onnxruntime_session
from autosplit.lowering.layout.tiles import registers_of
from autosplit.zoo import catalog
from studies.benchmarks.nets import model_file
from studies.benchmarks.result import Bar, arguments, at_most, finish
from tests import user_nets

# Largest geometric mean over the zoo, and largest ratio of a net.
AVX512, AVX2, SEVERAL_THREADS = (1.1, 1.5), (1.45, 2.1), (1.25, 1.5)
_AVX512_LANES = 16
# Runtimes may round to neighbouring quantisation steps, which are 1/256 for the probabilities.
QUANTISED = {"resnet50_qdq": 0.05}


def main() -> int:
    parser = arguments(__doc__, [*catalog.NAMES, *user_nets.NETS], rounds=30, threads=1)
    parser.add_argument("--target")
    args = parser.parse_args()
    os.environ["TVM_NUM_THREADS"] = str(args.threads)  # which a process reads when it starts
    pool = ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1)
    asked = args.rounds, args.threads, args.target
    rows, ratios = [], {}
    for net in args.nets:
        with TemporaryDirectory() as folder:
            path = model_file(net, Path(folder))
            tvm, onnxruntime = pool.submit(measure, path, *asked).result()
        each = [a / b for a, b in zip(tvm, onnxruntime, strict=True)]
        low, middle, high = quantiles(each, n=4)
        ratios[net] = middle
        times = {"TVM, ms": median(tvm), "onnxruntime, ms": median(onnxruntime), "ratio": middle}
        rows.append({"net": net, **times, "middle half": f"{low:.2f} to {high:.2f}"})
        print(*rows[-1].values(), file=sys.stderr, flush=True)
    bars = bars_of(ratios, args.threads, args.target)
    return finish("kernels", rows, bars=bars, file=args.file)


def bars_of(ratios: dict[str, float], threads: int, target: str | None) -> list[Bar]:
    """The bars for the ratios of some nets."""
    mean, largest = AVX2
    if registers_of(target_of(target)).lanes == _AVX512_LANES:
        mean, largest = AVX512 if threads == 1 else SEVERAL_THREADS
    bars = [at_most("largest ratio", max(ratios.values()), largest, ".2f")]
    zoo = [ratio for net, ratio in ratios.items() if net in catalog.NAMES]
    if zoo:
        bars.append(at_most("geometric mean over the zoo", geometric_mean(zoo), mean, ".2f"))
    return bars


def measure(
    path: Path, rounds: int, threads: int, target: str | None
) -> tuple[list[float], list[float]]:
    """The time of each round in ms in TVM and in onnxruntime, after their outputs are compared."""
    model = api.load_model(path, target=target)
    session: Any = onnxruntime_session(path, threads=threads)
    (item,) = model.items(1)
    ports = model.stage_source.whole_stage
    (stage,) = model.runtime.whole(ports, [Cores(tuple(range(threads)))])
    stage.open()
    values = [item[port.name] for port in ports.inputs]
    names = [port.name for port in ports.outputs]
    arrays = [np.from_dlpack(value) for value in stage.run(values)]
    outputs = dict(zip(names, arrays, strict=True))
    accuracy = compare([outputs], model.expected([item]))
    if not (accuracy.equal or accuracy.max_rel_error <= QUANTISED.get(path.stem, 0)):
        raise MismatchError(f"{path.stem}: outputs differ from onnxruntime's")
    feeds = dict(item)
    ways: list[Callable[[], Any]] = [lambda: stage.run(values), lambda: session.run(None, feeds)]
    # With one thread the caller does all the work, and its CPU time excludes other programs.
    clock = time.thread_time if threads == 1 else time.perf_counter
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for way, samples in zip(ways, times, strict=True):
            # The threads of the other way spin for some time after its last run.
            way()
            start = clock()
            way()
            samples.append((clock() - start) * 1e3)
    stage.close()
    return times


if __name__ == "__main__":
    sys.exit(main())
