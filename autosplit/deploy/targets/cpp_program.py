"""The C++ program of an export: its sources, and the wiring as C++ that is compiled into it.

The wiring is generated, so the program reads no JSON. Names come from model files, which nobody
trusts, so every character of a name that could end a string is escaped.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from autosplit.deploy.manifest import Manifest, ReplicaPart, StagePart
from autosplit.deploy.manifest_wiring import wired
from autosplit.deployment import cores_of
from autosplit.errors import ConfigError
from autosplit.hardware.codegen.target import target_of
from autosplit.hardware.devices import processor
from autosplit.hardware.execution.edges import CALLER, Edge, Edges, connect
from autosplit.hardware.execution.wiring import Port, StageState
from autosplit.hardware.runtimes.registry import TVM, package_of
from autosplit.versions import TVM as TVM_PACKAGE

_DEPTH = 2  # as in ``autosplit.load``


class Code(str):
    """Text that is C++ already."""


def files(document: Manifest) -> Mapping[str, bytes]:
    """The sources of the program. Raises ConfigError for a stage that is not on local cores."""
    folder = Path(__file__).parent / "cpp"
    names = [file.name for file in folder.iterdir() if file.suffix in (".cpp", ".hpp", ".txt")]
    sources = {name: (folder / name).read_bytes() for name in names}
    runtimes = sorted({package_of(stage.runtime) for stage in document.stages})
    cmake = f"set(RUNTIMES {' '.join(runtimes)})\n"
    return {**sources, "wiring.cmake": cmake.encode(), "wiring.cpp": _wiring(document).encode()}


def _wiring(document: Manifest) -> str:
    """A definition of ``description``, whose fields ``description.hpp`` explains."""
    wiring = wired(document)
    counts = [len(stage.replicas) for stage in document.stages]
    edges = connect(wiring, counts, _DEPTH)
    outputs = [port.name for port in wiring.outputs]
    inputs = [port.name for port in wiring.inputs]
    forwarded = [
        (inputs.index(connection.source), outputs.index(name))
        for connection in wiring.connections
        if isinstance(connection.source, str)
        for name in connection.outputs
    ]
    stages = []
    for stage in document.stages:
        states = [state for state in wiring.states if state.stage == stage.index]
        stages.append(_stage(document, stage, states, edges, outputs))
    description = (
        document.model.name,
        document.environment.get("architecture", ""),
        _ports(document.model.inputs),
        _ports(document.model.outputs),
        stages,
        _edges(edges.out_of[CALLER]),
        forwarded,
        _DEPTH * (sum(counts) + 1),  # as ``Engine.capacity``
    )
    return (
        "// Written by autosplit from split.json.\n"
        '#include "description.hpp"\n\n'
        f"const autosplit::Description autosplit::description = {initialiser(description)};\n"
    )


def _stage(
    document: Manifest,
    stage: StagePart,
    states: Iterable[StageState],
    edges: Edges,
    outputs: list[str],
) -> tuple[Any, ...]:
    package = package_of(stage.runtime)
    version = document.environment.get(TVM_PACKAGE if package == TVM else package, "0")
    beside = []
    if stage.onnx and stage.onnx.file == stage.file and stage.onnx.data:
        beside.append(stage.onnx.data)
    return (
        Code(f"load_{stage.runtime.replace('-', '_')}"),
        stage.runtime,
        ".".join(version.split(".")[:2]),
        beside,
        _ports(stage.inputs),
        _ports(stage.outputs),
        [_replica(document, stage, replica) for replica in stage.replicas],
        [(state.input, state.output) for state in states],
        _edges(edges.out_of[stage.index]),
        edges.senders[stage.index],
        edges.incoming[stage.index],
        [(position, outputs.index(name)) for name, position in edges.outputs[stage.index]],
    )


def _replica(document: Manifest, stage: StagePart, replica: ReplicaPart) -> tuple[Any, ...]:
    cores = cores_of(replica.device)
    if not cores:
        raise ConfigError(
            f"stage {stage.index} is on '{replica.device}'; the cpp format runs stages on local "
            "cores, write cores:0"
        )
    target = target_of(replica.target or document.environment.get("target"))
    features = processor.required_features(target) if stage.runtime == TVM else ()
    return (replica.file or stage.file, cores, features)


def _edges(edges: Iterable[Edge]) -> list[tuple[Any, ...]]:
    return [(edge.reader, edge.routes, edge.reach) for edge in edges]


def _ports(ports: Iterable[Port]) -> list[tuple[Any, ...]]:
    return [_port(port) for port in ports]


def _port(port: Port) -> tuple[Any, ...]:
    try:
        dtype = np.dtype(port.dtype)
    except TypeError:
        # The only type of models that numpy lacks and every runtime here has.
        if port.dtype != "bfloat16":
            raise ConfigError(
                f"tensor '{port.name}' is {port.dtype}, which the cpp format lacks; use native"
            ) from None
        dtype = np.dtype("V2")
    size = dtype.itemsize * math.prod(port.shape)
    indices = port.range or () if port.dtype in ("int32", "int64") else ()
    return (port.name, port.dtype, dtype.str, port.shape, size, indices)


def initialiser(value: Any) -> str:
    """A value as C++ writes it in an initialiser."""
    if isinstance(value, Code | int):
        return str(value)
    if isinstance(value, str):
        return '"' + "".join(map(_escaped, value.encode())) + '"'
    return "{" + ", ".join(map(initialiser, value)) + "}"


def _escaped(byte: int) -> str:
    """A byte of a string; of an escape with three octal digits the next character is no part."""
    is_plain = 0x20 <= byte < 0x7F and chr(byte) not in '"\\?'
    return chr(byte) if is_plain else f"\\{byte:03o}"
