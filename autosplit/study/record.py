"""The record of a study: one JSON document for each trial and one for the study, kept in Optuna.

The final comparison and the result of the study are written later, as documents of their own; the
figures of the search are never changed. Readers prefer the figures of the final comparison.

A database is untrusted: a value that is not valid is read as the default of its key, not refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any

from optuna.trial import FrozenTrial, Trial
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    PlainValidator,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_validator,
)

from autosplit.deployment import Deployment
from autosplit.hardware.measurement.results import Baseline, LoadTest, Measurement, Spread
from autosplit.study.config.sections import MOST_STAGES

FORMAT = 3  # of the studies that this version writes and continues
RECORD = "autosplit"  # the attribute of a study, and that of a trial
COMPARISON = "final_comparison"  # attribute of a study
RESULT = "result"  # attribute of a study: why it stopped, and the verdict
_MAX_TEXT = 2000
_UNKNOWN = Spread(math.nan, math.nan, math.nan)


def _text(value: Any) -> str:
    # pydantic's own strings refuse lone surrogates, which a reader should see as "?"
    return " ".join(value.split())[:_MAX_TEXT] if isinstance(value, str) else ""


def _lines(value: Any) -> str:
    """A text of several lines."""
    lines = map(_text, value.splitlines() if isinstance(value, str) else ())
    return "\n".join(filter(None, lines))[:_MAX_TEXT]


def _times(spread: Spread) -> Spread:
    """Check that a spread has times only. Raises ValueError if not."""
    if not all(0 <= value < math.inf for value in (spread.median, spread.low, spread.high)):
        raise ValueError("a time is a finite number from 0")
    return spread


MOST = 1 << 62  # of any stored whole number, so that each is a finite float
# All numbers here are times, bytes or counts, so none is negative.
Number = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]
Index = Annotated[int, Field(strict=True, ge=0, le=MOST)]
Count = Annotated[int, Field(strict=True, ge=1, le=MOST)]
Text = Annotated[str, PlainValidator(_text)]
Texts = tuple[Text, ...]
Table = dict[Any, Any]
OptionalSpread = Annotated[Spread, AfterValidator(_times)] | None
Cut = Annotated[int, Field(ge=0), BeforeValidator(lambda text: int(text, 16))]


class _Stored(BaseModel):
    @field_validator("*", mode="wrap")
    @classmethod
    def _or_default(
        cls, value: Any, validator: ValidatorFunctionWrapHandler, info: ValidationInfo
    ) -> Any:
        try:
            return validator(value)
        except (ValidationError, TypeError):
            return cls.model_fields[info.field_name or ""].get_default()


class _Profile(_Stored):
    op_ms: tuple[Number, ...] = ()
    runtime: Text = ""
    batch: Count = 1


class _Verdict(_Stored):
    choice: Text = ""
    text: Annotated[str, PlainValidator(_lines)] = ""
    baseline: Text = ""
    trial: Index | None = None


class _Baseline(_Stored):
    name: Text = ""
    period_ms: OptionalSpread = None
    latency_ms: OptionalSpread = None
    copies: Count = 1
    runtime: Text = ""
    devices: Texts = ()
    stage_ms: tuple[Number, ...] = ()
    max_rel_error: Number = 0.0
    disturbances: Texts = ()
    batch: Count = 1

    def value(self) -> Baseline | None:
        """The baseline, None without name or period."""
        if not (self.name and self.period_ms):
            return None
        return Baseline(**{**dict(self), "latency_ms": self.latency_ms or _UNKNOWN})


class Figures(_Stored):
    """The measured figures of a candidate; ``disturbed``: why they cannot be trusted."""

    period_ms: OptionalSpread = None
    latency_ms: OptionalSpread = None
    stage_ms: tuple[Number, ...] = ()
    max_rel_error: Number | None = None
    disturbed: Texts = ()


class TrialRecord(Figures):
    """The record of a trial.

    ``key`` is the text of its candidate, ``worker`` the process that measures it. A ``lost`` trial
    failed without having measured its candidate, which is free again. ``live`` are the names and
    bytes of the tensors on each cut.
    """

    batch: Count = 1
    cuts: tuple[Texts, ...] = ()
    devices: tuple[Texts, ...] = ()
    error: Text = ""
    key: Annotated[str, PlainValidator(lambda key: key if isinstance(key, str) else "")] = ""
    live: tuple[tuple[tuple[Text, Index], ...], ...] = ()
    log: Text = ""
    lost: Annotated[bool, Field(strict=True)] = False
    memory_bytes: Number | None = None
    predicted_ms: Number | None = None
    replicas: tuple[Count, ...] = ()
    runtimes: Texts = ()
    stages: Annotated[tuple[tuple[Index, ...], ...], Field(max_length=MOST_STAGES)] = ()
    threads: tuple[Count, ...] = ()
    worker: Table = {}

    def deployment(self) -> Deployment:
        """The measured deployment. Raises ValueError if the record is incomplete."""
        devices = [device for of_stage in self.devices for device in of_stage]
        counts = [len(of_stage) for of_stage in self.devices]
        if not counts or len(counts) != len(self.stages) or not all(map(len, self.stages)):
            raise ValueError("no deployment is stored")
        return Deployment.of_split(self.stages, devices, self.runtimes, counts, self.batch)

    def measurement(self) -> Measurement:
        """The figures. Raises ValueError without a period."""
        if self.period_ms is None:
            raise ValueError("no period is stored")
        latency = self.latency_ms or Spread(0.0, 0.0, 0.0)
        error = self.max_rel_error or 0.0
        return Measurement(self.period_ms, latency, self.stage_ms, error, self.disturbed)


class Entry(Figures):
    """The figures of a trial in the final comparison."""

    number: Index = -1


class FinalComparison(_Stored):
    """The final comparison; ``measured`` is the number of complete trials it was made for.

    ``baselines`` are those that it measured. ``errors`` say why others were left out, and ``loads``
    are the tests under the ``workload``, both by the number of a trial or the name of a baseline.
    """

    measured: Index | None = None
    entries: tuple[Entry, ...] = ()
    errors: dict[str, Text] = {}
    baselines: tuple[_Baseline | None, ...] = ()
    disturbed: Texts = ()
    workload: Table = {}
    loads: dict[str, LoadTest] = {}

    def error_of(self, number: int) -> str:
        """Why a trial was left out; empty for another one."""
        return self.errors.get(str(number), "")

    @property
    def figures(self) -> dict[int, Entry]:
        """What it measured, by the number of the trial."""
        return {e.number: e for e in self.entries if e.number >= 0 and e.period_ms}

    def of(self, number: int, record: TrialRecord) -> TrialRecord:
        """The record of a trial, with the figures of the comparison where it took part."""
        entry = self.figures.get(number)
        figures = {name: getattr(entry, name) for name in Figures.model_fields} if entry else {}
        return record.model_copy(update=figures) if entry else record


class StudyRecord(_Stored):
    """The record of a study: its question, its machine, what was measured first, its result."""

    baselines: tuple[_Baseline, ...] = ()
    bound_ms: Number | None = None
    config: Table = {}
    cut_periods: tuple[tuple[Cut, Number], ...] = ()
    devices: Texts = ()
    final_comparison: FinalComparison = FinalComparison()
    format: Any = None
    graph: Any = None
    identity: dict[Text, Text] = {}
    machine: Text = ""
    profile: tuple[_Profile, ...] = ()
    sampler: Table = {}
    stopped: Text = ""
    verdict: _Verdict = _Verdict()
    version: Text = ""

    def measured_baselines(self) -> tuple[Baseline, ...]:
        """The baselines as they were measured before the trials."""
        return tuple(value for b in self.baselines if (value := b.value()))

    def compared_baselines(self) -> tuple[Baseline, ...]:
        """The baselines, with their figures of the final comparison where it measured them."""
        again = {b.name: b.value() for b in self.final_comparison.baselines if b}
        return tuple(again.get(b.name) or b for b in self.measured_baselines())


def mapping(value: object) -> dict[str, Any]:
    """A stored value if it is a document, else an empty document."""
    return value if isinstance(value, dict) else {}


def record_of(trial: FrozenTrial | Trial) -> TrialRecord:
    """All that is stored of a trial, as the search measured it."""
    return TrialRecord.model_validate(mapping(trial.user_attrs.get(RECORD)))


def update(trial: Trial, **values: Any) -> None:
    """Store values in the record of a running trial.

    Raises Optuna's UpdateFinishedTrialError if another worker has finished it as lost.
    """
    trial.set_user_attr(RECORD, {**mapping(trial.user_attrs.get(RECORD)), **values})


def study_record(attributes: Mapping[str, Any]) -> StudyRecord:
    """Read the record of a study from its attributes."""
    documents = [mapping(attributes.get(key)) for key in (RECORD, RESULT)]
    comparison = {COMPARISON: attributes.get(COMPARISON)}
    return StudyRecord.model_validate({**documents[0], **documents[1], **comparison})
