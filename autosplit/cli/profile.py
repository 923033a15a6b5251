"""Time every fused op of a model on a device, inside the whole model.

Profiles are cached; --force measures again.

autosplit profile net.onnx --device cores:0
autosplit profile net.onnx --device rpc:192.168.0.7:9090    on a TVM RPC server
"""

from __future__ import annotations

import argparse
from typing import Any

from autosplit.cli import options, output

HELP = "time every fused op on a device"


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    options.add_model(parser)
    options.add_runtime(parser)
    parser.add_argument(
        "--device", help="device to measure, e.g. cores:0 (default: the first core)"
    )
    parser.add_argument(
        "--seconds", type=options.seconds, default=2.0, help="time to measure (default 2)"
    )
    parser.add_argument(
        "--force", action="store_true", help="measure again even if the profile is cached"
    )


def run(args: argparse.Namespace) -> int:
    """Print the profile."""
    from autosplit.hardware.devices import device as devices
    from autosplit.report.documents.inspection import tuning_hint

    model = options.load_model(args)
    device = devices.parse(args.device) if args.device else devices.along(1)[0]
    measured = model.profile(device, args.seconds, args.force)
    total = sum(measured.op_ms)
    times = zip(model.graph.ops, measured.op_ms, measured.spread_ms, strict=True)
    ops: list[dict[str, Any]] = [
        {"name": op.name, "ms": ms, "spread_ms": half} for op, ms, half in times
    ]
    if args.format == "json":
        facts = {"model": model.graph.name, "device": measured.device, "total_ms": total}
        output.emit_json(facts | {"ops": ops})
        return 0
    rows = []
    for op in ops:
        share = 100 * op["ms"] / (total or 1)
        rows.append((op["name"], f"{op['ms']:.4f}", f"{op['spread_ms']:.4f}", f"{share:.1f}"))
    title = f"{model.graph.name} on {measured.device}: {total:.3f} ms in {len(rows)} fused ops"
    output.emit_table(title, ("fused op", "ms", "± ms", "%"), rows)
    hint = tuning_hint(model.runtime.untuned(device))
    if hint:
        output.emit_line(hint)
    return 0
