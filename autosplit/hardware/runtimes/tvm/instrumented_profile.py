"""Op times inside the whole model, in TVM's virtual machine on local cores.

TVM's instrument is called around every kernel, so each op finds the caches as the op before it
left them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from autosplit.errors import ModelError
from autosplit.extras import relax, tvm
from autosplit.hardware.codegen.kernels import Kernels
from autosplit.hardware.codegen.link import ENTRY
from autosplit.hardware.devices.device import Cores
from autosplit.hardware.measurement.results import Profile
from autosplit.hardware.profiling.timing import MS, on_cores, repeated_ms
from autosplit.lowering.fuse.lowered import Lowered

Call = tuple[str, float]
"""The symbol of a kernel and the seconds that one call of it took."""


def profile_ops(
    lowered: Lowered,
    kernels: Kernels,
    module: Any,
    inputs: Sequence[np.ndarray[Any, Any]],
    cores: Cores,
    seconds: float,
) -> Profile:
    """Time every op on ``cores`` for about ``seconds``.

    ``module`` is the unsplit model as one stage, ``inputs`` are in the order of its ports. Its
    kernels run in the order of the graph's ops.
    """
    # Kernels beside the ops change the layout of what the whole model takes and returns.
    symbols = _symbols(lowered, kernels)
    timer = _Timer({symbols.get(op.kernel, op.kernel) for op in lowered.graph.ops})
    on_cores(cores, lambda: _run_rounds(module, inputs, cores, timer, seconds))
    # The first round is a warm-up that does not count.
    return _profile(lowered, kernels, timer.rounds[1:], str(cores))


class _Timer:
    """TVM's instrument: the calls of kernels, by round."""

    def __init__(self, symbols: set[str]) -> None:
        self._symbols = symbols
        self._start = 0.0
        self.rounds: list[list[Call]] = []

    def __call__(
        self, function: Any, symbol: str, before: bool, result: Any, *arguments: Any
    ) -> int:
        now = time.perf_counter()
        if before:
            self._start = time.perf_counter()
        elif symbol in self._symbols:
            self.rounds[-1].append((symbol, now - self._start))
        return 0


def _run_rounds(
    module: Any, inputs: Sequence[Any], cores: Cores, timer: _Timer, seconds: float
) -> None:
    cores.bind_kernels()
    machine = relax.VirtualMachine(module, tvm.cpu())
    machine.set_instrument(timer)
    values = [tvm.runtime.tensor(v) for v in inputs]

    def run_round() -> None:
        timer.rounds.append([])
        machine[ENTRY](*values)

    repeated_ms(run_round, seconds)


def _profile(
    lowered: Lowered, kernels: Kernels, rounds: Sequence[Sequence[Call]], device: str
) -> Profile:
    called = [symbol for symbol, _ in rounds[0]]
    symbols = _symbols(lowered, kernels)
    samples: list[list[float]] = []
    position = 0
    for op in lowered.graph.ops:
        symbol = symbols.get(op.kernel)
        if position < len(called) and called[position] == symbol:
            samples.append([calls[position][1] * MS for calls in rounds])
            position += 1
        elif op.kernel in kernels.views or symbol is None:
            samples.append([0.0])  # nothing is computed for a view or a constant
        else:
            raise ModelError(f"op '{op.name}' did not run in the order of the graph; report a bug")
    return Profile.of_samples(device, samples)


def _symbols(lowered: Lowered, kernels: Kernels) -> dict[str, str]:
    """The symbol by the name of what an op calls, a kernel or a composite."""
    return {name: c.region for name, c in lowered.composites.items()} | dict(kernels.symbols)
