"""Processor features: code that uses one that is missing kills the process (SIGILL).

The names are those of Linux in /proc/cpuinfo (arch/x86/include/asm/cpufeatures.h,
Documentation/arch/arm64/elf_hwcaps.rst). LLVM has other names for some (X86.td,
AArch64Features.td).
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from autosplit.hardware.devices.system_files import system_text

CPUINFO = Path("/proc/cpuinfo")

# Maps LLVM's names to Linux's, for the features that a compiler uses by itself
_LINUX_NAMES = {
    "sse3": "pni", "ssse3": "ssse3", "sse4.1": "sse4_1", "sse4.2": "sse4_2", "popcnt": "popcnt",
    "movbe": "movbe", "lzcnt": "abm", "bmi": "bmi1", "bmi2": "bmi2", "avx": "avx", "avx2": "avx2",
    "f16c": "f16c", "fma": "fma", "avx512f": "avx512f", "avx512bw": "avx512bw",
    "avx512cd": "avx512cd", "avx512dq": "avx512dq", "avx512vl": "avx512vl",
    "avx512ifma": "avx512ifma", "avx512vbmi": "avx512vbmi", "avx512vbmi2": "avx512_vbmi2",
    "avx512vnni": "avx512_vnni", "avx512bitalg": "avx512_bitalg",
    "avx512vpopcntdq": "avx512_vpopcntdq", "avx512bf16": "avx512_bf16",
    "avx512fp16": "avx512_fp16", "avxvnni": "avx_vnni", "amx-tile": "amx_tile",
    "amx-int8": "amx_int8", "amx-bf16": "amx_bf16", "neon": "asimd", "dotprod": "asimddp",
    "fullfp16": "asimdhp", "rdm": "asimdrdm", "lse": "atomics", "i8mm": "i8mm", "bf16": "bf16",
    "sve": "sve", "sve2": "sve2",
}  # fmt: skip


def missing_features(target: Any) -> tuple[str, ...]:
    """The features, by LLVM's names, that code for a tvm Target uses and this processor lacks.

    Empty where the system does not list its features or TVM was built without LLVM.
    """
    available = cpu_features(CPUINFO)
    if not available:
        return ()
    names = required_features(target).items()
    return tuple(sorted(name for name, of_linux in names if of_linux not in available))


@cache
def cpu_features(file: Path) -> frozenset[str]:
    """The features that all processors of this machine have, by Linux's names."""
    features = []
    for line in system_text(file).splitlines():
        key, _, names = line.partition(":")
        if key.strip() in ("flags", "Features"):
            features.append(frozenset(names.split()))
    return frozenset.intersection(*features) if features else frozenset()


def required_features(target: Any) -> dict[str, str]:
    """The features that code for a tvm Target uses, as a map from LLVM's names to Linux's.

    Those of its ``mcpu`` and ``mattr`` with a known Linux name; none if it is no LLVM target.
    """
    from tvm.target import codegen

    if target.kind.name != "llvm" or not codegen.llvm_version_major(allow_none=True):
        return {}
    features = set(map(str, codegen.llvm_get_cpu_features(target)))
    return {name: of_linux for name, of_linux in _LINUX_NAMES.items() if name in features}
