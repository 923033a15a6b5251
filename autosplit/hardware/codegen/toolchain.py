"""Linking object files into a shared library, by the system's compiler or the package ziglang."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from autosplit.errors import MachineError
from autosplit.extras import install
from autosplit.hardware.isolation.process import child_environment, python_command

_TIMEOUT_S = 600


def link_shared(
    output: str | Path, objects: Sequence[str | Path], triple: str | None = None
) -> None:
    """Link ``objects`` into the shared library ``output``.

    ``triple`` is the LLVM triple of another machine. Raises MachineError where there is no compiler
    driver, and, with the last line of the driver's output, where linking fails.
    """
    command = [*compiler(triple), "-shared", "-o", str(output), *map(str, objects)]
    try:
        process = subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, env=child_environment()
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MachineError(f"the linker '{command[0]}' did not run: {error}") from error
    if process.returncode != 0:
        lines = (process.stderr or process.stdout).strip().splitlines() or ["no message"]
        # The last line is the driver's "ld returned 1 exit status"; a full disk is named above it.
        full = [line for line in lines if "No space left" in line or "quota exceeded" in line]
        reason = [*full, lines[-1]][0]
        raise MachineError(f"linking '{Path(output).name}' with '{command[0]}' failed: {reason}")


def write_object(module: Any, file: Path) -> None:
    """Write a compiled module of TVM as an object file. Raises OSError where the disk refuses.

    LLVM ends the process where it cannot write to a file, so on Linux it writes to memory first.
    """
    if not hasattr(os, "memfd_create"):
        module.write_to_file(str(file), "o")
        return
    with os.fdopen(os.memfd_create("object"), "rb") as memory:
        module.write_to_file(f"/proc/self/fd/{memory.fileno()}", "o")
        file.write_bytes(memory.read())


def is_available() -> bool:
    """Whether anything here can link a shared library."""
    return _driver() is not None


def compiler(triple: str | None = None) -> tuple[str, ...]:
    """The compiler driver: ``CC`` if set, cc, gcc or clang, else the package ziglang.

    For a foreign ``triple`` it is a cross compiler of that name, else ziglang. Raises MachineError
    without one.
    """
    if triple:
        return _cross(triple)
    driver = _driver()
    if driver is None:
        problem = f"no compiler driver to link with; install gcc or clang, or {install('link')}"
        raise MachineError(problem)
    return driver


def _cross(triple: str) -> tuple[str, ...]:
    architecture, *rest = triple.split("-")
    abi = rest[-1] if rest and rest[-1].startswith(("gnu", "musl")) else "gnu"
    names = (f"{triple}-gcc", f"{architecture}-linux-{abi}-gcc")
    for name in names:
        if shutil.which(name):
            return (name,)
    if _has_zig():
        return (*_zig(), "-target", f"{architecture}-linux-{abi}")
    problem = f"nothing here links for '{triple}'; {install('link')}, or install {names[-1]}"
    raise MachineError(problem)


def _zig() -> tuple[str, ...]:
    return python_command("-m", "ziglang", "cc")


def _has_zig() -> bool:
    return importlib.util.find_spec("ziglang") is not None


@cache
def _driver() -> tuple[str, ...] | None:
    commands = [shlex.split(os.environ.get("CC", "")), ["cc"], ["gcc"], ["clang"]]
    for command in commands:
        if command and shutil.which(command[0]):
            return tuple(command)
    return _zig() if _has_zig() else None
