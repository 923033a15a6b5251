"""The objectives and the sections of a study file with their defaults: search, measure, …

This module imports pydantic; import it where a study file is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from autosplit.planner import workload

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$", max_length=100)]
Text = Annotated[str, Field(min_length=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]

Objective = Literal["throughput", "latency", "goodput", "cores"]
METRICS: Mapping[str, str] = {
    "throughput": "period in ms",
    "latency": "latency in ms",
    "goodput": "ms an item at the goodput",
    "cores": "cores",
}


def objective_of(config: Mapping[str, Any]) -> str:
    """The objective of a stored study file; throughput where it names none that is known."""
    return next((name for name in METRICS if name == config.get("objective")), "throughput")


class Section(BaseModel):
    """A table of a study file: unknown keys and values of another type are refused."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class Search(Section):
    """How splits are proposed and when to stop.

    ``timeout``: in seconds of one run; ``stagnation``: in trials. ``converge``: whether to stop
    when no remaining candidate is expected to beat the best. A worker that is silent for ``lease``
    seconds counts as lost, and its split is measured by another.
    """

    sampler: Literal["planner", "brute_force", "gp", "nsga2", "random", "tpe"] = "planner"
    trials: Annotated[int, Field(ge=1)] = 20
    timeout: Positive | None = None
    seed: Annotated[int, Field(ge=0)] = 0
    stagnation: Annotated[int, Field(ge=1)] | None = None
    converge: bool = True
    lease: Annotated[int, Field(ge=2, le=86_400)] = 120


class Measure(Section):
    """When the measurement of a candidate ends.

    The fields are those of ``autosplit.hardware.measurement.measure.Budget``.
    """

    seconds: Positive = 5.0
    share: Positive = 0.01
    items: Annotated[int, Field(ge=2, le=1_000_000)] = 16
    latency_items: Annotated[int, Field(ge=1, le=1_000_000)] = 3


class Limits(Section):
    """What a deployment may take: ``latency_ms`` for an item, measured alone."""

    latency_ms: Positive | None = None


class StatePair(Section):
    """A state: the next item of a stream gets ``input`` from the model's ``output``."""

    input: Text
    output: Text


class Workload(Section):
    """How items come in use: by themselves, ``rate`` a second, 99 % of them within ``p99_ms``.

    ``delay_ms``: the longest time that a batch waits to be full; "auto": a tenth of ``p99_ms``.
    """

    rate: Positive | None = None
    p99_ms: Positive | None = None
    delay_ms: Annotated[float, Field(ge=0, allow_inf_nan=False)] | Literal["auto"] = "auto"

    @property
    def value(self) -> workload.Workload:
        """What the planner and the measurement take."""
        delay = None if self.delay_ms == "auto" else self.delay_ms
        return workload.Workload(self.rate, self.p99_ms, delay)


class Regions(Section):
    """Ops that an external backend runs; see ``autosplit.lowering.external.backend.Backend``.

    ``merge``: neighbours in a stage become one region; ``markers``: Relax ops that do not break a
    region; ``together``: groups of ops or source nodes that no cut may separate. ``device``: the
    device of the study that these ops run on; without it they run on any.
    """

    backend: Name
    device: Text | None = None
    merge: bool = True
    markers: list[Text] = Field(default_factory=list)
    together: list[list[Text]] = Field(default_factory=list)
