"""Take a convex set of fused ops out of a model: a library that runs by itself, its manifest, an ONNX submodel.

autosplit extract net.onnx --from conv3_1 --to conv3_relu -o block.so   all ops on a path between the two
autosplit extract net.onnx --ops conv1,relu1 -o block.so                just these

Written are block.so, block.json (which `autosplit verify` and autosplit.load take) and, where the tensors at its
boundary exist in the ONNX graph, block.onnx.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from autosplit.cli import options, output

HELP = "take a block of fused ops out of a model, as a library and as ONNX"


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    options.add_model(parser)
    options.add_runtime(parser)
    parser.add_argument(
        "--from",
        dest="first",
        action="append",
        metavar="OP",
        help="where the block starts; repeatable",
    )
    parser.add_argument(
        "--to", dest="last", action="append", metavar="OP", help="where the block ends; repeatable"
    )
    parser.add_argument(
        "--ops", action="append", metavar="OP[,OP]", help="the ops or source nodes of the block"
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help="the library to write; without it, only show",
    )


def run(args: argparse.Namespace) -> int:
    """Extract, write, print."""
    from autosplit.errors import ConfigError
    from autosplit.report.documents import part as part_document

    if not (args.ops or (args.first and args.last)) or (args.ops and (args.first or args.last)):
        raise ConfigError("extract needs --from OP and --to OP, or --ops OP,OP")
    model = options.load_model(args)
    ops, first, last = (
        [n for text in given or () for n in options.names(text, model.graph)]
        for given in (args.ops, args.first, args.last)
    )
    part = model.extract(ops, first=first, last=last)
    found = part_document.document(part, part.export(args.output) if args.output else None)
    if args.format == "json":
        output.emit_json(found)
        return 0
    title = f"{found['model']}: {len(found['ops'])} fused ops: {', '.join(op['name'] for op in found['ops'])}"
    output.emit_table(title, ("", "tensor", "shape", "dtype", "bytes"), part_document.rows(found))
    for key in ("file", "manifest", "onnx"):
        if found[key]:
            output.emit_line(found[key])
    if found["onnx_absent"]:
        output.emit_line(f"no ONNX submodel: {found['onnx_absent']}")
    return 0
