"""Checked copies of an export's files, which nobody else can change before they are loaded."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from autosplit import files
from autosplit.errors import ConfigError
from autosplit.files import REMEDY, open_regular, refused


def copy_checked(folder: Path, name: str, sha256: str, private: Path) -> Path:
    """Copy file ``name`` of an export into the folder ``private``; returns the path of the copy.

    The file is opened once, and the copy is hashed. A link that is changed or an export that
    is replaced in the meantime cannot swap what is loaded for something that was not checked.
    Raises ConfigError for another content and for a path out of the folder, MachineError where the
    disk of ``private`` is full.
    """
    file, copy = folder / name, private / name
    if not Path(os.path.realpath(file)).is_relative_to(os.path.realpath(folder)):
        raise ConfigError(f"'{name}' is outside the folder '{folder}'; export the split again")
    try:
        # From here on the open file is read, whatever the path leads to later.
        source = open_regular(file)
    except FileNotFoundError as error:
        raise ConfigError(f"'{file}' is missing; export the split again") from error
    except OSError as error:
        reason = error.strerror
        raise ConfigError(f"'{file}' cannot be read ({reason}); export the split again") from error
    try:
        copy.parent.mkdir(parents=True, exist_ok=True)
        with source, copy.open("wb") as target:
            shutil.copyfileobj(source, target)
        # Of the copy, which nobody else can change.
        digest = files.sha256(copy)
    except OSError as error:
        raise refused(copy, error, f"{REMEDY} with TMPDIR") from error
    if digest != sha256:
        raise ConfigError(
            f"'{file}' has sha256 {digest[:12]}…, recorded is {sha256[:12]}…; "
            "it was changed, export it again"
        )
    return copy
