"""What quick tuning brings: a net on one core before and after `autosplit tune`, against
onnxruntime's single thread.

    python -m studies.benchmarks.tuning [NET ...] [--samples N] [--seconds S] [-o FILE]

The command runs as a user would type it, into an empty folder, and its whole time counts. Before
it, the schedules by rule; after it, the database it made. Both and a plain loop
over a session with one thread then work in turns, in one process. Bars: within 1.5 times
onnxruntime's time, in four minutes. Leave the machine alone while it runs.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from autosplit import api
from autosplit.hardware.measurement.measure import Budget, compare_interleaved
from autosplit.hardware.measurement.results import Spread
from autosplit.hardware.runtimes.onnxruntime.session import onnxruntime_session
from autosplit.zoo import catalog
from studies.benchmarks.finished_study import contender, looped
from studies.benchmarks.result import Bar, arguments, at_most, finish, shown

TIMES, MINUTES = 1.5, 4


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("nets", nargs="*", default=("squeezenet",))
    parser.add_argument(
        "--samples", type=int, help="schedules to try a kernel (default: the command's own)"
    )
    parser.add_argument(
        "--seconds", type=float, default=6.0, help="each works in the comparison (default 6)"
    )
    args = parser.parse_args()
    rows: list[Sequence[object]] = []
    bars: list[Bar] = []
    for net in args.nets:
        with tempfile.TemporaryDirectory() as folder:
            minutes = tuned(net, Path(folder), args.samples) / 60
            before, after, reference = before_and_after(
                net, Path(folder), Budget(seconds=args.seconds)
            )
        ratio = after.median / reference.median
        rows.append(
            (net, f"{minutes:.1f}", shown(before), shown(after), shown(reference), f"{ratio:.2f}")
        )
        bars.append(
            at_most(f"{net}: time over that of onnxruntime's single thread", ratio, TIMES, ".2f")
        )
        bars.append(at_most(f"{net}: minutes of tuning", minutes, MINUTES, ".1f"))
    columns = ("net", "minutes", "before, ms", "after, ms", "onnxruntime, ms", "ratio")
    return finish("tune", columns, rows, bars=bars, file=args.file)


def tuned(net: str, folder: Path, samples: int | None) -> float:
    """Tune a net's kernels into an empty folder; how many seconds the command took."""
    words = ["--samples", str(samples)] if samples else []
    command = [
        sys.executable,
        "-m",
        "autosplit",
        "tune",
        str(catalog.cached(net)),
        "-o",
        str(folder),
        *words,
    ]
    start = time.monotonic()
    subprocess.run(command, check=True)
    return time.monotonic() - start


def before_and_after(net: str, folder: Path, budget: Budget) -> list[Spread]:
    """Milliseconds an item on one core, in turns: schedules by rule, those in a folder,
    onnxruntime; all are right first.
    """
    path = catalog.cached(net)
    models = [api.load_model(path), api.load_model(path, tuning=folder)]
    items = models[0].items()
    expected = models[0].expected(items)
    session: Any = onnxruntime_session(path, threads=1)
    whole = (tuple(range(len(models[0].graph.ops))),)
    with contextlib.ExitStack() as stack:
        ways = [contender(stack, model, whole, items, expected) for model in models]
        return compare_interleaved([*ways, partial(looped, session, items)], budget)


if __name__ == "__main__":
    sys.exit(main())
