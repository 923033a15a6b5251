"""Compare an exported split with onnxruntime on the original model.

Without the model or without onnxruntime, the outputs recorded at export are the reference. The exit
code is 1 if outputs differ.

  autosplit verify out/
  autosplit verify out/ --model net.onnx --items 10
  autosplit verify out/ --special                     with NaN, infinities and denormals
"""

from __future__ import annotations

import argparse
from dataclasses import asdict

from autosplit.cli import options, output

OPTIONS = (
    *options.of("""
        --model FILE   the original model, if it has moved
        --items N      number of random items to compare (default: as at export, 8)
        --special      include NaN, infinities and denormals in the items
        --seed N       seed of the random items (default: that of the export)
    """),
    *options.EXPORT,
    *options.TOLERANCE,
)


def run(args: argparse.Namespace) -> int:
    """Print the errors found."""
    from autosplit.deploy.verify import verify_apart

    names = ("items", "seed", "special", "tolerance")
    result = verify_apart(args.folder, args.model, **{name: getattr(args, name) for name in names})
    accuracy = result.accuracy
    if result.reason:
        output.note(result.reason)
    output.emit(
        args.format,
        asdict(accuracy) | {"against": result.reference},
        f"{'equal' if accuracy.equal else 'DIFFERENT'}: {accuracy.items} items, "
        f"max abs error {accuracy.max_abs_error:.3g}, max rel error {accuracy.max_rel_error:.3g} "
        f"(tolerance {accuracy.tolerance:.3g}), against {result.reference}",
    )
    # 1, as for a study with nothing feasible: the command ran, and the answer is no.
    return 0 if accuracy.equal else 1
