"""Time every fused op of a model on devices, inside the whole model.

The slowest op comes first. Each profile is cached; --force measures again. With --runtime auto
there is one for each runtime that can compute the model.

autosplit profile net.onnx --device cores:0
autosplit profile net.onnx --runtime auto --device cores:0 --device cores:0-1   with 1 and 2 threads
autosplit profile net.onnx --device rpc:192.168.0.7:9090                        on a TVM RPC server
"""

from __future__ import annotations

import argparse
import math
from typing import Any

from autosplit.cli import options, output
from autosplit.errors import ConfigError
from autosplit.graph import FusedGraph, op_title
from autosplit.hardware.devices import device
from autosplit.hardware.measurement.results import Profile, doubts, left_out
from autosplit.report.documents.table import Table
from autosplit.units import counted, digits, milliseconds

OPTIONS = (
    *options.of("""
        --device DEVICE ...  device to measure, such as cores:0-1 (default: the first core)
        --seconds S          time to measure [default: 2.0]
        --force              measure again even if the profile is cached
    """),
    *options.MODEL,
    *options.RUNTIME,
)


def run(args: argparse.Namespace) -> None:
    """Print the profiles."""
    model = options.load_model(args)
    places = device.along(len(args.device) or 1, args.device)
    profiles = model.profiles(places, args.seconds, args.force)
    names = [op.name for op in model.graph.ops]
    measured = [_document(profile, names) for profile in profiles if profile.is_possible]
    if not measured:
        raise ConfigError(f"no runtime can compute '{model.graph.name}': {profiles[0].note}")
    fastest = min(measured, key=lambda document: document["total_ms"])
    document = {"model": model.graph.name, **fastest, "profiles": measured}
    output.emit(args.format, document, [_table(model.graph, measured, fastest)])
    for line in (*left_out(profiles), *doubts(profiles)):
        output.note(line)


def _document(profile: Profile, names: list[str]) -> dict[str, Any]:
    times = zip(names, profile.op_ms, profile.spread_ms, strict=True)
    return {
        "device": profile.device,
        "runtime": profile.runtime,
        "total_ms": sum(profile.op_ms),
        "measured_at": profile.measured_at,
        "load": profile.load,
        "disturbances": profile.disturbances,
        "ops": [{"name": name, "ms": ms, "spread_ms": half} for name, ms, half in times],
    }


def _table(graph: FusedGraph, profiles: list[dict[str, Any]], fastest: dict[str, Any]) -> Table:
    """One row per op, the slowest first, with its time in each runtime on each device.

    Percentages are those of the fastest profile.
    """
    total, count = fastest["total_ms"] or 1, counted(len(graph.ops), "fused op")
    columns = ["fused op", "%", "ms", "± ms"]
    title = f"{graph.name} in {fastest['runtime']} on {fastest['device']}: "
    title += f"{milliseconds(total)} in {count}"
    if len(profiles) > 1:
        columns = ["fused op", f"% of {fastest['runtime']}"]
        columns += [f"{p['runtime']}, {p['device']}, ms" for p in profiles]
        title = f"{graph.name}: {count}"
    rows = []
    for op in sorted(range(len(graph.ops)), key=lambda op: -fastest["ops"][op]["ms"]):
        times = [p["ops"][op]["ms"] for p in profiles]
        if len(profiles) == 1:
            times.append(fastest["ops"][op]["spread_ms"])
        share = 100 * fastest["ops"][op]["ms"] / total
        shown = "" if math.isnan(share) else f"{share:.1f}"
        rows.append((op_title(graph.ops[op]), shown, *map(digits, times)))
    if len(profiles) > 1:
        rows.insert(0, ("all", "100.0", *(digits(p["total_ms"]) for p in profiles)))
    return Table(title, columns, rows)
