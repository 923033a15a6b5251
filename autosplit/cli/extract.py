"""Write a convex set of fused ops of a model as a library that runs by itself.

autosplit extract net.onnx --from conv3_1 --to conv3_relu -o block.so   all ops between
autosplit extract net.onnx --ops conv1,relu1 -o block.so                only these

The command writes block.so, the manifest block.json, which `autosplit verify` and autosplit.load
read, and block.onnx if the tensors at the boundary exist in the ONNX graph.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from autosplit.cli import options, output

if TYPE_CHECKING:
    from autosplit.api import Model

HELP = "write a block of fused ops of a model as a library and as ONNX"


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    options.add(parser, *options.MODEL, options.RUNTIME)
    parser.add_argument(
        "--from",
        dest="first",
        action="append",
        metavar="OP",
        help="first op of the block; repeatable",
    )
    parser.add_argument(
        "--to", dest="last", action="append", metavar="OP", help="last op of the block; repeatable"
    )
    parser.add_argument(
        "--ops", action="append", metavar="OP[,OP]", help="ops or source nodes of the block"
    )
    options.add(
        parser, options.output("FILE", "library to write; without it the block is only shown")
    )


def run(args: argparse.Namespace) -> int:
    """Extract, write, print."""
    from autosplit.errors import ConfigError
    from autosplit.report.documents import part as part_document

    # argparse has no groups in which two options go together against a third.
    if not (args.ops or (args.first and args.last)) or (args.ops and (args.first or args.last)):
        raise ConfigError("extract needs --from OP and --to OP, or --ops OP,OP")
    model = options.load_model(args)
    ops, first, last = (_names(texts, model) for texts in (args.ops, args.first, args.last))
    part = model.extract(ops, first=first, last=last)
    manifest = part.export(args.output) if args.output else None
    document = part_document.document(part, manifest)
    if args.format == "json":
        output.emit_json(document)
        return 0
    op_names = ", ".join(op["name"] for op in document["ops"])
    title = f"{document['model']}: {len(document['ops'])} fused ops: {op_names}"
    columns = ("", "tensor", "shape", "dtype", "size")
    output.emit_table(title, columns, part_document.rows(document))
    for key in ("file", "manifest", "onnx"):
        if document[key]:
            output.emit_line(document[key])
    if document["onnx_absent"]:
        output.emit_line(f"no ONNX submodel: {document['onnx_absent']}")
    return 0


def _names(texts: list[str] | None, model: Model) -> list[str]:
    names: list[str] = []
    for text in texts or ():
        names += options.names(text, model.graph)
    return names
