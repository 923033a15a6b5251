"""``split.json``: everything a program needs to wire the stage files of an exported split, and how it was measured.

Version rule: ``format`` goes up when a reader of the old format would go wrong; fields may be added within one format, and
a reader ignores those it does not know.
"""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveInt,
    ValidationError,
    computed_field,
    model_validator,
)

from autosplit.errors import ConfigError
from autosplit.files import atomic_write
from autosplit.graph import FusedGraph
from autosplit.hardware.execution.wiring import Connection, Port, StagePorts, Wiring

FORMAT = 1
NAME = "split.json"


def _plain(name: str) -> str:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name or not path.parts:
        raise ValueError(f"'{name}' must be a path inside the folder")
    return name


FileName = Annotated[str, AfterValidator(_plain)]
RuntimeName = Annotated[str, Field(pattern="^(tvm|onnxruntime)$")]
Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)


class TensorPort(_Part):
    """A tensor at a boundary."""

    name: str
    shape: tuple[NonNegativeInt, ...]
    dtype: str

    def port(self) -> Port:
        """The same as the hardware room spells it."""
        return Port(self.name, self.shape, self.dtype)


class ModelPart(_Part):
    """The model that was split; ``file`` is where it lay, a hint for ``verify``; ``dtypes``: element types it computes in.

    ``integers_below``: by name of an input of integers what random values of it stay below, where its use is known.
    """

    name: str
    sha256: Digest
    inputs: tuple[TensorPort, ...]
    outputs: tuple[TensorPort, ...]
    file: str | None = None
    dtypes: tuple[str, ...] = ()
    integers_below: dict[str, PositiveInt] = Field(default_factory=dict)


class OpPart(_Part):
    """A fused op of a stage and the source nodes it came from."""

    name: str
    sources: tuple[str, ...] = ()


class OnnxPart(_Part):
    """The same stage as an ONNX model, its ports by the same names; ``data`` holds its weights where they are large."""

    file: FileName
    sha256: Digest
    data: FileName | None = None
    data_sha256: Digest | None = None


class StagePart(_Part):
    """One stage: its file, the device it was measured on, and its ports in the order of its function's arguments.

    ``runtime`` runs the file: for ``tvm`` it is a shared library, for ``onnxruntime`` the ONNX model of
    ``onnx`` itself. It is also written as ``backend``, the name that older readers of format 1 know.
    ``target`` is what the file was compiled for, where that is not the target of ``environment``. ``onnx`` is None where the
    stage has no ONNX model; ``onnx_absent`` then says why.
    """

    index: NonNegativeInt
    device: str
    file: FileName
    sha256: Digest
    ops: tuple[OpPart, ...]
    inputs: tuple[TensorPort, ...]
    outputs: tuple[TensorPort, ...]
    runtime: RuntimeName = "tvm"
    target: str | None = None
    onnx: OnnxPart | None = None
    onnx_absent: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _named_backend(cls, data: Any) -> Any:
        if isinstance(data, dict) and "backend" in data:
            return {"runtime": data["backend"], **data}
        return data

    @computed_field
    def backend(self) -> str:
        """The runtime, under its former name."""
        return self.runtime


class FromInput(_Part):
    """A tensor that the caller gives."""

    input: str


class FromStage(_Part):
    """A tensor that a stage makes as its output number ``output``."""

    stage: NonNegativeInt
    output: NonNegativeInt


class ToStage(_Part):
    """A stage that reads a tensor as its input ``input``."""

    stage: NonNegativeInt
    input: str


class ToOutput(_Part):
    """An output of the model."""

    output: str


class ConnectionPart(_Part):
    """One tensor, where it comes from and everybody who reads it."""

    tensor: str
    bytes: NonNegativeInt
    source: FromInput | FromStage = Field(alias="from")
    to: tuple[ToStage | ToOutput, ...]


class SpreadPart(_Part):
    """A median and its 95 % interval, in ms."""

    median: float
    low: float
    high: float


