"""Measure an exported split: period, latency, and how long each replica works for a result.

autosplit bench out/ --seconds 10
autosplit bench out/ --timeline run.svg     draw when each stage computed which item
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from autosplit.cli import options, output

HELP = "measure an exported split"


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    options.add_export(parser)
    parser.add_argument(
        "--seconds", type=options.seconds, default=5.0, help="longest time to measure (default 5)"
    )
    parser.add_argument(
        "--timeline",
        type=Path,
        metavar="FILE",
        help="draw the first items as FILE, an .svg or .png",
    )


def run(args: argparse.Namespace) -> int:
    """Print the measurement."""
    from autosplit.deploy.verify import bench
    from autosplit.hardware.execution.engine import replica_name
    from autosplit.hardware.measurement.measure import Budget
    from autosplit.report.drawing import timeline

    if args.timeline:
        # Before the measurement: a misspelt suffix should not cost its seconds.
        timeline.check(args.timeline)
    result = bench(args.folder, Budget(seconds=args.seconds))
    if args.timeline:
        timeline.write(result.events, result.devices, args.timeline)
    period, latency = result.period, result.latency
    if args.format == "json":
        output.emit_json(
            {
                "period_ms": {"median": period.median, "low": period.low, "high": period.high},
                "latency_ms": {"median": latency.median, "low": latency.low, "high": latency.high},
                "stages": list(map(_stage, result.busy_ms, result.devices)),
            }
        )
        return 0
    rows = []
    for stage, busy_ms in enumerate(result.busy_ms):
        for number, ms in enumerate(busy_ms):
            name = replica_name(stage, number, len(busy_ms))
            rows.append((name, f"{ms:.3f}", f"{100 * ms / period.median:.1f}"))
    title = (
        f"period {period.median:.3f} ms ({period.low:.3f} to {period.high:.3f}), "
        f"{1e3 / period.median:.2f} items/s, latency {latency.median:.3f} ms"
    )
    output.emit_table(title, ("stage", "busy ms", "% of the period"), rows)
    return 0


def _stage(busy_ms: Sequence[float], devices: Sequence[object]) -> dict[str, Any]:
    """The time of an item in a stage, and what each replica works of it."""
    pairs = zip(devices, busy_ms, strict=True)
    replicas = [{"device": str(device), "busy_ms": ms} for device, ms in pairs]
    return {"busy_ms": sum(busy_ms), "replicas": replicas}
