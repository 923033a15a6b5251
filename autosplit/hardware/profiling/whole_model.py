"""The time of every fused op where it will run: inside the whole model, in TVM's virtual machine, on its own device.

The machine's instrument is called around every kernel, so that each op meets the caches as the op before it left them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from autosplit.errors import ModelError
from autosplit.hardware import cache
from autosplit.hardware.codegen.kernels import Kernels
from autosplit.hardware.codegen.link import ENTRY
from autosplit.hardware.devices.device import Cores
from autosplit.hardware.measurement.results import Profile
from autosplit.hardware.measurement.statistics import spread
from autosplit.lowering.fuse.lowered import Lowered

MS = 1e3


def profile_ops(
    lowered: Lowered,
    kernels: Kernels,
    module: Any,
    inputs: Sequence[np.ndarray[Any, Any]],
    cores: Cores,
    seconds: float = 2.0,
    rounds: int = 5,
) -> Profile:
    """Time every op on ``cores``. ``module`` is the unsplit model as one stage, ``inputs`` in the order of its ports; its
    kernels run in the graph's order.

    At least ``rounds`` rounds, more while ``seconds`` last; the first is a warm-up.
    """
    timer = _Timer({*kernels.symbols.values(), *lowered.composites})
    with ThreadPoolExecutor(
        1, "profile"
    ) as own_thread:  # TVM's kernel threads, and where they run, go by thread
        own_thread.submit(_rounds, module, inputs, cores, timer, seconds, rounds).result()
    return _profile(lowered, kernels, timer.rounds[1:], str(cores))


def cached(key: Sequence[str], make: Callable[[], Profile], force: bool = False) -> Profile:
    """The profile under a key, from the cache or by ``make()``; with ``force`` always made."""
    file = cache.folder() / "profiles" / f"{cache.digest(*key)}.json"
    if force:
        file.unlink(missing_ok=True)

    def write(temporary: Path) -> None:
        made = make()
        document = {"device": made.device, "op_ms": made.op_ms, "spread_ms": made.spread_ms}
        temporary.write_text(json.dumps(document), encoding="utf-8")

    document = json.loads(cache.keep(file, write).read_text(encoding="utf-8"))
    return Profile(document["device"], tuple(document["op_ms"]), tuple(document["spread_ms"]))


class _Timer:
    """TVM's instrument: (symbol, seconds) of every kernel call, by round."""

    def __init__(self, symbols: set[str]) -> None:
        self._symbols = symbols
        self._start = 0.0
        self.rounds: list[list[tuple[str, float]]] = []

    def __call__(
        self, function: Any, symbol: str, before: bool, result: Any, *arguments: Any
    ) -> int:
        now = time.perf_counter()
        if before:
            self._start = time.perf_counter()
        elif symbol in self._symbols:
            self.rounds[-1].append((symbol, now - self._start))
        return 0


def _rounds(
    module: Any, inputs: Sequence[Any], cores: Cores, timer: _Timer, seconds: float, rounds: int
) -> None:
    import tvm
    from tvm import relax

    cores.bind()
    cores.bind_kernels()
    machine = relax.VirtualMachine(module, tvm.cpu())
    machine.set_instrument(timer)
    values = [tvm.runtime.tensor(v) for v in inputs]
    deadline = time.perf_counter() + seconds
    while len(timer.rounds) <= rounds or time.perf_counter() < deadline:
        timer.rounds.append([])
        machine[ENTRY](*values)


def _profile(
    lowered: Lowered, kernels: Kernels, rounds: Sequence[Sequence[tuple[str, float]]], device: str
) -> Profile:
    calls = rounds[0]
    position = 0
    op_ms, half = [], []
    for op in lowered.graph.ops:
        symbol = kernels.symbols.get(op.kernel) or (
            op.kernel if op.kernel in lowered.composites else None
        )
        if position < len(calls) and calls[position][0] == symbol:
            samples = spread([r[position][1] * MS for r in rounds])
            op_ms.append(samples.median)
            half.append((samples.high - samples.low) / 2)
            position += 1
        elif op.kernel in kernels.views or symbol is None:
            op_ms.append(0.0)  # a view, a constant: nothing is computed
            half.append(0.0)
        else:
            raise ModelError(
                f"op '{op.name}' did not run where it was expected; its time is unknown"
            )
    return Profile(device, tuple(op_ms), tuple(half))