class MeasuredPart(_Part):
    """What a study measured of this split."""

    period_ms: SpreadPart
    latency_ms: SpreadPart
    stage_ms: tuple[float, ...]
    max_rel_error: float


class BaselinePart(_Part):
    """What a way without splitting was measured at."""

    name: str
    period_ms: SpreadPart
    latency_ms: SpreadPart
    copies: PositiveInt = 1


class PredictedPart(_Part):
    """The period the planner promised for the profile."""

    period_ms: float


class ReferencePart(_Part):
    """Items and what onnxruntime computed for them on the original model, as an npz file of arrays."""

    file: FileName
    sha256: Digest


class Manifest(_Part):
    """The whole of ``split.json``."""

    format: Literal[1] = 1
    model: ModelPart
    stages: tuple[StagePart, ...] = Field(min_length=1)
    connections: tuple[ConnectionPart, ...]
    measured: MeasuredPart | None = None
    predicted: PredictedPart | None = None
    baselines: tuple[BaselinePart, ...] = ()
    verdict: str | None = None
    environment: dict[str, str]
    reference: ReferencePart | None = None

    def wiring(self) -> Wiring:
        """The wiring to run. Raises ConfigError, naming the tensor or stage, where the connections do not fit the stages."""
        from autosplit.deploy.wiring_check import check

        stages = tuple(
            StagePorts((), tuple(p.port() for p in s.inputs), tuple(p.port() for p in s.outputs))
            for s in self.stages
        )
        check(self)
        return Wiring(
            tuple(p.port() for p in self.model.inputs),
            tuple(p.port() for p in self.model.outputs),
            stages,
            tuple(_connection(c) for c in self.connections),
        )

    def write(self, file: Path) -> None:
        """Write the JSON document. Raises MachineError where the disk refuses."""
        with atomic_write(file) as temporary:
            temporary.write_text(
                self.model_dump_json(indent=1, by_alias=True) + "\n", encoding="utf-8"
            )


def read(folder: Path) -> Manifest:
    """The manifest of an exported folder, or the one at a path that ends in .json.

    Raises ConfigError, one line, where it is missing, damaged or of another format.
    """
    file = folder if folder.suffix == ".json" and not folder.is_dir() else folder / NAME
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            f"'{folder}' holds no readable {NAME} ({error.strerror}); give a folder `export` wrote"
        ) from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"'{file}' is not JSON: {error}; export it again") from error
    version = document.get("format") if isinstance(document, dict) else None
    if version != FORMAT or isinstance(version, bool):
        raise ConfigError(
            f"'{file}' has format {version!r}, this autosplit reads {FORMAT}; export it again"
        )
    try:
        return Manifest.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise ConfigError(
            f"'{file}' is damaged at {where}: {first['msg']}; export it again"
        ) from error


def schema() -> dict[str, Any]:
    """The JSON Schema of ``split.json``; ``deploy/split.schema.json`` in the package is this."""
    return Manifest.model_json_schema(by_alias=True) | {
        "$schema": "https://json-schema.org/draft/2020-12/schema"
    }


def _connection(part: ConnectionPart) -> Connection:
    source = (
        part.source.input
        if isinstance(part.source, FromInput)
        else (part.source.stage, part.source.output)
    )
    return Connection(
        part.tensor,
        part.bytes,
        source,
        tuple(t.stage for t in part.to if isinstance(t, ToStage)),
        tuple(t.output for t in part.to if isinstance(t, ToOutput)),
    )


def tensor(graph: FusedGraph, name: str) -> dict[str, Any]:
    """A tensor: shape, dtype, bytes, the op that makes it (None for an input) and those that read it."""
    found = graph.tensors[name]
    return {
        "name": name,
        "shape": list(found.shape),
        "dtype": found.dtype,
        "bytes": found.bytes,
        "producer": None if found.producer is None else graph.ops[found.producer].name,
        "consumers": [graph.ops[c].name for c in found.consumers],
    }
