"""The attributes of a stored study and of its trials, whoever wrote them.

A value of another type becomes empty or None; nothing in a database makes this module raise.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    Field,
    PlainValidator,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from autosplit.hardware.measurement.results import Baseline, Spread

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


def spread_of(value: Any) -> Spread | None:
    """A median with its interval; an end that is missing is the median."""
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
OptionalSpread = Annotated[Spread | None, PlainValidator(spread_of)]
Index = Annotated[int, Field(strict=True, ge=0)]
Counts = Annotated[tuple[Annotated[int, Field(strict=True, ge=1)], ...], _otherwise(())]
OptionalIndex = Annotated[Index | None, _otherwise(None)]
Stages = Annotated[tuple[tuple[Index, ...], ...], Field(max_length=MAX_STAGES), _otherwise(())]
Table = Annotated[dict[Any, Any], _otherwise({})]
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
    text: Text = ""


class _Mark(BaseModel):
    version: Text = ""


class _Entry(BaseModel):
    number: Index


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


# What is not valid in a list becomes None, or empty where places count.
_OptionalEntry = Annotated[_Entry | None, _otherwise(None)]
_OptionalBaseline = Annotated[_Baseline | None, _otherwise(None)]
_AnyProfile = Annotated[_Profile, _otherwise(_Profile())]


class FinalComparison(BaseModel):
    """The stored final comparison; ``measured`` is the number of complete trials it covers."""

    measured: OptionalIndex = None
    entries: Annotated[tuple[_OptionalEntry, ...], _otherwise(())] = ()
    baselines: Annotated[tuple[_OptionalBaseline, ...], _otherwise(())] = ()

    def numbers(self, complete: int) -> frozenset[int]:
        """The trials that it measured; none if other trials are complete now."""
        return frozenset(e.number for e in self.entries if e and self.measured == complete)


def _cuts(value: Any) -> tuple[tuple[int, float], ...]:
    """Cuts as bitsets of ops, with their periods."""
    cuts = []
    for pair in value if isinstance(value, list) else ():
        text, period = pair if isinstance(pair, list) and len(pair) == 2 else ("", None)
        is_bitset = isinstance(text, str) and _HEXADECIMAL.fullmatch(text)
        if is_bitset and isinstance(period, float) and 0 <= period < math.inf:
            cuts.append((int(text, 16), period))
    return tuple(cuts)


class StudyAttributes(BaseModel):
    """What a study stores about its question, its machine and its result."""

    autosplit: Annotated[_Mark, _otherwise(_Mark())] = _Mark()
    baselines: Annotated[tuple[_OptionalBaseline, ...], _otherwise(())] = ()
    bound_ms: OptionalNumber = None
    config: Table = {}
    cut_periods: Annotated[tuple[tuple[int, float], ...], PlainValidator(_cuts)] = ()
    devices: Texts = ()
    duel: Annotated[FinalComparison, _otherwise(FinalComparison())] = FinalComparison()
    graph: Any = None
    identity: Annotated[dict[Text, Text], _otherwise({})] = {}
    machine: Text = ""
    profile: Annotated[tuple[_AnyProfile, ...], _otherwise(())] = ()
    stopped: Text = ""
    verdict: Annotated[_Verdict, _otherwise(_Verdict())] = _Verdict()

    def compared_baselines(self) -> tuple[Baseline, ...]:
        """The baselines, with their figures of the final comparison where it measured them."""
        known = [value for value in (b and b.value() for b in self.baselines) if value]
        again = self.duel.baselines
        if len(again) != len(known):
            return tuple(known)
        pairs = zip(known, again, strict=True)
        return tuple(figures.replacing(b) if figures else b for b, figures in pairs)


class TrialAttributes(BaseModel):
    """What a study stores about a trial."""

    cuts: Annotated[tuple[Texts, ...], _otherwise(())] = ()
    error: Text = ""
    kinds: Annotated[tuple[Index, ...], _otherwise(())] = ()
    latency_ms: OptionalSpread = None
    live: Annotated[tuple[_LiveTensors, ...], _otherwise(())] = ()
    max_rel_error: OptionalNumber = None
    memory_bytes: OptionalNumber = None
    period_ms: OptionalSpread = None
    predicted_ms: OptionalNumber = None
    replicas: Counts = ()
    runtimes: Texts = ()
    searched: Table = {}
    stage_ms: Numbers = ()
    stages: Stages = ()
    threads: Counts = ()

    def live_tensors(self) -> tuple[tuple[tuple[str, int], ...], ...]:
        """The names and bytes of the tensors that are live on each cut."""
        cuts = []
        for cut in self.live:
            cuts.append(tuple((tensor[0], int(tensor[1])) for tensor in cut if tensor))
        return tuple(cuts)


def compared_baselines(attributes: Mapping[str, Any]) -> tuple[Baseline, ...]:
    """The baselines of a study, with the figures of the final comparison where it has them."""
    return StudyAttributes.model_validate(attributes).compared_baselines()
