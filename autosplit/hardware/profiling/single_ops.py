"""The time of every fused op on a device that cannot be watched from here: each op by itself, on its real inputs.

Each op is a function of one library; they run one after the other on the device, each result staying there as the next
one's input, and TVM's evaluator times each on the device's own clock. So nothing that is timed crosses a network.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from autosplit.errors import ModelError
from autosplit.hardware.codegen.kernels import Kernels
from autosplit.hardware.execution.wiring import StagePorts
from autosplit.hardware.measurement.results import Profile
from autosplit.hardware.measurement.statistics import spread
from autosplit.hardware.runtimes.tvm.remote_stage import empty, send
from autosplit.lowering.fuse.lowered import Lowered

MS = 1e3
_FEWEST, _MOST = 4, 60  # samples of an op

Item = Mapping[str, np.ndarray[Any, Any]]


def functions(
    ports: Iterable[StagePorts], lowered: Lowered, kernels: Kernels
) -> dict[str, StagePorts]:
    """The ops that can run, each as a function: its name and its ports. ``ports`` has one op a stage."""
    ops = lowered.graph.ops
    return {
        f"op{p.ops[0]}": p for p in ports if ops[p.ops[0]].kernel not in absent(lowered, kernels)
    }


def absent(lowered: Lowered, kernels: Kernels) -> frozenset[str]:
    """What a device other than local cores cannot run: kernels not compiled for it, and what external backends run."""
    return kernels.absent.union(lowered.composites)


def profile_apart(
    lowered: Lowered,
    kernels: Kernels,
    machine: Any,
    runtime: Any,
    ports: Sequence[StagePorts],
    item: Item,
    device: str,
    seconds: float = 2.0,
) -> Profile:
    """Time every op in ``machine``, a virtual machine over ``functions`` on the TVM device ``runtime``.

    An op that the device cannot run takes for ever; those after it compute with zeros. A view or a
    constant takes no time.
    """
    tensors: dict[str, Any] = {}
    there = functions(ports, lowered, kernels)
    op_ms, half = [], []
    left = _last_readers(ports)
    for p in ports:
        op = lowered.graph.ops[p.ops[0]]
        name = f"op{p.ops[0]}"
        for port in p.inputs:
            if port.name not in tensors:
                send(item[port.name], tensors.setdefault(port.name, empty(port, runtime)))
        if name not in there:
            tensors |= {port.name: _zeros(port, runtime) for port in p.outputs}
            op_ms.append(math.inf)
            half.append(0.0)
            continue
        machine.set_input(name, *(tensors[port.name] for port in p.inputs))
        computes = op.kernel not in kernels.views and op.kernel in kernels.symbols
        samples = (
            _timed(machine, runtime, name, seconds / len(ports))
            if computes
            else _untimed(machine, name)
        )
        found = spread(samples)
        op_ms.append(found.median)
        half.append((found.high - found.low) / 2)
        tensors |= {port.name: machine._get_output(name, i) for i, port in enumerate(p.outputs)}
        for port in p.inputs:
            if left[port.name] == p.ops[0]:
                tensors.pop(port.name, None)
    return Profile(device, tuple(op_ms), tuple(half))


def _timed(machine: Any, runtime: Any, name: str, seconds: float) -> list[float]:
    """Samples in ms; each call runs the op once more for warmth."""

    def sample(repeat: int) -> list[float]:
        results = machine.time_evaluator("invoke_stateful", runtime, number=1, repeat=repeat)(
            name
        ).results
        return [float(t) * MS for t in results]

    first = sample(_FEWEST)
    one = max(min(first), 1e-4)
    more = int(seconds * MS / one) - _FEWEST
    return first + (sample(min(more, _MOST)) if more > 0 else [])


def _untimed(machine: Any, name: str) -> list[float]:
    machine.invoke_stateful(name)
    return [0.0]


def _zeros(port: Any, runtime: Any) -> Any:
    made = empty(port, runtime)
    send(np.zeros(port.shape, port.dtype), made)
    return made


def _last_readers(ports: Iterable[StagePorts]) -> dict[str, int]:
    """The last op that reads each tensor."""
    return {port.name: p.ops[0] for p in ports for port in p.inputs}


def require_all(kernels: Kernels, lowered: Lowered, ports: StagePorts, device: str) -> None:
    """Raises ModelError, naming the op, where a stage has one that its device, other than local cores, cannot run."""
    for op in map(lowered.graph.ops.__getitem__, ports.ops):
        if op.kernel in lowered.composites:
            backend = lowered.composites[op.kernel].backend.name
            raise ModelError(
                f"op '{op.name}' of backend '{backend}' runs on local cores, not on '{device}'; write cores:0"
            )
        if op.kernel in kernels.absent:
            raise ModelError(
                f"op '{op.name}' cannot be compiled for device '{device}'; give its stage another device"
            )
