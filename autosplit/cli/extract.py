"""Write a convex set of fused ops of a model as a library that runs by itself.

autosplit extract net.onnx --from conv3_1 --to conv3_relu -o block.so   all ops between
autosplit extract net.onnx --ops conv1,relu1 -o block.so                only these

The command writes block.so, the manifest block.json, which `autosplit verify` and autosplit.load
read, and block.onnx if the tensors at the boundary exist in the ONNX graph.
"""

from __future__ import annotations

import argparse

from autosplit.cli import options, output
from autosplit.errors import ConfigError

OPTIONS = (
    *options.of(
        """
        --from OP ...        first op of the block
        --to OP ...          last op of the block
        --ops OP[,OP] ...    ops or source nodes of the block
        -o, --output FILE    library to write; without it the block is only shown
        """,
        {"from": {"dest": "first"}, "to": {"dest": "last"}},
    ),
    *options.MODEL,
    *options.RUNTIME,
)


def run(args: argparse.Namespace) -> None:
    """Extract, write, print."""
    from autosplit.report.documents import part as documents

    # argparse cannot express two options that belong together and exclude a third.
    if not (args.ops or (args.first and args.last)) or (args.ops and (args.first or args.last)):
        raise ConfigError("extract needs --from OP and --to OP, or --ops OP,OP")
    model = options.load_model(args)
    ops, first, last = (
        [name for text in texts for name in options.names(text, model.graph)]
        for texts in (args.ops, args.first, args.last)
    )
    part = model.extract(ops, first=first, last=last)
    manifest = part.export(args.output) if args.output else None
    document = documents.document(part, manifest)
    output.emit(args.format, document, documents.shown(document))
