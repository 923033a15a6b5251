"""The interface that every runtime implements, and the model that a runtime is created for."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from autosplit.frontend.samples import random_items
from autosplit.graph import FusedGraph
from autosplit.hardware.devices.device import Device
from autosplit.hardware.execution.stage_spec import StageSpec
from autosplit.hardware.execution.wiring import Variant, Wiring, wire
from autosplit.hardware.measurement.results import Profile
from autosplit.hardware.runtimes.registry import OF_24_BITS, rounds

if TYPE_CHECKING:
    from autosplit.hardware.codegen.kernels import DeviceKernels
    from autosplit.lowering.fuse.lowered import Lowered

Item = dict[str, np.ndarray[Any, Any]]


@dataclass(frozen=True)
class StageSource:
    """A lowered model, from which a runtime creates stages.

    ``kernels`` compiles for any device; the graph is the same for all. ``onnx_file`` is None where
    the model was not read from an ONNX file; it may then have an exported ``onnx_model``.
    ``shapes`` are the shapes given for dynamic inputs, of one of the ``batch`` items that are
    computed at once. ``variants`` are the same model for items of other shapes, by name.
    """

    lowered: Lowered
    sha256: str
    kernels: DeviceKernels
    onnx_file: Path | None = None
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    onnx_model: Any = None
    batch: int = 1
    variants: Mapping[str, StageSource] = field(default_factory=dict, repr=False, compare=False)

    @property
    def graph(self) -> FusedGraph:
        """The graph of fused ops."""
        return self.lowered.graph

    @cached_property
    def whole_stage(self) -> StageSpec:
        """The model as one stage."""
        return self.wiring([range(len(self.graph.ops))]).stages[0]

    @property
    def input_shapes(self) -> str:
        """The name and the shape of each input, as text."""
        text = ",".join(f"{i.name}={'x'.join(map(str, i.shape))}" for i in self.lowered.inputs)
        return "|".join([text, *(source.input_shapes for source in self.variants.values())])

    def wiring(self, stages: Sequence[Sequence[int]], runtimes: Sequence[str] = ()) -> Wiring:
        """The wiring of a legal split; each input has the range of values that runtimes take."""
        lowered = self.lowered
        ranges = dict(lowered.index_ranges)
        for ops, runtime in zip(stages, runtimes, strict=False):
            for name in {name for i in ops for name in self.graph.ops[i].inputs}:
                if rounds(runtime, self.graph.tensors[name].dtype):
                    least, most = ranges.get(name, OF_24_BITS)
                    ranges[name] = max(least, OF_24_BITS[0]), min(most, OF_24_BITS[1])
        wiring = wire(self.graph, stages, lowered.outputs)
        inputs = tuple(replace(port, range=ranges.get(port.name)) for port in wiring.inputs)
        variants = {name: self._variant(source) for name, source in self.variants.items()}
        return replace(
            wiring, inputs=inputs, initial=lowered.initial, steps=lowered.steps, variants=variants
        )

    def _variant(self, other: StageSource) -> Variant:
        """The input shapes of another variant, and how many items' room in the states it takes."""
        advance = math.ceil((other.lowered.advance or 1) / (self.lowered.advance or 1))
        whole = range(len(other.graph.ops))
        return Variant(other.wiring([whole]).inputs, advance)

    def items(self, count: int, seed: int = 0) -> list[Item]:
        """Random items, reproducible by ``seed``: the array of each input by name."""
        inputs = [(i.name, i.shape, i.dtype) for i in self.lowered.inputs]
        return random_items(inputs, count, seed, self.lowered.integers_below)


class Stage(Protocol):
    """A stage, loaded on its device. A pipeline calls it from one thread at a time.

    This is the stage's own thread or, if it is pinned to one core, that of another such stage.

    Values are opaque: inputs are numpy arrays or results of other stages; results are arrays or
    objects with a method ``numpy()``.
    """

    def open(self) -> None:
        """Prepare the stage's thread; called there once, before the first run."""
        return

    def run(self, values: Sequence[Any]) -> Sequence[Any]:
        """Compute the outputs for inputs in the order of the stage's ports."""
        ...

    def close(self) -> None:
        """Release what must not wait for Python's garbage collection; called after the last run."""
        return


@dataclass(frozen=True)
class Runtime(ABC):
    """Creates and profiles stages of a model. The defaults suit a runtime with its own kernels."""

    source: StageSource
    name: ClassVar[str]
    suffix: ClassVar[str]
    """The suffix of a stage file."""
    has_hint: ClassVar[bool] = False
    """Whether ``whole`` supports ``by_hint``, the runtime's own tuning for throughput."""
    rounds_to: ClassVar[str | None] = None
    """The element type that the runtime computes in, if it is less precise than the model's."""

    @property
    @abstractmethod
    def versions(self) -> str:
        """The versions of packages that op times and stage files depend on."""

    @property
    @abstractmethod
    def keep_together(self) -> tuple[tuple[int, ...], ...]:
        """Sets of ops, by index, that no cut may separate."""

    @abstractmethod
    def check(self, devices: Sequence[Device]) -> None:
        """Raises ConfigError for a device that the runtime does not support."""

    @abstractmethod
    def can_run(self, device: Device) -> bool:
        """Whether a device can compute every op of the model."""

    @abstractmethod
    def prepare(self, devices: Sequence[Device] = ()) -> None:
        """Do the work that all stages on ``devices`` share.

        Raises AutosplitError where the runtime cannot compute the model.
        """

    @abstractmethod
    def stages(self, spec: StageSpec, devices: Sequence[Device]) -> list[Stage]:
        """Create a stage on each of ``devices``. Raises SplitError for an unsupported cut.

        These replicas run at the same time, and may share a loaded model.
        """

    def whole(
        self, spec: StageSpec, devices: Sequence[Device], by_hint: bool = False
    ) -> list[Stage]:
        """Create the unsplit model on each of ``devices``, set up for the runtime's best speed.

        With ``by_hint`` there is one device, and the runtime is asked for throughput: it chooses
        how many replicas are returned.
        """
        return self.stages(spec, devices)

    @abstractmethod
    def profile(self, device: Device, seconds: float, force: bool) -> Profile:
        """The time of every op on a device; from the cache unless ``force``."""

    @abstractmethod
    def write(self, spec: StageSpec, file: Path, device: Device) -> Path | None:
        """Write a stage file for a device; returns the data file beside it, if there is one."""

    @classmethod
    @abstractmethod
    def load_stages(cls, file: Path, spec: StageSpec, devices: Sequence[Device]) -> list[Stage]:
        """Load a file that ``write`` has written on each of ``devices``, as ``stages`` does.

        The ops of ``spec`` are not used.
        """


def closed_on_error(stages: Iterable[Stage]) -> list[Stage]:
    """Create stages one after the other; if creating one fails, close those before it."""
    with ExitStack() as opened:
        complete = [opened.enter_context(closing(stage)) for stage in stages]
        opened.pop_all()
    return complete
