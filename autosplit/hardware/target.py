"""What kernels are compiled for, spelled so that a cache and a manifest can hold it."""

from __future__ import annotations

import importlib.metadata
import json
import platform
from typing import Any

from autosplit.errors import ConfigError, line_of

_V3 = ["avx2", "bmi2", "f16c", "fma"]


def target_of(text: str | None = None) -> Any:
    """A tvm Target: this machine's processor by default, else ``llvm -mcpu=…``, a kind, or a JSON object as TVM takes it.

    Raises ConfigError where TVM does not know it.
    """
    import tvm

    try:
        return tvm.target.Target(_host() if not text else _parsed(text))
    except Exception as error:  # TVM raises errors of many kinds, its own InternalError among them
        reason = line_of(error, last=True)
        raise ConfigError(f"target '{text}' is not one TVM knows ({reason}); try 'llvm -mcpu=x86-64-v3'") from error


def spelled(target: Any) -> str:
    """One canonical line for a target."""
    return json.dumps(json.loads(str(target)), sort_keys=True, separators=(",", ":"))


def toolchain() -> str:
    """The versions a compiled kernel depends on."""
    names = ("apache-tvm", "apache-tvm-ffi")
    return (
        ",".join(f"{n} {importlib.metadata.version(n)}" for n in names) + f",{platform.system()} {platform.machine()}"
    )


def _host() -> dict[str, str]:
    """x86-64-v3 on every x86 processor with AVX2: the level the shipped schedules were found for, and exports run elsewhere."""
    import tvm
    from tvm.target import codegen

    host = {"kind": "llvm", "mcpu": codegen.llvm_get_system_cpu()}
    is_v3 = platform.machine() in ("x86_64", "AMD64") and codegen.target_has_features(_V3, tvm.target.Target(host))
    return {"kind": "llvm", "mcpu": "x86-64-v3"} if is_v3 else host


def _parsed(text: str) -> dict[str, Any] | str:
    if text.lstrip().startswith("{"):
        parsed = json.loads(text)
        return parsed if isinstance(parsed, dict) else text
    kind, *options = text.split()
    pairs = (option.lstrip("-").partition("=") for option in options)
    return {"kind": kind, **{key: value.split(",") if key == "mattr" else value for key, _, value in pairs}}
