"""Op times inside the whole model, by onnxruntime's profiler.

onnxruntime fuses, renames and adds nodes. The optimised graph that it saves tells which tensors of
the original lie around each of its nodes. The original nodes between those are what it computes,
and its time goes to the ops that they belong to.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from autosplit.graph import FusedGraph
from autosplit.hardware.devices.device import Cores
from autosplit.hardware.measurement.results import Profile, spread
from autosplit.hardware.runtimes.onnx import model_file
from autosplit.hardware.runtimes.onnx.node_groups import NodeGroups
from autosplit.hardware.runtimes.onnx.submodels import OnnxModel
from autosplit.hardware.runtimes.onnxruntime.stage import session_on

_US_PER_MS = 1e3
_MIN_ROUNDS = 5
_MAX_EVENTS = 500_000  # onnxruntime stores a million
# The profiler's clock runs on while another process has the core, which affects long ops most.
_QUANTILE = 0.1
_KERNEL = "_kernel_time"
_BLOCKED = "_nchwc"  # a node that makes tensor x in blocks of channels is called x_nchwc

Item = Mapping[str, np.ndarray[Any, Any]]


def profile_ops(
    submodel: Any,
    original: OnnxModel,
    graph: FusedGraph,
    groups: NodeGroups,
    item: Item,
    cores: Cores,
    seconds: float,
) -> Profile:
    """Time every op on ``cores`` for about ``seconds``; ``submodel`` is the whole as one stage.

    The time of a group is shared among its ops by their arithmetic. The time is that of the least
    disturbed rounds, the spread that of all.
    """
    for node in submodel.graph.node:
        node.name = next(o for o in node.output if o)  # the profiler's events have this name
    with tempfile.TemporaryDirectory(prefix="autosplit-profile-") as folder:
        events = _run_rounds(submodel, item, cores, Path(folder), seconds)
        optimised = _read_optimised(Path(folder))
    shares = TimeShares(original, graph, groups, optimised)
    rounds = min(map(len, events.values()), default=1)
    times = np.zeros((rounds, len(graph.ops)))
    for name, samples in events.items():
        for op, share in shares.of(name).items():
            times[:, op] += share * np.array(samples[:rounds]) / _US_PER_MS
    spreads = [spread(column) for column in times.T.tolist()]
    least_disturbed = np.quantile(times, _QUANTILE, axis=0, method="lower").tolist()
    return Profile(str(cores), tuple(least_disturbed), tuple((s.high - s.low) / 2 for s in spreads))


class TimeShares:
    """The ops that each node of the optimised graph computes, and their shares of its time."""

    def __init__(
        self, original: OnnxModel, graph: FusedGraph, groups: NodeGroups, optimised: Any
    ) -> None:
        self._original = original
        self._work = [float(op.flops) for op in graph.ops]
        self._group_ops = groups.ops
        self._group_of = {node: g for g, nodes in enumerate(groups.nodes) for node in nodes}
        self._nodes = {node.name: node for node in optimised.graph.node}
        self._producers = {t: node for node in optimised.graph.node for t in node.output if t}

    def of(self, name: str) -> dict[int, float]:
        """The share of each op in the time of the node ``name``; they add up to 1."""
        node = self._nodes.get(name)
        groups = self._groups_of(node) if node is not None else ()
        ops = [op for g in groups or range(len(self._group_ops)) for op in self._group_ops[g]]
        total = sum(self._work[op] for op in ops)
        return {op: self._work[op] / total if total else 1 / len(ops) for op in ops}

    def _groups_of(self, node: Any) -> Sequence[int]:
        """The groups that a node computes.

        A node that computes none, such as one that changes a layout, counts to its nearest
        reader that does, else to its nearest maker.
        """
        for neighbours in (self._readers, self._makers):
            visited: set[str] = set()
            queue = deque([node])
            while queue:
                current = queue.popleft()
                if current.name in visited:
                    continue
                visited.add(current.name)
                groups = self._computed_groups(current)
                if groups:
                    return groups
                queue.extend(neighbours(current))
        return ()

    def _computed_groups(self, node: Any) -> Sequence[int]:
        outputs = [self._original_tensor(t) for t in node.output if t]
        known = [t for t in outputs if t is not None and t in self._original.producers]
        if not known or len(known) < len(outputs):
            return ()
        inputs = {t for t in map(self._original_tensor, node.input) if t is not None}
        subgraph = self._original.subgraph(known, inputs)
        nodes = subgraph.nodes
        if not nodes or subgraph.undefined:
            nodes = frozenset(self._original.producers[t] for t in known)
        return sorted({self._group_of[n] for n in nodes if n in self._group_of})

    def _original_tensor(self, tensor: str) -> str | None:
        """The tensor of the original that one of the optimised graph holds, in any layout."""
        if tensor in self._original.producers or tensor not in self._producers:
            return tensor
        node = self._producers[tensor]
        name = str(node.name).removesuffix(_BLOCKED)
        return name if len(node.output) == 1 and name in self._original.producers else None

    def _readers(self, node: Any) -> list[Any]:
        outputs = set(node.output)
        return [n for n in self._nodes.values() if outputs.intersection(n.input)]

    def _makers(self, node: Any) -> list[Any]:
        return [self._producers[t] for t in node.input if t in self._producers]


def _run_rounds(
    submodel: Any, item: Item, cores: Cores, folder: Path, seconds: float
) -> dict[str, list[float]]:
    """The microseconds of each node by round; the first round is a warm-up that is left out."""
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

    def run() -> None:
        deadline = time.perf_counter() + seconds
        rounds = 0
        while rounds <= _MIN_ROUNDS or (rounds < max_rounds and time.perf_counter() < deadline):
            session.run(None, feed)
            rounds += 1

    with ThreadPoolExecutor(1, "profile", cores.bind) as executor:
        executor.submit(run).result()
    samples: dict[str, list[float]] = {}
    for event in json.loads(Path(session.end_profiling()).read_text(encoding="utf-8")):
        if event.get("cat") == "Node" and event["name"].endswith(_KERNEL):
            name = event["name"].removesuffix(_KERNEL)
            samples.setdefault(name, []).append(float(event["dur"]))
    return {name: durations[1:] for name, durations in samples.items()}


def _read_optimised(folder: Path) -> Any:
    import onnx

    return onnx.load(str(folder / "optimised.onnx"), load_external_data=False)
