"""The description of a stage: ops and ports and, once it is written, files and replicas.

The plan makes the description, and writing the stage fills in the files. Runtimes and Ray nodes get
it, ``split.json`` stores it, and the C++ program is generated from it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, NonNegativeInt

from autosplit.files import sha256
from autosplit.graph import Op
from autosplit.hardware.runtimes.arrays import dtype_of
from autosplit.hardware.runtimes.registry import RUNTIMES, TVM

MANIFEST = "split.json"
MOST_REPLICAS = 1024  # of all stages together, since each replica has a thread

# Types in this machine's byte order only: another order would be read as different numbers.
DtypeName = Annotated[
    str, Field(pattern="^(bool|u?int(8|16|32|64)|float(16|32|64)|bfloat16|float8_[a-z0-9]+)$")
]


@dataclass(frozen=True)
class Port:
    """An input or output tensor of a stage or of the model.

    ``range`` has the smallest and the largest legal value of a model input, where they are known.
    """

    name: str
    shape: tuple[NonNegativeInt, ...]
    dtype: DtypeName
    range: tuple[int, int] | None = field(default=None, compare=False)

    @property
    def nbytes(self) -> int:
        """The size of the tensor in bytes."""
        return math.prod(self.shape) * dtype_of(self.dtype).itemsize


@dataclass(frozen=True)
class StageState:
    """A tensor that one item leaves for the next item of its stream, as two ports of a stage."""

    input: str
    output: str
    shape: tuple[NonNegativeInt, ...]
    dtype: DtypeName


def _file_name(name: str) -> str:
    if name in ("", ".", "..", MANIFEST) or not {"/", "\\", "\0"}.isdisjoint(name):
        raise ValueError(f"'{name}' must be the name of a file in the folder")
    name.encode()  # raises ValueError for a lone surrogate, which no file name can hold
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
        """Describe an ONNX file that was written, and the file of its weights if there is one."""
        data = (weights.name, sha256(weights)) if weights else ()
        return cls(file.name, sha256(file), *data)

    @property
    def weights(self) -> dict[str, str]:
        """The digest of the weights file by its name; empty if there is no such file."""
        return {self.data: self.data_sha256 or ""} if self.data else {}


@dataclass(frozen=True)
class Replica:
    """One replica of a stage and the device it was measured on.

    ``file`` and ``sha256`` are None where it runs the file of the stage. ``target`` is what its
    file was compiled for; None means the target in the export's environment.
    """

    device: str
    file: FileName | None = None
    sha256: Digest | None = None
    target: str | None = None


@dataclass(frozen=True)
class StageSpec:
    """One stage: its ops, its ports in argument order, its file and its replicas.

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

    @classmethod
    def planned(
        cls, ops: Iterable[Op], inputs: Iterable[Port], outputs: Iterable[Port], index: int = 0
    ) -> StageSpec:
        """A stage without files yet, and without replicas."""
        sources = tuple(SourceOp(op.name, op.sources) for op in ops)
        return cls(index, "", "", "", (), sources, tuple(inputs), tuple(outputs))

    @property
    def state_places(self) -> tuple[tuple[int, int], ...]:
        """For each state its position among the inputs, and its successor's among the outputs."""
        inputs = [port.name for port in self.inputs]
        outputs = [port.name for port in self.outputs]
        return tuple((inputs.index(s.input), outputs.index(s.output)) for s in self.states)

    @property
    def digests(self) -> dict[str, str]:
        """The digests of the stage file and of the weights file that it reads, by file name."""
        weights = self.onnx.weights if self.onnx and self.runtime != TVM else {}
        return {self.file: self.sha256} | weights

    @property
    def files(self) -> dict[str, str]:
        """The digest of every file by its name, including those of replicas and ONNX models."""
        others = {replica.file: replica.sha256 or "" for replica in self.replicas if replica.file}
        onnx = {self.onnx.file: self.onnx.sha256} | self.onnx.weights if self.onnx else {}
        return onnx | others | self.digests

    def each_replica(self) -> list[StageSpec]:
        """One description of the stage for each replica, with its own file and no other replica."""
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
