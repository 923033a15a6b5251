"""Compute the best plan for a graph file, or for a model from its measured profile, with a proof.

  autosplit plan graph.json --stages 6                   a graph file in dnn-partitioning's format
  autosplit plan net.onnx --stages 2 -f json             the model's ops, profiled on this machine
  autosplit plan graph.json --cores 16 --memory 3e9      replicas of stages, 3 GB each
  autosplit plan net.onnx --cores 4                      stages, replicas and threads of a model
  autosplit plan net.onnx --stages 2 -o out/             write the planned stages, as `split` does

Prints the stages, their loads, the period, and a lower bound on the period of every plan. If both
are equal, the plan is optimal. The interval of a model's period goes from the low to the high end
of the time of each op. With --cores a stage may have several replicas that share the items; its
load is then divided by their number. A replica of a stage with states holds whole streams, so with
one stream it has no use for a second.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autosplit.cli import options, output
from autosplit.deployment import Stage
from autosplit.errors import ConfigError
from autosplit.files import open_regular
from autosplit.hardware.runtimes import registry

if TYPE_CHECKING:
    from autosplit.api import Model
    from autosplit.hardware.devices.device import Device
    from autosplit.hardware.profiling.graph_file import GraphFile
    from autosplit.planner import CostModel, Plan

HELP = "find the provably best split of a model or of a graph file"
# What is asked of models, and of a fixed number of stages.
MODEL_OPTIONS = (
    "shape", "devices", "target", "device_target", "runtime", "tuning", "state", "tolerance",
    "batch",
)  # fmt: skip
SPLIT_OPTIONS = ("devices", "assign", "allow_empty", "as")
SHAPE = ("replicas", "threads")  # of the stages of a deployment


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    options.add_model(parser)
    options.add_runtime(parser)
    options.add_tolerance(parser)
    options.add_batch(parser)
    options.add_output(parser, "DIR", "folder to write split.json and the stages of a model into")
    size = parser.add_mutually_exclusive_group(required=True)
    size.add_argument(
        "--stages",
        type=options.stages,
        metavar="K",
        help="number of stages, or auto: up to one per device (graph file: up to its maxFPGAs)",
    )
    size.add_argument(
        "--cores",
        type=options.cores,
        metavar="N",
        help="plan stages and their replicas on N equal cores",
    )
    parser.add_argument(
        "--memory",
        type=options.memory,
        metavar="BYTES",
        help="memory limit of each stage and replica (default: the graph file's limit)",
    )
    parser.add_argument(
        "--streams",
        type=options.streams,
        metavar="N",
        help="with --cores: streams that share the deployment of a model with states (default 1)",
    )
    parser.add_argument(
        "--devices", help="one device per stage of a model (default: one core per stage)"
    )
    parser.add_argument(
        "--timeout",
        type=options.seconds,
        metavar="S",
        help="stop after S seconds with the best split so far (default for a model: 10)",
    )
    parser.add_argument(
        "--assign", action="store_true", help="also search the order of the devices"
    )
    parser.add_argument("--allow-empty", action="store_true", help="allow empty stages")
    parser.add_argument(
        "--as",
        choices=("llama.cpp", "vllm", "exo"),
        help="also print the plan of a graph file of layers as an option of this program",
    )
    parser.add_argument(
        "--save",
        type=Path,
        metavar="FILE",
        help="write the costs as a graph file, which other planners read",
    )


@dataclass(frozen=True)
class _Asked:
    """The costs to plan with.

    ``devices``: kinds of the costs along the pipeline, and ``names`` where the document has these;
    ``slowed``: the costs of devices that share cores; ``note`` on the number of stages.
    """

    costs: CostModel
    devices: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    slowed: CostModel | None = None
    note: str = ""


def run(args: argparse.Namespace) -> int:
    """Plan and print."""
    from autosplit.hardware.profiling import graph_file
    from autosplit.hardware.profiling.cost_table import over_memory
    from autosplit.report.documents import exported
    from autosplit.report.documents import plan as planned

    if args.stages == "auto":
        # Any number of stages up to the devices is the same as leaving some of them unused.
        args.allow_empty = True
    if args.cores is not None:
        _refuse(args, SPLIT_OPTIONS, "is for a number of stages; give --stages instead of --cores")
    else:
        _refuse(args, ("streams",), "is for deployments; give --cores instead of --stages")
    if not _is_graph_file(args):
        _refuse(args, ("as",), "is for graph files of layers; give one")
    model = None if _is_graph_file(args) else options.load_model(args)
    if model and args.timeout is None:
        from autosplit import api  # late, as ``_costs`` has it: a graph file needs no runtimes

        args.timeout = api.SEARCH_S
    asked = _limited(args, _costs(args, model))
    # After profiling: --timeout and ``seconds`` are of planning alone.
    start = time.perf_counter()
    runtime = args.runtime or registry.DEFAULT if model else None
    best = _planned(args, asked, _deadline(start, args.timeout))
    document = planned.document(asked.costs, best, runtime)
    if args.cores is not None:
        document["periods"] = list(best.periods)
    else:
        document |= planned.placed(best, asked.devices, asked.names)
    if model:
        document |= _certainty(args, model, document, asked.costs)
    document["seconds"] = time.perf_counter() - start
    notes = (document["note"], asked.note, over_memory(asked.costs))
    document["note"] = "; ".join(filter(None, notes))
    if vars(args)["as"]:
        document["flags"] = planned.layer_flags(document, asked.costs, vars(args)["as"])
    if args.save:
        count = args.cores or (len(asked.devices) if args.stages == "auto" else args.stages)
        graph_file.save_graph(args.save, asked.costs, count, asked.devices, asked.names)
    file = _export(args, model, document, best.stages) if model and args.output else None
    if args.format == "json":
        output.emit_json(document | ({"file": str(file)} if file else {}))
    else:
        _print(args, asked.costs, document)
        for line in exported.lines(file) if file else ():
            output.emit_line(line)
    return 0


def _planned(args: argparse.Namespace, asked: _Asked, deadline: Callable[[], bool] | None) -> Plan:
    from autosplit import planner

    if args.cores is not None:
        question = planner.Question.of_cores(args.cores, asked.costs.kinds[0].name)
        return planner.partition(asked.costs, question, deadline=deadline)
    return planner.plan_split(
        asked.costs,
        asked.devices,
        args.stages,
        slowed=asked.slowed,
        any_order=args.assign or bool(asked.names),
        empty=args.allow_empty,
        deadline=deadline,
    )


def _export(
    args: argparse.Namespace, model: Model, document: Mapping[str, Any], planned: Sequence[Stage]
) -> Path:
    """Write the planned stages, compared with the model; returns their ``split.json``."""
    from autosplit import api
    from autosplit.hardware.devices.device import available

    period, index = document["period"], model.graph.index
    if args.cores is None:
        stages = tuple(tuple(index[op] for op in ops) for ops in document["stages"])
        places = _places(args)
        used = tuple(places[d] for d in document["devices"])
        runtimes = tuple(document["runtimes"])
        split = api.Split(model, stages, period, used, runtimes, batch=document["batch"])
        return split.export(args.output, predicted=period)
    # A plan may be for a machine with more cores.
    cores = available() if args.cores <= len(available()) else range(args.cores)
    deployment = api.on_cores(model, planned, cores)
    split = api.Split.of(model, deployment, period, args.streams or 1)
    return split.export(args.output, predicted=period)


def _costs(args: argparse.Namespace, model: Model | None) -> _Asked:
    """The costs of the graph file or the measured ones of the model.

    A number of stages that is left open is set to the most that there may be.
    """
    from autosplit import api

    if model is None:
        graph = _read_graph(args)
        note = graph.device_note(args.stages) if args.stages else ""
        equal = (graph.costs.kinds[0].name,) * (args.stages or 0)
        return _Asked(graph.costs, graph.devices or equal, graph.names, note=note)
    if args.cores is not None:
        return _Asked(api.costs_by_threads(model, args.cores, args.batch or api.SINGLE))
    if args.stages == "auto":
        args.stages = api.most_stages(options.devices(args.devices))
    devices = _devices(args)
    costs, slowed = api.costs_along(model, devices, batches=args.batch or api.SINGLE)
    return _Asked(costs, tuple(map(str, devices)), slowed=slowed)


def _read_graph(args: argparse.Namespace) -> GraphFile:
    from autosplit.hardware.profiling import graph_file

    _refuse(args, MODEL_OPTIONS, "is for models; a graph file has its own costs")
    _refuse(args, ("output",), "writes stages, which a graph file has not; give the model instead")
    graph = graph_file.read_graph_file(args.model)
    if args.stages is not None:
        args.stages = graph.stages(args.stages)
    elif graph.devices:
        raise ConfigError(
            f"{args.model} has {len(graph.devices)} unlike devices and --cores is for equal cores; "
            "give --stages"
        )
    return graph


def _limited(args: argparse.Namespace, asked: _Asked) -> _Asked:
    """The question with the memory limit and the streams of the options."""

    def limited(costs: CostModel) -> CostModel:
        costs = costs if args.memory is None else costs.with_memory(args.memory)
        return replace(costs, streams=args.streams or costs.streams)

    slowed = None if asked.slowed is None else limited(asked.slowed)
    return replace(asked, costs=limited(asked.costs), slowed=slowed)


def _refuse(args: argparse.Namespace, names: Sequence[str], reason: str) -> None:
    """Raise ConfigError for the first of some options that was given."""
    for name in names:
        if getattr(args, name):
            raise ConfigError(f"--{name.replace('_', '-')} {reason}")


def _certainty(
    args: argparse.Namespace, model: Model, document: dict[str, Any], costs: CostModel
) -> dict[str, Any]:
    """How far the profile is to be trusted: keys of the document of a model."""
    from autosplit import api
    from autosplit.hardware.devices.device import Cores, available
    from autosplit.report.documents import plan as planned

    batches = args.batch or api.SINGLE
    if args.cores is not None:
        # Replicas of as many threads cost the same wherever they run.
        of_threads = {row.threads: Cores(available()[: row.threads]) for row in costs.row_index}
        profiles = api.measured_profiles(model, list(of_threads.values()), batches)
        places = [str(of_threads[n]) for n in document["threads"]]
        return planned.certainty(document, costs.ids, profiles, places, shared=False)
    devices = _devices(args)
    profiles = api.measured_profiles(model, devices, batches)
    places = [str(devices[n]) for n in document["devices"]]
    return planned.certainty(document, costs.ids, profiles, places)


def _is_graph_file(args: argparse.Namespace) -> bool:
    """Whether it is a .json file, but no Relax module as ``tvm.ir.save_json`` writes it."""
    if args.model.suffix.lower() != ".json":
        return False
    try:
        with open_regular(args.model) as file:
            return b'"root_index"' not in file.read(64)
    except OSError:  # said when the graph is read
        return True


def _deadline(start: float, timeout: float | None) -> Callable[[], bool] | None:
    # The planner knows no clock; it asks this between steps.
    return None if timeout is None else lambda: time.perf_counter() - start > timeout


def _print(args: argparse.Namespace, costs: CostModel, document: dict[str, Any]) -> None:
    # A model's times are in ms; a graph file's are in no unit.
    unit = "" if _is_graph_file(args) else " ms"
    output.emit_line(_summary(costs.name, document, unit))
    for note in (document["note"], *document.get("disturbances", ())):
        if note:
            output.emit_line(note)
    columns = _stage_columns(document, _places(args), unit)
    output.emit_table("", tuple(columns), zip(*columns.values(), strict=True))
    if "flags" in document:
        output.emit_line(document["flags"])
    if args.save:
        output.emit_line(args.save)


def _stage_columns(
    document: dict[str, Any], places: tuple[str, ...], unit: str
) -> dict[str, Sequence[object]]:
    """The columns of the table of stages: their devices, or those of a deployment's replicas."""
    stages, loads = document["stages"], document["loads"]
    columns: dict[str, Sequence[object]] = {"stage": range(len(stages))}
    if "devices" in document:
        columns["device"] = [places[d] if places else d for d in document["devices"]]
    # The costs of a graph file are of no runtime.
    if any(document["runtimes"]):
        columns["runtime"] = [name or "" for name in document["runtimes"]]
    if document["batch"] > 1:
        columns["batch"] = [document["batch"]] * len(stages)
    columns["ops"] = list(map(len, stages))
    if "devices" not in document:
        columns |= {key: document[key] for key in SHAPE}
    columns[f"load{unit}"] = [f"{load:.6g}" for load in loads]
    if "devices" not in document:
        columns["load / replicas"] = [f"{period:.6g}" for period in document["periods"]]
    columns["MB"] = [f"{memory / 1e6:.1f}" for memory in document["memory"]]
    columns["first to last op"] = list(map(_ends, stages))
    return columns


