"""Run every benchmark and write the result of each to studies/results/NAME.json.

    python -m studies.benchmarks [NAME ...] [--skip NAME ...] [--stale] [--workloads FOLDER]
        [--list]

NAME is that of a result; without one all are made. ``--list`` prints what each needs and the
minutes that it took last. FOLDER holds the graph files of msr-fiddle/dnn-partitioning, which the
planner and the search are tried on besides other graphs. A benchmark whose package is absent
is left out, with the reason; after a failure the others are run. All of them take most of a
day: ``--stale`` goes on where an earlier run on this machine was interrupted. Prints a summary and
exits 1 where a benchmark fails or a bar is missed. Leave the machine alone while it runs. No
benchmark needs a network.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from autosplit.cli.output import emit_table
from autosplit.errors import ConfigError
from autosplit.versions import environment
from studies.benchmarks import result as results
from studies.benchmarks.result import Result

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "studies" / "results"
WORKLOADS = "WORKLOADS"  # stands for the folder in a command
PACKAGES = {  # beside those of the extra `all`
    "architectures": ("torch", "timm", "transformers")
}
UNTIMED = ("architectures", "faults", "onnx_cases")
COMMANDS = {
    "planner": ("planner", WORKLOADS, "--wide"),
    "deployments": ("planner", WORKLOADS, "--deployments"),
    "search": ("search", WORKLOADS),
    "deployment_search": ("search", "--deployments"),
    "overhead": ("search", "--overhead"),
    "faults": ("faults",),
    "kernels": ("kernels",),
    "kernels_avx2": ("kernels", "--target", "llvm -mcpu=x86-64-v3"),
    "kernels_threads": ("kernels", "--threads", "2"),
    "pipeline": ("pipeline", "--seconds", "3"),
    "onnx_cases": ("onnx_cases",),
    "architectures": ("architectures",),
    "serving": ("serving",),
    "streams": ("streams",),
    "winners": ("winners",),
    "winners_bfloat16": ("winners", "--runtime", "openvino-bfloat16"),
    "targets": ("targets",),
}


@dataclass(frozen=True)
class Ran:
    """A benchmark that was run: its exit code, seconds, and what it found, None where it left no
    result.
    """

    name: str
    code: int
    seconds: float
    result: Result | None

    @property
    def cells(self) -> tuple[str, ...]:
        """As a row of the summary."""
        bars = self.result.bars if self.result else ()
        missed = "; ".join(f"{b.what}: {b.value}, {b.bar}" for b in bars if not b.holds)
        bars_held = f"{sum(b.holds for b in bars)} of {len(bars)}" if self.result else "none"
        failed = "" if self.result else f"failed with exit code {self.code}"
        return self.name, f"{self.seconds / 60:.1f}", bars_held, missed or failed


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(COMMANDS)}")
    parser.add_argument("--skip", action="append", default=[], metavar="NAME", help="leave out")
    parser.add_argument(
        "--stale",
        action="store_true",
        help="leave out those that have a result of this machine and these versions",
    )
    parser.add_argument("--list", action="store_true", help="print what each needs and stop")
    parser.add_argument("--workloads", type=Path, help="folder with graph files")
    parser.add_argument(
        "--folder", type=Path, default=RESULTS, help="where results go (default studies/results)"
    )
    args = parser.parse_args()
    unknown = {*args.names, *args.skip} - set(COMMANDS)
    if unknown:
        parser.error(f"{', '.join(sorted(unknown))}: no such benchmark")
    names = [name for name in args.names or COMMANDS if name not in args.skip]
    if args.stale:
        names = [name for name in names if is_stale(args.folder / f"{name}.json")]
    if args.list:
        emit_table("", ("benchmark", "minutes", "needs"), [listed(n, args.folder) for n in names])
        return 0
    absent = {name: absences(name) for name in names}
    ran = list(run([name for name in names if not absent[name]], args.workloads, args.folder))
    rows = [r.cells for r in ran]
    rows += [(n, "", "", f"left out: no {', '.join(a)}") for n, a in absent.items() if a]
    emit_table("", ("benchmark", "minutes", "targets met", "missed"), rows)
    print(f"{sum(r.seconds for r in ran) / 60:.1f} minutes")
    return int(any(r.code for r in ran))


def listed(name: str, folder: Path) -> tuple[str, str, str]:
    """A benchmark, the minutes that it took last, and what it needs."""
    last = written(folder / f"{name}.json")
    needs = [] if name in UNTIMED else ["a calm machine"]
    if WORKLOADS in COMMANDS[name]:
        needs.append("graph files, if there are any")
    needs += PACKAGES.get(name, ())
    return name, f"{last.minutes:.1f}" if last and last.minutes else "", ", ".join(needs)


def absences(name: str) -> list[str]:
    """What a benchmark cannot be run without and is not there."""
    return [package for package in PACKAGES.get(name, ()) if find_spec(package) is None]


def run(names: Sequence[str], workloads: Path | None, folder: Path) -> Iterator[Ran]:
    """Run benchmarks one after the other; each is told as it begins."""
    for name in names:
        file = folder / f"{name}.json"
        file.unlink(missing_ok=True)
        command = command_of(name, workloads, file)
        print(f"{name}: {' '.join(command[2:-2])}", file=sys.stderr, flush=True)
        start = time.monotonic()
        code = subprocess.run(command, check=False, cwd=ROOT).returncode
        yield Ran(name, code, time.monotonic() - start, written(file))


def command_of(name: str, workloads: Path | None, file: Path) -> list[str]:
    """The command of a benchmark; without graph files their argument is left out."""
    module, *words = COMMANDS[name]
    arguments = []
    for word in words:
        if word != WORKLOADS:
            arguments.append(word)
        elif workloads:
            arguments.append(str(workloads.resolve()))
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
