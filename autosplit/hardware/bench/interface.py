"""The interface through which a study builds and measures candidates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from autosplit.deployment import Deployment
from autosplit.graph import FusedGraph
from autosplit.hardware.measurement.results import (
    Baseline,
    LinkCost,
    LoadTest,
    Measurement,
    Profile,
    SplitResults,
    Spread,
)
from autosplit.hardware.profiling.cost_table import cost_table, device_kinds
from autosplit.planner import CostModel
from autosplit.planner.workload import Workload


@dataclass(frozen=True)
class BenchDescription:
    """The properties of a bench that are known before it measures anything.

    - ``graph``: the fused ops that are split into stages.
    - ``devices``: the names of the devices along the pipeline.
    - ``identity``: what all measurements of a study share: model sha256, target, devices, versions.
    - ``runtimes``: the names of the runtimes that can compute a stage.
    - ``keep_together``: for each runtime the sets of ops, by index, that it cannot separate.
    - ``regions``: the ops that each external backend runs, by its name.
    - ``measures_alone``: whether only one process of this host may measure at a time.
    """

    graph: FusedGraph
    devices: tuple[str, ...]
    identity: Mapping[str, str]
    runtimes: tuple[str, ...]
    keep_together: Mapping[str, Sequence[Sequence[int]]]
    regions: Mapping[str, Sequence[int]]
    measures_alone: bool = True


class Bench(Protocol):
    """A place where candidates are built and measured."""

    @cached_property
    def description(self) -> BenchDescription:
        """The properties that are known before anything is measured."""
        ...

    def cost_table(
        self, profile: Sequence[Profile], links: Sequence[LinkCost], **limits: Any
    ) -> tuple[CostModel, Sequence[str]]:
        """The cost model of a profile and of transfer costs, and the kind of each of its devices.

        ``limits``: see ``cost_table``.
        """
        known, kinds = self.description, device_kinds(profile, links, limits.get("memory", ()))
        return cost_table(known.graph, profile, links, known.keep_together, **limits), kinds

    def profile(self) -> Sequence[Profile]:
        """Op times on ``devices``, in their order, for one runtime and batch after the other."""
        ...

    def links(self) -> Sequence[LinkCost]:
        """The transfer costs of each device, in the order of ``devices``; empty if all are zero."""
        ...

    def measure(self, deployment: Deployment) -> Measurement:
        """Build, verify and measure a deployment, with a time for each of its stages.

        Raises AutosplitError if the candidate cannot be built, fails, or its outputs differ.
        """
        ...

    def baselines(self, names: Sequence[str] | None = None) -> Sequence[Baseline]:
        """The unsplit model in each runtime: on single devices, as replicas, by throughput hint.

        Each is measured briefly, to choose those of the final comparison; ``names``: only these.
        """
        ...

    def compare_interleaved(
        self, candidates: Sequence[Deployment], baselines: Sequence[str]
    ) -> tuple[Sequence[Measurement], Mapping[str, Baseline]]:
        """Measure candidates and the named baselines, interleaved; unknown names are ignored."""
        ...

    def under_load(
        self, deployment: Deployment, workload: Workload, period: Spread, least: float = 0.0
    ) -> LoadTest:
        """Measure a deployment, whose period is known, under open load; see ``load_test``.

        Raises ConfigError if the bench runs no items.
        """
        ...

    def export(
        self, deployment: Deployment, folder: Path, results: SplitResults, format: str, onnx: bool
    ) -> Path:
        """Write a deployment and its results in a format; returns the path of ``split.json``.

        ``onnx``: also write the stages of TVM as ONNX models.

        Raises ConfigError if the bench has no stages that could be loaded.
        """
        ...

    def close(self) -> None:
        """Release processes and devices. Idempotent."""