def _summary(name: str, document: dict[str, Any], unit: str) -> str:
    low, high = document.get("period_interval") or (None, None)
    interval = "" if low is None else f" ({low:.6g} to {high:.6g})"
    return (
        f"{name}: period {document['period']:.6g}{unit}{interval}, "
        f"lower bound {document['lower_bound']:.6g}{unit} ({_proof(document)}), "
        f"latency {document['latency']:.6g}{unit}, planned in {document['seconds']:.2f} s"
    )


def _proof(document: Mapping[str, Any]) -> str:
    """What is proven of a plan."""
    if document["optimal"]:
        return "optimal"
    if math.isinf(document["gap"]):
        return "no bound above 0 is proven"
    return f"at most {100 * document['gap']:.2f} % above the best"


def _ends(ops: list[Any]) -> str:
    if len(ops) < 2:
        return "".join(map(str, ops))
    return f"{ops[0]} … {ops[-1]}"


def _places(args: argparse.Namespace) -> tuple[str, ...]:
    """The devices of a model's stages; a graph file has none, and replicas have equal ones."""
    if _is_graph_file(args) or args.cores is not None:
        return ()
    return tuple(map(str, _devices(args)))


def _devices(args: argparse.Namespace) -> tuple[Device, ...]:
    from autosplit.hardware.devices import device

    return device.along(args.stages, options.devices(args.devices))
