"""The ways to run a model without splitting it, on the devices that its stages have."""

from __future__ import annotations

from collections.abc import Sequence

from autosplit.hardware.devices.device import Cores, Device

Way = tuple[str, Sequence[Device]]
"""A name, and the device of each copy of the model."""


def ways(devices: Sequence[Device]) -> list[Way]:
    """One core and all cores, where there are any; each other device by itself; a replica on each core and device."""
    cores = sorted(
        {number for device in devices if isinstance(device, Cores) for number in device.numbers}
    )
    others = [device for device in dict.fromkeys(devices) if not isinstance(device, Cores)]
    found: list[Way] = []
    if cores:
        found.append(("one core", [Cores((cores[0],))]))
    if len(cores) > 1:
        found.append(("all cores", [Cores(tuple(cores))]))
    found += [(name, [device]) for name, device in {str(d): d for d in reversed(others)}.items()][
        ::-1
    ]
    copies: list[Device] = [*(Cores((core,)) for core in cores), *others]
    return [*found, ("replicas", copies)] if len(copies) > 1 else found
