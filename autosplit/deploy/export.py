"""Writing a split so that it runs elsewhere: ``split.json``, one loadable file a stage, the stage as ONNX where it can be."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from autosplit import files
from autosplit.deploy import manifest as m
from autosplit.deploy.environment import environment
from autosplit.errors import MachineError
from autosplit.hardware.codegen.target import spelled
from autosplit.hardware.devices.device import Cores, Device
from autosplit.hardware.execution.wiring import Connection, Port, StagePorts
from autosplit.hardware.measurement.parity import compare, require_equal
from autosplit.hardware.measurement.results import Baseline, Measurement, Spread
from autosplit.hardware.runtimes.onnxruntime import submodels
from autosplit.hardware.runtimes.runtime import ONNXRUNTIME, TVM

if TYPE_CHECKING:
    from autosplit.hardware.compiled_model import CompiledModel

REFERENCE = "reference.npz"
Items = list[dict[str, np.ndarray[Any, Any]]]


def export(
    model: CompiledModel,
    stages: Sequence[Sequence[int]],
    devices: Sequence[Device],
    folder: Path,
    *,
    measured: Measurement | None = None,
    predicted: float | None = None,
    baselines: Sequence[Baseline] = (),
    verdict: str | None = None,
) -> Path:
    """Write the split into ``folder`` and return the path of its ``split.json``, which is written last.

    A split that was not measured, and so not compared with the model, is compared first where its devices are cores here.
    Raises StageError where its outputs are others than the model's, MachineError where the disk refuses or nothing here
    can link a stage file.
    """
    judged = _judged(model)
    if judged and not measured:
        _require_equal(model, stages, devices, judged)
    wiring = model.wiring(stages)
    original = submodels.whole(model) if model.runtime_name == TVM else None
    parts = [
        stage_part(
            model, ports, folder / f"stage{i}{model.runtime.suffix}", i, devices[i], original
        )
        for i, ports in enumerate(wiring.stages)
    ]
    document = m.Manifest(
        model=m.ModelPart(
            name=model.graph.name,
            sha256=model.sha256,
            inputs=port_parts(wiring.inputs),
            outputs=port_parts(wiring.outputs),
            file=str(model.path.resolve()) if model.path else None,
            dtypes=tuple(sorted(model.lowered.dtypes)),
            integers_below=dict(model.lowered.integers_below),
        ),
        stages=tuple(parts),
        connections=tuple(map(connection_part, wiring.connections)),
        measured=_measured(measured) if measured else None,
        predicted=m.PredictedPart(period_ms=predicted) if predicted is not None else None,
        baselines=tuple(
            m.BaselinePart(
                name=b.name,
                period_ms=_spread(b.period_ms),
                latency_ms=_spread(b.latency_ms),
                copies=b.copies,
            )
            for b in baselines
        ),
        verdict=verdict,
        environment=environment() | {"target": spelled(model.target)},
        reference=_reference(judged, folder / REFERENCE) if judged else None,
    )
    document.write(folder / m.NAME)
    return folder / m.NAME


def stage_part(
    model: CompiledModel,
    ports: StagePorts,
    file: Path,
    index: int,
    device: Device,
    original: submodels.Whole | None,
) -> m.StagePart:
    """Write one stage, and beside it its ONNX submodel where there is one; returns what the manifest says of them."""
    data = model.runtime.write(ports, file, device)
    onnx, absent = (
        (_onnx_file(file, data), None)
        if model.runtime_name == ONNXRUNTIME
        else _onnx_part(ports, file.with_suffix(".onnx"), original)
    )
    return m.StagePart(
        index=index,
        device=str(device),
        target=_own_target(model, device),
        file=file.name,
        sha256=files.sha256(file),
        ops=tuple(
            m.OpPart(name=model.graph.ops[o].name, sources=model.graph.ops[o].sources)
            for o in ports.ops
        ),
        inputs=port_parts(ports.inputs),
        outputs=port_parts(ports.outputs),
        runtime=model.runtime_name,
        onnx=onnx,
        onnx_absent=absent,
    )


def _own_target(model: CompiledModel, device: Device) -> str | None:
    target = spelled(model.target_on(device))
    return None if target == spelled(model.target) else target


def _onnx_part(
    ports: StagePorts, file: Path, original: submodels.Whole | None
) -> tuple[m.OnnxPart | None, str | None]:
    if original is None:
        return None, "the model was not read from an ONNX file"
    try:
        submodel = original.part(ports, file.stem)
    except submodels.Absent as reason:
        return None, str(reason)
    return _onnx_file(file, submodels.write(submodel, file)), None


def _onnx_file(file: Path, data: Path | None) -> m.OnnxPart:
    return m.OnnxPart(
        file=file.name,
        sha256=files.sha256(file),
        data=data.name if data else None,
        data_sha256=files.sha256(data) if data else None,
    )


def _judged(model: CompiledModel) -> tuple[Items, Items] | None:
    """Items with the judge's outputs; None where the package that judges is missing."""
    items = model.items(2, seed=1)
    try:
        return items, model.expected(items)
    except MachineError:
        return None


def _require_equal(
    model: CompiledModel,
    stages: Sequence[Sequence[int]],
    devices: Sequence[Device],
    judged: tuple[Items, Items],
) -> None:
    if not all(isinstance(device, Cores) for device in devices):
        return
    try:
        pipeline = model.pipeline(stages, devices)
    except MachineError:  # another machine's cores, or code for another processor
        return
    with pipeline:
        require_equal(compare(pipeline.run(judged[0]), judged[1], model.lowered.dtypes))


def _reference(judged: tuple[Items, Items], file: Path) -> m.ReferencePart:
    """Items with the judge's outputs, so that ``verify`` has a judge where the model is not."""
    arrays = {
        f"{i}/{way}/{name}": array
        for way, items in zip(("in", "out"), judged, strict=True)
        for i, item in enumerate(items)
        for name, array in item.items()
    }
    with files.atomic_write(file) as temporary, temporary.open("wb") as stream:
        np.savez(stream, allow_pickle=False, **arrays)
    return m.ReferencePart(file=file.name, sha256=files.sha256(file))


def port_parts(ports: Sequence[Port]) -> tuple[m.TensorPort, ...]:
    """Ports as the manifest spells them."""
    return tuple(m.TensorPort(name=p.name, shape=p.shape, dtype=p.dtype) for p in ports)


def connection_part(c: Connection) -> m.ConnectionPart:
    """A connection as the manifest spells it."""
    source = (
        m.FromInput(input=c.source)
        if isinstance(c.source, str)
        else m.FromStage(stage=c.source[0], output=c.source[1])
    )
    to = [m.ToStage(stage=s, input=c.tensor) for s in c.stages] + [
        m.ToOutput(output=name) for name in c.outputs
    ]
    return m.ConnectionPart.model_validate(
        {"tensor": c.tensor, "bytes": c.bytes, "from": source, "to": tuple(to)}
    )


def _measured(found: Measurement) -> m.MeasuredPart:
    return m.MeasuredPart(
        period_ms=_spread(found.period_ms),
        latency_ms=_spread(found.latency_ms),
        stage_ms=found.stage_ms,
        max_rel_error=found.accuracy.max_rel_error,
    )


def _spread(value: Spread) -> m.SpreadPart:
    return m.SpreadPart(median=value.median, low=value.low, high=value.high)
