"""What a processor can do, and what code for a target asks of it: code that asks for more ends the process (SIGILL).

The names are those of Linux in /proc/cpuinfo (arch/x86/include/asm/cpufeatures.h, Documentation/arch/arm64/elf_hwcaps.rst);
LLVM calls some of them otherwise (its X86.td and AArch64Features.td).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

CPUINFO = Path("/proc/cpuinfo")

# LLVM's name to Linux's, for the features whose instructions a compiler puts into code of its own accord
_LINUX = {
    "sse3": "pni", "ssse3": "ssse3", "sse4.1": "sse4_1", "sse4.2": "sse4_2", "popcnt": "popcnt", "movbe": "movbe",
    "lzcnt": "abm", "bmi": "bmi1", "bmi2": "bmi2", "avx": "avx", "avx2": "avx2", "f16c": "f16c", "fma": "fma",
    "avx512f": "avx512f", "avx512bw": "avx512bw", "avx512cd": "avx512cd", "avx512dq": "avx512dq",
    "avx512vl": "avx512vl", "avx512ifma": "avx512ifma", "avx512vbmi": "avx512vbmi", "avx512vbmi2": "avx512_vbmi2",
    "avx512vnni": "avx512_vnni", "avx512bitalg": "avx512_bitalg", "avx512vpopcntdq": "avx512_vpopcntdq",
    "avx512bf16": "avx512_bf16", "avx512fp16": "avx512_fp16", "avxvnni": "avx_vnni", "amx-tile": "amx_tile",
    "amx-int8": "amx_int8", "amx-bf16": "amx_bf16", "neon": "asimd", "dotprod": "asimddp", "fullfp16": "asimdhp",
    "rdm": "asimdrdm", "lse": "atomics", "i8mm": "i8mm", "bf16": "bf16", "sve": "sve", "sve2": "sve2",
}  # fmt: skip


def lacking(target: Any) -> tuple[str, ...]:
    """The features that code for a tvm Target may use and this processor lacks, by LLVM's names, sorted.

    Empty where the system does not tell what its processor can do, or TVM was built without LLVM.
    """
    here = features(CPUINFO)
    if not here:
        return ()
    return tuple(
        sorted(name for name in wanted(target) if name in _LINUX and _LINUX[name] not in here)
    )


def wanted(target: Any) -> frozenset[str]:
    """The features of a tvm Target's ``mcpu`` and ``mattr`` by LLVM's names; none where it is not LLVM's."""
    from tvm.target import codegen

    if target.kind.name != "llvm" or not codegen.llvm_version_major(allow_none=True):
        return frozenset()
    return frozenset(map(str, codegen.llvm_get_cpu_features(target)))


def features(file: Path) -> frozenset[str]:
    """What Linux says this processor can do, by its names; none where there is no such file."""
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return frozenset()
    found = [
        rest.split()
        for line in text.splitlines()
        for key, _, rest in [line.partition(":")]
        if _is_list(key)
    ]
    return frozenset(found[0]).intersection(*found) if found else frozenset()


def _is_list(key: str) -> bool:
    return key.strip() in ("flags", "Features")
