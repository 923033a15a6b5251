"""Which versions of TVM fit together; a wrong pair crashes the process, so it is told before TVM is loaded."""

from __future__ import annotations

import importlib.metadata
import re

from autosplit.errors import MachineError

FFI = "apache-tvm-ffi"
REMEDY = f"pip install '{FFI}>=0.1.14.post0,<0.1.15'"


def installed(package: str) -> str | None:
    """The version of a package, None where it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def wrong_pair() -> str | None:
    """What is wrong with the TVM that is installed, with the remedy, in one line; None where it fits."""
    tvm, ffi = installed("apache-tvm"), installed(FFI)
    if tvm is None or ffi is None:
        return f"{'apache-tvm' if tvm is None else FFI} is not installed; pip install 'apache-tvm>=0.27,<0.28' and {REMEDY}"
    if _release(tvm)[:2] != (0, 27):
        return f"apache-tvm {tvm} is not one this version was made for; pip install 'apache-tvm>=0.27,<0.28'"
    if _release(ffi)[:3] != (0, 1, 14):
        return f"{FFI} {ffi} crashes or does not match apache-tvm {tvm}; {REMEDY}"
    return None


def require_pair() -> None:
    """Raises MachineError where the TVM that is installed would crash."""
    problem = wrong_pair()
    if problem:
        raise MachineError(problem)


def _release(version: str) -> tuple[int, ...]:
    match = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, match[0].split("."))) if match else ()
