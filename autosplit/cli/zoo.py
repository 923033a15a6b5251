"""Make well-known nets as ONNX files, offline: real structures with seeded random weights.

  autosplit zoo list                                list the nets
  autosplit zoo make squeezenet -o squeezenet.onnx  write one as an ONNX file

Needs the onnx package: pip install 'autosplit[onnx]'
"""

from __future__ import annotations

import argparse
from pathlib import Path

from autosplit.cli import options, output
from autosplit.errors import ConfigError
from autosplit.files import sha256
from autosplit.zoo import catalog

HELP = "make a well-known net as an ONNX file, offline, with random weights"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add what to do, the net, the file and the seed."""
    parser.add_argument("action", choices=("list", "make"), help="list the nets, or make one")
    parser.add_argument(
        "name", nargs="?", metavar="NAME", help="the net to make; `autosplit zoo list` names them"
    )
    options.add(parser, options.output("FILE", "the ONNX file to write (default: NAME.onnx)"))
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        help="seed of the weights; the same seed makes the same file (default: 0)",
    )


def run(args: argparse.Namespace) -> int:
    """Print the nets, or make one and print its path, size and sha256."""
    if args.action == "list":
        if args.name or args.output:
            raise ConfigError(
                "zoo list takes no NAME and no -o; to write a net: autosplit zoo make NAME -o FILE"
            )
        return _list(args.format)
    if not args.name:
        raise ConfigError(f"zoo make needs a NAME; give one of {', '.join(catalog.EVERY)}")
    return _make(args.name, args.output or Path(f"{args.name}.onnx"), args.seed, args.format)


def _list(form: str) -> int:
    nets = [catalog.describe(name) for name in catalog.EVERY]
    if form == "json":
        output.emit_json([_document(net) for net in nets])
        return 0
    rows = [
        (n.name, _text(n.inputs), _text(n.outputs), n.nodes, f"{n.weight_bytes / 1e6:.1f}")
        for n in nets
    ]
    output.emit_table("", ("net", "inputs", "outputs", "nodes", "weights MB"), rows)
    return 0


def _make(name: str, file: Path, seed: int, form: str) -> int:
    path = catalog.write(name, file, seed)
    net = catalog.describe(name)
    size = path.stat().st_size
    digest = sha256(path)
    if form == "json":
        output.emit_json(
            {**_document(net), "seed": seed, "path": str(path), "bytes": size, "sha256": digest}
        )
        return 0
    output.emit_line(f"{path}: {name} with seed {seed}, {net.nodes} nodes, {size / 1e6:.1f} MB")
    output.emit_line(f"inputs: {_text(net.inputs)}")
    output.emit_line(f"outputs: {_text(net.outputs)}")
    output.emit_line(f"sha256: {digest}")
    return 0


def _document(net: catalog.Net) -> dict[str, object]:
    return {
        "name": net.name,
        "inputs": _ports(net.inputs),
        "outputs": _ports(net.outputs),
        "nodes": net.nodes,
        "weight_bytes": net.weight_bytes,
    }


def _ports(values: tuple[tuple[str, tuple[int, ...]], ...]) -> list[dict[str, object]]:
    return [{"name": name, "shape": shape, "dtype": "float32"} for name, shape in values]


def _text(values: tuple[tuple[str, tuple[int, ...]], ...]) -> str:
    return ", ".join(f"{name} {'x'.join(map(str, shape))}" for name, shape in values)
