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
from autosplit.deploy.targets.formats import NATIVE
from autosplit.errors import ConfigError

OPTIONS = (
    *options.of(
        """
        --after NODE[,NODE] ...  source nodes, modules or fused ops before the cut; one --after a
                           cut, in order
        --replicas R[,R]   replicas of each stage, which take items in turn (default: 1)
        -o, --output DIR   folder to write split.json and the stages into
        --devices DEVICES  one device per replica, e.g. 'cores:0 cores:1' (default: one core per
                           replica)
        """,
        {"replicas": {"default": ()}},
    ),
    *options.MODEL,
    *options.RUNTIME,
    *options.TOLERANCE,
    *options.TARGET,
)


def run(args: argparse.Namespace) -> None:
    """Cut, write, print."""
    from autosplit.report.documents import manual_split

    if not args.after and not args.replicas:
        raise ConfigError("--after is missing; name the ops before the cut, or give --replicas")
    if not args.output and (args.devices or args.no_onnx or args.target_format != NATIVE):
        raise ConfigError("--devices, --format and --no-onnx need --output DIR; give it too")
    model = options.load_model(args)
    after = [options.names(text, model.graph) for text in args.after]
    split = model.split(after, args.replicas)
    file = None
    if args.output:
        devices = options.devices(args.devices)
        file = split.export(args.output, devices, args.target_format, onnx=not args.no_onnx)
    document = manual_split.document(split, after) | {"file": str(file) if file else None}
    output.emit(args.format, document, manual_split.shown(document, file))
