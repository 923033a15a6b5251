"""The objectives and the sections of a study file with their defaults: search, measure, …

This module imports pydantic; import it where a study file is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$", max_length=100)]
Text = Annotated[str, Field(min_length=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]

Objective = Literal["throughput", "latency"]
METRICS: Mapping[str, str] = {"throughput": "period in ms", "latency": "latency in ms"}


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


class RealTime(Section):
    """The rate of a stream that the winner of the final comparison is measured at."""

    items_per_second: Positive


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
