"""The public API: load a model, split it by hand or by plan, run it, export it, load what was exported."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from autosplit import cuts
from autosplit.cuts.stages import Stages, used
from autosplit.errors import SplitError, nearest
from autosplit.graph import FusedGraph
from autosplit.hardware.compiled_model import CompiledModel
from autosplit.hardware.compiled_model import load_model as _load
from autosplit.hardware.devices import device
from autosplit.hardware.devices.device import Device
from autosplit.hardware.devices.rpc import reached
from autosplit.hardware.execution.pipeline import Pipeline
from autosplit.hardware.execution.wiring import Wiring, part
from autosplit.hardware.profiling.cost_model import cost_model, on_own_devices
from autosplit.hardware.runtimes.registry import TVM
from autosplit.lowering import convex
from autosplit.lowering.external.backend import Backend

if TYPE_CHECKING:
    from autosplit.planner import CostModel


class Model(CompiledModel):
    """A model made ready to be split; ``graph`` holds its fused ops."""

    def split(self, after: Sequence[Iterable[str]]) -> Split:
        """Cut by hand: one list of op or source node names a cut, the ops that must lie before it.

        A cut is the smallest downset that holds the named ops and everything before the cut ahead of it. Raises SplitError
        naming the op where a name is unknown, a stage would be empty, a cut lies before the one ahead of it, or parts ops
        that run as one.
        """
        before = 0
        found = []
        for number, names in enumerate(after, 1):
            names = [names] if isinstance(names, str) else list(names)
            own = cuts.closure(
                self.graph, [op for name in names for op in ops_named(self.graph, name)]
            )
            if before & ~own and not own & ~before:
                last = self.graph.ops[max(cuts.members(before & ~own))].name
                raise SplitError(
                    f"cut {number} (after {', '.join(names) or 'nothing'}) does not hold the one before it: "
                    f"op '{last}' lies before cut {number - 1} already; give the cuts in the order of the model"
                )
            before |= own
            self._require_whole(number, before)
            found.append(before)
        return Split(self, cuts.stages(self.graph, found))

    def _require_whole(self, number: int, downset: int) -> None:
        for group in map(cuts.bitset, self.runtime.keep_together):
            if (inside := group & downset) and (outside := group & ~downset):
                first, second = (
                    self.graph.ops[next(cuts.members(ops))].name for ops in (inside, outside)
                )
                raise SplitError(
                    f"cut {number} lies between ops '{first}' and '{second}', which run as one on {self.runtime_name}; name both"
                )

    def extract(
        self, ops: Iterable[str] = (), *, first: Iterable[str] = (), last: Iterable[str] = ()
    ) -> Part:
        """A convex set of fused ops by itself: those named in ``ops``, or all on a path from ``first`` to ``last``.

        Names are those of ops or source nodes. Raises SplitError for an unknown name, where no path leads from first to
        last, and for a set that is not convex, showing a path that leaves it and returns.
        """
        chosen, start, end = (
            [
                op
                for name in ([names] if isinstance(names, str) else names)
                for op in ops_named(self.graph, name)
            ]
            for names in (ops, first, last)
        )
        if start or end:
            chosen = [*chosen, *convex.between(self.graph, start, end)]
        return Part(self, convex.require_convex(self.graph, chosen))


@dataclass(frozen=True)
class Part:
    """A convex set of a model's ops, taken out to run by itself; inputs and outputs go by the names of their tensors."""

    model: Model
    ops: tuple[int, ...]

    @property
    def wiring(self) -> Wiring:
        """Its inputs and outputs, as of a pipeline of one stage."""
        return part(self.model.graph, self.ops, self.model.lowered.outputs)

    def pipeline(self, on: str | None = None) -> Pipeline:
        """Link it into a pipeline of one stage, on the first core unless ``on``, a device's spelling, says otherwise.

        Raises ConfigError for a misspelt device, MachineError for one that is not there.
        """
        return self.model.run_on(self.wiring, device.along(1, (on,) if on else ()))

    def export(self, file: str | Path) -> Path:
        """Write it as the library ``file``, with a manifest beside it, and as ONNX where it can be; returns the manifest.

        ``autosplit.load`` takes the manifest. Raises MachineError where the disk refuses or nothing here links.
        """
        from autosplit.deploy.extract import write_part

        return write_part(self.model, self.ops, Path(file))


