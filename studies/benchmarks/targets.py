"""The period of an export in each of its formats against ``autosplit.load``.

    python -m studies.benchmarks.targets [NET ...] [--runtime NAME] [--seconds S] [-o FILE]

Each format's program runs an export in turns with ``autosplit.load``, in many short rounds. The
ratio of a round is the program's period over load's; that of a net is the median over its rounds.
For C++ it is the plan's two-stage split of each net. For Ray, on a cluster of this machine alone,
it is two stages of about 5 ms in onnxruntime, with a tensor of 1 MB between them. Needs g++, cmake
and ray. Leave the machine alone while it runs.
"""

from __future__ import annotations

import contextlib
import importlib.util
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import tvm

import autosplit
from autosplit import api
from autosplit.deploy.load import on_ray
from autosplit.errors import MachineError
from autosplit.hardware.execution.pipeline import Item
from autosplit.hardware.measurement.measure import Budget, Contender, measure_rounds
from autosplit.hardware.measurement.results import Spread, spread
from autosplit.hardware.runtimes.registry import ONNXRUNTIME, TVM
from autosplit.zoo import catalog, weights
from autosplit.zoo.onnx_builder import Builder
from studies.benchmarks.finished_study import streamed
from studies.benchmarks.result import Bar, arguments, at_most, finish, shown

ROUNDS = 15
NETS = ("squeezenet", "shufflenet", "resnet50")
# The largest ratio of the period to that of ``load``, by format.
BARS = {"cpp": 1.03, "ray": 1.25}
SIDE = 512  # of the matrices that the stages on Ray multiply, each a MB
STAGE_MS = 5.0


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("nets", nargs="*", default=list(NETS))
    parser.add_argument("--runtime", default=TVM, help="of the stages (default tvm)")
    parser.add_argument("--seconds", type=float, default=10.0, help="for each target")
    args = parser.parse_args()
    rows, ratios = [], dict[str, list[float]]()
    for net, target, split in splits(args.nets, args.runtime):
        load, program = contest(split, target, args.seconds)
        pairs = zip(load, program, strict=True)
        ratio = spread([theirs.median / ours.median for ours, theirs in pairs])
        ratios.setdefault(target, []).append(ratio.median)
        periods = [shown(spread([turn.median for turn in turns])) for turns in (load, program)]
        rows.append((net, target, *periods, f"{ratio.median:.3f}", shown(ratio)))
    columns = ("net", "target", "load ms", "target ms", "target / load", "its interval")
    return finish("targets", columns, rows, bars=bars(ratios), file=args.file)


def bars(ratios: Mapping[str, Sequence[float]]) -> list[Bar]:
    """What the median over the nets of each target must not exceed."""
    return [
        at_most(f"{target}: median period against load", median(values), BARS[target], ".4g")
        for target, values in ratios.items()
    ]


def splits(nets: Sequence[str], runtime: str) -> Iterator[tuple[str, str, api.Split]]:
    """The name of each net, the target it is for, and its split."""
    for net in nets:
        yield net, "cpp", api.plan(api.load_model(catalog.cached(net), runtime=runtime), 2)
    if importlib.util.find_spec("ray") is None:
        print("ray is not installed, and is left out", file=sys.stderr)
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "products.onnx"
        multiply(1, file)
        model = api.load_model(file, runtime=ONNXRUNTIME)
        with model.split([]).pipeline(trace=True) as pipeline:
            one = streamed(pipeline, model.items(4), Budget(seconds=1.0)).median
        count = max(1, round(STAGE_MS / one))
        multiply(2 * count, file)
        model = api.load_model(file, runtime=ONNXRUNTIME)
        yield f"{2 * count} products", "ray", model.split([[f"product{count - 1}"]])


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


def contest(split: api.Split, target: str, seconds: float) -> tuple[list[Spread], list[Spread]]:
    """The periods of ``load`` and of the target's program, round by round."""
    items = split.model.items(8)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "out"
        split.export(folder, format=target)
        pipeline = stack.enter_context(autosplit.load(folder, trace=True))
        program = TARGETS[target](folder, items, stack)
        contenders: list[Contender] = [partial(streamed, pipeline, items), program]
        rounds = measure_rounds(contenders, Budget(seconds=seconds), ROUNDS)
        load, theirs = zip(*rounds, strict=True)
        return list(load), list(theirs)


def ray(folder: Path, items: Sequence[Item], stack: contextlib.ExitStack) -> Contender:
    """The pipeline on a cluster that Ray starts here."""
    pipeline = stack.enter_context(on_ray(folder, address="local", trace=True))
    return partial(streamed, pipeline, items)


def cpp(folder: Path, items: Sequence[Item], stack: contextlib.ExitStack) -> Contender:
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

    return measured


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


TARGETS: Mapping[str, Callable[[Path, Sequence[Item], contextlib.ExitStack], Contender]] = {
    "cpp": cpp,
    "ray": ray,
}


if __name__ == "__main__":
    sys.exit(main())
