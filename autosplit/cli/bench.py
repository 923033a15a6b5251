"""Measure an exported split: period, latency, and busy time of each stage.

autosplit bench out/ --seconds 10
autosplit bench out/ --timeline run.svg     draw when each stage computed which item
"""

from __future__ import annotations

import argparse
from pathlib import Path

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
    from autosplit.hardware.measurement.measure import Budget
    from autosplit.report.drawing import timeline

    if args.timeline:
        # Before the measurement: a misspelt suffix should not cost its seconds.
        timeline.check(args.timeline)
    result = bench(args.folder, Budget(seconds=args.seconds))
    if args.timeline:
        timeline.write(result.events, tuple(map(str, result.devices)), args.timeline)
    period, latency = result.period, result.latency
    if args.format == "json":
        output.emit_json(
            {
                "period_ms": {"median": period.median, "low": period.low, "high": period.high},
                "latency_ms": {"median": latency.median, "low": latency.low, "high": latency.high},
                "stages": [{"busy_ms": ms} for ms in result.busy_ms],
            }
        )
        return 0
    rows = []
    for index, ms in enumerate(result.busy_ms):
        rows.append((f"stage {index}", f"{ms:.3f}", f"{100 * ms / period.median:.1f}"))
    title = (
        f"period {period.median:.3f} ms ({period.low:.3f} to {period.high:.3f}), "
        f"{1e3 / period.median:.2f} items/s, latency {latency.median:.3f} ms"
    )
    output.emit_table(title, ("stage", "busy ms", "% of the period"), rows)
    return 0
