"""The key ``cores`` of a study file, and lists of devices that mean the same."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import chain
from typing import Any

from autosplit.deployment import cores_of

MOST_CORES = 256
_CORE_LIST = re.compile(r"\d+(-\d+)?(,\d+(-\d+)?)*", re.ASCII)


def core_lists(value: Any) -> Any:
    """A number of cores, their numbers as in the spelling of a device, or a list of these."""
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST_CORES:
        return value
    kinds: list[Any] = value if isinstance(value, list) else [value]
    if kinds and all(isinstance(kind, str) and _CORE_LIST.fullmatch(kind) for kind in kinds):
        texts = re.findall(r"\d+", ",".join(kinds))
        if max(map(int, texts)) < MOST_CORES:
            numbers = [cores_of(f"cores:{kind}") for kind in kinds]
            if len(set(chain(*numbers))) < sum(map(len, numbers)):
                raise ValueError("a core has two kinds; name each core once")
            if all(numbers):
                return value
    raise ValueError(
        f'give a number from 1 to {MOST_CORES}, or core numbers as in "0-3" or "0,2", or a list of '
        "them, one for each kind of cores"
    )


def listed_cores(data: Mapping[str, Any]) -> str:
    """The cores in ``devices``, where these are all local cores and no other key names one."""
    devices = data.get("devices")
    if _names_one_device(data) or not isinstance(devices, list):
        return ""
    parts = [str(device).removeprefix("cores:") for device in devices]
    if not all(str(device).startswith("cores:") for device in devices):
        return ""
    text = ",".join(parts)
    try:
        return text if core_lists(parts and [text]) else ""
    except ValueError:  # the devices are refused, or have numbers above those of ``cores``
        return ""


def _names_one_device(data: Mapping[str, Any]) -> bool:
    """Whether another key is about a device of its own: a limit, a target, a region, its times."""
    regions = data.get("regions")
    sections = regions if isinstance(regions, list) else ()
    return (
        isinstance(data.get("memory"), list)
        or bool(data.get("targets"))
        or any(isinstance(section, dict) and section.get("device") for section in sections)
    )
