"""Targets: what kernels of each device are compiled for, and how a target is spelled."""

from __future__ import annotations

import importlib.metadata
import json
import platform
from typing import Any

from autosplit.errors import ConfigError, line_of
from autosplit.extras import tvm
from autosplit.hardware.devices import processor
from autosplit.hardware.devices.device import Cores, Cuda, Device, RayCores

_PROCESSOR = ("target.llvm_get_system_cpu", "target.llvm_get_system_triple")
_LEVELS = {
    "x86-64-v4": ["avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"],
    "x86-64-v3": ["avx2", "bmi2", "f16c", "fma"],
}


def target_of(text: str | None = None) -> Any:
    """A tvm Target: this machine's processor by default.

    ``text`` is ``llvm -mcpu=…``, a kind, or a JSON object as TVM takes it. Raises ConfigError where
    TVM does not know the target, or LLVM does not know its processor.
    """
    try:
        target = tvm.target.Target(_host() if not text else _parsed(text))
    except Exception as error:  # TVM raises errors of many kinds, its own InternalError among them
        reason = line_of(error, last=True)
        problem = f"target '{text}' is not a TVM target ({reason}); try 'llvm -mcpu=x86-64-v3'"
        raise ConfigError(problem) from error
    host = target.host or target
    cpu, triple = (str(host.attrs.get(key, "") or "") for key in ("mcpu", "mtriple"))
    # TVM would only log an unknown processor and compile for any one of the architecture.
    if cpu and host.kind.name == "llvm" and not tvm.target.codegen.llvm_is_valid_cpu(cpu, triple):
        raise ConfigError(
            f"target '{text}': LLVM knows no processor '{cpu}' of {triple or 'this architecture'}; "
            "try 'llvm -mcpu=x86-64-v3'"
        )
    return target


def target_on(device: Device, text: str | None, default: Any) -> Any:
    """The target of a device: ``text``, else what the device reports, else ``default``.

    Raises ConfigError where ``text`` is for another kind of device, MachineError where the device
    does not answer.
    """
    if isinstance(device, Cores):
        return _checked(device, target_of(text), "llvm") if text else default
    if isinstance(device, Cuda):
        return _gpu(device, "cuda", text, device.tvm_device(), default)
    if text and (isinstance(device, RayCores) or device.kind == "cpu"):
        return _checked(device, target_of(text), "llvm")
    if isinstance(device, RayCores):
        from autosplit.hardware.cluster.nodes import ask

        there = _reported(*ask(device, _PROCESSOR))
        # A node with this machine's processor has the same target as this machine.
        return default if there is None or spelled(there) == spelled(target_of()) else there
    # A server is asked only where its target was not given.
    from autosplit.hardware.devices.rpc import connect

    connection = connect(device)
    host = _reported(*map(connection.ask, _PROCESSOR)) or default
    if device.kind == "cpu":
        return host
    return _gpu(device, device.kind, text, connection.tvm_device, host)


def architecture(target: Any) -> str:
    """The architecture of an LLVM target as ``platform.machine`` spells it, by default this one."""
    triple = str(target.attrs.get("mtriple", "") or "")
    name = triple.partition("-")[0].lower()
    return {"": platform.machine(), "amd64": "x86_64", "arm64": "aarch64"}.get(name, name)


def foreign_triple(target: Any) -> str | None:
    """The triple of a target whose architecture is not this machine's, else None."""
    host = target.host or target
    return str(host.attrs["mtriple"]) if architecture(host) != platform.machine() else None


def _reported(cpu: str | None, triple: str | None) -> Any | None:
    """The target of another machine's processor, from what ``_PROCESSOR`` returned there.

    None where the TVM there was built without a compiler.
    """
    if not cpu or not triple:
        return None
    kind = tvm.target.Target({"kind": "llvm", "mcpu": cpu, "mtriple": triple})
    # The triple is named only where it differs, so that equal processors have equal targets.
    named = {} if architecture(kind) == platform.machine() else {"mtriple": triple}
    return tvm.target.Target(_best(kind) | named)


def _gpu(device: Device, kind: str, text: str | None, runtime: Any, host: Any) -> Any:
    """The target of a GPU with the target of the processor that calls its kernels."""
    if text:
        target = _checked(device, target_of(text), kind)
        # Code on the host calls the kernels, so every GPU target needs a host.
        return target if target.host is not None else tvm.target.Target(target, host)
    version = str(runtime.compute_version or "").replace(".", "") if kind == "cuda" else ""
    options = {"kind": kind, "arch": f"sm_{version}"} if version else {"kind": kind}
    return tvm.target.Target(tvm.target.Target(options), host)


def _checked(device: Device, target: Any, kind: str) -> Any:
    if target.kind.name != kind:
        raise ConfigError(
            f"the target given for device '{device}' is of kind '{target.kind.name}'; "
            f"give one that starts with '{kind}'"
        )
    return target


def spelled(target: Any) -> str:
    """A target as one canonical line of JSON."""
    return json.dumps(json.loads(str(target)), sort_keys=True, separators=(",", ":"))


def toolchain() -> str:
    """The versions a compiled kernel depends on."""
    packages = ("apache-tvm", "apache-tvm-ffi")
    versions = [f"{name} {importlib.metadata.version(name)}" for name in packages]
    return ",".join([*versions, f"{platform.system()} {platform.machine()}"])


def _host() -> dict[str, Any]:
    cpu = tvm.target.codegen.llvm_get_system_cpu()
    best = _best(tvm.target.Target({"kind": "llvm", "mcpu": cpu}))
    # A hypervisor may hide features that all processors of this name have.
    hidden = processor.missing_features(tvm.target.Target(best))
    return best | {"mattr": [f"-{name}" for name in hidden]} if hidden else best


def _best(target: Any) -> dict[str, Any]:
    """The highest x86-64 level of the target's processor, from AVX2 on; else the processor itself.

    A level instead of the processor's name lets exports run on other machines of that level.
    """
    if architecture(target) in ("x86_64", "AMD64"):
        for level, features in _LEVELS.items():
            # The levels are in order, the widest vectors first.
            if tvm.target.codegen.target_has_features(features, target):
                return {"kind": "llvm", "mcpu": level}
    return {"kind": "llvm", "mcpu": str(target.attrs["mcpu"])}


def _parsed(text: str) -> dict[str, Any] | str:
    if text.lstrip().startswith("{"):
        return text
    kind, *options = text.split()
    attributes: dict[str, Any] = {"kind": kind}
    for option in options:
        key, _, value = option.lstrip("-").partition("=")
        attributes[key] = value.split(",") if key == "mattr" else value
    return attributes
