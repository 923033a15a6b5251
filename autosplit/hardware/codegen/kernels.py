"""Kernels, each compiled once to an object file, by content, target and TVM version.

A kernel's symbol is the digest of its content, including the names in it: ops with equal kernels
share one file. All files of a model are linked into one library.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from autosplit import phases
from autosplit.errors import ModelError, explained
from autosplit.extras import tvm
from autosplit.hardware import cache, native_log
from autosplit.hardware.codegen import toolchain
from autosplit.hardware.codegen.schedules import completed, is_scheduled, schedule
from autosplit.hardware.codegen.target import spelled, target_on
from autosplit.hardware.codegen.target import toolchain as versions
from autosplit.hardware.devices.device import Cores, Device, available, on_its_machine


@dataclass(frozen=True)
class Kernels:
    """Compiled kernels of one model for one target.

    - ``symbols``: a kernel's name to its symbol.
    - ``objects``: a symbol to its object file; empty where nothing here can link or the target has
      no such files, and then ``built`` is the module.
    - ``absent``: names of kernels that could not be compiled for the target.
    """

    symbols: Mapping[str, str]
    objects: Mapping[str, Path]
    built: Any = None
    absent: frozenset[str] = field(default=frozenset())

    @cached_property
    def module(self) -> Any:
        """The kernels loaded into this process, callable by symbol; None for no kernel.

        The module cannot be used where the kernels are for another architecture.
        """
        if not self.objects:
            return self.built
        library = cache.folder() / "libraries" / f"{cache.digest(*sorted(self.objects))}.so"
        objects = [self.objects[symbol] for symbol in sorted(self.objects)]
        cache.keep(library, lambda file: toolchain.link_shared(file, objects))
        return tvm.runtime.load_module(str(library))


@dataclass(frozen=True)
class DeviceKernels:
    """Compiles PrimFuncs for a device when they are first needed there.

    ``target`` is that of local cores and the default of other devices; ``targets`` gives devices,
    by their spelling, targets of their own. ``tuning`` is the folder of a tuning database.
    """

    functions: Mapping[str, Any]
    target: Any
    targets: Mapping[str, str] = field(default_factory=dict)
    tuning: Path | None = None
    _device_targets: dict[str, Any] = field(default_factory=dict, init=False)
    _compiled: dict[tuple[str, bool], Kernels] = field(default_factory=dict, init=False)

    @property
    def unscheduled(self) -> frozenset[str]:
        """The kernels for ``target`` that no record and no rule schedules; compiles nothing."""
        scheduled = schedule(self.functions, self.target, self.tuning).items()
        return frozenset(name for name, f in scheduled if not is_scheduled(f))

    def target_on(self, device: Device) -> Any:
        """The target of a device. Raises MachineError where the device is not there."""
        name = str(device)
        if name not in self._device_targets:
            self._device_targets[name] = target_on(device, self.targets.get(name), self.target)
        return self._device_targets[name]

    def on(self, device: Device) -> Kernels:
        """The kernels for a device; ``absent`` are those that it cannot compute."""
        there = on_its_machine(device)
        threads = not isinstance(there, Cores) or len(there.numbers) > 1
        target = self.target_on(device)
        key = (spelled(target), threads)
        if key not in self._compiled:
            self._compiled[key] = self._compile(target, threads)
        return self._compiled[key]

    def _compile(self, target: Any, threads: bool) -> Kernels:
        """The kernels, taken from the cache where it holds them.

        With ``threads`` each divides its work among the threads of its stage. Raises ModelError
        naming a kernel that cannot be built for ``self.target``, MachineError where the cache
        cannot be written.
        """
        scheduled = schedule(self.functions, target, self.tuning)
        if target.kind.name == "llvm":
            # Not on a GPU: TVM recognises a reduction across threads by its own maximum operator.
            scheduled = {name: completed(f, threads) for name, f in scheduled.items()}
        where = f"{spelled(target)},{versions()}"
        symbols = {name: _symbol(function, where) for name, function in scheduled.items()}
        by_symbol = {symbols[name]: (name, function) for name, function in scheduled.items()}
        in_files = target.kind.name == "llvm" and toolchain.is_available()
        folder = cache.folder() / "kernels" / cache.digest(where) if in_files else None
        partly = spelled(target) != spelled(self.target)
        objects, failed = _compile_each(by_symbol, target, folder, partly)
        absent = frozenset(name for name, symbol in symbols.items() if symbol in failed)
        symbols = {name: symbol for name, symbol in symbols.items() if symbol not in failed}
        remaining = {symbol: by_symbol[symbol] for symbol in symbols.values()}
        built = None if in_files else _build(remaining, target)
        return Kernels(symbols, objects, built, absent)


def _symbol(function: Any, where: str) -> str:
    if "global_symbol" in (function.attrs or {}):
        function = function.without_attr("global_symbol")
    digest = hashlib.sha256(f"{where}\0{tvm.ir.save_json(function)}".encode()).hexdigest()
    return f"k{digest[:24]}"


def _compile_each(
    by_symbol: Mapping[str, tuple[str, Any]], target: Any, folder: Path | None, partly: bool
) -> tuple[dict[str, Path], set[str]]:
    """The object file of each symbol, and with ``partly`` the symbols that cannot be built.

    Without a ``folder`` there are no files.
    """
    objects: dict[str, Path] = {}
    failed: set[str] = set()
    if folder is None and not partly:
        return objects, failed

    def compile_one(symbol: str) -> Path | None:
        def built() -> Any:
            return _build({symbol: by_symbol[symbol]}, target)

        if folder is None:
            built()
            return None
        file = folder / f"{symbol}.o"
        return cache.keep(file, lambda new: toolchain.write_object(built(), new))

    # In threads, because LLVM compiles without holding Python's lock.
    pool = ThreadPoolExecutor(len(available()))
    try:
        files = {symbol: pool.submit(compile_one, symbol) for symbol in by_symbol}
        for number, (symbol, file) in enumerate(files.items(), 1):
            if not file.done():
                phases.report(f"compiling kernels {number}/{len(files)}")
            try:
                if path := file.result():
                    objects[symbol] = path
            except ModelError:
                if not partly:
                    raise
                failed.add(symbol)
    finally:
        pool.shutdown(cancel_futures=True)
    return objects, failed


@native_log.hidden()
def _build(by_symbol: Mapping[str, tuple[str, Any]], target: Any) -> Any:
    functions = {s: f.with_attr("global_symbol", s) for s, (_, f) in by_symbol.items()}
    names = ", ".join(sorted(name for name, _ in by_symbol.values()))
    with explained(ModelError, f"kernel {names} cannot be built for {target.kind.name}"):
        return tvm.tirx.build(tvm.IRModule(functions), target=target)
