"""Arrays beside the stages of an export, in a file of numpy's that holds no objects."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from autosplit.deploy.export_folder import checked
from autosplit.deploy.manifest import ArraysPart
from autosplit.errors import ConfigError
from autosplit.files import sha256


def write_arrays(arrays: Mapping[str, np.ndarray[Any, Any]], file: Path) -> ArraysPart:
    """Write arrays by name; returns their entry in the manifest."""
    with file.open("wb") as stream:
        np.savez(stream, allow_pickle=False, **arrays)
    return ArraysPart(file=file.name, sha256=sha256(file))


def read_arrays(folder: Path, part: ArraysPart) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of an export by name. Raises ConfigError for a file that is not as exported."""
    file = checked(folder, part.file, part.sha256)
    try:
        with np.load(file, allow_pickle=False) as arrays:
            return dict(arrays)
    except Exception as error:  # numpy and zipfile raise many kinds for a damaged archive
        raise ConfigError(f"'{file}' has no arrays ({error}); export the split again") from error
