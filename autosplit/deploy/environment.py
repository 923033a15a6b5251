"""Where something was measured or built: machine, versions."""

from __future__ import annotations

import importlib.metadata
import platform

import autosplit
from autosplit.hardware.profiling.whole_model import machine

PACKAGES = (
    "apache-tvm",
    "apache-tvm-ffi",
    "numpy",
    "optuna",
    "networkx",
    "onnx",
    "onnxruntime",
    "pydantic",
)


def environment() -> dict[str, str]:
    """Versions of what is installed, the machine, the architecture."""
    found = {"autosplit": autosplit.__version__, "python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found | {
        "system": platform.system(),
        "architecture": platform.machine(),
        "machine": machine(),
    }
