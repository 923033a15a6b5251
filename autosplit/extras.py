"""Optional packages: import one, or name the extra that installs it."""

from __future__ import annotations

import importlib
from typing import Any

from autosplit.errors import MachineError


def require(package: str, extra: str) -> Any:
    """Import ``package``, which ``pip install 'autosplit[extra]'`` installs.

    Raises MachineError with that command where the package cannot be imported.
    """
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise MachineError(f"{package} cannot be imported ({error}); {install(extra)}") from error


def install(extra: str) -> str:
    """The command that installs an extra."""
    return f"pip install 'autosplit[{extra}]'"
