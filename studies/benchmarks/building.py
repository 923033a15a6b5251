"""The seconds until the kernels of a net are there: lowering it, scheduling and compiling them.

    python -m studies.benchmarks.building [NET ...] [--repeat N] [-o FILE]

NET is a net of the zoo, ``bert_base`` (twelve layers of tests.user_nets.bert) or an ONNX file. Each
repetition is a process of its own with an empty cache; the table has the medians. Kernels compile
in as many threads as there are cores, so CPU time may exceed the time that passes. Leave the
machine alone while it runs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from autosplit.zoo import catalog
from studies.benchmarks.result import arguments, at_most, finish
from tests import user_nets

BARS = {"resnet50": 5.0, "bert_base": 10.0}
PHASES = ("read", "lower", "compile", "CPU")


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("nets", nargs="*", default=list(BARS))
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--measure", action="store_true", help="measure one file and print JSON")
    args = parser.parse_args()
    if args.measure:
        print(json.dumps(measure(Path(args.nets[0]))))
        return 0
    rows, bars = [], []
    for net in args.nets:
        with TemporaryDirectory() as folder:
            path = _file_of(net, Path(folder))
            runs = [apart(path, Path(folder) / f"cache{i}") for i in range(args.repeat)]
        read, lower, compile_, cpu = (median(run[phase] for run in runs) for phase in PHASES)
        total = median(run["lower"] + run["compile"] for run in runs)
        seconds = [f"{value:.2f}" for value in (read, lower, compile_, total, cpu)]
        rows.append((Path(net).stem, *seconds))
        if net in BARS:
            bars.append(at_most(f"{net}: seconds to lower and compile", total, BARS[net], ".2f"))
    columns = ("net", "read, s", "lower, s", "compile, s", "lower and compile, s", "CPU, s")
    return finish("building", columns, rows, bars=bars, file=args.file)


def apart(path: Path, cache: Path) -> dict[str, float]:
    """``measure`` in a process of its own, with an empty cache."""
    command = [sys.executable, "-m", "studies.benchmarks.building", str(path), "--measure"]
    environment = os.environ | {"AUTOSPLIT_CACHE": str(cache)}
    printed = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True).stdout
    seconds: dict[str, float] = json.loads(printed)
    return seconds


def measure(path: Path) -> dict[str, float]:
    """The seconds of each phase, and of CPU for lowering and compiling."""
    from autosplit.frontend import importing
    from autosplit.hardware.codegen.kernels import compile_kernels
    from autosplit.hardware.codegen.target import target_of
    from autosplit.lowering.fuse.lowered import lower

    target = target_of()  # imports TVM, which is no part of any phase
    start = time.perf_counter()
    source = importing.read(path, {})
    is_read, cpu = time.perf_counter(), time.process_time()
    lowered = lower(source, target)
    is_lowered = time.perf_counter()
    compile_kernels(lowered.kernels, target).module  # noqa: B018  the property links and loads
    end = time.perf_counter()
    seconds = (is_read - start, is_lowered - is_read, end - is_lowered, time.process_time() - cpu)
    return dict(zip(PHASES, seconds, strict=True))


def _file_of(net: str, folder: Path) -> Path:
    if net != "bert_base":
        return Path(net) if Path(net).exists() else catalog.cached(net)
    file = folder / "bert_base.onnx"
    file.write_bytes(user_nets.bert(layers=12).SerializeToString())
    return file


if __name__ == "__main__":
    sys.exit(main())
