"""The period of an export in each of its formats against ``autosplit.load``.

    python -m studies.benchmarks.targets [NET ...] [--runtime NAME] [--seconds S] [-o FILE]

For each net the plan's two-stage split is exported, and each format's program runs it in turns with
``autosplit.load``, in many short rounds. The ratio of a round is the program's period over load's;
that of a net is the median over its rounds. Needs g++ and cmake. Leave the machine alone while it
runs.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import tvm

import autosplit
from autosplit import api
from autosplit.errors import MachineError
from autosplit.hardware.execution.pipeline import Item
from autosplit.hardware.measurement.measure import Budget, Contender, measure_rounds
from autosplit.hardware.measurement.results import Spread, spread
from autosplit.hardware.runtimes.registry import TVM
from autosplit.zoo import catalog
from studies.benchmarks.finished_study import streamed
from studies.benchmarks.result import Bar, arguments, at_most, finish, shown

ROUNDS = 15
NETS = ("squeezenet", "shufflenet", "resnet50")
# The largest ratio of the period to that of ``load``, by format.
BARS = {"cpp": 1.03}


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("nets", nargs="*", default=list(NETS))
    parser.add_argument("--runtime", default=TVM, help="of the stages (default tvm)")
    parser.add_argument("--seconds", type=float, default=10.0, help="for each target")
    args = parser.parse_args()
    rows, ratios = [], dict[str, list[float]]()
    for net in args.nets:
        for target, (load, program) in contest(net, args.runtime, args.seconds).items():
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


def contest(
    net: str, runtime: str, seconds: float
) -> Mapping[str, tuple[list[Spread], list[Spread]]]:
    """The periods of ``load`` and of each target, round by round."""
    model = api.load_model(catalog.cached(net), runtime=runtime)
    items = model.items(8)
    periods = {}
    with contextlib.ExitStack() as stack:
        split = api.plan(model, 2)
        for target, start in TARGETS.items():
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "out"
            split.export(folder, format=target)
            pipeline = stack.enter_context(autosplit.load(folder, trace=True))
            contenders: list[Contender] = [partial(streamed, pipeline, items), start(folder, items)]
            rounds = measure_rounds(contenders, Budget(seconds=seconds), ROUNDS)
            load, program = zip(*rounds, strict=True)
            periods[target] = list(load), list(program)
    return periods


def cpp(folder: Path, items: Sequence[Item]) -> Contender:
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


TARGETS: Mapping[str, Callable[[Path, Sequence[Item]], Contender]] = {"cpp": cpp}


if __name__ == "__main__":
    sys.exit(main())
