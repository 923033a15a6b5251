"""The period of an export in each of its formats against ``autosplit.load``.

    python -m studies.benchmarks.targets [NET ...] [--seconds S] [-o FILE]

Each format's program runs an export in turns with ``autosplit.load``, in many short rounds. The
ratio of a round is the program's period over load's; that of a net is the median over its rounds.
For C++, each net is split by the plan into two stages. For Ray, on a cluster of two nodes on this
machine, two stages of about 5 ms have a tensor of 1 MB between them: both on the node of the
program, then with the second one on the other node, in onnxruntime and in TVM. A hop costs half of
the extra latency of a single item, compared with load. Needs g++, cmake and ray. Leave the machine
alone while it runs.
"""

from __future__ import annotations

import contextlib
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median

import autosplit
from autosplit import api
from autosplit.deploy import load as loading
from autosplit.errors import MachineError
from autosplit.hardware.execution.pipeline import Item, Pipeline
from autosplit.hardware.measurement import measure
from autosplit.hardware.measurement.measure import Budget, Contender, measure_rounds
from autosplit.hardware.measurement.results import Spread, spread
from autosplit.hardware.runtimes.registry import ONNXRUNTIME, TVM
from autosplit.zoo import catalog
from studies.benchmarks.finished_study import streamed
from studies.benchmarks.result import arguments, at_most, finish
from tests.deploy.targets.programs import build, checked, stacked, words_of
from tests.hardware.cluster.clusters import Nodes
from tests.nets import net

ROUNDS = 15
NETS = ("squeezenet", "shufflenet", "resnet50")
# The largest ratio of the period to that of ``load``, by format.
BARS = {"cpp": 1.03, "ray": 1.35, "ray nodes": 1.35}
SIDE = 512  # of the matrices that the stages on Ray multiply, each a MB
STAGE_MS = 5.0
Program = tuple[Contender, Pipeline | None]  # a pipeline where single items can be timed


def main() -> int:
    args = arguments(__doc__, NETS, seconds=10.0).parse_args()
    rows = []
    ratios = dict[str, list[float]]()
    for name, targets, split in splits(args.nets):
        for target, ratio, cells in contest(split, targets, args.seconds):
            ratios.setdefault(target, []).append(ratio.median)
            rows.append({"net": name, "target": target, **cells})
    bars = [
        at_most(f"{target}: median period against load", median(values), BARS[target], ".4g")
        for target, values in ratios.items()
    ]
    return finish("targets", rows, bars=bars, file=args.file)


def splits(nets: Sequence[str]) -> Iterator[tuple[str, tuple[str, ...], api.Split]]:
    """The name of each net, the targets it is for, and its split."""
    for name in nets:
        yield name, ("cpp",), api.plan(api.load_model(catalog.cached(name), runtime=TVM), 2)
    # The file is read again when its split is compared with it.
    with tempfile.TemporaryDirectory() as folder, contextlib.closing(Nodes()):
        for runtime in (ONNXRUNTIME, TVM):
            count, split = products(runtime, Path(folder) / f"{runtime}.onnx")
            yield f"{2 * count} products, {runtime}", ("ray", "ray nodes"), split


def products(runtime: str, file: Path) -> tuple[int, api.Split]:
    """The number of products per stage, and a split into two stages of about STAGE_MS each."""
    file.write_bytes(multiplied(1))
    model = api.load_model(file, runtime=runtime)
    with model.split([]).pipeline(trace=True) as pipeline:
        one = streamed(pipeline, model.items(4), Budget(seconds=1.0)).median
    count = max(1, round(STAGE_MS / one))
    file.write_bytes(multiplied(2 * count))
    return count, api.load_model(file, runtime=runtime).split([[f"x{count}"]])


def multiplied(count: int) -> bytes:
    """A model that multiplies a matrix with ``count`` random ones, one after the other."""
    shape, names = f"float[{SIDE},{SIDE}]", [f"w{number}" for number in range(count)]
    products = [f"x{n + 1} = MatMul(x{n}, {name})" for n, name in enumerate(names)]
    text = f"g ({shape} x0) => ({shape} x{count}) {{ {' '.join(products)} }}"
    return bytes(net(text, dict.fromkeys(names, (SIDE, SIDE))).SerializeToString())


def contest(
    split: api.Split, targets: Sequence[str], seconds: float
) -> Iterator[tuple[str, Spread, dict[str, object]]]:
    """The ratio of each target's period to that of ``load``, and its cells of the table."""
    items, budget = split.model.items(8), Budget(seconds=seconds)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "out"
        split.export(folder, format="cpp" if "cpp" in targets else "native")
        here = stack.enter_context(autosplit.load(folder, trace=True))
        programs: list[Program] = [(partial(streamed, here, items), here)]
        programs += [TARGETS[target](folder, items, stack) for target in targets]
        contenders, pipelines = zip(*programs, strict=True)
        rounds, latencies = [], [list[float]() for _ in programs]
        for turns in measure_rounds(contenders, budget, ROUNDS):
            rounds.append([turn.median for turn in turns])
            for pipeline, samples in zip(pipelines, latencies, strict=True):
                if pipeline:
                    samples += measure.latency(pipeline, items, budget).samples
    load, *others = zip(*rounds, strict=True)
    for target, periods, samples in zip(targets, others, latencies[1:], strict=True):
        ratio = spread([mine / theirs for mine, theirs in zip(periods, load, strict=True)])
        # The extra time of each of the two stages, compared with load.
        hop = f"{(median(samples) - median(latencies[0])) / 2:.3f}" if samples else None
        times = {"load ms": spread(load), "target ms": spread(periods)}
        yield target, ratio, {**times, "target / load": ratio, "hop ms": hop}


def ray(
    folder: Path, items: Sequence[Item], stack: contextlib.ExitStack, last: str = "left"
) -> Program:
    """The pipeline on Ray, its last stage on the node ``last``; this program is on the left one."""
    placement = ["ray:left", f"ray:{last}"]
    pipeline = stack.enter_context(loading.load(folder, trace=True).on_ray(placement))
    return partial(streamed, pipeline, items), pipeline


def cpp(folder: Path, items: Sequence[Item], stack: contextlib.ExitStack) -> Program:
    """The C++ program, built here."""
    command: list[object] = [build(folder), folder, *words_of(folder, stacked(items))]

    def period_ms(repeat: int) -> float:
        printed = checked([*command, "--repeat", repeat])
        match = re.search(r", ([\d.e+-]+) ms each", printed)
        if not match:
            raise MachineError(f"the program printed no period but {printed!r}")
        return float(match[1])

    first = period_ms(4)  # says how many items fill a round

    def measured(budget: Budget) -> Spread:
        count = max(budget.items, budget.seconds * 1000 / first)
        return spread([period_ms(max(4, round(count / len(items))))])

    return measured, None


TARGETS: Mapping[str, Callable[[Path, Sequence[Item], contextlib.ExitStack], Program]] = {
    "cpp": cpp,
    "ray": ray,
    "ray nodes": partial(ray, last="right"),
}


if __name__ == "__main__":
    sys.exit(main())
