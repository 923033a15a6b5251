"""The time of every fused op in onnxruntime: what its profiler says of each node of the whole model, by fused op.

onnxruntime fuses, renames and adds nodes. The optimised graph that it saves tells which tensors of the original lie around
each of its nodes; the original nodes between those are what it computes, and the time goes to the ops they belong to.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from autosplit.graph import FusedGraph
from autosplit.hardware.devices.device import Cores
from autosplit.hardware.measurement.results import Profile
from autosplit.hardware.measurement.statistics import spread
from autosplit.hardware.runtimes.onnxruntime import submodels
from autosplit.hardware.runtimes.onnxruntime.node_groups import Cover
from autosplit.hardware.runtimes.onnxruntime.stage import on_cores
from autosplit.hardware.runtimes.onnxruntime.submodels import Whole

_US_PER_MS = 1e3
_MOST_EVENTS = 500_000  # onnxruntime keeps a million
_QUANTILE = (
    0.1  # the profiler's clock runs on while another process has the core, which hits long ops most
)
_KERNEL = "_kernel_time"
_BLOCKED = (
    "_nchwc"  # added to the name of a tensor to name the node that makes it in blocks of channels
)

Array = np.ndarray[Any, np.dtype[Any]]


def profile_ops(
    submodel: Any,
    whole: Whole,
    graph: FusedGraph,
    cover: Cover,
    item: Mapping[str, Array],
    cores: Cores,
    seconds: float = 2.0,
    rounds: int = 5,
) -> Profile:
    """Time every op on ``cores``. ``submodel`` is the whole model as one stage.

    At least ``rounds`` rounds, more while ``seconds`` last; the first is a warm-up. Within ops that no cut parts, time goes
    by arithmetic. The time is that of the rounds disturbed least; the spread is that of all.
    """
    for node in submodel.graph.node:
        node.name = next(o for o in node.output if o)  # the events go by these names
    with tempfile.TemporaryDirectory(prefix="autosplit-profile-") as folder:
        events = _run(submodel, item, cores, Path(folder), seconds, rounds)
        optimised = _optimised(Path(folder))
    shares = Shares(whole, graph, cover, optimised)
    times = np.zeros((min(map(len, events.values()), default=1), len(graph.ops)))
    for name, samples in events.items():
        for op, share in shares.of(name).items():
            times[:, op] += share * np.array(samples[: len(times)]) / _US_PER_MS
    spreads = [spread(column) for column in times.T.tolist()]
    least_disturbed = np.quantile(times, _QUANTILE, axis=0, method="lower").tolist()
    return Profile(str(cores), tuple(least_disturbed), tuple((s.high - s.low) / 2 for s in spreads))


class Shares:
    """Which ops a node of the optimised graph computes, and what share of its time is theirs."""

    def __init__(self, whole: Whole, graph: FusedGraph, cover: Cover, optimised: Any) -> None:
        self._whole = whole
        self._work = [float(op.flops) for op in graph.ops]
        self._groups = cover.groups
        self._group_of = {node: g for g, nodes in enumerate(cover.nodes) for node in nodes}
        self._nodes = {node.name: node for node in optimised.graph.node}
        self._maker = {t: node for node in optimised.graph.node for t in node.output if t}

    def of(self, name: str) -> dict[int, float]:
        """The share of each op in the time of the node ``name``; they add up to 1."""
        node = self._nodes.get(name)
        groups = self._groups_of(node) if node is not None else ()
        ops = [i for g in groups or range(len(self._groups)) for i in self._groups[g]]
        work = [self._work[i] for i in ops]
        total = sum(work)
        return {i: w / total if total else 1 / len(ops) for i, w in zip(ops, work, strict=True)}

    def _groups_of(self, node: Any) -> Sequence[int]:
        """The groups a node computes; those of its nearest reader, else of its nearest maker, where it is of no known one.

        A node that only moves data between layouts is its maker's, if it makes a tensor of the original.
        """
        for neighbours in (self._readers, self._makers):
            seen: set[str] = set()
            line = [node]
            while line:
                current = line.pop(0)
                if current.name in seen:
                    continue
                seen.add(current.name)
                if found := self._computed(current):
                    return found
                line += neighbours(current)
        return ()

    def _computed(self, node: Any) -> Sequence[int]:
        made = [self._original(t) for t in node.output if t]
        wanted = [t for t in made if t is not None and t in self._whole.makers]
        if not wanted or len(wanted) < len(made):
            return ()
        given = {t for i in node.input if (t := self._original(i)) is not None}
        walk = self._whole.walk(wanted, given)
        nodes = (
            walk.nodes
            if walk.nodes and not walk.missing
            else {self._whole.makers[t] for t in wanted}
        )
        return sorted({self._group_of[n] for n in nodes if n in self._group_of})

    def _original(self, tensor: str) -> str | None:
        """The tensor of the original that a tensor of the optimised graph holds, in whatever layout."""
        if tensor in self._whole.makers or tensor not in self._maker:
            return tensor
        node = self._maker[tensor]
        name = node.name.removesuffix(_BLOCKED)
        return name if len(node.output) == 1 and name in self._whole.makers else None

    def _readers(self, node: Any) -> list[Any]:
        made = set(node.output)
        return [n for n in self._nodes.values() if made.intersection(n.input)]

    def _makers(self, node: Any) -> list[Any]:
        return [self._maker[t] for t in node.input if t in self._maker]


def _run(
    submodel: Any,
    item: Mapping[str, Array],
    cores: Cores,
    folder: Path,
    seconds: float,
    rounds: int,
) -> dict[str, list[float]]:
    """Microseconds of each node by round, by its name."""
    model = folder / "model.onnx"
    submodels.write(submodel, model)
    session = on_cores(
        model,
        cores,
        {
            "session.optimized_model_external_initializers_file_name": "weights.bin",
            "session.optimized_model_external_initializers_min_size_in_bytes": "1024",
        },
        enable_profiling=True,
        profile_file_prefix=str(folder / "profile"),
        optimized_model_filepath=str(folder / "optimised.onnx"),
    )
    feed = {i.name: item[i.name] for i in session.get_inputs()}

    def run() -> None:
        most = _MOST_EVENTS // (len(submodel.graph.node) + 2)
        deadline = time.perf_counter() + seconds
        done = 0
        while done <= rounds or (done < most and time.perf_counter() < deadline):
            session.run(None, feed)
            done += 1

    with ThreadPoolExecutor(1, "profile", cores.bind) as own_thread:
        own_thread.submit(run).result()
    events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
    found: dict[str, list[float]] = {}
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith(_KERNEL):
            found.setdefault(event["name"].removesuffix(_KERNEL), []).append(float(event["dur"]))
    return {name: samples[1:] for name, samples in found.items()}


def _optimised(folder: Path) -> Any:
    import onnx

    return onnx.load(str(folder / "optimised.onnx"), load_external_data=False)
