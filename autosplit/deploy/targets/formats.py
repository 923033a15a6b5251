"""The formats of an export: each is the native folder, and for most a program beside it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
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
    """Write what the format ``name`` has besides the native one; returns the files' digests.

    Raises ConfigError where a stage has no such form, MachineError where the disk refuses.
    """
    from autosplit.deploy.targets import cpp_program, onnx_program

    programs: Mapping[str, Callable[[Manifest, Path], Mapping[str, bytes]]]
    programs = {ONNX: onnx_program.files, CPP: cpp_program.files}
    if name not in programs:
        return {}
    if name == ONNX and document.batch > 1:
        raise ConfigError(
            f"format '{name}' runs single items, but '{document.model.name}' computes "
            f"{document.batch} at once; use format 'native' or 'cpp'"
        )
    if document.model.variants:
        raise ConfigError(
            f"format '{name}' runs items of one shape, but '{document.model.name}' has variants; "
            "use format 'native'"
        )
    if document.initial:
        # The programs begin every stream at zero.
        raise ConfigError(
            f"the states of '{document.model.name}' do not begin at zero, which format '{name}' "
            "needs; use format 'native'"
        )
    digests = {}
    for file, content in programs[name](document, folder).items():
        (folder / file).write_bytes(content)
        digests[file] = hashlib.sha256(content).hexdigest()
    return digests
