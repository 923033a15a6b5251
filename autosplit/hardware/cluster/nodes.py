"""What is asked of the nodes of a Ray cluster: targets, op times, and the paths between them.

Requests and answers are JSON, as those of a worker process; model files go through Ray.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from autosplit.extras import require, tvm
from autosplit.files import sha256
from autosplit.hardware.cluster.connection import (
    START_S,
    answer,
    connected,
    place_of,
    put,
    require_version,
    start_actor,
    write_files,
)
from autosplit.hardware.devices.device import Cores, RayCores, parse
from autosplit.hardware.execution.tensor_channel import Channel, connect, listen
from autosplit.hardware.measurement.results import LinkCost, Profile
from autosplit.hardware.profiling import transfer_costs
from autosplit.hardware.profiling.timing import on_cores
from autosplit.serialization import dump, load
from autosplit.versions import VERSION

PROFILE_S = 3600.0  # for a node to compile the kernels of a model and to time them
TUNING = "tuning"  # the folder of a tuning database beside the model there

_actors: dict[str, Any] = {}  # by the id of their node; Ray ends them with this process


class NodeActor:
    """Ray's actor on a node, which computes no stage."""

    def __init__(self, version: str) -> None:
        require_version(version)

    def ask(self, function: str) -> str | None:
        """The text that a function of TVM returns there; None where there is no such function."""
        known = tvm.get_global_func(function, allow_missing=True)
        return None if known is None else str(known())

    def profile(self, load_model: Callable[..., Any], request: str, *contents: Any) -> str:
        """The profiles of a model on cores of the node, one for each runtime."""
        job = json.loads(request)
        with tempfile.TemporaryDirectory(prefix="autosplit-ray-") as name:
            folder = Path(name)
            write_files(folder, job["digests"], contents)
            tuning = folder / TUNING if (folder / TUNING).is_dir() else None
            model = load_model(folder / job["model"], tuning=tuning, **job["options"])
            profiles = model.profiles([parse(job["device"])], job["seconds"], job["force"])
        return json.dumps(dump(profiles))

    def listen(self, key: bytes) -> tuple[str, int]:
        """Send arrays to whoever knows the secret; returns the address."""
        return listen(require("ray", "ray").util.get_node_ip_address(), key, _send_arrays)

    def receive(self, address: tuple[str, int], key: bytes, cores: str) -> list[float]:
        """The times in ms to receive arrays of the ``SIZES`` from another actor."""
        place = parse(cores)
        assert isinstance(place, Cores)
        return on_cores(place, lambda: _receive_ms(address, key, transfer_costs.SIZES))


def ask(device: RayCores, function: str) -> str | None:
    """The text that a function of TVM returns on a node; None where there is no such function."""
    text = _call(device, lambda actor: actor.ask.remote(function))
    return None if text is None else str(text)


def profile(
    device: RayCores,
    load_model: Callable[..., Any],
    options: Mapping[str, Any],
    files: Mapping[str, Path],
    seconds: float,
    force: bool,
) -> list[Profile]:
    """The profiles of a model on a device, one for each runtime.

    ``load_model`` reads the model there from the first of ``files``, with ``options`` of JSON's
    types; the others lie beside it under their names.
    """
    digests = {name: sha256(file) for name, file in files.items()}
    job = json.dumps(
        {
            "digests": digests,
            "model": next(iter(files)),
            "options": options,
            "device": str(device.cores),
            "seconds": seconds,
            "force": force,
        }
    )
    contents = [put(file) for file in files.values()]
    text = _call(device, lambda actor: actor.profile.remote(load_model, job, *contents), PROFILE_S)
    return load(list[Profile], json.loads(text))


def links(devices: Sequence[RayCores], beside_local: bool = False) -> list[LinkCost]:
    """The link cost of each of some distinct devices, from the paths between each pair of them.

    The planner counts half of a path's cost at each of its ends. With three devices or more the
    halves are fitted to all paths by least squares. With ``beside_local`` there are stages on this
    machine too, whose end of a path costs nothing.
    """
    if not devices:
        return []
    key = secrets.token_bytes(32)
    addresses = [_call(device, lambda actor: actor.listen.remote(key)) for device in devices]
    # A tensor goes from an earlier device to a later one.
    numbers = range(len(devices))
    paths: dict[tuple[int, ...], tuple[float, float]] = {}  # costs by the devices at the ends
    for sender, reader in combinations(numbers, 2):
        times = _call(devices[reader], _receiving(addresses[sender], key, devices[reader]))
        paths[sender, reader] = _fitted(times)
    if beside_local or not paths:
        for number in numbers:
            times = _receive_ms(addresses[number], key, transfer_costs.SIZES)
            paths[(number,)] = _fitted(times)
    ends = np.array([[float(n in path) for n in numbers] for path in paths])
    halves = np.maximum(np.linalg.lstsq(ends, np.array(list(paths.values())), rcond=None)[0], 0.0)
    costs = []
    for device, address, (ms_per_byte, latency) in zip(devices, addresses, halves, strict=True):
        (call_ms,) = _receive_ms(address, key, [0])
        bandwidth = 1 / ms_per_byte if ms_per_byte else float("inf")
        costs.append(LinkCost(str(device), float(bandwidth), float(latency), call_ms))
    return costs


def _fitted(times: Sequence[float]) -> tuple[float, float]:
    """The ms for a byte and for a message, from the times in ms to receive the ``SIZES``."""
    bandwidth, latency = transfer_costs.fit(list(zip(transfer_costs.SIZES, times, strict=True)))
    return 1 / bandwidth, latency


def _receiving(address: Any, key: bytes, reader: RayCores) -> Callable[[Any], Any]:
    return lambda actor: actor.receive.remote(address, key, str(reader.cores))


def _receive_ms(address: tuple[str, int], key: bytes, sizes: Sequence[int]) -> list[float]:
    channel = connect(address, key)

    def receive(size: int) -> None:
        channel.send({"bytes": size})
        channel.receive()

    try:
        return [transfer_costs.median_ms(partial(receive, size)) for size in sizes]
    finally:
        channel.close()


def _send_arrays(channel: Channel) -> None:
    while True:
        request, _ = channel.receive()
        channel.send({}, [np.zeros(request["bytes"], np.uint8)])


def _call(device: RayCores, request: Callable[[Any], Any], seconds: float = START_S) -> Any:
    """The answer of the actor on the node of a device, which is started if there is none.

    Raises MachineError where the node or the actor is gone.
    """
    place = place_of(device)
    if place.node not in _actors:
        _actors[place.node] = start_actor(NodeActor, place, 0, VERSION)
    try:
        return answer(request(_actors[place.node]), f"device '{device}'", seconds)
    except BaseException:
        # The next call starts another.
        actor = _actors.pop(place.node)
        with contextlib.suppress(Exception):  # it belongs to a cluster that was shut down
            connected().kill(actor)
        raise
