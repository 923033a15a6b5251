"""The program of an export: a format is the native folder, and for most files beside it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path

from autosplit.deploy import manifest_file
from autosplit.deploy.manifest import NAME, Manifest
from autosplit.deploy.targets import cpp_program, onnx_program
from autosplit.deploy.targets.formats import CPP, ONNX
from autosplit.errors import ConfigError
from autosplit.files import atomic_write

# Names and contents of the files that a format adds to the native one.
_ADDED: Mapping[str, Callable[[Manifest], Mapping[str, bytes]]] = {
    ONNX: onnx_program.files,
    CPP: cpp_program.files,
}


def add_program(folder: Path, name: str) -> None:
    """Add to an export what its format ``name`` has besides the native one.

    Raises ConfigError where a stage has no such form, MachineError where the disk refuses.
    """
    if name not in _ADDED:
        return
    document = manifest_file.read(folder)
    if document.initial:
        # The programs begin every stream at zero.
        raise ConfigError(
            f"the states of '{document.model.name}' do not begin at zero, which format '{name}' "
            "needs; use format 'native'"
        )
    for file, content in _ADDED[name](document).items():
        with atomic_write(folder / file) as temporary:
            temporary.write_bytes(content)


def written_programs(folder: Path) -> set[str]:
    """The files of programs beside the export in ``folder``, but those that somebody changed."""
    try:
        document = manifest_file.read(folder)
    except ConfigError:
        return set()
    exported = {NAME, *document.files}
    others = {file.name for file in folder.iterdir() if file.is_file()} - exported
    names = set()
    # Most exports have no program, so that none need be made to compare with.
    for files in _ADDED.values() if others else ():
        # A format that lacks a stage of this export has not written here.
        with contextlib.suppress(ConfigError):
            for name, content in files(document).items():
                if name in others and (folder / name).read_bytes() == content:
                    names.add(name)
    return names
