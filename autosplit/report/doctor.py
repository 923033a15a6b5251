"""Checks of the machine: versions, a linker, cores, a GPU and the cache."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from importlib import metadata

from autosplit import files, versions
from autosplit.errors import MachineError
from autosplit.extras import install, tvm
from autosplit.hardware import cache
from autosplit.hardware.codegen import toolchain
from autosplit.hardware.devices import device
from autosplit.hardware.measurement import disturbance

_OWN_CHECK = ("autosplit", versions.TVM, versions.FFI)  # packages with a check of their own
_FOR_DEVELOPERS = ("all", "dev", "docs", "test")  # extras
_REQUIREMENT = re.compile(r"""([\w-]+)[^;]*(?:;\s*extra == ['"](\w+)['"])?$""")


@dataclass(frozen=True)
class Check:
    """The result of one check: what was found, and the remedy if there is a problem."""

    name: str
    ok: bool
    value: str
    remedy: str = ""
    needed: bool = True

    def __str__(self) -> str:
        """One line of text: a table would be too wide because of a few long remedies."""
        failed = "MISSING" if self.needed else "absent"
        remedy = f"; {self.remedy}" if self.remedy else ""
        return f"{'ok' if self.ok else failed:7} {self.name:16} {self.value}{remedy}"


def examine() -> list[Check]:
    """All checks. TVM is loaded only if its versions fit together."""
    # pip installs autosplit only where Python is recent enough.
    python = Check("python", True, sys.version.split()[0])
    return [python, _tvm(), *_packages(), _linker(), _cores(), _calm(), _cuda(), _cache()]


def _packages() -> list[Check]:
    """The packages that autosplit needs, and those of each of its extras."""
    extras: dict[str, str | None] = {}
    for text in metadata.requires("autosplit") or ():
        match = _REQUIREMENT.match(text)
        if match and match[1] not in _OWN_CHECK and match[2] not in _FOR_DEVELOPERS:
            extras.setdefault(match[1], match[2])
    checks = []
    for name, extra in extras.items():
        version = versions.installed(name)
        command = install(extra) if extra else f"pip install {name}"
        remedy = "" if version else command
        checks.append(Check(name, bool(version), version or "-", remedy, needed=not extra))
    return checks


def _tvm() -> Check:
    installed = f"{versions.installed('apache-tvm')}, ffi {versions.installed(versions.FFI)}"
    if problem := versions.wrong_pair():
        return Check("tvm", False, installed, problem)
    try:
        kind = tvm.target.Target("llvm").kind
    except Exception as error:
        return Check("tvm", False, installed, f"it does not load ({error}); reinstall apache-tvm")
    return Check("tvm", True, f"{installed}, {kind.name}")


def _linker() -> Check:
    try:
        return Check("linker", True, " ".join(toolchain.compiler()), needed=False)
    except MachineError as error:
        return Check("linker", False, "-", str(error), needed=False)


def _cores() -> Check:
    cores, remedy = device.available(), ""
    if not device.can_pin():
        remedy = "stages cannot be kept on a core on this system; measurements are noisier"
    return Check("cores", bool(cores), ",".join(map(str, cores)), remedy)


def _calm() -> Check:
    state, unknown = disturbance.state(), disturbance.unreadable()
    remedies = []
    if "powersave" in state:
        remedies.append("set the governor to performance for steadier measurements")
    if unknown:
        remedies.append(f"cannot be read here: {', '.join(unknown)}")
    return Check("load", True, state, "; ".join(remedies), needed=False)


def _cuda() -> Check:
    # Loading TVM with an ffi package of another version can crash the process.
    if not _tvm().ok:
        return Check("cuda", False, "-", needed=False)
    if not tvm.runtime.enabled("cuda"):
        remedy = "devices such as cuda:0 need a TVM that was built with CUDA"
        return Check("cuda", False, "not in this TVM", remedy, needed=False)
    # TVM has no function that counts them.
    count = sum(bool(tvm.cuda(number).exist) for number in range(16))
    remedy = "" if count else "see nvidia-smi"
    return Check("cuda", count > 0, f"{count} devices", remedy, needed=False)


def _cache() -> Check:
    try:
        folder = cache.folder()
    except ImportError as error:
        return Check("cache", False, "-", f"{error}; install what is missing above")
    try:
        # Only writing a file shows whether the disk accepts one.
        with files.atomic_write(folder / "doctor") as temporary:
            temporary.write_bytes(b"")
        (folder / "doctor").unlink(missing_ok=True)
    except MachineError as error:
        return Check("cache", False, str(folder), f"{error}; or set AUTOSPLIT_CACHE")
    return Check("cache", True, str(folder))
