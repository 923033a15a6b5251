"""The program of an export: each format is the native folder and files beside it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path

from autosplit.deploy import manifest_file
from autosplit.deploy.manifest import Manifest
from autosplit.deploy.targets import cpp_program, onnx_program, ray_program
from autosplit.deploy.targets.formats import CPP, ONNX, RAY
from autosplit.errors import ConfigError
from autosplit.files import atomic_write

# Names and contents of the files that a format adds to the native one.
_ADDED: Mapping[str, Callable[[Manifest], Mapping[str, bytes]]] = {
    ONNX: onnx_program.files,
    CPP: cpp_program.files,
    RAY: ray_program.files,
}


def add_program(folder: Path, name: str) -> None:
    """Add to an export what its format ``name`` has besides the native one.

    Raises ConfigError where a stage has no such form, MachineError where the disk refuses.
    """
    if name not in _ADDED:
        return
    document = manifest_file.read(folder)
    if document.initial and name != RAY:
        # The other programs begin every stream at zero.
        raise ConfigError(
            f"the states of '{document.model.name}' do not begin at zero, which format '{name}' "
            "needs; use format 'native'"
        )
    for file, content in _ADDED[name](document).items():
        with atomic_write(folder / file) as temporary:
            temporary.write_bytes(content)


def written_programs(folder: Path) -> set[str]:
    """The files of programs beside the export in ``folder``, but those that somebody changed."""
    names = set()
    for files in _ADDED.values():
        # A folder without an export has no program, and one that lacks a stage not this one.
        with contextlib.suppress(ConfigError):
            for name, content in files(manifest_file.read(folder)).items():
                if (folder / name).is_file() and (folder / name).read_bytes() == content:
                    names.add(name)
    return names
