"""The formats of an export: each is the native folder, some with a program beside it."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from autosplit.errors import ConfigError, nearest

if TYPE_CHECKING:
    from autosplit.deploy.manifest import Manifest

# An export for Ray is the native one; `on_ray` runs it.
NATIVE, ONNX, CPP, RAY = "native", "onnx", "cpp", "ray"
FORMATS = (NATIVE, ONNX, CPP, RAY)


def require_format(name: str) -> None:
    """Raises ConfigError for an unknown format."""
    if name not in FORMATS:
        raise ConfigError(
            f"unknown format '{name}'{nearest(name, FORMATS)}; the formats are {', '.join(FORMATS)}"
        )


def write_program(document: Manifest, folder: Path, name: str) -> dict[str, str]:
    """Write the files that the format ``name`` adds to the native one; returns their digests.

    Raises ConfigError where a stage has no such form, MachineError where the disk refuses.
    """
    from autosplit.deploy.targets import cpp_program, onnx_program

    programs = {ONNX: onnx_program.files, CPP: cpp_program.files}
    if name not in programs:
        return {}
    ports = [port for stage in document.stages for port in (*stage.inputs, *stage.outputs)]
    is_lacking = any(port.dtype.startswith(("bfloat16", "float8")) for port in ports)
    refusals = {
        f"computes {document.batch} items at once": name == ONNX and document.batch > 1,
        "has tensors of types that numpy lacks": name == ONNX and is_lacking,
        "has variants of other shapes": bool(document.model.variants),
        "has states that do not begin at zero": bool(document.initial),
    }
    for reason in (reason for reason, holds in refusals.items() if holds):
        refusal = f"format '{name}' cannot run '{document.model.name}', which {reason}"
        raise ConfigError(f"{refusal}; use format '{NATIVE}'")
    digests = {}
    for file, content in programs[name](document, folder).items():
        (folder / file).write_bytes(content)
        digests[file] = hashlib.sha256(content).hexdigest()
    return digests
