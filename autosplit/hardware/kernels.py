"""Kernels compiled once: an object file a kernel, by content, target and TVM version; one library a model.

A kernel goes by the digest of its content, names in it included: calls of equal content share one file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from autosplit.errors import ModelError, line_of
from autosplit.hardware import cache, toolchain
from autosplit.hardware.schedules import schedule
from autosplit.hardware.target import spelled
from autosplit.hardware.target import toolchain as versions


@dataclass(frozen=True)
class Kernels:
    """Compiled kernels of one model.

    ``module`` is loaded and callable by symbol; ``symbols`` maps a kernel's name to its symbol; ``views`` are the kernels
    that only reshape; ``objects`` maps a symbol to its object file, empty where nothing here can link (then the
    module lives in memory only).
    """

    module: Any
    symbols: Mapping[str, str]
    views: frozenset[str]
    objects: Mapping[str, Path]


def compile_kernels(functions: Mapping[str, Any], target: Any, tuning: Path | None = None) -> Kernels:
    """Compile PrimFuncs by name for ``target``, taking from the cache what it holds.

    Kernels are scheduled as the database in the folder ``tuning`` says, else as the records that ship with the package say.
    Raises ModelError naming a kernel that cannot be built, MachineError where the cache cannot be written.
    """
    import tvm
    from tvm.relax.analysis import has_reshape_pattern

    views = frozenset(name for name, function in functions.items() if has_reshape_pattern(function))
    functions = schedule(functions, target, tuning)
    where = f"{spelled(target)},{versions()}"
    symbols = {name: _symbol(function, where) for name, function in functions.items()}
    by_symbol = {symbols[name]: (name, function) for name, function in functions.items()}
    if not toolchain.is_available():
        return Kernels(_build(by_symbol, target), symbols, views, {})
    folder = cache.folder() / "kernels" / cache.digest(where)
    objects = {
        symbol: cache.keep(folder / f"{symbol}.o", partial(_write, symbol, named, target))
        for symbol, named in by_symbol.items()
    }
    library = cache.folder() / "libraries" / f"{cache.digest(where, *sorted(objects))}.so"
    cache.keep(
        library, lambda file: toolchain.link_shared(file, [objects[s] for s in sorted(objects)] or [_empty(file)])
    )
    return Kernels(tvm.runtime.load_module(str(library)), symbols, views, objects)


def _symbol(function: Any, where: str) -> str:
    import tvm

    attributes = function.attrs or {}
    plain = function.without_attr("global_symbol") if "global_symbol" in attributes else function
    return "k" + hashlib.sha256(f"{where}\0{tvm.ir.save_json(plain)}".encode()).hexdigest()[:24]


def _write(symbol: str, named: tuple[str, Any], target: Any, file: Path) -> None:
    _build({symbol: named}, target).write_to_file(str(file))


def _build(by_symbol: Mapping[str, tuple[str, Any]], target: Any) -> Any:
    import tvm

    functions = {s: function.with_attr("global_symbol", s) for s, (_, function) in by_symbol.items()}
    try:
        return tvm.tirx.build(tvm.IRModule(functions), target=target)
    except Exception as error:
        names = ", ".join(sorted(name for name, _ in by_symbol.values()))
        reason = line_of(error, last=True)
        raise ModelError(f"kernel {names} cannot be built for {target.kind.name}: {reason}") from error


def _empty(beside: Path) -> Path:
    """An object file without code: a model may have no kernel of its own."""
    source = beside.with_suffix(".c")
    source.write_text("", encoding="ascii")
    return source


def used(symbols: Iterable[str], kernels: Kernels) -> list[Path]:
    """The object files of some symbols, each once, in a fixed order."""
    return [kernels.objects[s] for s in sorted(set(symbols))]
