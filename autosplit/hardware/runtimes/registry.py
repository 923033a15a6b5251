"""Runtimes by name.

A new runtime is a package beside this file, a function here that imports its class late, and a
name in RUNTIMES. The command line, study files and ``split.json`` take their names from there.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autosplit.hardware.runtimes.interface import Runtime

TVM = "tvm"
ONNXRUNTIME = "onnxruntime"
OPENVINO = "openvino"
OPENVINO_BFLOAT16 = "openvino-bfloat16"  # rounds to bfloat16, so only for those who ask for it
AUTO = "auto"  # each of EXACT that is installed and can compute the model competes for each stage
DEFAULT = AUTO


def is_installed(name: str) -> bool:
    """Whether the package of a runtime is there."""
    return importlib.util.find_spec(package_of(name)) is not None


def package_of(name: str) -> str:
    """The package of a runtime: its name up to the first dash."""
    return name.partition("-")[0]


def ready_made() -> tuple[str, ...]:
    """The installed runtimes that compute a model as it is, without compiling kernels for it."""
    return tuple(name for name in EXACT if name != TVM and is_installed(name))


def runtime_class(name: str) -> type[Runtime]:
    """The class of a runtime; it is called with a StageSource."""
    return RUNTIMES[name]()


def _tvm() -> type[Runtime]:
    from autosplit.hardware.runtimes.tvm.runtime import TvmRuntime

    return TvmRuntime


def _onnxruntime() -> type[Runtime]:
    from autosplit.hardware.runtimes.onnxruntime.runtime import OnnxruntimeRuntime

    return OnnxruntimeRuntime


def _openvino() -> type[Runtime]:
    from autosplit.hardware.runtimes.openvino.runtime import OpenvinoRuntime

    return OpenvinoRuntime


def _openvino_bfloat16() -> type[Runtime]:
    from autosplit.hardware.runtimes.openvino.runtime import OpenvinoBfloat16Runtime

    return OpenvinoBfloat16Runtime


RUNTIMES: Mapping[str, Callable[[], type[Runtime]]] = {
    TVM: _tvm,
    ONNXRUNTIME: _onnxruntime,
    OPENVINO: _openvino,
    OPENVINO_BFLOAT16: _openvino_bfloat16,
}
# They compute in the precision of the model.
EXACT = tuple(name for name in RUNTIMES if name != OPENVINO_BFLOAT16)
