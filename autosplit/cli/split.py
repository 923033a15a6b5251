"""Split a model by hand: each --after names the source nodes or fused ops before that cut.

autosplit split net.onnx --after conv3_relu --after pool5,branch_add -o out/
autosplit split net.onnx --after conv3_relu --replicas 1,2 -o out/     the second stage twice

Each cut is the smallest one that contains the named ops, all ops they depend on, and the previous
cut. The command prints the ops that this adds to the named ones, and the tensors that cross the
cut. With -o the split is compared with the original model, and written if the outputs are equal.
"""

from __future__ import annotations

import argparse

from autosplit.cli import options, output
from autosplit.errors import ConfigError

HELP = "cut a model by hand, show what crosses the cuts, write the stages"


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    options.add(parser, *options.MODEL, options.RUNTIME, options.TOLERANCE)
    parser.add_argument(
        "--after",
        action="append",
        default=[],
        metavar="NODE[,NODE]",
        help="source nodes, modules or fused ops before the cut; once per cut, in order",
    )
    parser.add_argument(
        "--replicas",
        type=options.replicas,
        default=(),
        metavar="R[,R]",
        help="replicas of each stage, which take items in turn (default: 1)",
    )
    options.add(
        parser,
        options.output("DIR", "folder to write split.json and the stages into"),
        *options.TARGET,
    )
    parser.add_argument(
        "--devices",
        help="one device per replica, e.g. 'cores:0 cores:1' (default: one core per replica)",
    )


def run(args: argparse.Namespace) -> int:
    """Cut, write, print."""
    from autosplit.report.documents import exported, manual_split

    if not args.after and not args.replicas:
        raise ConfigError("--after is missing; name the ops before the cut, or give --replicas")
    model = options.load_model(args)
    after = [options.names(text, model.graph) for text in args.after]
    split = model.split(after, args.replicas)
    document = manual_split.document(split, after)
    file = None
    if args.output:
        devices = options.devices(args.devices)
        file = split.export(args.output, devices, args.target_format, onnx=not args.no_onnx)
    if args.format == "json":
        output.emit_json(document | {"file": str(file) if file else None})
        return 0
    columns = ("tensor", "shape", "dtype", "size", "made by", "read by")
    for cut in document["cuts"]:
        output.emit_table(manual_split.title(cut), columns, manual_split.rows(document, cut))
    for stage in document["stages"]:
        output.emit_line(manual_split.stage_line(stage))
    if file:
        for line in exported.lines(file):
            output.emit_line(line)
    return 0
