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
from autosplit.errors import ConfigError
from autosplit.hardware.devices import device

OPTIONS = (
    *options.of("""
        --node NAME   print only which fused op this source node is in
        --folded      list the source nodes that left no op
        --profile     time each op on one core, or take a known profile
    """),
    *options.MODEL,
)


def run(args: argparse.Namespace) -> None:
    """Print the graph, or the place of one node."""
    from autosplit.report.documents import inspection

    if args.node is not None and (args.folded or args.profile):
        raise ConfigError("--folded and --profile are for the whole graph; leave --node out")
    model = options.load_model(args)
    if args.node is not None:
        place = inspection.find(model.graph, args.node)
        output.emit(args.format, place, inspection.sentence(place))
        return
    document = inspection.document(model)
    if args.profile:
        document["op_ms"] = list(model.profile(device.along(1)[0]).op_ms)
    output.emit(args.format, document, inspection.shown(document, model.graph, args.folded))
