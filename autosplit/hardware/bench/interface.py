"""What a study needs from hardware, real or simulated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from autosplit.cuts.stages import Stages
from autosplit.deployment import Deployment
from autosplit.graph import FusedGraph
from autosplit.hardware.measurement.results import (
    Baseline,
    LinkCost,
    Measurement,
    Profile,
    RealTime,
    SplitResults,
    Spread,
)
from autosplit.planner import CostModel


class Bench(Protocol):
    """A place where candidates are built and measured."""

    @property
    def graph(self) -> FusedGraph:
        """The graph whose stages are measured."""
        ...

    @property
    def devices(self) -> tuple[str, ...]:
        """The names of the devices along the pipeline."""
        ...

    @property
    def identity(self) -> Mapping[str, str]:
        """What all measurements of a study share: model sha256, target, devices, versions."""
        ...

    @property
    def runtimes(self) -> tuple[str, ...]:
        """The runtimes that can compute a stage."""
        ...

    @property
    def keep_together(self) -> Mapping[str, Sequence[Sequence[int]]]:
        """For each runtime the sets of ops, by index, that it cannot separate."""
        ...

    @property
    def regions(self) -> Mapping[str, Sequence[int]]:
        """The ops that each external backend runs, by its name."""
        ...

    def untuned_share(self) -> float:
        """The share of the arithmetic in kernels without a schedule, 0 to 1.

        Compiles the kernels of the first device.
        """
        ...

    def profile(self) -> Sequence[Profile]:
        """The time of every fused op, one Profile a device, in the order of ``devices``."""
        ...

    def links(self) -> Sequence[LinkCost]:
        """The transfer costs of each device, in the order of ``devices``; empty if all are zero."""
        ...

    def cost_model(self, profile: Sequence[Profile], links: Sequence[LinkCost]) -> CostModel:
        """The planner's view of a profile and of transfer costs."""
        ...

    def measure(self, deployment: Deployment) -> Measurement:
        """Build, verify and measure a deployment, with a time for each of its stages.

        Raises AutosplitError if the candidate cannot be built, fails, or its outputs differ.
        """
        ...

    def baselines(self) -> Sequence[Baseline]:
        """The unsplit model in each runtime and device, as replicas and by its throughput hint.

        Each is measured briefly: all of them tell which are worth a final comparison.
        """
        ...

    def compare_interleaved(
        self, candidates: Sequence[Deployment], baselines: Sequence[str]
    ) -> tuple[Sequence[Measurement], Mapping[str, Baseline]]:
        """Candidates, and baselines by their names, measured in turns.

        A name that is none of a baseline is left out.
        """
        ...

    def real_time(self, deployment: Deployment, rate: float, period: Spread) -> RealTime:
        """A deployment of a known period whose items come at a rate a second in each stream.

        Raises ConfigError if the bench runs no items.
        """
        ...

    def export(
        self, deployment: Deployment, folder: Path, results: SplitResults, format: str, onnx: bool
    ) -> Path:
        """Write a deployment and its results in a format; returns the path of ``split.json``.

        ``onnx``: with the stages of TVM as ONNX models too.

        Raises ConfigError if the bench has no stages that could be loaded.
        """
        ...

    def close(self) -> None:
        """Release processes and devices. Idempotent."""


def deployed(bench: Bench, stages: Stages, runtimes: Sequence[str] = ()) -> Deployment:
    """A split along the devices of a bench, in its first runtime or in one for each stage."""
    names = runtimes or [bench.runtimes[0]] * len(stages)
    return Deployment.of_split(stages, bench.devices, names)
