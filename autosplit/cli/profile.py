"""Time every fused op of a model on devices, inside the whole model.

The slowest op comes first. Profiles are cached, each by itself; --force measures again. With
--runtime auto there is one for each runtime that can compute the model.

autosplit profile net.onnx --device cores:0
autosplit profile net.onnx --runtime auto --device cores:0 --device cores:0-1   with 1 and 2 threads
autosplit profile net.onnx --device rpc:192.168.0.7:9090                        on a TVM RPC server
"""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING, Any

from autosplit.cli import options, output
from autosplit.errors import ConfigError
from autosplit.graph import op_title
from autosplit.units import digits, milliseconds

if TYPE_CHECKING:
    from autosplit.graph import FusedGraph
    from autosplit.hardware.measurement.results import Profile

HELP = "time every fused op, in each runtime and on each device"


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    options.add(parser, *options.MODEL, options.RUNTIME)
    parser.add_argument(
        "--device",
        action="append",
        default=[],
        help="device to measure, e.g. cores:0 or cores:0-1 (default: the first core); repeatable",
    )
    parser.add_argument(
        "--seconds", type=options.seconds, default=2.0, help="time to measure (default 2)"
    )
    parser.add_argument(
        "--force", action="store_true", help="measure again even if the profile is cached"
    )


def run(args: argparse.Namespace) -> int:
    """Print the profiles."""
    from autosplit.hardware.devices import device as devices
    from autosplit.hardware.measurement.results import left_out

    model = options.load_model(args)
    places = devices.along(len(args.device) or 1, args.device)
    profiles = model.profiles(places, args.seconds, args.force)
    names = [op.name for op in model.graph.ops]
    measured = [_document(profile, names) for profile in profiles if profile.is_possible]
    if not measured:
        raise ConfigError(f"no runtime can compute '{model.graph.name}': {profiles[0].note}")
    if args.format == "json":
        fastest = min(measured, key=lambda document: document["total_ms"])
        output.emit_json({"model": model.graph.name, **fastest, "profiles": measured})
    elif len(measured) == 1:
        _print_one(model.graph, measured[0])
    else:
        _print_several(model.graph, measured)
    for line in filter(None, (*left_out(profiles), *(profile.doubt for profile in profiles))):
        output.note(line)
    return 0


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


def _print_one(graph: FusedGraph, profile: dict[str, Any]) -> None:
    rows = []
    for op in sorted(profile["ops"], key=lambda op: -op["ms"]):
        share = 100 * op["ms"] / (profile["total_ms"] or 1)
        name = op_title(graph.ops[graph.index[op["name"]]])
        rows.append((name, digits(op["ms"]), digits(op["spread_ms"]), f"{share:.1f}"))
    where = f"{profile['runtime']} on {profile['device']}"
    title = f"{graph.name} in {where}: {milliseconds(profile['total_ms'])} in {len(rows)} fused ops"
    output.emit_table(title, ("fused op", "ms", "± ms", "%"), rows)


def _print_several(graph: FusedGraph, profiles: list[dict[str, Any]]) -> None:
    """A column of times for each runtime on each device; shares are those of the fastest."""
    columns = [f"{p['runtime']}, {p['device']}, ms" for p in profiles]
    fastest = min(profiles, key=lambda profile: profile["total_ms"])
    total = fastest["total_ms"] or 1
    rows = [("all", "100.0", *(digits(p["total_ms"]) for p in profiles))]
    for op in sorted(range(len(fastest["ops"])), key=lambda op: -fastest["ops"][op]["ms"]):
        name, ms = op_title(graph.ops[op]), fastest["ops"][op]["ms"]
        share = "" if math.isinf(total) else f"{100 * ms / total:.1f}"
        rows.append((name, share, *(digits(p["ops"][op]["ms"]) for p in profiles)))
    share_title = f"% of {fastest['runtime']}"
    output.emit_table(
        f"{graph.name}: {len(rows) - 1} fused ops", ("fused op", share_title, *columns), rows
    )
