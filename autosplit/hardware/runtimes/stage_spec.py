"""A stage in a file: what ``split.json`` says of it, and what it takes to load it.

A study sends the same description to a Ray node, and the C++ program is written from it.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, NonNegativeInt

from autosplit import phases
from autosplit.errors import ConfigError, MachineError, line_of
from autosplit.files import sha256
from autosplit.hardware.codegen.target import architecture, spelled, target_of
from autosplit.hardware.devices import processor
from autosplit.hardware.devices.device import Device
from autosplit.hardware.devices.session import within
from autosplit.hardware.execution.wiring import Port, StagePorts, StageState
from autosplit.hardware.runtimes.interface import Runtime, Stage
from autosplit.hardware.runtimes.registry import RUNTIMES, TVM, runtime_class
from autosplit.versions import require_pair

MANIFEST = "split.json"
LOAD_S = 1800.0  # for the replicas of a stage; a large model takes minutes
MOST_REPLICAS = 1024  # of all stages: each has a thread


def _file_name(name: str) -> str:
    if name in ("", ".", "..", MANIFEST) or not {"/", "\\", "\0"}.isdisjoint(name):
        raise ValueError(f"'{name}' must be the name of a file in the folder")
    name.encode()  # a lone surrogate, which no file name can hold, is a ValueError
    return name


FileName = Annotated[str, AfterValidator(_file_name)]
RuntimeName = Annotated[str, Field(pattern=f"^({'|'.join(RUNTIMES)})$")]
Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


@dataclass(frozen=True)
class SourceOp:
    """A fused op of a stage and the source nodes it came from."""

    name: str
    sources: tuple[str, ...] = ()


@dataclass(frozen=True)
class OnnxFile:
    """A stage as an ONNX model with ports of the same names.

    ``data`` is the file of its weights where they are large.
    """

    file: FileName
    sha256: Digest
    data: FileName | None = None
    data_sha256: Digest | None = None

    @classmethod
    def of(cls, file: Path, weights: Path | None) -> OnnxFile:
        """A file that was written, and that of its weights if there is one."""
        data = (weights.name, sha256(weights)) if weights else ()
        return cls(file.name, sha256(file), *data)

    @property
    def weights(self) -> dict[str, str]:
        """The digest of the file of its weights by its name, where there is one."""
        return {self.data: self.data_sha256 or ""} if self.data else {}


@dataclass(frozen=True)
class Replica:
    """One replica of a stage and the device it was measured on.

    ``file`` and ``sha256`` are None where it runs the file of the stage. ``target`` is what its
    file was compiled for; without one it is that of the export's environment.
    """

    device: str
    file: FileName | None = None
    sha256: Digest | None = None
    target: str | None = None


@dataclass(frozen=True)
class StageSpec:
    """One stage: its file, its replicas, and its ports in argument order.

    ``runtime`` runs the file: for ``tvm`` it is a shared library, for ``onnxruntime`` and
    ``openvino`` the model of ``onnx`` itself. ``device`` is that of the first replica.
    ``onnx`` is None where the stage has no ONNX model; ``onnx_absent`` then says why.
    """

    index: NonNegativeInt
    device: str
    file: FileName
    sha256: Digest
    replicas: Annotated[tuple[Replica, ...], Field(min_length=1, max_length=MOST_REPLICAS)]
    ops: tuple[SourceOp, ...]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    states: tuple[StageState, ...] = ()
    runtime: RuntimeName = TVM
    onnx: OnnxFile | None = None
    onnx_absent: str | None = None

    @property
    def ports(self) -> StagePorts:
        """What goes in and out, without the ops."""
        return StagePorts((), self.inputs, self.outputs, self.states)

    @property
    def weights(self) -> dict[str, str]:
        """The file that the stage file reads beside it, where there is one, with its digest."""
        return self.onnx.weights if self.onnx and self.runtime != TVM else {}

    @property
    def digests(self) -> dict[str, str]:
        """The digest of the stage file and of what it reads beside it, by name."""
        return {self.file: self.sha256} | self.weights

    @property
    def files(self) -> dict[str, str]:
        """The digest of every file by its name, those of replicas and ONNX models among them."""
        others = {replica.file: replica.sha256 or "" for replica in self.replicas if replica.file}
        onnx = {self.onnx.file: self.onnx.sha256} | self.onnx.weights if self.onnx else {}
        return onnx | others | self.digests

    def each_replica(self) -> list[StageSpec]:
        """The stage as every replica has it: with its file, and with itself alone."""
        return [
            replace(
                self,
                device=replica.device,
                file=replica.file or self.file,
                sha256=(replica.sha256 if replica.file else self.sha256) or "",
                replicas=(replica,),
            )
            for replica in self.replicas
        ]

    def require_here(self, environment: Mapping[str, str]) -> None:
        """Raises MachineError where this machine cannot run the code of the first replica.

        ``environment`` is that of the export.
        """
        if self.runtime != TVM:
            return
        # With an ffi package of another version TVM may crash the process when it loads a library.
        require_pair()
        here = platform.machine()
        target = target_of(self.replicas[0].target or environment.get("target"))
        host = target.host or target
        # A target names the processor's architecture where it is not that of the exporter.
        made_for = environment.get("architecture", here)
        if host.attrs.get("mtriple"):
            made_for = architecture(host)
        if made_for != here:
            raise MachineError(
                f"the split was exported for {made_for}, this machine is {here}; export it there"
            )
        missing = processor.missing_features(host)
        if missing:
            raise MachineError(
                f"the split was exported for {target.attrs.get('mcpu', target.kind.name)}, this "
                f"processor lacks {', '.join(missing)}; "
                "export it on this machine or for an older processor"
            )

    def load(self, folder: Path, places: Sequence[Device]) -> list[Stage]:
        """The stage on each of some devices, from the folder that its file lies in.

        Raises ConfigError or MachineError where it does not load.
        """
        phases.report(f"loading {self.file}")
        try:
            runtime = runtime_class(self.runtime)
            file = folder / self.file
            load = partial(runtime.load_stages, file, self.sha256, self.ports, places)
            return within(LOAD_S, load, "it hangs")
        except (ConfigError, MachineError):
            raise
        except Exception as error:
            reason = line_of(error, last=True)
            name = {TVM: "TVM"}.get(self.runtime, self.runtime)
            raise MachineError(
                f"'{self.file}' does not load with this {name}: {reason}; see `autosplit doctor`"
            ) from error


def write_stage(
    runtime: Runtime,
    name: str,
    ports: StagePorts,
    index: int,
    places: Sequence[Device],
    file: Path,
    usual: str | None = None,
) -> StageSpec:
    """Write stage ``index`` for a replica on each of some places, in the runtime of that name.

    Replicas that have one target share a file. A target is named unless it is the ``usual`` one.
    """
    files: dict[str | None, Path] = {}
    replicas, weights = [], None
    for place in places:
        is_compiled = name == TVM
        target = spelled(runtime.source.kernels.target_on(place)) if is_compiled else None
        if target not in files:
            number = f"_{len(files)}" if files else ""
            files[target] = file.with_name(f"{file.stem}{number}{file.suffix}")
            weights = runtime.write(ports, files[target], place) or weights
        other = files[target] if files[target] != file else None
        digest = sha256(other) if other else None
        named = target if target != usual else None
        replicas.append(Replica(str(place), other.name if other else None, digest, named))
    ops = [runtime.source.graph.ops[op] for op in ports.ops]
    return StageSpec(
        index=index,
        device=replicas[0].device,
        file=file.name,
        sha256=sha256(file),
        replicas=tuple(replicas),
        ops=tuple(SourceOp(op.name, op.sources) for op in ops),
        inputs=ports.inputs,
        outputs=ports.outputs,
        states=ports.states,
        runtime=name,
        onnx=OnnxFile.of(file, weights) if runtime.suffix == ".onnx" else None,
    )
