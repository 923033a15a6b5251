"""Run every benchmark and keep what each found as studies/results/NAME.json.

    python studies/bench_all.py [NAME ...] [--workloads FOLDER]

NAME is that of a result; all are made without one, within an hour on two cores. FOLDER holds the graph files of
msr-fiddle/dnn-partitioning, which the planner and the search are tried on besides other graphs. Prints a summary and exits 1
where a benchmark fails or a bar is missed. Leave the machine alone while it runs.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import outcome

from autosplit.cli.output import emit_table
from autosplit.errors import ConfigError

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
WORKLOADS = "WORKLOADS"  # stands for the folder in a command
COMMANDS = {
    "planner": ("bench_planner.py", WORKLOADS, "--wide"),
    "search": ("bench_search.py", WORKLOADS),
    "overhead": ("bench_search.py", "--overhead"),
    "faults": ("bench_faults.py",),
    "link": ("bench_link.py", "--repeat", "3"),
    "memory": ("bench_memory.py",),
    "pipeline": ("bench_pipeline.py", "--seconds", "3"),
    "tune": ("bench_tune.py",),
    "study": ("bench_study.py", "--seconds", "1"),
    "repeat": ("bench_study.py", "squeezenet", "shufflenet", "--repeat", "3", "--seconds", "2"),
    "exhaustive": ("bench_exhaustive.py", "--within", "1.2"),
    "onnxruntime": ("bench_onnxruntime.py", "--study-seconds", "1", "--seconds", "8"),
}


@dataclass(frozen=True)
class Ran:
    """A benchmark that was run: its exit code, seconds, and what it found, None where it left no result."""

    name: str
    code: int
    seconds: float
    found: outcome.Outcome | None

    @property
    def cells(self) -> tuple[str, ...]:
        """As a row of the summary."""
        bars = self.found.bars if self.found else ()
        missed = "; ".join(f"{b.what}: {b.value}, {b.bar}" for b in bars if not b.holds)
        held = f"{sum(b.holds for b in bars)} of {len(bars)}" if self.found else "none"
        failed = "" if self.found else f"failed with exit code {self.code}"
        return self.name, f"{self.seconds / 60:.1f}", held, missed or failed


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(COMMANDS)}")
    parser.add_argument("--workloads", type=Path, help="folder with graph files")
    parser.add_argument(
        "--folder", type=Path, default=RESULTS, help="where results go (default studies/results)"
    )
    args = parser.parse_args()
    if unknown := set(args.names) - set(COMMANDS):
        parser.error(f"{', '.join(sorted(unknown))}: no such benchmark")
    ran = list(run(args.names or list(COMMANDS), args.workloads, args.folder))
    emit_table("", ("benchmark", "minutes", "bars held", "missed"), [r.cells for r in ran])
    print(f"{sum(r.seconds for r in ran) / 60:.1f} minutes")
    return int(any(r.code for r in ran))


def run(names: Sequence[str], workloads: Path | None, folder: Path) -> Iterator[Ran]:
    """Run benchmarks one after the other; each is told as it begins."""
    for name in names:
        file = folder / f"{name}.json"
        file.unlink(missing_ok=True)
        script, *words = COMMANDS[name]
        given = [
            str(workloads) if w == WORKLOADS else w for w in words if w != WORKLOADS or workloads
        ]
        print(f"{name}: {script} {' '.join(given)}", file=sys.stderr, flush=True)
        start = time.monotonic()
        code = subprocess.run(
            [sys.executable, str(HERE / script), *given, "-o", str(file)], check=False
        ).returncode
        yield Ran(name, code, time.monotonic() - start, kept(file))


def kept(file: Path) -> outcome.Outcome | None:
    """What a benchmark wrote, if it did."""
    try:
        return outcome.read(file) if file.is_file() else None
    except ConfigError as error:
        print(error, file=sys.stderr)
        return None


if __name__ == "__main__":
    sys.exit(main())
