"""The installed packages, the machine, and which versions of TVM fit together."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path

from autosplit.errors import MachineError

VERSION = "0.3.0"
TVM = "apache-tvm"
FFI = "apache-tvm-ffi"
PACKAGES = (TVM, FFI, "numpy", "optuna", "networkx", "onnx", "onnxruntime", "openvino", "pydantic")
TVM_REMEDY = f"pip install '{TVM}>=0.27,<0.28'"
REMEDY = f"pip install '{FFI}>=0.1.14.post0,<0.1.15'"


def installed(package: str) -> str | None:
    """The version of a package, None where it is not installed."""
    import importlib.metadata

    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def environment() -> dict[str, str]:
    """Where something was measured or built: versions, system, architecture, machine."""
    packages = {package: installed(package) for package in PACKAGES}
    return {
        "autosplit": VERSION,
        "python": platform.python_version(),
        **{package: version for package, version in packages.items() if version},
        "system": platform.system(),
        "architecture": platform.machine(),
        "machine": machine(),
    }


def machine() -> str:
    """The machine that a time was measured on: processor, number of cores, host name."""
    name = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(errors="replace").splitlines() if cpuinfo.exists() else []
    for line in lines:
        if line.startswith("model name"):
            name = line.partition(":")[2].strip()
            break
    return f"{name} x{os.cpu_count()} {platform.node()}"


def wrong_pair() -> str | None:
    """What is wrong with the installed versions of TVM, with the remedy; None if nothing is."""
    tvm, ffi = installed(TVM), installed(FFI)
    if tvm is None or ffi is None:
        missing = TVM if tvm is None else FFI
        return f"{missing} is not installed; {TVM_REMEDY} and {REMEDY}"
    if _release(tvm)[:2] != (0, 27):
        return f"{TVM} {tvm} is not supported by this version of autosplit; {TVM_REMEDY}"
    if _release(ffi)[:3] != (0, 1, 14):
        return f"{FFI} {ffi} crashes or does not match {TVM} {tvm}; {REMEDY}"
    return None


def require_pair() -> None:
    """Raises MachineError if TVM is missing or its installed versions do not fit together."""
    problem = wrong_pair()
    if problem:
        raise MachineError(problem)


def _release(version: str) -> tuple[int, ...]:
    match = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, match[0].split("."))) if match else ()
