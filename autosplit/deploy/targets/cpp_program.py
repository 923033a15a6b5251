"""The C++ program of an export: its sources, and the wiring as C++ that is compiled into it.

The wiring is generated, so the program reads no JSON. Names come from model files, which nobody
trusts, so every character of a name that could end a string is escaped.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from autosplit.deploy.manifest import Manifest
from autosplit.deploy.manifest_wiring import wired
from autosplit.deployment import cores_of
from autosplit.errors import ConfigError
from autosplit.hardware.codegen.target import target_of
from autosplit.hardware.devices import processor
from autosplit.hardware.execution.stage_spec import Port, StageSpec
from autosplit.hardware.execution.wiring import Wiring
from autosplit.hardware.runtimes.arrays import dtype_of
from autosplit.hardware.runtimes.registry import OF_24_BITS, OPENVINO, TVM, package_of, rounds
from autosplit.versions import TVM as TVM_PACKAGE

_SOURCES = Path(__file__).parent / "cpp"
_NAMES = (
    "CMakeLists.txt", "main.cpp", "pipeline.cpp", "pipeline.hpp", "stage.hpp", "system.cpp",
)  # fmt: skip

# A producer and its output, by a stage (None: the model's outputs) and the name of a port.
Sources = dict[tuple[int | None, str], tuple[int, int]]


class Code(str):
    """Text that is C++ already."""


def files(document: Manifest, folder: Path) -> Mapping[str, bytes]:
    """The sources of the program; the stage files lie in ``folder``.

    Raises ConfigError for a stage that is not on local cores, and for OpenVINO on unlike sets of
    several cores: all its models in a process share their workers.
    """
    runtimes = sorted({package_of(stage.runtime) for stage in document.stages})
    names = [*_NAMES, *(f"{runtime}_stage.cpp" for runtime in runtimes)]
    sources = {name: (_SOURCES / name).read_bytes() for name in names}
    cmake = f"set(RUNTIMES {' '.join(runtimes)})\n"
    wiring = _wiring(document, folder)
    return {**sources, "wiring.cmake": cmake.encode(), "wiring.cpp": wiring.encode()}


def _wiring(document: Manifest, folder: Path) -> str:
    """A definition of ``description``, whose fields ``pipeline.hpp`` explains."""
    sources = _sources(wired(document))
    _require_one_set_of_workers(document)
    description = (
        document.model.name,
        _ports(document.model.inputs),
        _ports(document.model.outputs),
        [sources[None, port.name] for port in document.model.outputs],
        [_stage(document, stage, sources, folder) for stage in document.stages],
        document.batch,
        Code(repr(document.load.delay_ms if document.load else 0.0)),
        document.model.steps or 0,
    )
    return (
        "// Written by autosplit from split.json.\n"
        '#include "pipeline.hpp"\n\n'
        f"const autosplit::Description autosplit::description = {initialiser(description)};\n"
    )


def _require_one_set_of_workers(document: Manifest) -> None:
    stages = [stage for stage in document.stages if package_of(stage.runtime) == OPENVINO]
    devices = {replica.device for stage in stages for replica in stage.replicas}
    several = sorted(device for device in devices if len(cores_of(device)) > 1)
    if len(several) > 1:
        raise ConfigError(
            f"the cpp format runs OpenVINO on one set of several cores, not on {several[0]} and "
            f"{several[1]}; use format native or one core a replica"
        )


def _stage(document: Manifest, stage: StageSpec, sources: Sources, folder: Path) -> tuple[Any, ...]:
    package = package_of(stage.runtime)
    version = document.environment.get(TVM_PACKAGE if package == TVM else package, "0")
    replicas = stage.each_replica()
    names = dict.fromkeys(name for replica in replicas for name in replica.digests)
    return (
        Code(f"load_{package}"),
        stage.runtime,
        ".".join(version.split(".")[:2]),
        _ports(_narrowed(stage, stage.inputs)),
        _ports(_narrowed(stage, stage.outputs)),
        [sources[stage.index, port.name] for port in stage.inputs],
        [_replica(document, replica) for replica in replicas],
        [(name, (folder / name).stat().st_size) for name in names],
    )


def _narrowed(stage: StageSpec, ports: Iterable[Port]) -> Iterable[Port]:
    """Ports of a stage; where it computes integers as float32, their range is limited."""
    for port in ports:
        yield replace(port, range=OF_24_BITS) if rounds(stage.runtime, port.dtype) else port


def _sources(wiring: Wiring) -> Sources:
    """The producer, and the position of its output, for each stage input and model output."""
    sources: Sources = {}
    # The caller is producer 0. A state comes from its own stage.
    producers = {port.name: (0, position) for position, port in enumerate(wiring.inputs)}
    for connection in wiring.connections:
        start = connection.source
        producer = producers[start] if isinstance(start, str) else (start[0] + 1, start[1])
        sources |= {(reader, connection.tensor): producer for reader in connection.stages}
        sources |= {(None, name): producer for name in connection.outputs}
    for stage in wiring.stages:
        for state, (_, output) in zip(stage.states, stage.state_places, strict=True):
            sources[stage.index, state.input] = stage.index + 1, output
    return sources


def _replica(document: Manifest, replica: StageSpec) -> tuple[Any, ...]:
    cores = cores_of(replica.device)
    if not cores:
        raise ConfigError(
            f"stage {replica.index} is on '{replica.device}'; the cpp format runs stages on local "
            "cores, write cores:0"
        )
    target = target_of(replica.replicas[0].target or document.environment.get("target"))
    features = processor.required_features(target).values() if replica.runtime == TVM else ()
    return (replica.file, cores, sorted(features))


def _ports(ports: Iterable[Port]) -> list[tuple[Any, ...]]:
    return [_port(port) for port in ports]


def _port(port: Port) -> tuple[Any, ...]:
    try:
        dtype = dtype_of(port.dtype)
    except TypeError as error:
        problem = f"tensor '{port.name}' is {port.dtype}, which the cpp format lacks; use native"
        raise ConfigError(problem) from error
    size = dtype.itemsize * math.prod(port.shape)
    legal = port.range or () if "int" in port.dtype else ()
    return (port.name, port.dtype, dtype.str, port.shape, size, legal)


def initialiser(value: Any) -> str:
    """A value as C++ code for an initialiser."""
    if isinstance(value, Code | int):
        return str(value)
    if isinstance(value, str):
        return '"' + "".join(map(_escaped, value.encode())) + '"'
    return "{" + ", ".join(map(initialiser, value)) + "}"


def _escaped(byte: int) -> str:
    """A byte of a string; an escape of three octal digits cannot absorb the next character."""
    is_plain = 0x20 <= byte < 0x7F and chr(byte) not in '"\\?'
    return chr(byte) if is_plain else f"\\{byte:03o}"
