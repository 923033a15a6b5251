"""Lines that describe a written export."""

from __future__ import annotations

import shlex
from pathlib import Path

from autosplit.deploy import manifest_file
from autosplit.deploy.targets.onnx_program import WIRING
from autosplit.units import counted, size


def lines(file: Path) -> list[str]:
    """Where an export is, its size, how exact its outputs are, and which runtimes were left out."""
    # Quoted, so that the command can be copied into a shell.
    command = f"`autosplit verify {shlex.quote(str(file.parent))}`"
    document = manifest_file.read(file)
    comparison = document.comparison
    files = [file, *(file.parent / name for name in document.files)]
    amount = size(sum(path.stat().st_size for path in files))
    wrote = f"wrote {file} ({counted(len(files), 'file')}, {amount})"
    texts = [f"{wrote}; {command} compares it with the model"]
    if comparison:
        texts += [f"{name} is left out: {why}" for name, why in comparison.left_out.items()]
    if comparison and comparison.absent:
        texts[0] = wrote
        texts.append(f"not compared with the model, since {comparison.absent}; run {command} there")
    elif comparison:
        texts[0] += " again"
        texts.append(
            f"outputs equal {comparison.reference}'s: {comparison.items} items, largest relative "
            f"error {comparison.max_rel_error:.2g} (tolerance {comparison.tolerance:.2g})"
        )
    if (file.parent / WIRING).exists() and any(len(s.replicas) > 1 for s in document.stages):
        texts.append("the programs of format onnx run one replica of each stage; native runs all")
    return texts
