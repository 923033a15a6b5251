"""Compare an exported split with onnxruntime on the original model.

Without the model or without onnxruntime, the outputs recorded at export are the judge. Exit code 1 where outputs differ.

  autosplit verify out/
  autosplit verify out/ --model net.onnx --items 10
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

from autosplit.cli import output

HELP = "compare an exported split with onnxruntime"


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("folder", type=Path, metavar="DIR", help="a folder that `export` wrote")
    parser.add_argument(
        "--model", type=Path, metavar="FILE", help="the original model, where it lies elsewhere now"
    )
    parser.add_argument(
        "--items", type=int, default=3, help="how many random items to compare (default 3)"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the random items")


def run(args: argparse.Namespace) -> int:
    """Print the errors found."""
    from autosplit.deploy.verify import verify

    found, judge = verify(args.folder, args.model, args.items, args.seed)
    word = "equal" if found.equal else "DIFFERENT"
    output.emit(
        args.format,
        asdict(found) | {"against": judge},
        f"{word}: {found.items} items, max abs error {found.max_abs_error:.3g}, "
        f"max rel error {found.max_rel_error:.3g}, against {judge}",
    )
    return 0 if found.equal else 1
