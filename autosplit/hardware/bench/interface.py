"""What a study needs from hardware, real or simulated: profile the ops, measure a candidate, measure the baselines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from autosplit.cuts.stages import Stages
from autosplit.graph import FusedGraph
from autosplit.hardware.measurement.results import Baseline, LinkCost, Measurement, Profile


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
        """What a study must not mix: model sha256, target, devices, runtime, versions."""
        ...

    @property
    def keep_together(self) -> Sequence[Sequence[int]]:
        """Sets of ops that no cut may part, by index: those between which the runtime cannot cut."""
        ...

    def profile(self) -> Sequence[Profile]:
        """The time of every fused op on each device, one Profile a device, in the order of ``devices``."""
        ...

    def links(self) -> Sequence[LinkCost]:
        """What it takes to move tensors to each device and to call it, in the order of ``devices``; empty where it is free."""
        ...

    def measure(self, stages: Stages) -> Measurement:
        """Build, verify and measure the pipeline whose stage i runs the ops ``stages[i]`` on device i.

        An empty stage leaves its device unused and takes no time.
        Raises AutosplitError with a reason where the candidate cannot be built, fails, or computes something else.
        """
        ...

    def baselines(self) -> Sequence[Baseline]:
        """The unsplit model on one core, on all cores, on each other device, and one replica a core and device."""
        ...

    def close(self) -> None:
        """Release what the bench holds; it can be called twice."""
        ...
