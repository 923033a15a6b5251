"""Show the fused ops of a model, their source nodes and tensors, and the number of legal cuts.

autosplit inspect net.onnx                    one op per line
autosplit inspect net.onnx --node conv3_relu  which fused op a node is in
autosplit inspect net.onnx --profile          with the time of each op on one core
autosplit inspect net.onnx -f json            everything, for programs

A kernel that no rule schedules runs as TVM lowered it, which is slow: the last lines (in JSON
`unscheduled`) name such kernels. `autosplit tune` finds schedules for them.
"""

from __future__ import annotations

import argparse

from autosplit.cli import options, output
from autosplit.hardware.devices import device
from autosplit.units import counted

HELP = "show fused ops, source nodes, tensors and the number of legal cuts"


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    options.add(parser, *options.MODEL)
    parser.add_argument(
        "--node", metavar="NAME", help="print only which fused op this source node is in"
    )
    parser.add_argument(
        "--folded", action="store_true", help="list the source nodes that left no op"
    )
    parser.add_argument(
        "--profile", action="store_true", help="time each op on one core, or take a known profile"
    )


def run(args: argparse.Namespace) -> int:
    """Print the graph, or the place of one node."""
    from autosplit.report.documents import inspection

    model = options.load_model(args)
    if args.node is not None:
        place = inspection.find(model.graph, args.node)
        output.emit(args.format, place, inspection.sentence(place))
        return 0
    document = inspection.document(model)
    op_ms: tuple[float, ...] = ()
    if args.profile:
        op_ms = model.profile(device.along(1)[0]).op_ms
        document["op_ms"] = list(op_ms)
    if args.format == "json":
        output.emit_json(document)
        return 0
    columns: tuple[str, ...] = ("#", "fused op", "source nodes", "reads", "makes", "shape", "size")
    columns += ("ms",) if op_ms else ()
    output.emit_line(inspection.title(document))
    for line in inspection.ports(document):
        output.emit_line(line)
    output.emit_table("", columns, inspection.rows(model.graph, op_ms))
    for line in inspection.state_lines(document):
        output.emit_line(line)
    for op in model.graph.ops:
        if op.opaque:
            output.emit_line(
                f"opaque: {op.name} ({op.opaque}; its stage needs onnxruntime or OpenVINO)"
            )
    for folded in document["folded"] if args.folded else ():
        output.emit_line(f"folded: {folded['name']} ({folded['reason']})")
    if document["folded"] and not args.folded:
        count = counted(len(document["folded"]), "source node")
        output.emit_line(f"folded: {count} left no op; --folded lists them")
    for kernel in document["unscheduled"]:
        ops = [op["name"] for op in document["ops"] if op["kernel"] == kernel]
        output.emit_line(f"no schedule: {kernel} ({', '.join(ops)})")
    return 0
