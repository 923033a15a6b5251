"""Placement of replicas on a Ray cluster. Pure: nodes are given as ``ray.nodes()`` lists them.

A place is spelled ``ray:NODE/cores:0-3``. NODE is the address, the host name or the id of a node,
a resource that nodes have, or ``*`` for any. By default the cores are those in the export. A device
of a study is one node and its cores, so that the export runs where it was measured.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autosplit.deployment import on_its_machine
from autosplit.errors import ConfigError, MachineError, nearest
from autosplit.hardware.devices.device import Cores, RayCores, parse

_SPELLING = "ray:NODE/cores:0-3"
# Every node has these resources, or has one for its address.
_COMMON = ("CPU", "GPU", "memory", "object_store_memory")

Node = Mapping[str, Any]


@dataclass(frozen=True)
class RayPlace:
    """The node of a replica, by its id, and its cores there; Ray reserves as many CPUs."""

    node: str
    address: str
    cores: Cores

    def __str__(self) -> str:
        return f"node {self.address} ({self.node[:8]})"


def assign(
    placement: Sequence[str], devices: Sequence[str], nodes: Sequence[Node]
) -> list[RayPlace]:
    """Choose the place of each replica; each was exported for one of ``devices``, in their order.

    Replicas with the same NODE take the nodes that it names in turn; without a placement, NODE is
    that of the device, or ``*``. Raises ConfigError for a misspelt placement or one of another
    length, MachineError for a node that is not there or has too few cores.
    """
    if placement and len(placement) != len(devices):
        raise ConfigError(
            f"{len(devices)} replicas need {len(devices)} places, not {len(placement)}: "
            f"{', '.join(placement)}"
        )
    uses, places = Counter[str](), []
    defaults = [device if device.startswith("ray:") else "ray:*" for device in devices]
    for text, device in zip(placement or defaults, devices, strict=True):
        place = parse(text if "/" in text else f"{text}/{on_its_machine(device)}")
        if not isinstance(place, RayCores):
            raise ConfigError(f"place '{text}' is no Ray node; write {_SPELLING}")
        matches = _matches(place, nodes)
        node = matches[uses[place.node] % len(matches)]
        uses[place.node] += 1
        places.append(RayPlace(node["NodeID"], node["NodeManagerAddress"], place.cores))
    _require_cores(places, nodes)
    return places


def only_place(device: RayCores, nodes: Sequence[Node]) -> RayPlace:
    """The place of a device of a study. Raises MachineError unless it names one node with cores."""
    matches = _matches(device, nodes)
    if len(matches) > 1:
        ids = ", ".join(node["NodeID"][:8] for node in matches[:8])
        problem = f"device '{device}' is on one of {len(matches)} nodes ({ids}); name one by its id"
        raise MachineError(problem)
    place = RayPlace(matches[0]["NodeID"], matches[0]["NodeManagerAddress"], device.cores)
    _require_cores([place], matches)
    return place


def _matches(device: RayCores, nodes: Sequence[Node]) -> Sequence[Node]:
    """The live nodes that match the NODE of a device."""
    alive = [node for node in nodes if node["Alive"]]
    matches = [node for node in alive if device.node in ("*", *_names(node))]
    if not matches:
        known = sorted({name for node in alive for name in _names(node)})
        raise MachineError(
            f"device '{device}': the cluster has no node or resource '{device.node}'"
            f"{nearest(device.node, known)}; it has {', '.join(n for n in known if len(n) < 56)}"
        )
    return matches


def _names(node: Node) -> set[str]:
    """The names by which a device may refer to a node."""
    names = {node[key] for key in ("NodeID", "NodeManagerAddress", "NodeManagerHostname")}
    names.add(node["NodeID"][:8])  # the short form that messages use
    return names | {r for r in node["Resources"] if r not in _COMMON and not r.startswith("node:")}


def _require_cores(places: Sequence[RayPlace], nodes: Sequence[Node]) -> None:
    needed = Counter[str]()
    for place in places:
        needed[place.node] += len(place.cores.numbers)
    for node in nodes:
        cores = int(node["Resources"].get("CPU", 0))
        if needed[node["NodeID"]] > cores:
            raise MachineError(
                f"node {node['NodeManagerAddress']} has {cores} CPUs in Ray, its replicas need "
                f"{needed[node['NodeID']]}; place some on another node with {_SPELLING}"
            )
