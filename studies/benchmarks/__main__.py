"""Run every benchmark and write the result of each to studies/results/NAME.json.

    python -m studies.benchmarks [NAME ...] [--stale] [--workloads FOLDER]

NAME is that of a result; without one all are made. FOLDER holds the graph files of
msr-fiddle/dnn-partitioning, which the planner and the search are tried on besides other graphs.
After a failure, as where a package is missing, the others are run. All of them take most of a day:
``--stale`` goes on where an earlier run on this machine was interrupted. Prints a summary and exits
1 where a benchmark fails or a bar is missed. Leave the machine alone while it runs. No benchmark
needs a network.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

from autosplit.cli.output import emit_table
from autosplit.errors import ConfigError
from autosplit.versions import environment
from studies.benchmarks import result as results
from studies.benchmarks.result import Result

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "studies" / "results"
WORKLOADS = "WORKLOADS"  # stands for the folder in a command
COMMANDS = {
    "planner": ("planner", WORKLOADS, "--wide"),
    "deployments": ("planner", WORKLOADS, "--deployments"),
    "clusters": ("planner", WORKLOADS, "--clusters"),
    "search": ("search", WORKLOADS),
    "deployment_search": ("search", "--deployments"),
    "kernels": ("kernels",),
    "kernels_avx2": ("kernels", "--target", "llvm -mcpu=x86-64-v3"),
    "kernels_threads": ("kernels", "--threads", "2"),
    "pipeline": ("pipeline", "--seconds", "3"),
    "onnx_cases": ("onnx_cases",),
    "architectures": ("architectures",),
    "serving": ("serving",),
    "streams": ("streams",),
    "decoders": ("decoders",),
    "winners": ("winners",),
    "winners_bfloat16": ("winners", "--runtime", "openvino-bfloat16"),
    "targets": ("targets",),
}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(COMMANDS)}")
    parser.add_argument(
        "--stale",
        action="store_true",
        help="leave out those that have a result of this machine and these versions",
    )
    parser.add_argument("--workloads", type=Path, help="folder with graph files")
    parser.add_argument(
        "--folder", type=Path, default=RESULTS, help="where results go (default studies/results)"
    )
    args = parser.parse_args()
    unknown = set(args.names) - set(COMMANDS)
    if unknown:
        parser.error(f"{', '.join(sorted(unknown))}: no such benchmark")
    rows, codes = [], []
    for name in args.names or COMMANDS:
        file = args.folder / f"{name}.json"
        if args.stale and not is_stale(file):
            continue
        code, row = run(name, args.workloads, file)
        codes.append(code)
        rows.append(row)
    emit_table("", ("benchmark", "minutes", "targets met", "missed"), rows)
    return int(any(codes))


def run(name: str, workloads: Path | None, file: Path) -> tuple[int, tuple[str, ...]]:
    """Run a benchmark: its exit code, and its row of the summary."""
    file.unlink(missing_ok=True)
    command = command_of(name, workloads, file)
    print(f"{name}: {' '.join(command[2:-2])}", file=sys.stderr, flush=True)
    start = time.monotonic()
    code = subprocess.run(command, check=False, cwd=ROOT).returncode
    minutes, result = f"{(time.monotonic() - start) / 60:.1f}", written(file)
    if result is None:
        return code or 1, (name, minutes, "none", f"failed with exit code {code}")
    return code, (name, minutes, *result.met_and_missed)


def command_of(name: str, workloads: Path | None, file: Path) -> list[str]:
    """The command of a benchmark; without graph files their argument is left out."""
    module, *words = COMMANDS[name]
    folders = [str(workloads.resolve())] if workloads else []
    arguments = [part for word in words for part in (folders if word == WORKLOADS else [word])]
    package = f"studies.benchmarks.{module}"
    return [sys.executable, "-m", package, *arguments, "-o", str(file.resolve())]


def is_stale(file: Path) -> bool:
    """Whether there is no result of this machine and these versions."""
    last = written(file)
    return last is None or last.environment != environment()


def written(file: Path) -> Result | None:
    """What a benchmark wrote, if it did."""
    try:
        return results.read(file) if file.is_file() else None
    except ConfigError as error:
        print(error, file=sys.stderr)
        return None


if __name__ == "__main__":
    sys.exit(main())
