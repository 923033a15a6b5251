"""What a stage costs in each of several runtimes that compete for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

_T = TypeVar("_T")
Rows = tuple[tuple[float, ...], ...]


def of_device(table: Sequence[_T], device: int) -> _T:
    """The row or entry of a device; a table of one serves all devices."""
    return table[device if len(table) > 1 else 0]


@dataclass(frozen=True)
class RuntimeCosts:
    """The costs of one runtime; tables hold one row for all devices, or one per device.

    ``times``: infinite where the runtime cannot compute the op; ``groups``: bitsets of ops that the
    runtime cannot separate. A stage with a part of a group is computed in another runtime.
    """

    name: str
    times: Rows
    overheads: tuple[float, ...] = (0.0,)
    groups: tuple[int, ...] = ()

    def separated_by(self, ops: int) -> bool:
        """Whether a stage of these ops holds a part of some group."""
        return any(0 != group & ops != group for group in self.groups)


def least_costs(runtimes: Sequence[RuntimeCosts]) -> tuple[Rows, tuple[float, ...]]:
    """Per device the least time of each op and the least overhead over the runtimes."""
    rows = max(len(runtime.times) for runtime in runtimes)
    times = []
    for d in range(rows):
        device_rows = [of_device(runtime.times, d) for runtime in runtimes]
        times.append(tuple(map(min, zip(*device_rows, strict=True))))
    places = max(len(runtime.overheads) for runtime in runtimes)
    overheads = [
        min(of_device(runtime.overheads, d) for runtime in runtimes) for d in range(places)
    ]
    return tuple(times), tuple(overheads)
