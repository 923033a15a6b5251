"""What a machine has and lacks, as values."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from autosplit import files, versions
from autosplit.errors import MachineError
from autosplit.extras import install
from autosplit.hardware import cache
from autosplit.hardware.codegen import toolchain
from autosplit.hardware.devices import device

_OPTIONAL = {
    "onnx": "onnx",
    "onnxruntime": "onnx",
    "optuna-dashboard": "dashboard",
    "matplotlib": "dashboard",
    "plotly": "dashboard",
}
_NEEDED = ("numpy", "networkx", "optuna", "pydantic", "rich", "platformdirs", "filelock", "psutil")


@dataclass(frozen=True)
class Check:
    """One thing looked at; ``remedy`` is empty where nothing need be done."""

    name: str
    ok: bool
    found: str
    remedy: str = ""
    needed: bool = True


def examine() -> list[Check]:
    """All checks. TVM is loaded only where its versions fit."""
    return [
        _python(),
        _tvm(),
        *map(_package, _NEEDED),
        *map(_extra, _OPTIONAL),
        _linker(),
        _cores(),
        _cuda(),
        _cache(),
    ]


def _python() -> Check:
    found = sys.version.split()[0]
    return Check(
        "python",
        sys.version_info >= (3, 11),
        found,
        "" if sys.version_info >= (3, 11) else "install Python 3.11",
    )


def _tvm() -> Check:
    found = f"{versions.installed('apache-tvm')}, ffi {versions.installed(versions.FFI)}"
    problem = versions.wrong_pair()
    if problem:
        return Check("tvm", False, found, problem)
    try:
        import tvm
    except Exception as error:
        return Check("tvm", False, found, f"it does not load ({error}); reinstall apache-tvm")
    return Check("tvm", True, f"{found}, {tvm.target.Target('llvm').kind.name}")


def _package(name: str) -> Check:
    found = versions.installed(name)
    return Check(name, found is not None, found or "-", "" if found else f"pip install {name}")


def _extra(name: str) -> Check:
    found = versions.installed(name)
    return Check(
        name, found is not None, found or "-", "" if found else install(_OPTIONAL[name]), False
    )


def _linker() -> Check:
    try:
        return Check("linker", True, " ".join(toolchain.compiler()), needed=False)
    except MachineError as error:
        return Check("linker", False, "-", str(error), needed=False)


def _cores() -> Check:
    cores = device.available()
    pinned = (
        ""
        if device.can_pin()
        else "stages cannot be kept on a core on this system; measurements are noisier"
    )
    return Check("cores", bool(cores), ",".join(map(str, cores)), pinned)


def _cuda() -> Check:
    """A GPU is no need; where this TVM cannot use one, that is said."""
    if versions.wrong_pair():
        return Check("cuda", False, "-", needed=False)
    try:
        import tvm
    except Exception:
        return Check("cuda", False, "-", needed=False)
    if not tvm.runtime.enabled("cuda"):
        remedy = "this TVM was built without CUDA; devices such as cuda:0 need a build that has it"
        return Check("cuda", False, "not in this TVM", remedy, needed=False)
    count = sum(1 for n in range(16) if tvm.cuda(n).exist)
    return Check(
        "cuda", count > 0, f"{count} devices", "" if count else "see nvidia-smi", needed=False
    )


def _cache() -> Check:
    folder = cache.folder()
    try:
        with files.atomic_write(folder / "doctor") as temporary:
            temporary.write_bytes(b"")
        (folder / "doctor").unlink(missing_ok=True)
    except MachineError as error:
        return Check("cache", False, str(folder), f"{error}; or set AUTOSPLIT_CACHE")
    return Check("cache", True, str(folder))
