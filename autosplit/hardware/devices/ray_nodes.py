"""Where on a Ray cluster replicas run. Pure: the nodes are as ``ray.nodes()`` lists them.

A place is spelled ``ray:NODE/cores:0-3``. NODE is the address, the host name or the id of a node,
a resource that nodes have, or ``*`` for any. Without cores they are those of the export. A device
of a study is one node and its cores, so the export runs where it was measured.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autosplit.deployment import cores_of, on_its_machine
from autosplit.errors import ConfigError, MachineError, nearest

_SPELLING = "ray:NODE/cores:0-3"
# Every node has these resources, or has one for its address.
_COMMON = ("CPU", "GPU", "memory", "object_store_memory")


@dataclass(frozen=True)
class RayPlace:
    """The node of a replica, by its id, and its cores there, ``device``."""

    node: str
    address: str
    device: str

    def __str__(self) -> str:
        return f"node {self.address} ({self.node[:8]})"


def assign(
    placement: Sequence[str], devices: Sequence[str], nodes: Sequence[Mapping[str, Any]]
) -> list[RayPlace]:
    """The place of each replica, which was exported for one of ``devices``.

    The replicas placed by one NODE take the nodes that it names in turn; without a placement it
    is that of the device, or ``*``. Raises ConfigError for a misspelt placement and one of another
    length, MachineError for a node that is not there or has too few cores.
    """
    if placement and len(placement) != len(devices):
        raise ConfigError(
            f"{len(devices)} replicas need {len(devices)} places, not {len(placement)}: "
            f"{', '.join(placement)}"
        )
    alive = [node for node in nodes if node["Alive"]]
    uses, places = Counter[str](), []
    defaults = [device if device.startswith("ray:") else "ray:*" for device in devices]
    for text, device in zip(placement or defaults, devices, strict=True):
        name, cores = _parse(text)
        matches = _matches(text, name, alive)
        node = matches[uses[name] % len(matches)]
        uses[name] += 1
        places.append(_place(node, cores or on_its_machine(device)))
    _require_cores(places, alive)
    return places


def only_place(device: str, nodes: Sequence[Mapping[str, Any]]) -> RayPlace:
    """The place of a device of a study. Raises MachineError unless it names one node with cores."""
    name, cores = _parse(device)
    matches = _matches(device, name, [node for node in nodes if node["Alive"]])
    if len(matches) > 1:
        ids = ", ".join(node["NodeID"][:8] for node in matches[:8])
        raise MachineError(
            f"device '{device}' is on one of {len(matches)} nodes ({ids}); name one by its id"
        )
    _require_cores([_place(matches[0], cores)], matches)
    return _place(matches[0], cores)


def _matches(
    text: str, name: str, alive: Sequence[Mapping[str, Any]]
) -> Sequence[Mapping[str, Any]]:
    matches = [node for node in alive if name == "*" or name in _names(node)]
    if not matches:
        known = sorted({known for node in alive for known in _names(node)})
        raise MachineError(
            f"place '{text}': the cluster has no node or resource '{name}'"
            f"{nearest(name, known)}; it has {', '.join(n for n in known if len(n) < 56)}"
        )
    return matches


def _place(node: Mapping[str, Any], device: str) -> RayPlace:
    return RayPlace(node["NodeID"], node["NodeManagerAddress"], device)


def _parse(text: str) -> tuple[str, str]:
    kind, _, rest = text.partition(":")
    name, _, cores = rest.partition("/")
    if kind != "ray" or not name or (cores and not cores.startswith("cores:")):
        raise ConfigError(f"place '{text}' is unknown; write {_SPELLING}")
    return name, cores


def _names(node: Mapping[str, Any]) -> set[str]:
    """What a placement may call a node."""
    names = {node[key] for key in ("NodeID", "NodeManagerAddress", "NodeManagerHostname")}
    names.add(node["NodeID"][:8])  # as messages have it
    return names | {r for r in node["Resources"] if r not in _COMMON and not r.startswith("node:")}


def _require_cores(places: Sequence[RayPlace], nodes: Sequence[Mapping[str, Any]]) -> None:
    needed = Counter[str]()
    for place in places:
        needed[place.node] += cpus(place)
    for node in nodes:
        cores = int(node["Resources"].get("CPU", 0))
        if needed[node["NodeID"]] > cores:
            raise MachineError(
                f"node {node['NodeManagerAddress']} has {cores} CPUs in Ray, its replicas need "
                f"{needed[node['NodeID']]}; place some on another node with {_SPELLING}"
            )


def cpus(place: RayPlace) -> int:
    """What Ray counts for a replica. Raises ConfigError for one that is not on cores."""
    try:
        count = len(cores_of(place.device))
    except ValueError:
        count = 0
    if not count:
        raise ConfigError(f"device '{place.device}' is not cores of a Ray node; write {_SPELLING}")
    return count
