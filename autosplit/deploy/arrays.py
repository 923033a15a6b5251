"""Arrays of an export, such as reference outputs, in npz files without Python objects."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from autosplit.deploy.export_folder import checked
from autosplit.deploy.manifest import ArraysPart, Manifest
from autosplit.errors import ConfigError
from autosplit.files import sha256
from autosplit.hardware.runtimes.arrays import dtype_of

if TYPE_CHECKING:
    from autosplit.hardware.measurement.reference import Outputs
    from autosplit.hardware.measurement.sequences import Expected

_MOST_BYTES = 64_000_000  # of the items, and of the states, that are recorded


def write_arrays(arrays: Mapping[str, np.ndarray[Any, Any]], file: Path) -> ArraysPart:
    """Write arrays by any name, unlike np.savez; returns their entry in the manifest."""
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, np.asanyarray(array), allow_pickle=False)
    return ArraysPart(file=file.name, sha256=sha256(file))


def read_arrays(folder: Path, part: ArraysPart) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of an export by name. Raises ConfigError for a file that is not as exported."""
    file = checked(folder, part.file, part.sha256)
    try:
        with np.load(file, allow_pickle=False) as arrays:
            return dict(arrays)
    except Exception as error:  # numpy and zipfile raise many kinds for a damaged archive
        problem = f"'{folder / part.file}' has no arrays ({error}); export the split again"
        raise ConfigError(problem) from error


def write_reference(expected: Expected, file: Path) -> ArraysPart:
    """Write items and reference outputs, which ``verify`` uses where the model is absent.

    If the items are large, only the first ones are written, at least one.
    """
    arrays: dict[str, Any] = {}
    for number, (inputs, outputs) in enumerate(zip(expected.items, expected.along, strict=True)):
        step = {f"{number}/in/{name}": array for name, array in inputs.items()}
        step |= {f"{number}/out/{name}": array for name, array in outputs.items()}
        if number and _size(arrays) + _size(step) > _MOST_BYTES:
            break
        arrays |= step
    known = sum(map(_size, expected.states))
    for number, states in enumerate(expected.states[1:] if known <= _MOST_BYTES else ()):
        arrays |= {f"{number}/after/{name}": array for name, array in states.items()}
    return write_arrays(arrays, file)


def read_reference(folder: Path, document: Manifest, initial: Outputs) -> tuple[Expected, str]:
    """The items and reference outputs of the export, and a text that says where they are from.

    ``initial`` has the initial values of states.
    """
    # Imported late, since loading an export needs no reference.
    from autosplit.hardware.measurement.sequences import Expected

    if document.reference is None:
        problem = "the export has no reference outputs; give the original model with --model FILE"
        raise ConfigError(problem)
    sides: dict[str, dict[int, dict[str, Any]]] = {"in": {}, "out": {}, "after": {}}
    ports = [port for stage in document.stages for port in stage.inputs]
    dtypes = {port.name: port.dtype for port in (*ports, *document.model.outputs)}
    name = document.reference.file
    try:
        for key, array in read_arrays(folder, document.reference).items():
            number, side, tensor = key.split("/", 2)
            if array.dtype.kind == "V":  # saved without the name of a type that numpy lacks
                array = array.view(dtype_of(dtypes[tensor]))
            sides[side].setdefault(int(number), {})[tensor] = array
        numbers = sorted(sides["in"])
        outputs = [sides["out"][number] for number in numbers]
        if not numbers:
            raise ValueError("no items")
    except (KeyError, TypeError, ValueError) as error:
        problem = f"'{folder / name}' has no reference outputs ({error}); export the split again"
        raise ConfigError(problem) from error
    items = [sides["in"][number] for number in numbers]
    after = [sides["after"][number] for number in sorted(sides["after"])]
    # States that are too large are not recorded, only the outputs that depend on them.
    states = [initial, *after] if after else []
    expected = Expected.of_steps(outputs, items, states)
    computed_by = document.comparison.reference if document.comparison else "the reference"
    return expected, f"the outputs of {computed_by} recorded in {name}"


def _size(arrays: Mapping[str, Any]) -> int:
    return sum(array.nbytes for array in arrays.values())
