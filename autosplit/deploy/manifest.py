"""The document ``split.json``: everything a program needs to wire and run the stage files.

Version rule: ``format`` goes up when a reader of the old format would go wrong. Fields may be added
within one format; a reader ignores those it does not know. Other formats are refused.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from autosplit.hardware.execution.batches import MOST as MOST_BATCH
from autosplit.hardware.execution.stage_spec import (
    MANIFEST,
    MOST_REPLICAS,
    Digest,
    FileName,
    Port,
    StageSpec,
)
from autosplit.hardware.execution.wiring import Connection, Variant
from autosplit.hardware.measurement.results import LoadTest, SplitResults

FORMAT = 3
NAME = MANIFEST
MOST_ITEMS = 10_000  # of a comparison, which computes them all before it compares


class _Part(BaseModel):
    # from_attributes: the dataclasses of hardware become the parts that have their fields
    model_config = ConfigDict(frozen=True, populate_by_name=True, from_attributes=True)


class ModelPart(_Part):
    """The model that was split.

    ``file`` is its original path, a hint for ``verify``. ``integers_below`` bounds random values of
    integer inputs whose use is known. ``states`` maps the input of each state to the model output
    with its next value; neither is among ``inputs`` and ``outputs``. A stream has ``steps`` items
    at most, where that is known. ``variants`` are items of other shapes. ``sha256`` covers the
    files of external data.
    """

    name: str
    sha256: Digest
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    file: str | None = None
    integers_below: dict[str, PositiveInt] = Field(default_factory=dict)
    states: dict[str, str] = Field(default_factory=dict)
    steps: PositiveInt | None = None
    variants: dict[str, Variant] = Field(default_factory=dict)


class FromInput(_Part):
    """A tensor that the caller gives."""

    input: str


class FromStage(_Part):
    """A tensor that a stage produces as its output number ``output``."""

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
    """One tensor, where it comes from and everything that reads it."""

    tensor: str
    bytes: NonNegativeInt
    source: FromInput | FromStage = Field(alias="from")
    to: tuple[ToStage | ToOutput, ...]

    @classmethod
    def of(cls, connection: Connection, size: int) -> ConnectionPart:
        """A connection of a pipeline, whose tensor has ``size`` bytes."""
        source: Any = {"input": connection.source}
        if not isinstance(connection.source, str):
            source = dict(zip(("stage", "output"), connection.source, strict=True))
        to: list[Any] = [{"stage": s, "input": connection.tensor} for s in connection.stages]
        to += [{"output": name} for name in connection.outputs]
        document = {"tensor": connection.tensor, "bytes": size}
        return cls.model_validate(document | {"from": source, "to": to})


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
    """What a study measured without a split."""

    name: str
    period_ms: SpreadPart
    latency_ms: SpreadPart
    copies: PositiveInt = 1


class PredictedPart(_Part):
    """The period that the planner predicts from the profile."""

    period_ms: float


class ComparisonPart(_Part):
    """The comparison of the files with the original model, which ``verify`` repeats.

    ``reference`` computed the expected outputs of ``items`` random items of a ``seed``. Errors are
    None where the export was not compared; ``absent`` then says why. ``left_out`` has, by the names
    of faster runtimes that compute no stage, the reasons why they do not.
    """

    reference: str
    items: Annotated[int, Field(ge=1, le=MOST_ITEMS)]
    seed: NonNegativeInt
    tolerance: PositiveFloat
    max_abs_error: NonNegativeFloat | None = None
    max_rel_error: NonNegativeFloat | None = None
    absent: str | None = None
    left_out: dict[str, str] = Field(default_factory=dict)


class ArraysPart(_Part):
    """Arrays by name, as an npz file."""

    file: FileName
    sha256: Digest


class Manifest(_Part):
    """The whole of ``split.json``.

    ``batch`` is how many items a stage computes at once: their inputs lie one after the other along
    the first axis. The inputs and outputs of ``model`` are those of one item. ``reference`` has
    items and the outputs of the original model for them, ``initial`` the initial values of states
    that do not begin at zero, by their input. ``streams`` is the number of streams in the
    measurement, ``load`` the measurement under an open load. ``program`` has the files that the
    format of the export adds, with their digests.
    """

    format: Literal[3] = 3
    batch: Annotated[int, Field(ge=1, le=MOST_BATCH)] = 1
    model: ModelPart
    stages: tuple[StageSpec, ...] = Field(min_length=1, max_length=MOST_REPLICAS)
    connections: tuple[ConnectionPart, ...]
    measured: MeasuredPart | None = None
    predicted: PredictedPart | None = None
    baselines: tuple[BaselinePart, ...] = ()
    verdict: str | None = None
    streams: PositiveInt = 1
    load: LoadTest | None = None
    environment: dict[str, str]
    comparison: ComparisonPart | None = None
    reference: ArraysPart | None = None
    initial: ArraysPart | None = None
    program: dict[FileName, Digest] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _bound_replicas(self) -> Manifest:
        count = sum(len(stage.replicas) for stage in self.stages)
        if count > MOST_REPLICAS:
            raise ValueError(f"{count} replicas are more than {MOST_REPLICAS}")
        return self

    @property
    def replicas(self) -> list[StageSpec]:
        """What each replica loads, stage by stage."""
        return [replica for stage in self.stages for replica in stage.each_replica()]

    @property
    def files(self) -> dict[str, str]:
        """The sha256 of every file of the export, by its name."""
        digests: dict[str, str] = {}
        for stage in self.stages:
            digests |= stage.files
        arrays = {part.file: part.sha256 for part in (self.reference, self.initial) if part}
        return digests | arrays | self.program


def schema() -> dict[str, Any]:
    """The JSON Schema of ``split.json``; ``deploy/split.schema.json`` in the package is this."""
    return Manifest.model_json_schema(by_alias=True) | {
        "$schema": "https://json-schema.org/draft/2020-12/schema"
    }


def results_parts(results: SplitResults) -> dict[str, Any]:
    """The fields of a manifest that say what is known of the split."""
    names = ("measured", "baselines", "verdict", "streams", "load")
    parts: dict[str, Any] = {name: vars(results)[name] for name in names}
    if results.predicted is not None:
        parts["predicted"] = {"period_ms": results.predicted}
    return parts
