"""The program of an export: a format is the native folder, and for most files beside it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path

from autosplit.deploy.manifest import Manifest
from autosplit.deploy.targets import cpp_program, onnx_program
from autosplit.deploy.targets.formats import CPP, ONNX
from autosplit.errors import ConfigError

# Names and contents of the files that a format adds to the native one.
_ADDED: Mapping[str, Callable[[Manifest], Mapping[str, bytes]]] = {
    ONNX: onnx_program.files,
    CPP: cpp_program.files,
}


def write_program(document: Manifest, folder: Path, name: str) -> dict[str, str]:
    """Write what the format ``name`` has besides the native one; returns the files' digests.

    Raises ConfigError where a stage has no such form, MachineError where the disk refuses.
    """
    if name not in _ADDED:
        return {}
    if document.initial:
        # The programs begin every stream at zero.
        raise ConfigError(
            f"the states of '{document.model.name}' do not begin at zero, which format '{name}' "
            "needs; use format 'native'"
        )
    digests = {}
    for file, content in _ADDED[name](document).items():
        (folder / file).write_bytes(content)
        digests[file] = hashlib.sha256(content).hexdigest()
    return digests