@dataclass(frozen=True)
class Split:
    """A model and its stages, each a tuple of op indices.

    ``predicted_ms``: the period planned for them; ``devices``: the spellings of those it was planned for, one a stage.
    """

    model: Model
    stages: Stages
    predicted_ms: float | None = None
    devices: tuple[str, ...] = ()

    def pipeline(
        self, devices: Sequence[str] = (), depth: int = 2, trace: bool = False
    ) -> Pipeline:
        """Link the stages into a running pipeline, on ``devices``, else those it was planned for, else one core a stage.

        ``depth`` items wait between neighbouring stages; ``trace`` keeps the events of every stage. Raises ConfigError for
        another number of devices than stages, MachineError for a device that is not there, SplitError where the runtime
        cannot cut so.
        """
        return self.model.pipeline(self.stages, self._along(devices), depth, trace)

    def export(self, folder: str | Path, devices: Sequence[str] = (), **measured: Any) -> Path:
        """Write ``split.json`` and one loadable file a stage into ``folder``; returns the path of ``split.json``.

        ``measured``: what is known of the split, see ``deploy.export.write_split``. Raises as ``pipeline`` does, and MachineError
        where the disk refuses or nothing here links a stage's file.
        """
        from autosplit.deploy.export import write_split

        return write_split(self.model, self.stages, self._along(devices), Path(folder), **measured)

    def _along(self, devices: Sequence[str]) -> tuple[Device, ...]:
        return device.along(len(self.stages), devices or self.devices)


def load_model(
    model: str | Path | Any,
    shapes: Mapping[str, Sequence[int]] | None = None,
    target: str | None = None,
    tuning: Path | None = None,
    backends: Sequence[Backend] = (),
    runtime: str = TVM,
    targets: Mapping[str, str] | None = None,
) -> Model:
    """Read and fuse a model: an ONNX, TVMScript (.py), module (.json) or exported-program (.pt2) file, or such an object.

    ``shapes``: of inputs whose shape is dynamic, by name; ``target``, ``targets``, ``tuning``, ``backends`` and ``runtime``
    as in ``autosplit.hardware.compiled_model.load_model``. Raises ModelError or ConfigError where the model, the shapes or the runtime
    are wrong, MachineError without the package that reads it.
    """
    built = _load(model, shapes, target, tuning, backends, runtime, targets)
    return Model(**{f.name: getattr(built, f.name) for f in fields(built)})


def plan(
    model: Model,
    stages: int | Literal["auto"] = 2,
    devices: Sequence[str] = (),
    regions: Mapping[str, str] | None = None,
) -> Split:
    """The best split into ``stages`` for the measured profile of each device, and for what it takes to reach it.

    ``stages = "auto"`` weighs any number up to the devices. ``devices`` are spelled as in a study file, one a stage; a core
    a stage by default. ``regions``: by the name of an external backend the device that its ops run on. Raises Infeasible
    for too many stages, ConfigError for a device of regions that is none of the devices, MachineError for one that is not
    there.
    """
    from autosplit import planner

    along = device.along(most_stages(devices) if stages == "auto" else stages, devices)
    names = list(map(str, along))
    costs = on_own_devices(
        measured_costs(model, along), model.lowered.regions, regions or {}, names
    )
    best = planner.plan(costs, len(along), allow_empty=stages == "auto")
    chosen = used(best.stages, names)
    return Split(
        model, tuple(s for s in best.stages if s), best.period, tuple(chosen) if devices else ()
    )


def most_stages(devices: Sequence[str]) -> int:
    """How many stages there are at most: one a device, without any one a core that this process may use."""
    return len(devices) or len(device.available())


def measured_costs(model: CompiledModel, devices: Sequence[Device]) -> CostModel:
    """The planner's costs, in ms, of a model on devices along a pipeline: profiles and links, measured or from the cache."""
    with reached(devices):
        profiles, links = [model.profile(d) for d in devices], [model.link(d) for d in devices]
    return cost_model(model.graph, profiles, links, model.runtime.keep_together)


def ops_named(graph: FusedGraph, name: str) -> tuple[int, ...]:
    """The op called ``name``, the one the source node ``name`` went into, or the one that makes the tensor ``name``.

    Raises SplitError where there is none.
    """
    if name in graph.index:
        return (graph.index[name],)
    found = tuple(i for i, op in enumerate(graph.ops) if name in op.sources)
    found = found or tuple(i for i, op in enumerate(graph.ops) if name in op.outputs)
    if found:
        return found
    reason = next((f.reason for f in graph.folded if f.name == name), None)
    if reason:
        raise SplitError(f"node '{name}' left no op ({reason}); name the node before or after it")
    known = [*graph.index, *(n for op in graph.ops for n in (*op.sources, *op.outputs))]
    raise SplitError(
        f"no op and no source node is called '{name}'; `autosplit inspect` lists them{nearest(name, known)}"
    )
