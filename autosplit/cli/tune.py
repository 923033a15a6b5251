"""Tune the kernels of a model: try some schedules per kernel and store those that are faster.

  autosplit tune net.onnx -o tuned/                 8 schedules per kernel, about a second each
  autosplit tune net.onnx -o tuned/ --samples 32    faster kernels, in more time
  autosplit profile net.onnx --tuning tuned/        op times with the tuned kernels

Every kernel starts from its schedule by rule and keeps it unless another is measured to be faster.
A study file uses the folder with `tuning = "tuned"`. After an interrupt the same command resumes. A
database written by TVM's MetaSchedule works as well.
"""

from __future__ import annotations

import argparse
import time

from autosplit.cli import options, output
from autosplit.report.documents.table import Table
from autosplit.units import counted, digits

AFTER_INTERRUPT = "; the tuned kernels are saved, run the same command to resume"

OPTIONS = (
    *options.of("""
        -o, --output DIR   folder of the database [required]
        --samples N        schedules to try per kernel, on average [default: 8]
        --timeout SECONDS  start no kernel after this time
        --seed N           seed of the random schedules [default: 0]
    """),
    *options.MODEL,
)


def run(args: argparse.Namespace) -> None:
    """Tune; print the times of each kernel."""
    from autosplit.hardware.codegen import tuning

    model = options.load_model(args)
    kernels, target = model.lowered.kernels, model.kernels.target
    results, work = [], tuning.work_of(model.graph)
    start = time.monotonic()  # setting the system clock must not end the tuning

    def is_over() -> bool:
        return time.monotonic() - start > (args.timeout or float("inf"))

    outcomes = tuning.tune(kernels, target, args.output, args.samples, args.seed, is_over, work)
    for result in outcomes:
        results.append(result)
        seconds_each = (time.monotonic() - start) / len(results)
        times = f"{_ms(result.before_ms)} to {_ms(result.after_ms)} ms"
        output.note(
            f"{len(results)} of {len(kernels)} {result.kernel}: {times}, "
            f"about {seconds_each * (len(kernels) - len(results)):.0f} s left"
        )
    document = {"database": str(args.output), "kernels": [vars(r) for r in results]}
    rows = [(r.kernel, _ms(r.before_ms), _ms(r.after_ms), r.tried, r.note) for r in results]
    columns = ("kernel", "before ms", "after ms", "tried", "note")
    table = Table(f"{args.output}: {counted(len(results), 'kernel')}", columns, rows)
    output.emit(args.format, document, [table])


def _ms(value: float | None) -> str:
    return "-" if value is None else digits(value)
