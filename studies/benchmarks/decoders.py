"""A language model with a static cache: one stream and four, on two cores and on one.

    python -m studies.benchmarks.decoders [--layers N] [--size N] [--seconds S] [-o FILE]

A Llama with random weights is exported by transformers. In each runtime it generates in ``loop``,
whole on one core and as two stages on two, all ways in turns. Times are those of a token. ``over
the stages`` is the time of one stream in two stages over what the stages compute in it. Beside them
runs onnxruntime's own loop with two threads, which binds the caches as inputs and outputs, and
where it is installed onnxruntime-genai, with one text and with four as a batch. Bars:
one stream takes at most 1.1 times what its stages compute, four streams on two cores have at least
1.6 times the throughput of one core. Needs torch and transformers. Leave the machine alone while it
runs.
"""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import autosplit
from autosplit.hardware.measurement.measure import MS, Budget, measure_rounds
from autosplit.hardware.measurement.results import Spread, spread
from autosplit.hardware.runtimes.registry import EXACT
from studies.benchmarks import genai
from studies.benchmarks.result import arguments, at_least, at_most, finish, shown
from studies.examples.generate import export_onnx, item_of, small_llama

LENGTH = 128  # tokens of the cache
STEPS = 32  # of a loop
ROUNDS = 9
STREAMS = 4
WAYS = ("one core", "two stages", f"{STREAMS} on one core", f"{STREAMS} on two stages")
LOOPS = ("own loop", "genai", f"{STREAMS} in genai")
Loop = Callable[[Budget], Spread]


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--size", type=int, default=384, help="of the hidden state")
    parser.add_argument("--seconds", type=float, default=10.0, help="for each way")
    args = parser.parse_args()
    rows, bars = [], []
    with tempfile.TemporaryDirectory() as folder:
        llama = small_llama(args.layers, LENGTH, args.size)
        file = export_onnx(llama, LENGTH, Path(folder))
        loops = list[Loop]()
        if importlib.util.find_spec(genai.PACKAGE):
            built = genai.build(llama, Path(folder))
            loops = [genai.loop(built, texts, STEPS) for texts in (1, STREAMS)]
        for runtime in EXACT:
            over, *times = measured(file, runtime, args.seconds, loops)
            gain = times[2].median / times[3].median
            rows.append((runtime, *map(shown, times), f"{over.median:.2f}", f"{gain:.2f}"))
            bars += [
                at_most(f"{runtime}: one stream over its stages", over.median, 1.1),
                at_least(f"{runtime}: {STREAMS} streams over one core", gain, 1.6),
            ]
    ways = [f"{way}, ms" for way in (*WAYS, *LOOPS[: 1 + len(loops)])]
    columns = ("runtime", *ways, "over the stages", "gain")
    return finish("decoders", columns, rows, bars=bars, file=args.file)


@dataclass
class Generating:
    """So many streams in a pipeline; ``over`` has the time of each loop over that in stages."""

    pipeline: autosplit.Pipeline
    streams: int
    over: list[float] = field(default_factory=list)

    def __call__(self, budget: Budget) -> Spread:
        """The time of a token in ms."""
        pipeline, samples = self.pipeline, list[float]()
        items = [item_of(pipeline.wiring.inputs, [1], step) for step in range(STEPS)]
        deadline = time.perf_counter() + budget.seconds
        while not samples or time.perf_counter() < deadline:
            before, start = len(pipeline.events), time.perf_counter()
            first = items[:1] * self.streams
            for _ in pipeline.loop(
                first,
                lambda outputs, stream, step: items[step + 1] if step + 1 < STEPS else None,
                self.streams,
            ):
                pass
            seconds = time.perf_counter() - start
            samples.append(seconds / (STEPS * self.streams) * MS)
            self.over.append(seconds / sum(e.end - e.start for e in pipeline.events[before:]))
        return spread(samples)


def measured(file: Path, runtime: str, seconds: float, loops: Sequence[Loop]) -> list[Spread]:
    """One stream over its stages, and the times of all ways, onnxruntime's own loop and others."""
    model = autosplit.load_model(file, states="auto", runtime=runtime)
    split, whole = autosplit.plan(model, stages=2), model.split([])
    states = {state.input: state.output for state in model.graph.states}
    with contextlib.ExitStack() as stack:
        pipelines = [
            stack.enter_context(each.pipeline(devices, trace=True))
            for each, devices in ((whole, ["cores:0"]), (split, []))
        ]
        ways = [Generating(pipeline, n) for n in (1, STREAMS) for pipeline in pipelines]
        own = own_loop(file, item_of(pipelines[0].wiring.inputs, [1], 0), states)
        rounds = list(measure_rounds([*ways, own, *loops], Budget(seconds=seconds), ROUNDS))
    times = [spread([turn.median for turn in turns]) for turns in zip(*rounds, strict=True)]
    return [spread(ways[1].over), *times]


def own_loop(file: Path, item: Mapping[str, Any], states: Mapping[str, str]) -> Loop:
    """onnxruntime's loop with two threads, which has two sets of caches and changes them."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = 2
    session = ort.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    types = {"tensor(float)": np.float32, "tensor(int64)": np.int64}
    inputs = [each for each in session.get_inputs() if each.name in states]
    empty = {each.name: np.zeros(each.shape, types[each.type]) for each in inputs}
    make = ort.OrtValue.ortvalue_from_numpy
    # It shares the memory of its array.
    caches = [{name: make(zeros.copy()) for name, zeros in empty.items()} for _ in range(2)]
    bindings = []
    for before, after in (caches, caches[::-1]):
        binding = session.io_binding()
        for name, value in item.items():
            binding.bind_cpu_input(name, value)
        for name, output in states.items():
            binding.bind_ortvalue_input(name, before[name])
            binding.bind_ortvalue_output(output, after[name])
        for output in session.get_outputs():
            if output.name not in states.values():
                binding.bind_output(output.name)
        bindings.append(binding)

    def measure(budget: Budget) -> Spread:
        samples = list[float]()
        deadline = time.perf_counter() + budget.seconds
        while not samples or time.perf_counter() < deadline:
            for name, zeros in empty.items():
                caches[0][name].update_inplace(zeros)
            start = time.perf_counter()
            for step in range(STEPS):
                session.run_with_iobinding(bindings[step % 2])
            samples.append((time.perf_counter() - start) / STEPS * MS)
        return spread(samples)

    return measure


if __name__ == "__main__":
    sys.exit(main())
