"""Make well-known nets as ONNX files, offline: real structures with seeded random weights.

  autosplit zoo list                                list the nets
  autosplit zoo make squeezenet -o squeezenet.onnx  write one as an ONNX file

Needs the onnx package: pip install 'autosplit[onnx]'
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from autosplit.cli import options, output
from autosplit.errors import ConfigError
from autosplit.files import sha256
from autosplit.report.documents.table import Table
from autosplit.units import size
from autosplit.zoo import catalog

OPTIONS = options.of(
    """
    ACTION            list the nets, or make one
    NAME              the net to make; `autosplit zoo list` names them
    -o, --output FILE  the ONNX file to write (default: NAME.onnx)
    --seed N          seed of the weights; the same seed makes the same file [default: 0]
    """,
    {
        "action": {"choices": ("list", "make"), "metavar": "list|make"},
        "name": {"nargs": "?", "metavar": "[NAME]"},
    },
)


def run(args: argparse.Namespace) -> None:
    """Print the nets, or make one and print its path, size and sha256."""
    if args.action == "list":
        if args.name or args.output:
            raise ConfigError(
                "zoo list takes no NAME and no -o; to write a net: autosplit zoo make NAME -o FILE"
            )
        nets = [catalog.describe(name) for name in catalog.EVERY]
        rows = [
            (n.name, _text(n.inputs), _text(n.outputs), n.nodes, f"{n.weight_bytes / 1e6:.1f}")
            for n in nets
        ]
        table = Table("", ("net", "inputs", "outputs", "nodes", "weights MB"), rows)
        output.emit(args.format, nets, [table])
        return
    if not args.name:
        raise ConfigError(f"zoo make needs a NAME; give one of {', '.join(catalog.EVERY)}")
    file = args.output or Path(f"{args.name}.onnx")
    path = catalog.write(args.name, file, args.seed, replaces=bool(args.output))
    net, count, digest = catalog.describe(args.name), path.stat().st_size, sha256(path)
    written = {"seed": args.seed, "file": str(path), "bytes": count, "sha256": digest}
    written["path"] = written["file"]  # its name until 0.3.0
    lines = [
        f"{path}: {net.name} with seed {args.seed}, {net.nodes} nodes, {size(count)}",
        f"inputs: {_text(net.inputs)}",
        f"outputs: {_text(net.outputs)}",
        f"sha256: {digest}",
    ]
    output.emit(args.format, asdict(net) | written, lines)


def _text(values: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(f"{value['name']} {'x'.join(map(str, value['shape']))}" for value in values)
