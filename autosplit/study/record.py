"""The record of a study: one JSON document for each trial and one for the study, kept in Optuna.

Beside the document of the study lie its final comparison and its result, which are written later;
what the search measured is never changed. Readers prefer the figures of the final comparison.

A database is untrusted: a value of another type becomes empty or None, nothing here raises.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import (
    BaseModel,
    Field,
    PlainValidator,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from autosplit.deployment import Deployment
from autosplit.hardware.measurement.results import Accuracy, Baseline, Measurement, Spread

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial, Trial

FORMAT = 3  # of the studies that this version writes and continues
RECORD = "autosplit"  # the attribute of a study, and that of a trial
COMPARISON = "final_comparison"  # attribute of a study
RESULT = "result"  # attribute of a study: why it stopped, and the verdict
MAX_STAGES = 256
_MAX_TEXT = 2000
_HEXADECIMAL = re.compile(r"[0-9a-f]{1,10000}")


def _otherwise(default: Any) -> WrapValidator:
    """The default in place of a value that is not valid."""

    def validate(value: Any, validator: ValidatorFunctionWrapHandler) -> Any:
        try:
            return validator(value)
        except ValidationError:
            return default

    return WrapValidator(validate)


def _text(value: Any) -> str:
    # pydantic's own strings refuse lone surrogates, which a reader should see as "?"
    return " ".join(value.split())[:_MAX_TEXT] if isinstance(value, str) else ""


def _lines(value: Any) -> str:
    """A text of several lines."""
    lines = map(_text, value.splitlines() if isinstance(value, str) else ())
    return "\n".join(filter(None, lines))[:_MAX_TEXT]


def spread_of(value: Any) -> Spread | None:
    """A median with its interval; an end that is missing is the median."""
    if isinstance(value, Spread):
        return value
    try:
        stored = _Spread.model_validate(value)
    except ValidationError:
        return None
    low = stored.median if stored.low is None else stored.low
    high = stored.median if stored.high is None else stored.high
    return Spread(stored.median, low, high)


# All numbers here count times, bytes or copies.
Number = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]
OptionalNumber = Annotated[Number | None, _otherwise(None)]
# Places count in a list of numbers: one that is not valid spoils them all.
Numbers = Annotated[tuple[Number, ...], _otherwise(())]
Text = Annotated[str, PlainValidator(_text)]
Texts = Annotated[tuple[Text, ...], _otherwise(())]
Lines = Annotated[str, PlainValidator(_lines)]
OptionalSpread = Annotated[Spread | None, PlainValidator(spread_of)]
Index = Annotated[int, Field(strict=True, ge=0)]
Counts = Annotated[tuple[Annotated[int, Field(strict=True, ge=1)], ...], _otherwise(())]
OptionalIndex = Annotated[Index | None, _otherwise(None)]
Stages = Annotated[tuple[tuple[Index, ...], ...], Field(max_length=MAX_STAGES), _otherwise(())]
Table = Annotated[dict[Any, Any], _otherwise({})]
Flag = Annotated[bool, Field(strict=True), _otherwise(False)]
Key = Annotated[str, PlainValidator(lambda value: value if isinstance(value, str) else "")]
_LiveTensor = Annotated[tuple[Text, Number] | None, _otherwise(None)]
_LiveTensors = Annotated[tuple[_LiveTensor, ...], _otherwise(())]


class _Spread(BaseModel):
    median: Number
    low: OptionalNumber = None
    high: OptionalNumber = None


class _Profile(BaseModel):
    op_ms: Numbers = ()
    runtime: Text = ""


class _Verdict(BaseModel):
    choice: Text = ""
    text: Lines = ""
    baseline: Text = ""
    trial: OptionalIndex = None


class _Baseline(BaseModel):
    name: Text = ""
    period_ms: OptionalSpread = None
    latency_ms: OptionalSpread = None
    copies: OptionalNumber = None
    runtime: Text = ""
    devices: Texts = ()
    stage_ms: Numbers = ()
    max_rel_error: OptionalNumber = None
    disturbances: Texts = ()

    def value(self) -> Baseline | None:
        """The baseline, None without name or period."""
        if not (self.name and self.period_ms):
            return None
        latency = self.latency_ms or Spread(math.nan, math.nan, math.nan)
        named = self.name, self.period_ms, latency, int(self.copies or 1)
        placed = self.runtime, self.devices
        return Baseline(
            *named, *placed, self.stage_ms, self.max_rel_error or 0.0, self.disturbances
        )

    def replacing(self, before: Baseline) -> Baseline:
        """The baseline with these figures, as far as they are known."""
        return replace(
            before,
            period_ms=self.period_ms or before.period_ms,
            latency_ms=self.latency_ms or before.latency_ms,
            stage_ms=self.stage_ms or before.stage_ms,
            disturbances=self.disturbances,
        )


class Figures(BaseModel):
    """What was measured of a candidate; ``disturbed`` says why it cannot be trusted."""

    period_ms: OptionalSpread = None
    latency_ms: OptionalSpread = None
    stage_ms: Numbers = ()
    max_rel_error: OptionalNumber = None
    disturbed: Texts = ()


class TrialResult(Figures):
    """The part of a trial's record that a search reads.

    ``key`` is the text of its candidate, ``worker`` the process that measures it. A ``lost`` trial
    failed without having measured its candidate, which is free again.
    """

    key: Key = ""
    worker: Table = {}
    error: Text = ""
    lost: Flag = False


class TrialRecord(TrialResult):
    """The whole record of a trial."""

    batch: Annotated[int, Field(strict=True, ge=1), _otherwise(1)] = 1
    cuts: Annotated[tuple[Texts, ...], _otherwise(())] = ()
    devices: Annotated[tuple[Texts, ...], _otherwise(())] = ()
    live: Annotated[tuple[_LiveTensors, ...], _otherwise(())] = ()
    log: Text = ""
    memory_bytes: OptionalNumber = None
    predicted_ms: OptionalNumber = None
    replicas: Counts = ()
    runtimes: Texts = ()
    stages: Stages = ()
    threads: Counts = ()

    def deployment(self) -> Deployment:
        """What was measured. Raises ValueError where the record does not say it all."""
        devices = [device for of_stage in self.devices for device in of_stage]
        counts = [len(of_stage) for of_stage in self.devices]
        if not counts or len(counts) != len(self.stages) or not all(map(len, self.stages)):
            raise ValueError("no deployment is stored")
        return Deployment.of_split(self.stages, devices, self.runtimes, counts)

    def measurement(self) -> Measurement | None:
        """The figures; None without a period."""
        if self.period_ms is None:
            return None
        latency = self.latency_ms or Spread(0.0, 0.0, 0.0)
        accuracy = Accuracy(True, 0.0, self.max_rel_error or 0.0, 0)
        return Measurement(self.period_ms, latency, self.stage_ms, accuracy, self.disturbed)

    def live_tensors(self) -> tuple[tuple[tuple[str, int], ...], ...]:
        """The names and bytes of the tensors that are live on each cut."""
        cuts = []
        for cut in self.live:
            cuts.append(tuple((tensor[0], int(tensor[1])) for tensor in cut if tensor))
        return tuple(cuts)


class Entry(Figures):
    """The figures of a trial in the final comparison."""

    number: Index


# What is not valid in a list becomes None, or empty where places count.
_OptionalEntry = Annotated[Entry | None, _otherwise(None)]
_OptionalBaseline = Annotated[_Baseline | None, _otherwise(None)]
_AnyProfile = Annotated[_Profile, _otherwise(_Profile())]


class FinalComparison(BaseModel):
    """The final comparison; ``measured`` is the number of complete trials it was made for.

    ``real_time`` is its winner at the rate of the study file.
    """

    measured: OptionalIndex = None
    entries: Annotated[tuple[_OptionalEntry, ...], _otherwise(())] = ()
    baselines: Annotated[tuple[_OptionalBaseline, ...], _otherwise(())] = ()
    disturbed: Texts = ()
    real_time: Table = {}

    @property
    def figures(self) -> dict[int, Entry]:
        """What it measured, by the number of the trial."""
        return {entry.number: entry for entry in self.entries if entry and entry.period_ms}

    def numbers(self, complete: int) -> frozenset[int]:
        """The trials that it measured; none if other trials are complete now."""
        return frozenset(self.figures if self.measured == complete else ())

    def of(self, number: int, record: TrialRecord) -> TrialRecord:
        """The record of a trial, with the figures of the comparison where it took part."""
        entry = self.figures.get(number)
        if entry is None:
            return record
        return record.model_copy(
            update={name: getattr(entry, name) for name in Figures.model_fields}
        )


def _cuts(value: Any) -> tuple[tuple[int, float], ...]:
    """Cuts as bitsets of ops, with their periods."""
    cuts = []
    for pair in value if isinstance(value, list) else ():
        text, period = pair if isinstance(pair, list) and len(pair) == 2 else ("", None)
        is_bitset = isinstance(text, str) and _HEXADECIMAL.fullmatch(text)
        if is_bitset and isinstance(period, float) and 0 <= period < math.inf:
            cuts.append((int(text, 16), period))
    return tuple(cuts)


class _Compared(BaseModel):
    baselines: Annotated[tuple[_OptionalBaseline, ...], _otherwise(())] = ()
    final_comparison: Annotated[FinalComparison, _otherwise(FinalComparison())] = FinalComparison()

    def measured_baselines(self) -> tuple[Baseline, ...]:
        """The baselines as they were measured before the trials."""
        values = (stored.value() for stored in self.baselines if stored)
        return tuple(value for value in values if value)

    def compared_baselines(self) -> tuple[Baseline, ...]:
        """The baselines, with their figures of the final comparison where it measured them."""
        known = self.measured_baselines()
        again = self.final_comparison.baselines
        if len(again) != len(known):
            return known
        pairs = zip(known, again, strict=True)
        return tuple(figures.replacing(b) if figures else b for b, figures in pairs)


class StudyRecord(_Compared):
    """The record of a study: its question, its machine, what was measured first, its result."""

    bound_ms: OptionalNumber = None
    config: Table = {}
    cut_periods: Annotated[tuple[tuple[int, float], ...], PlainValidator(_cuts)] = ()
    devices: Texts = ()
    format: Any = None
    graph: Any = None
    identity: Annotated[dict[Text, Text], _otherwise({})] = {}
    machine: Text = ""
    profile: Annotated[tuple[_AnyProfile, ...], _otherwise(())] = ()
    sampler: Table = {}
    stopped: Text = ""
    verdict: Annotated[_Verdict, _otherwise(_Verdict())] = _Verdict()
    version: Text = ""


def mapping(value: object) -> dict[str, Any]:
    """A stored document; empty where it is none."""
    return value if isinstance(value, dict) else {}


def result_of(trial: FrozenTrial | Trial) -> TrialResult:
    """What a search reads of a trial, as the search measured it."""
    return TrialResult.model_validate(mapping(trial.user_attrs.get(RECORD)))


def record_of(trial: FrozenTrial) -> TrialRecord:
    """All that is stored of a trial, as the search measured it."""
    return TrialRecord.model_validate(mapping(trial.user_attrs.get(RECORD)))


def update(trial: Trial, **values: Any) -> None:
    """Store values in the record of a running trial.

    Raises Optuna's UpdateFinishedTrialError where another worker has given it up.
    """
    trial.set_user_attr(RECORD, {**mapping(trial.user_attrs.get(RECORD)), **values})


def study_record(attributes: Mapping[str, Any]) -> StudyRecord:
    """All that the attributes of a study say."""
    return StudyRecord.model_validate(_together(attributes))


def compared_baselines(attributes: Mapping[str, Any]) -> tuple[Baseline, ...]:
    """The baselines of a study, with the figures of the final comparison where it has them."""
    return _Compared.model_validate(_together(attributes)).compared_baselines()


def _together(attributes: Mapping[str, Any]) -> dict[str, Any]:
    parts = (attributes.get(key) for key in (RECORD, RESULT))
    documents = [mapping(part) for part in parts]
    return {**documents[0], **documents[1], COMPARISON: attributes.get(COMPARISON)}
