"""Measure an exported split: period, latency, and how long each replica works for a result.

autosplit bench out/ --seconds 10
autosplit bench out/ --rate 100             latencies when 100 items per second arrive (open load)
autosplit bench out/ --p99 20               the goodput: the greatest rate with p99 within 20 ms
autosplit bench out/ --trace run.json       when each stage computed which item, for Perfetto
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from autosplit.cli import options, output
from autosplit.errors import ConfigError
from autosplit.extras import require
from autosplit.files import atomic_write, require_other
from autosplit.hardware.measurement.results import LoadTest, Spread
from autosplit.report.documents.table import Table
from autosplit.units import between, digits, milliseconds

if TYPE_CHECKING:
    from autosplit.deploy.verify import BenchResult
    from autosplit.hardware.execution.stage_spec import StageSpec

_LATENCY_ITEMS = 20
OPTIONS = (
    *options.of("""
        --seconds S    longest time to measure; under load, the time for each rate, extended until
                       1,000 items have come [default: 5.0]
        --chart FILE   draw the latency against the rate, as SVG
        --streams N    streams whose items come in turn (default: as many as the export is for)
        --trace FILE   write the run as a Chrome or Perfetto trace
    """),
    *options.EXPORT,
    *options.WORKLOAD,
)


def run(args: argparse.Namespace) -> None:
    """Print the measurement."""
    from autosplit.deploy import manifest_file
    from autosplit.deploy.verify import bench
    from autosplit.hardware.measurement.measure import Budget
    from autosplit.report import trace

    workload = options.workload(args)
    if args.chart and workload is None:
        raise ConfigError("--chart draws latencies under load; give --rate or --p99 too")
    if args.chart:
        require("optuna", "all")  # for the chart, before anything is measured
    manifest = manifest_file.locate(args.folder)
    for file in filter(None, (args.trace, args.chart)):
        files = manifest_file.read(args.folder).files
        require_other(file, manifest, *(manifest.parent / name for name in files))
    budget = Budget(seconds=args.seconds, latency_items=_LATENCY_ITEMS)
    result = bench(args.folder, budget, workload, args.streams)
    document = {
        **(_under_load(result.load, args.rate) if result.load else {}),
        "period_ms": _distribution(result.period, result.gaps),
        "latency_ms": _distribution(result.latency, result.latency.samples),
        "items": result.items,
        "warm_up": result.warm_up,
        "stages": list(map(_stage, result.busy_ms, result.devices, result.wiring.stages)),
        "disturbances": result.disturbances,
    }
    # First, since a file that cannot be written must not cost the measurement.
    output.emit(args.format, document, _shown(result))
    if args.trace:
        names = [list(map(str, devices)) for devices in result.devices]
        trace.write(result.events, result.submitted, result.wiring, names, args.trace)
    if args.chart and result.load:
        from autosplit.report.drawing.charts import latency_rate

        with atomic_write(args.chart) as temporary:
            temporary.write_bytes(latency_rate({"": result.load}).draw().render())


def _shown(result: BenchResult) -> Iterator[str | Table]:
    """The lines and tables of the measurement."""
    from autosplit.hardware.execution.engine import replica_name

    period, latency, load = result.period, result.latency, result.load
    rows = []
    for stage, busy_ms in enumerate(result.busy_ms):
        for number, ms in enumerate(busy_ms):
            name = replica_name(stage, number, len(busy_ms))
            share = f"{100 * ms / period.median:.1f}"
            rows.append((name, result.wiring.stages[stage].runtime, digits(ms), share))
    title = (
        f"period {milliseconds(period.median)}{between(period.low, period.high)}, "
        f"{digits(1e3 / period.median)} items/s, latency {milliseconds(latency.median)}"
    )
    yield Table(title, ("stage", "runtime", "busy ms", "% of the period"), rows)
    samples = {"between results": result.gaps, "latency": latency.samples}
    percentiles = [(n, *map(digits, _percentiles(s).values())) for n, s in samples.items()]
    title = f"{result.items} items after {result.warm_up} to warm up; "
    title += f"latency of {len(latency.samples)} single items"
    yield Table(title, ("ms", "min", "p50", "p90", "p99", "max"), percentiles)
    if load:
        yield from filter(None, (*(point.text for point in load.points), load.text))
    if result.disturbances:
        yield f"not to be trusted: {'; '.join(result.disturbances)}"


def _under_load(load: LoadTest, rate: float | None) -> dict[str, Any]:
    """The requested rate, or else the goodput, with its latencies; and the whole load test."""
    point = load.at(rate)
    return {
        "rate": point and point.rate,
        "goodput": load.goodput,
        "p50_ms": point and point.quantiles_ms["p50"].median,
        "p99_ms": point and point.quantiles_ms["p99"].median,
        "load": asdict(load),
    }


def _percentiles(samples: Sequence[float]) -> dict[str, float]:
    shares = {"min": 0, "p50": 50, "p90": 90, "p99": 99, "max": 100}
    return dict(zip(shares, np.percentile(samples, list(shares.values())).tolist(), strict=True))


def _distribution(spread: Spread, samples: Sequence[float]) -> dict[str, float]:
    """A median with its interval, and the percentiles of single values."""
    interval = {"median": spread.median, "low": spread.low, "high": spread.high}
    return interval | _percentiles(samples)


def _stage(busy_ms: Sequence[float], devices: Sequence[object], spec: StageSpec) -> dict[str, Any]:
    """The busy time per item of a stage, and the part of each replica in it."""
    pairs = zip(devices, busy_ms, strict=True)
    replicas = [{"device": str(device), "busy_ms": ms} for device, ms in pairs]
    return {"runtime": spec.runtime, "busy_ms": sum(busy_ms), "replicas": replicas}
