"""The objectives and the sections of a study file with their defaults: search, measure, …

This module imports pydantic; import it where a study file is read.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from autosplit.errors import ConfigError, explained
from autosplit.files import open_regular
from autosplit.planner import workload

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$", max_length=100)]
Text = Annotated[str, Field(min_length=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
MOST_STAGES = 256

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
    """When the measurement of a candidate ends; the fields are those of ``measure.Budget``."""

    seconds: Positive = 5.0
    share: Positive = 0.01
    items: Annotated[int, Field(ge=2, le=1_000_000)] = 16
    latency_items: Annotated[int, Field(ge=1, le=1_000_000)] = 3


class Limits(Section):
    """Limits that a deployment must keep: ``latency_ms`` for an item that is measured alone."""

    latency_ms: Positive | None = None


class StatePair(Section):
    """A state: the next item of a stream gets ``input`` from the model's ``output``."""

    input: Text
    output: Text


class Workload(Section):
    """How items arrive in use: ``rate`` a second, or at the times in the file ``arrivals``.

    At most one limit is set; with ``p99_ms`` 99 % of the items must be ready within it.
    ``delay_ms``: the longest wait of a batch to be full; "auto" lets the simulation choose it.
    """

    rate: Positive | None = None
    arrivals: Text | None = None
    p50_ms: Positive | None = None
    p90_ms: Positive | None = None
    p95_ms: Positive | None = None
    p99_ms: Positive | None = None
    delay_ms: Annotated[float, Field(ge=0, allow_inf_nan=False)] | Literal["auto"] = "auto"

    @property
    def limits(self) -> dict[str, float]:
        """The limits in ms by the names of their quantiles."""
        return {n: ms for n in workload.QUANTILES if (ms := getattr(self, f"{n}_ms")) is not None}

    @property
    def key(self) -> dict[str, Any]:
        """The values that distinguish this workload from others."""
        key = self.model_dump(exclude_none=True)
        if self.arrivals:
            key["arrivals"] = hashlib.sha256(repr(self.value.times).encode()).hexdigest()
        return key

    @cached_property
    def value(self) -> workload.Workload:
        """The workload for the planner and the measurement. Raises ConfigError for a bad file."""
        delay = None if self.delay_ms == "auto" else self.delay_ms
        quantile, limit = next(iter(self.limits.items()), ("p99", None))
        times = arrival_times(Path(self.arrivals)) if self.arrivals else ()
        rate = (len(times) - 1) / (times[-1] - times[0]) if times else self.rate
        return workload.Workload(rate, limit, delay, quantile, times)


def arrival_times(file: Path) -> tuple[float, ...]:
    """Read arrival times in seconds from a file, one a line. Raises ConfigError for a bad file."""
    problem = f"cannot read arrival times from '{file}'"
    with explained(ConfigError, problem, last=False), open_regular(file) as stream:
        times = tuple(map(float, stream.read().split()))
    is_ascending = all(before <= after for before, after in pairwise(times))
    if not (is_ascending and len(times) > 1 and 0 < times[-1] - times[0] < math.inf):
        raise ConfigError(f"'{file}' has no ascending times of at least two items, in seconds")
    return times


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
