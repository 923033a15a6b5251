"""The period of an export in each of its formats against ``autosplit.load``.

    python -m studies.benchmarks.targets [NET ...] [--runtime NAME] [--seconds S] [-o FILE]

Each format's program runs an export in turns with ``autosplit.load``, in many short rounds. The
ratio of a round is the program's period over load's; that of a net is the median over its rounds.
For C++ it is the plan's two-stage split of each net. For Ray, on a cluster of two nodes that this
machine starts, it is two stages of about 5 ms, with a tensor of 1 MB between them: on the node of
the program, and with the second one on the other node, in onnxruntime and in TVM. A hop is how much
longer than with load one item takes that is alone in the pipeline, half of it for each stage. Needs
g++, cmake and ray. Leave the machine alone while it runs.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import tvm

import autosplit
from autosplit import api
from autosplit.deploy import load as loading
from autosplit.errors import MachineError
from autosplit.hardware.execution.pipeline import Item, Pipeline
from autosplit.hardware.measurement import measure
from autosplit.hardware.measurement.measure import Budget, Contender, measure_rounds
from autosplit.hardware.measurement.results import Spread, spread
from autosplit.hardware.runtimes.registry import ONNXRUNTIME, TVM
from autosplit.zoo import catalog, weights
from autosplit.zoo.onnx_builder import Builder
from studies.benchmarks.finished_study import streamed
from studies.benchmarks.result import Bar, arguments, at_most, finish, shown
from tests.hardware.cluster.clusters import Nodes

ROUNDS = 15
NETS = ("squeezenet", "shufflenet", "resnet50")
# The largest ratio of the period to that of ``load``, by format.
BARS = {"cpp": 1.03, "ray": 1.35, "ray nodes": 1.35}
SIDE = 512  # of the matrices that the stages on Ray multiply, each a MB
STAGE_MS = 5.0


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("nets", nargs="*", default=list(NETS))
    parser.add_argument("--runtime", default=TVM, help="of the stages (default tvm)")
    parser.add_argument("--seconds", type=float, default=10.0, help="for each target")
    args = parser.parse_args()
    rows: list[tuple[str, ...]] = []
    ratios = dict[str, list[float]]()
    for net, targets, split in splits(args.nets, args.runtime):
        load, *programs = contest(split, targets, args.seconds)
        for target, program in zip(targets, programs, strict=True):
            ratio = program.against(load)
            ratios.setdefault(target, []).append(ratio.median)
            periods = [shown(spread([t.median for t in c.turns])) for c in (load, program)]
            hop = f"{program.hop_ms(load):.3f}" if program.latencies else ""
            rows.append((net, target, *periods, shown(ratio), hop))
    columns = ("net", "target", "load ms", "target ms", "target / load", "hop ms")
    return finish("targets", columns, rows, bars=bars(ratios), file=args.file)


@dataclass
class Contestant:
    """A program in all rounds: its periods, and the latencies of single items where it has them."""

    measure: Contender
    pipeline: Pipeline | None = None
    turns: list[Spread] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)

    def against(self, other: Contestant) -> Spread:
        """The ratios of the periods of each round."""
        pairs = zip(self.turns, other.turns, strict=True)
        return spread([mine.median / theirs.median for mine, theirs in pairs])

    def hop_ms(self, load: Contestant) -> float:
        """What one of two stages takes longer than with load."""
        return (median(self.latencies) - median(load.latencies)) / 2


def bars(ratios: Mapping[str, Sequence[float]]) -> list[Bar]:
    """What the median over the nets of each target must not exceed."""
    return [
        at_most(f"{target}: median period against load", median(values), BARS[target], ".4g")
        for target, values in ratios.items()
    ]


def splits(nets: Sequence[str], runtime: str) -> Iterator[tuple[str, tuple[str, ...], api.Split]]:
    """The name of each net, the targets it is for, and its split."""
    for net in nets:
        yield net, ("cpp",), api.plan(api.load_model(catalog.cached(net), runtime=runtime), 2)
    # The file is read again when its split is compared with it.
    with tempfile.TemporaryDirectory() as folder, contextlib.closing(Nodes()):
        for name in (ONNXRUNTIME, TVM):
            count, split = products(name, Path(folder) / f"{name}.onnx")
            yield f"{2 * count} products, {name}", ("ray", "ray nodes"), split


def products(runtime: str, file: Path) -> tuple[int, api.Split]:
    """A split into two stages of so many products each, which take about STAGE_MS."""
    multiply(1, file)
    model = api.load_model(file, runtime=runtime)
    with model.split([]).pipeline(trace=True) as pipeline:
        one = streamed(pipeline, model.items(4), Budget(seconds=1.0)).median
    count = max(1, round(STAGE_MS / one))
    multiply(2 * count, file)
    model = api.load_model(file, runtime=runtime)
    return count, model.split([[f"product{count - 1}"]])


def multiply(count: int, file: Path) -> None:
    """Write a model that multiplies a matrix with ``count`` random ones, one after the other."""
    net = Builder()
    tensor = "x"
    for number in range(count):
        weight = net.weight(f"weight{number}", SIDE, SIDE)
        tensor = net.op("MatMul", f"product{number}", tensor, weight)
    model, shapes = net.model("products", {"x": (SIDE, SIDE)}, {tensor: (SIDE, SIDE)})
    weights.fill(model.graph, shapes, seed=0)
    file.write_bytes(model.SerializeToString())


def contest(split: api.Split, targets: Sequence[str], seconds: float) -> list[Contestant]:
    """``load`` and the program of each target, after all rounds."""
    items = split.model.items(8)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "out"
        split.export(folder, format="cpp" if "cpp" in targets else "native")
        here = stack.enter_context(autosplit.load(folder, trace=True))
        contestants = [Contestant(partial(streamed, here, items), here)]
        contestants += [TARGETS[target](folder, items, stack) for target in targets]
        budget = Budget(seconds=seconds)
        for turns in measure_rounds([c.measure for c in contestants], budget, ROUNDS):
            for contestant, turn in zip(contestants, turns, strict=True):
                contestant.turns.append(turn)
                if contestant.pipeline:
                    alone = measure.latency(contestant.pipeline, items, budget)
                    contestant.latencies += alone.samples
        return contestants


def ray(
    folder: Path, items: Sequence[Item], stack: contextlib.ExitStack, last: str = "left"
) -> Contestant:
    """The pipeline on Ray, its last stage on the node ``last``; this program is on the left one."""
    placement = ["ray:left", f"ray:{last}"]
    pipeline = stack.enter_context(loading.load(folder, trace=True).on_ray(placement))
    return Contestant(partial(streamed, pipeline, items), pipeline)


def cpp(folder: Path, items: Sequence[Item], stack: contextlib.ExitStack) -> Contestant:
    """The C++ program, built here."""
    build = folder / "build"
    packages = Path(tvm.__file__).parents[1]
    run("cmake", "-S", folder, "-B", build, f"-DPACKAGES={packages}")
    run("cmake", "--build", build)
    command: list[object] = [build / "net", folder]
    for number, name in enumerate(items[0]):
        np.save(folder / f"in{number}.npy", np.stack([item[name] for item in items]))
        command += ["--input", f"{name}={folder / f'in{number}.npy'}"]
    # The first run says how many items fill a round.
    first = period_ms(run(*command, "--repeat", 4))

    def measured(budget: Budget) -> Spread:
        count = max(budget.items, budget.seconds * 1000 / first)
        repeat = max(4, round(count / len(items)))
        return spread([period_ms(run(*command, "--repeat", repeat))])

    return Contestant(measured)


def period_ms(printed: str) -> float:
    """The period that the C++ program prints."""
    match = re.search(r", ([\d.e+-]+) ms each", printed)
    if not match:
        raise MachineError(f"the program printed no period but {printed!r}; look at its output")
    return float(match[1])


def run(*command: object) -> str:
    words = list(map(str, command))
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise MachineError(f"{words[0]} ended with {done.returncode}: {done.stderr[-500:]}")
    return done.stdout


TARGETS: Mapping[str, Callable[[Path, Sequence[Item], contextlib.ExitStack], Contestant]] = {
    "cpp": cpp,
    "ray": ray,
    "ray nodes": partial(ray, last="right"),
}


if __name__ == "__main__":
    sys.exit(main())
