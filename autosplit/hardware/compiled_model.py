"""A model ready to be split: read, lowered, its kernels compiled when they are first needed."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal, Self

from autosplit import files, phases
from autosplit.deployment import Deployment
from autosplit.errors import AutosplitError, ConfigError, MachineError, MismatchError, ModelError
from autosplit.frontend.samples import random_items
from autosplit.hardware import native_log
from autosplit.hardware.batches import require_batchable
from autosplit.hardware.cluster import nodes
from autosplit.hardware.cluster.pipeline import pipeline_of, remote_stage
from autosplit.hardware.codegen import link
from autosplit.hardware.codegen.kernels import DeviceKernels
from autosplit.hardware.codegen.schedules import RECORDS
from autosplit.hardware.codegen.target import spelled, target_of
from autosplit.hardware.devices import device as devices
from autosplit.hardware.devices.device import Device, RayCores
from autosplit.hardware.devices.session import within
from autosplit.hardware.execution.pipeline import Pipeline
from autosplit.hardware.execution.stage_spec import StageSpec
from autosplit.hardware.execution.wiring import Wiring
from autosplit.hardware.measurement import sequences
from autosplit.hardware.measurement.parity import has_numbers, tolerance_of
from autosplit.hardware.measurement.reference import Outputs, Reference, reference_of
from autosplit.hardware.measurement.results import Accuracy, LinkCost, Profile
from autosplit.hardware.measurement.sequences import Expected
from autosplit.hardware.model_options import check_options, device_targets, options_there
from autosplit.hardware.profiling.transfer_costs import link_cost
from autosplit.hardware.runtimes import registry, stage_files
from autosplit.hardware.runtimes.interface import Item, Runtime, Stage, StageSource
from autosplit.hardware.runtimes.registry import AUTO, EXACT, RUNTIMES, TVM, is_installed
from autosplit.hardware.runtimes.stage_files import runtime_class
from autosplit.hardware.variants import with_variants
from autosplit.lowering.external.backend import Backend
from autosplit.lowering.fuse.lowered import lower
from autosplit.versions import require_pair

MakeStages = Callable[[StageSpec, Sequence[Device]], Sequence[Stage]]
PROFILE_S = 2.0  # seconds that ops are timed for on a device


@dataclass(frozen=True, kw_only=True)
class CompiledModel(StageSource):
    """A model lowered for a target, and the runtimes that can compute its stages.

    ``path`` is the original file, or None for an object. ``reference`` computes the original model
    without stages; outputs may differ from it by ``tolerance``, which by default follows from the
    model. ``runtime_in_use`` is used where no runtime is named. ``batch`` items are computed at
    once, although pipelines take and return single items; above 1, ``single`` is the model at batch
    1, whose outputs are expected. ``reload`` loads the model at another batch.
    """

    path: Path | None
    reference: Reference
    runtime_name: str = TVM
    tolerance: float | None = None
    trust_kernels: bool = False
    single: CompiledModel | None = field(default=None, repr=False, compare=False)
    reload: Callable[..., CompiledModel] | None = field(default=None, repr=False, compare=False)

    @cached_property
    def stage_source(self) -> StageSource:
        """The part of the model that runtimes make stages from; it does not refer to runtimes."""
        return StageSource(**{f.name: getattr(self, f.name) for f in fields(StageSource)})

    @property
    def runtime(self) -> Runtime:
        """The runtime of ``runtime_in_use``."""
        return self.runtimes[self.runtime_in_use]

    @cached_property
    def runtime_in_use(self) -> str:
        """The runtime used where none is named: the first that can run the whole model."""
        core = devices.along(1)[0]
        able = (name for name, runtime in self.runtimes.items() if runtime.can_run(core))
        return next(able, next(iter(self.runtimes)))

    @cached_property
    def runtimes(self) -> Mapping[str, Runtime]:
        """The runtimes that stages may have, by name."""
        names = [self.runtime_name]
        if self.runtime_name == AUTO:
            names = [name for name in EXACT if name not in self.left_out]
        return {name: self.runtime_of(name) for name in names}

    @cached_property
    def left_out(self) -> Mapping[str, str]:
        """The runtimes that ``auto`` leaves out, by name, each with the reason."""
        reasons: dict[str, str] = {}
        for name in EXACT if self.runtime_name == AUTO else ():
            if not is_installed(name):
                reasons[name] = "it is not installed"
                continue
            try:
                self.runtime_of(name).prepare()
            except AutosplitError as error:
                reasons[name] = str(error)
        return reasons

    def runtime_of(self, name: str) -> Runtime:
        """A runtime by name, whether or not stages may have it."""
        return self._runtimes[name]

    @cached_property
    def _runtimes(self) -> dict[str, Runtime]:
        return {name: runtime_class(name)(self.stage_source) for name in RUNTIMES}

    def at_batch(self, batch: int) -> CompiledModel:
        """The same model, loaded to compute ``batch`` items at once.

        Raises ModelError, with the reason, if that is not possible, and ConfigError if this model
        itself was loaded at another batch.
        """
        from autosplit.frontend import importing

        if batch == self.batch:
            return self
        if self.single:
            return self.single.at_batch(batch)
        if self.batch > 1:
            raise ConfigError(
                f"'{self.graph.name}' was loaded at batch {self.batch}, which only its kernels "
                "take; load it without a batch and give the batch to `plan`"
            )
        if batch not in self._at_batch:
            if self.reload is None or self.lowered.composites or self.variants:
                reason = "variants" if self.variants else "external backends"
                raise ModelError(f"'{self.graph.name}' with {reason} has batch 1 only")
            phases.report(f"importing the model at batch {batch}")
            loaded = self.reload(batch=batch)
            if self.path:
                importing.require_unchanged(self.path, self.sha256)
            variant = replace(loaded, single=self, sha256=self.sha256, reference=self.reference)
            require_batchable(self, variant)
            self._at_batch[batch] = variant
        return self._at_batch[batch]

    @cached_property
    def _at_batch(self) -> dict[int, CompiledModel]:
        return {}

    def pipeline(self, deployment: Deployment, depth: int = 2, trace: bool = False) -> Pipeline:
        """Link the stages of a deployment and put every replica on its device.

        Args:
            deployment: Its stages, their ops, runtimes and devices.
            depth: Items inside for each replica, see ``Pipeline``.
            trace: Whether the times of every stage are recorded, in ``events``.

        Returns:
            The pipeline, to be closed or used in ``with``.

        Raises:
            ConfigError: A misspelt device, or a runtime that the model is not loaded for.
            MachineError: A device that is not there.
            SplitError: A cut that a runtime does not support.

        Example:
            with model.pipeline(autosplit.plan(model, cores=1).deployment) as pipeline:
                outputs = pipeline.run(model.items(8))
        """
        model = self.at_batch(deployment.batch)
        wiring = model.wiring(deployment.split, deployment.runtimes)
        return model.run_on(wiring, deployment, depth, trace)

    def run_on(
        self, wiring: Wiring, deployment: Deployment, depth: int = 2, trace: bool = False
    ) -> Pipeline:
        """Link the stages of a wiring as ``pipeline`` does."""
        other = next((name for name in deployment.runtimes if name not in self.runtimes), None)
        if other is not None:
            raise ConfigError(f"the model is not loaded for '{other}'; load it with that runtime")
        names = [name for stage in deployment.stages for name in stage.devices]
        places = iter(devices.with_copies(list(map(devices.parse, names))))

        def rows() -> Iterator[list[Stage]]:
            for spec, stage in zip(wiring.stages, deployment.stages, strict=True):
                runtime, here = self.runtimes[stage.runtime], islice(places, len(stage.devices))
                yield self._replicas(runtime, spec, list(here), runtime.stages)

        return pipeline_of(wiring, rows(), depth, trace, self.batch)

    def _replicas(
        self, runtime: Runtime, spec: StageSpec, places: Sequence[Device], make: MakeStages
    ) -> list[Stage]:
        """Make a stage on each of ``places``; ``make`` makes all but those on Ray nodes at once."""
        local = [place for place in places if not isinstance(place, RayCores)]
        if self.variants and len(local) < len(places):
            raise ConfigError("stages with variants do not run on a Ray cluster; write cores:0")
        # A runtime that is asked for throughput may make several replicas for one place.
        replicas = list(_loaded_in_time(runtime, spec, local, make)) if local else []
        for number, place in enumerate(places):
            if isinstance(place, RayCores):
                replicas.insert(number, remote_stage(runtime, spec, place))
        return replicas

    def unsplit(self, device: Device) -> Pipeline:
        """The whole model on one device, as fast as the runtime computes it there."""
        return self.whole(self.runtime_in_use, device)

    def whole(
        self, runtime: str, *places: Device, by_hint: bool = False, trace: bool = False
    ) -> Pipeline:
        """The whole model in any runtime, with a replica on each of some places.

        ``by_hint``: let the runtime choose the number of replicas for the greatest throughput.
        """
        maker = self.runtime_of(runtime)
        wiring = self.wiring([range(len(self.graph.ops))], [runtime])
        (spec,) = wiring.stages
        replicas = self._replicas(maker, spec, places, partial(maker.whole, by_hint=by_hint))
        return pipeline_of(wiring, [replicas], trace=trace, batch=self.batch)

    def check(self, places: Sequence[Device]) -> None:
        """Raises ConfigError for a device, ModelError for an op that the runtime cannot use.

        With runtime ``auto`` nothing is checked: times are infinite where a runtime cannot be used.
        """
        if self.runtime_name != AUTO:
            self.runtime.check(places)

    def profile(self, device: Device, seconds: float = PROFILE_S, force: bool = False) -> Profile:
        """The time of every op on a device in ``runtime_in_use``.

        Measured once on this machine unless ``force``. Raises ModelError if no op can be computed.
        """
        (profile,) = self.profiles([device], seconds, force, [self.runtime_in_use])
        if profile.note:
            raise ModelError(profile.note)
        return profile

    def profiles(
        self,
        places: Sequence[Device],
        seconds: float | None = None,
        force: bool = False,
        runtimes: Sequence[str] = (),
    ) -> list[Profile]:
        """The time of every op on each device, for one runtime after the other, by default all.

        By default all runtimes together take PROFILE_S on a device. With ``auto``, a runtime that
        cannot compute the model has infinite times and a note.
        """
        seconds = seconds or PROFILE_S / len(self.runtimes)
        names = [*(runtimes or self.runtimes)]
        distinct = {str(device): device for device in places}
        by_device = {n: self._profiles_on(d, names, seconds, force) for n, d in distinct.items()}
        profiles = [by_device[str(device)][name] for name in names for device in places]
        for name, reason in self.left_out.items() if not runtimes else ():
            profiles += [self._no_profile(name, device, reason) for device in places]
        return profiles

    def _profiles_on(
        self, device: Device, runtimes: Sequence[str], seconds: float, force: bool
    ) -> dict[str, Profile]:
        """The profiles of a device by runtime."""
        if not isinstance(device, RayCores):
            return {name: self._profile_on(device, name, seconds, force) for name in runtimes}
        phases.report(f"profiling on {device}")
        # A node reads the model once, and answers for all runtimes.
        options, files = options_there(self, device)
        there = nodes.profile(device, type(self).load, options, files, seconds, force)
        return {profile.runtime: replace(profile, device=str(device)) for profile in there}

    def _profile_on(self, device: Device, name: str, seconds: float, force: bool) -> Profile:
        runtime = self.runtime_of(name)
        at_batch = f" at batch {self.batch}" if self.batch > 1 else ""
        try:
            runtime.prepare([device])
            # Ops that the device cannot compute get infinite times instead.
            with contextlib.suppress(ModelError):
                runtime.check([device])
            phases.report(f"profiling {name} on {device}{at_batch}")
            profile = runtime.profile(device, seconds, force)
        except MachineError:
            raise
        except AutosplitError as error:
            if self.runtime_name != AUTO:
                raise
            return self._no_profile(name, device, str(error))
        return replace(profile.of_batch(self.batch), runtime=name)

    def _no_profile(self, runtime: str, device: Device, reason: str) -> Profile:
        count = len(self.graph.ops)
        times = (math.inf,) * count, (0.0,) * count
        return Profile(str(device), *times, runtime, reason, batch=self.batch)

    def links(self, places: Sequence[Device]) -> list[LinkCost]:
        """The costs of sending tensors to each device and of calling it.

        They are measured now, those of a Ray node once in a job.
        """
        distinct = {str(device): device for device in reversed(places)}
        costs = {
            name: nodes.link(device) if isinstance(device, RayCores) else link_cost(device)
            for name, device in distinct.items()
        }
        return [costs[str(device)] for device in places]

    def items(self, count: int = 3, seed: int = 0) -> list[Item]:
        """Random items, reproducible by ``seed``: the array of each input but states by name."""
        states = {state.input for state in self.graph.states}
        items = super().items(count, seed)
        return [{name: item[name] for name in item if name not in states} for item in items]

    def expect(self, items: Sequence[Item]) -> Expected:
        """What the original model computes for the items of one stream.

        Raises MachineError for a missing package, ModelError where it refuses the model.
        """
        phases.report(f"computing the outputs of {self.reference.name}")
        successors = {state.input: state.output for state in self.graph.states}
        initial = self.wiring([range(len(self.graph.ops))]).first_states
        return sequences.expect(self.reference, items, initial, successors)

    def expected(self, items: Sequence[Item]) -> Sequence[Outputs]:
        """The outputs, by name, that the original model gives for each item of one stream."""
        return self.expect(items).along

    @cached_property
    def reference_outputs(self) -> Expected:
        """The outputs of the original model for the items that every deployment is compared on."""
        if self.batch > 1:
            return self.at_batch(1).reference_outputs
        wiring, below = self.wiring([range(len(self.graph.ops))]), self.lowered.integers_below
        count, seed = sequences.ITEMS, sequences.SEED
        expected = self.expect(sequences.drawn(wiring, random_items, count, seed, below))
        for name in expected.along[0]:
            if not any(has_numbers({name: outputs[name]}) for outputs in expected.along):
                raise ModelError(
                    f"output '{name}' of {self.reference.name} is NaN or infinite for all random "
                    "inputs and cannot be compared; give a model whose outputs are finite"
                )
        return expected

    @property
    def allowed_error(self) -> float:
        """The relative error that outputs may have: ``tolerance``, or one that suits the types."""
        if self.tolerance is not None:
            return self.tolerance
        rounded = (runtime.rounds_to for runtime in self.runtimes.values())
        return tolerance_of(self.lowered.dtypes.union(filter(None, rounded)))

    def require_equal(self, pipeline: Pipeline, runtimes: Sequence[str]) -> Accuracy:
        """Compare the outputs of a pipeline, whose stages ``runtimes`` compute, with the reference.

        Raises MismatchError where they differ by more than ``allowed_error``.
        """
        accuracy = sequences.accuracy_of(pipeline, self.reference_outputs, self.allowed_error)
        if reason := sequences.refusal(accuracy, runtimes, self.reference.name):
            raise MismatchError(reason)
        return accuracy

    @property
    def identity(self) -> dict[str, str]:
        """The properties, besides the machine, that comparable measurements have in common."""
        tuning = self.kernels.tuning
        identity = {
            "model": self.sha256,
            "shapes": self.input_shapes,
            "target": spelled(self.kernels.target),
            "tuning": files.sha256(tuning / RECORDS) if tuning else "by rule",
            "versions": ",".join(runtime.versions for runtime in self.runtimes.values()),
        }
        if self.graph.states:
            identity["states"] = " ".join(f"{s.input}={s.output}" for s in self.graph.states)
        if self.lowered.composites:
            composites = sorted(c.key for c in self.lowered.composites.values())
            identity["regions"] = f"{' '.join(composites)} {self.lowered.keep_together}"
        return identity

    @classmethod
    def load(
        cls,
        model: str | Path | Any,
        shapes: Mapping[str, Sequence[int]] | None = None,
        target: str | None = None,
        tuning: Path | None = None,
        backends: Sequence[Backend] = (),
        runtime: str | None = None,
        targets: Mapping[str, str] | None = None,
        states: Mapping[str, str] | Literal["auto"] | None = None,
        tolerance: float | None = None,
        trust_kernels: bool = False,
        *,
        batch: int = 1,
        variants: Mapping[str, Mapping[str, Sequence[int]]] | None = None,
    ) -> Self:
        """Read and fuse a model.

        Args:
            model: An ONNX file, a saved Relax module (.json) or exported program (.pt2), a TVM
                IRModule or a ``torch.export.ExportedProgram``.
            shapes: The shapes of dynamic inputs by name.
            target: The target of the kernels; by default this machine's processor.
            tuning: The folder of a tuning database.
            backends: External code generators for the ops that they match.
            runtime: The runtime of the stages; all but "tvm" need an ONNX file or a PyTorch
                program. With "auto" each stage has the fastest installed one that can compute it.
            targets: The targets of devices by name; a device without one is asked for its target.
            states: Maps an input to the output that takes its place in the next step of a stream;
                "auto" means the states that ``inspect`` proposes.
            tolerance: The relative error that outputs may have; by default it follows from the
                model.
            trust_kernels: Whether a Relax module may have kernels of its own, which are code.
            batch: How many items its kernels compute at once; see ``at_batch``.
            variants: Further ``shapes`` of dynamic inputs, by a name, for stages that take items of
                several sizes, such as 64 tokens and one. The plan is made for the smallest. They
                need an ONNX file and onnxruntime.

        Returns:
            The model, which can be split; its ops are ``graph.ops``.

        Raises:
            ModelError: A file or an op that cannot be read.
            ConfigError: A wrong option.
            MachineError: A missing package.

        Example:
            model = autosplit.load_model("net.onnx", shapes={"image": (1, 3, 28, 28)})
        """
        from autosplit.frontend import importing

        require_pair()
        runtime = runtime or registry.DEFAULT
        options: dict[str, Any] = {"target": target, "targets": targets, "tuning": tuning}
        options |= {"tolerance": tolerance, "trust_kernels": trust_kernels}
        if variants:
            load = partial(cls.load, model, **options, backends=backends, states=states)
            return with_variants(partial(load, batch=batch), shapes or {}, variants, runtime)
        check_options(runtime, tuning, backends, tolerance)
        by_device = device_targets(targets or {})
        path = Path(model) if isinstance(model, str | Path) else None
        static_shapes = {name: tuple(shape) for name, shape in (shapes or {}).items()}
        # Ray sends this function to nodes: it cannot send a decorated one, or one that has a lock.
        with link.BUILDING, native_log.hidden():
            phases.report(f"importing {path.name if path else 'the model'}")
            source = importing.read(
                path or model, static_shapes, trust_kernels=trust_kernels, batch=batch
            )
            tvm_target = target_of(target)
            phases.report("lowering")
            lowered = lower(source, tvm_target, backends, states)
        return cls(
            path=path,
            sha256=importing.digest(path or source.module),
            lowered=lowered,
            kernels=DeviceKernels(lowered.kernels, tvm_target, by_device, tuning),
            reference=reference_of(source, path, tvm_target),
            shapes=static_shapes,
            # Only TVM has external backends.
            runtime_name=TVM if backends and runtime == AUTO else runtime,
            onnx_file=path if source.format == "onnx" else None,
            onnx_model=source.onnx_model,
            tolerance=tolerance,
            trust_kernels=trust_kernels,
            batch=batch,
            reload=partial(cls.load, model, shapes, runtime=runtime, **options),
        )


def _loaded_in_time(
    runtime: Runtime, spec: StageSpec, places: Sequence[Device], make: MakeStages
) -> Sequence[Stage]:
    """Link and load stages with ``make``. Raises MachineError if that hangs."""
    runtime.prepare(places)  # compiles, which may take longer than the limit
    try:
        return within(stage_files.LOAD_S, partial(make, spec, places), "it hangs")
    except TimeoutError as error:
        names = ", ".join(map(str, places))
        raise MachineError(f"a stage does not load on {names}: {error}") from error
