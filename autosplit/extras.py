"""Packages that are imported on first use: they take long to import, or may be missing.

Each name here stands for a package that is imported when one of its attributes is first read, so
that ``from autosplit.extras import relax, tvm`` costs nothing. ``require`` says how to install a
package that is missing.
"""

from __future__ import annotations

import importlib
from functools import cached_property
from typing import Any

from autosplit.errors import MachineError


class _Late:
    """A stand-in for a module, which is imported when an attribute is first read."""

    def __init__(self, name: str) -> None:
        self._name = name

    @cached_property
    def _module(self) -> Any:
        return importlib.import_module(self._name)

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._module, attribute)


onnx: Any = _Late("onnx")
helper: Any = _Late("onnx.helper")
numpy_helper: Any = _Late("onnx.numpy_helper")
torch: Any = _Late("torch")
tvm: Any = _Late("tvm")
ir: Any = _Late("tvm.ir")
relax: Any = _Late("tvm.relax")
transform: Any = _Late("tvm.relax.transform")
s_tir: Any = _Late("tvm.s_tir")
meta_schedule: Any = _Late("tvm.s_tir.meta_schedule")
te: Any = _Late("tvm.te")
tirx: Any = _Late("tvm.tirx")
topi: Any = _Late("tvm.topi")
tvm_ffi: Any = _Late("tvm_ffi")


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
