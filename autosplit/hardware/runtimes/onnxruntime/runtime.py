"""Stages in onnxruntime: each submodel in a session of its own."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from autosplit.extras import onnx
from autosplit.hardware.devices.core_kinds import memory_node
from autosplit.hardware.devices.device import Cores, Device
from autosplit.hardware.execution.stage_spec import StageSpec
from autosplit.hardware.profiling.timing import on_cores, repeated_ms
from autosplit.hardware.runtimes.interface import Item, Stage
from autosplit.hardware.runtimes.onnx import model_file
from autosplit.hardware.runtimes.onnx.cache_writes import in_place, with_direct_writes
from autosplit.hardware.runtimes.onnx.node_groups import ExecutedNodes, Samples
from autosplit.hardware.runtimes.onnx.runtime import SubmodelRuntime, SubmodelStage
from autosplit.hardware.runtimes.onnx.submodels import OnnxModel
from autosplit.hardware.runtimes.onnxruntime.session import session_on

_US_PER_MS = 1e3
_MAX_EVENTS = 100_000  # parsing more takes longer than the runs; onnxruntime stores a million
_KERNEL = "_kernel_time"
_BLOCKED = "_nchwc"  # the node that computes tensor x in the blocked layout is called x_nchwc


class SessionStage(SubmodelStage):
    """Implements Stage with one thread a core; on a single core that is the calling thread.

    A state that the model updates by writing rows is overwritten in place.
    """

    def __init__(self, session: Any, spec: StageSpec, cores: Cores) -> None:
        super().__init__(spec, cores)
        self._session = session
        # Only states may be overwritten; all other inputs belong to the caller.
        states = {state.input: state.output for state in spec.states}
        pairs = in_place(session.get_modelmeta().custom_metadata_map) if states else {}
        self._in_place = dict(pairs.items() & states.items())

    def run(self, values: Sequence[Any]) -> Sequence[Any]:
        """See Stage. OrtValues and IO bindings were measured to be no faster than plain arrays."""
        feed = self._feed(values)
        if self._in_place:
            return self._run_bound(feed)
        return list(self._session.run(self._outputs, feed))

    def _run_bound(self, feed: Mapping[str, np.ndarray[Any, Any]]) -> Sequence[Any]:
        """As ``run``, but the new value of a state is written into the memory of the old one."""
        binding = self._session.io_binding()
        results: dict[str, Any] = {}
        for name, array in feed.items():
            if name in self._in_place:
                array = np.require(array, requirements=["C", "W"])
                results[self._in_place[name]] = array
            binding.bind_cpu_input(name, array)
        for name, array in results.items():
            address = array.ctypes.data
            binding.bind_output(name, "cpu", 0, array.dtype, array.shape, address)
        others = [name for name in self._outputs if name not in results]
        for name in others:
            binding.bind_output(name)
        self._session.run_with_iobinding(binding)
        computed = binding.get_outputs()[len(results) :]
        results |= {name: v.numpy() for name, v in zip(others, computed, strict=True)}
        return [results[name] for name in self._outputs]


class OnnxruntimeRuntime(SubmodelRuntime):
    """Implements Runtime for a model that was read from an ONNX file."""

    name = "onnxruntime"
    extra = "onnx"

    def submodel(self, spec: StageSpec) -> Any:
        """See SubmodelRuntime."""
        return with_direct_writes(super().submodel(spec), self.original.shapes_of)

    def whole(
        self, spec: StageSpec, devices: Sequence[Device], by_hint: bool = False
    ) -> list[Stage]:
        """See Runtime; waiting threads spin, as they do by default in onnxruntime."""
        with model_file.temporary(self.submodel(spec)) as file:
            return session_stages(file, spec, map(self.cores, devices), spinning=True)

    def time_nodes(
        self, submodel: Any, item: Item, cores: Cores, seconds: float
    ) -> tuple[Samples, ExecutedNodes]:
        """See SubmodelRuntime; uses onnxruntime's profiler."""
        with tempfile.TemporaryDirectory(prefix="autosplit-profile-") as folder:
            samples = _run_rounds(submodel, item, cores, Path(folder), seconds)
            optimised = onnx.load(str(Path(folder, "optimised.onnx")), load_external_data=False)
            nodes = executed_nodes(self.original, optimised)  # without those inside a loop
            return {name: samples[name] for name in nodes if name in samples}, nodes

    @classmethod
    def load_stages(cls, file: Path, spec: StageSpec, devices: Sequence[Device]) -> list[Stage]:
        """See Runtime."""
        return session_stages(file, spec, map(cls.cores, devices))


def session_stages(
    file: Path, spec: StageSpec, places: Iterable[Cores], spinning: bool = False
) -> list[Stage]:
    """Create a stage on each of ``places``.

    Stages with one thread share a session where their cores share memory: its weights are then in
    the caches once, which was up to 4 % faster. Stages with several threads do not, since a
    session's threads compute one item at a time. With ``spinning`` a thread that waits for work
    keeps its core busy, which is fastest where nothing else needs the core.
    """
    options = {"session.intra_op.allow_spinning": str(int(spinning))}
    shared: dict[object, Any] = {}  # sessions by the memory of their cores
    stages: list[Stage] = []
    for cores in places:
        is_single = len(cores.numbers) == 1
        memory = memory_node(cores.numbers[0]) if is_single else cores
        if memory not in shared or not is_single:
            shared[memory] = session_on(file, cores, options)
        stages.append(SessionStage(shared[memory], spec, cores))
    return stages


def executed_nodes(original: OnnxModel, optimised: Any) -> ExecutedNodes:
    """The nodes of the optimised ONNX graph, which onnxruntime saves and runs."""
    nodes = {}
    for node in optimised.graph.node:
        names = [tensor for tensor in node.output if tensor]
        if len(names) == 1 and names[0] not in original.producers:
            # The node computes a tensor of the original in another layout.
            names = [str(node.name).removesuffix(_BLOCKED)]
        # A node with an output that the original lacks was added by onnxruntime.
        nodes[node.name] = names if all(name in original.producers for name in names) else []
    return nodes


def _run_rounds(
    submodel: Any, item: Item, cores: Cores, folder: Path, seconds: float
) -> dict[str, list[float]]:
    """The time of each node in ms in every run, except the first run, which is a warm-up."""
    model = folder / "model.onnx"
    model_file.write(submodel, model)
    entries = {
        "session.optimized_model_external_initializers_file_name": "weights.bin",
        "session.optimized_model_external_initializers_min_size_in_bytes": "1024",
    }
    session = session_on(
        model,
        cores,
        entries,
        enable_profiling=True,
        profile_file_prefix=str(folder / "profile"),
        optimized_model_filepath=str(folder / "optimised.onnx"),
    )
    feed = {i.name: item[i.name] for i in session.get_inputs()}
    max_rounds = _MAX_EVENTS // (len(submodel.graph.node) + 2)
    on_cores(cores, lambda: repeated_ms(lambda: session.run(None, feed), seconds, most=max_rounds))
    samples: dict[str, list[float]] = {}
    for event in json.loads(Path(session.end_profiling()).read_text(encoding="utf-8")):
        if event.get("cat") == "Node" and event["name"].endswith(_KERNEL):
            name = event["name"].removesuffix(_KERNEL)
            samples.setdefault(name, []).append(event["dur"] / _US_PER_MS)
    return {name: durations[1:] for name, durations in samples.items()}
