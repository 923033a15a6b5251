"""Compute the best plan for a graph file, or for a model from its measured profile, with a proof.

  autosplit plan graph.json --stages 6                   a graph file in dnn-partitioning's format
  autosplit plan net.onnx --stages 2 -f json             the model's ops, profiled on this machine
  autosplit plan graph.json --cores 16 --memory 3e9      replicas of stages, 3 GB each
  autosplit plan net.onnx --cores 4                      stages, replicas and threads of a model
  autosplit plan net.onnx --stages 2 -o out/             write the planned stages, as `split` does

Prints the stages, their loads, the period, and a lower bound on the period of every plan. If both
are equal, the plan is optimal. The interval of a model's period goes from the low to the high end
of the time of each op. With --cores a stage may have several replicas that share the items; its
load is then divided by their number. A replica of a stage with states holds whole streams, so a
single stream uses only one replica.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autosplit.cli import options, output
from autosplit.deployment import Deployment
from autosplit.errors import ConfigError
from autosplit.files import open_regular, require_other
from autosplit.graph import op_title
from autosplit.hardware.devices import device
from autosplit.hardware.devices.device import Device, available
from autosplit.report.documents.table import Table
from autosplit.units import between, digits, size

if TYPE_CHECKING:
    from autosplit.api import Model
    from autosplit.hardware.measurement.results import Profile
    from autosplit.planner import CostModel, Plan, Row

# Options for models only, and options for a number of stages only.
MODEL_OPTIONS = (
    "shape", "devices", "target", "device_target", "runtime", "tuning", "state", "tolerance",
    "batch",
)  # fmt: skip
SPLIT_OPTIONS = ("devices", "assign", "allow_empty", "as")
SHAPE = ("replicas", "threads")  # of the stages of a deployment

OPTIONS = (
    *options.of("""
        -o, --output DIR   folder to write split.json and the stages of a model into
        --stages K         number of stages, or auto: up to one per device (graph file: up to its
                           maxFPGAs)
        --cores N          plan stages and their replicas on N equal cores
        --memory BYTES     memory limit of each stage and replica (default: the graph file's limit)
        --streams N        with --cores: streams that share the deployment of a model with states
                           (default 1)
        --devices DEVICES  one device per stage of a model (default: one core per stage)
        --timeout S        stop after S seconds with the best split so far (default for a model: 10)
        --assign           also search the order of the devices
        --allow-empty      allow empty stages
        --as {llama.cpp,vllm,exo}  also print the plan of a graph file of layers as an option of
                           this program
        --save FILE        write the costs as a graph file, which other planners read
    """),
    *options.MODEL,
    *options.RUNTIME,
    *options.TOLERANCE,
    *options.BATCH,
)


@dataclass(frozen=True)
class _Asked:
    """The costs to plan with.

    ``devices``: the kind of each device along the pipeline; ``names``: its name, if the graph file
    has names; ``titles``: display names of the ops; ``profiles``: the profiles behind the costs;
    ``slowed``: the costs of devices that share cores; ``note``: about the number of stages.
    """

    costs: CostModel
    devices: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    titles: Mapping[Any, str] = field(default_factory=dict)
    profiles: Mapping[Row, Profile] = field(default_factory=dict)
    slowed: CostModel | None = None
    note: str = ""


def run(args: argparse.Namespace) -> None:
    """Plan and print."""
    from autosplit.hardware.profiling import graph_file
    from autosplit.hardware.profiling.cost_table import over_memory
    from autosplit.report.documents import plan as planned

    is_graph = _is_graph_file(args)
    _refuse(args, is_graph)
    model = None if is_graph else options.load_model(args)
    asked = _graph_costs(args) if model is None else _model_costs(args, model)
    # Starts after profiling: --timeout and ``seconds`` cover the planning alone.
    start = time.perf_counter()
    best = _planned(args, asked, start)
    document = planned.document(asked.costs, best)
    if asked.devices:
        document |= planned.placed(best, asked.devices, asked.names)
    if model:
        document |= planned.certainty(best, asked.profiles)
    document["seconds"] = time.perf_counter() - start
    notes = (document["note"], asked.note, over_memory(asked.costs))
    document["note"] = "; ".join(filter(None, notes))
    if vars(args)["as"]:
        document["flags"] = planned.layer_flags(document, asked.costs, vars(args)["as"])
    if args.save:
        count = args.cores or args.stages
        graph = graph_file.to_document(asked.costs, count, asked.devices, asked.names)
        graph_file.save_graph(args.save, graph)
    file = _export(args, model, best) if model and args.output else None
    shown = _shown(args, asked, document, "" if is_graph else " ms", file)
    output.emit(args.format, document | ({"file": str(file)} if file else {}), shown)


def _refuse(args: argparse.Namespace, is_graph: bool) -> None:
    """Raise ConfigError for the first option that does not go with what is planned."""
    if (args.stages is None) == (args.cores is None):
        raise ConfigError("give --stages K or --cores N, one of them")
    refused: list[tuple[Sequence[str], str]] = [
        (("streams",), "is for deployments; give --cores instead of --stages"),
        (("as",), "is for graph files of layers; give one"),
    ]
    if args.cores is not None:
        reason = "is for a number of stages; give --stages instead of --cores"
        refused[0] = SPLIT_OPTIONS, reason
    if is_graph:
        refused[1] = MODEL_OPTIONS, "is for models; a graph file has its own costs"
        reason = "writes stages, which a graph file has not; give the model instead"
        refused.append((("output",), reason))
    for names, reason in refused:
        for name in names:
            if getattr(args, name):
                raise ConfigError(f"--{name.replace('_', '-')} {reason}")
    if args.save:
        require_other(args.save, args.model)


def _graph_costs(args: argparse.Namespace) -> _Asked:
    from autosplit.hardware.profiling import graph_file

    graph = graph_file.read_graph_file(args.model)
    costs = _limited(args, graph.costs)
    if args.stages is None:
        if graph.devices:
            raise ConfigError(
                f"{args.model} has {len(graph.devices)} unlike devices and --cores is for equal "
                "cores; give --stages"
            )
        return _Asked(costs)
    # Any number of stages up to the devices is the same as leaving some of them unused.
    args.allow_empty |= args.stages == "auto"
    args.stages = graph.stages(args.stages)
    equal = (graph.costs.kinds[0].name,) * args.stages
    note = graph.device_note(args.stages)
    return _Asked(costs, graph.devices or equal, graph.names, note=note)


def _model_costs(args: argparse.Namespace, model: Model) -> _Asked:
    from autosplit import api

    args.timeout = args.timeout or api.SEARCH_S
    batches, titles = args.batch or api.SINGLE, {op.name: op_title(op) for op in model.graph.ops}
    along: tuple[Device, ...] = ()
    if args.cores is not None:
        measured = api.costs_by_threads(model, args.cores, batches)
    else:
        names = options.devices(args.devices)
        args.allow_empty |= args.stages == "auto"
        if args.stages == "auto":
            args.stages = api.most_stages(names)
        along = device.along(args.stages, names)
        measured = api.costs_along(model, along, batches=batches)
    slowed = _limited(args, measured.slowed) if measured.slowed else None
    costs, devices = _limited(args, measured.costs), tuple(map(str, along))
    return _Asked(costs, devices, (), titles, measured.profiles, slowed)


def _limited(args: argparse.Namespace, costs: CostModel) -> CostModel:
    """Costs with the memory limit and the streams of the options."""
    costs = costs if args.memory is None else costs.with_memory(args.memory)
    return replace(costs, streams=args.streams or costs.streams)


def _planned(args: argparse.Namespace, asked: _Asked, start: float) -> Plan:
    from autosplit import planner

    def deadline() -> bool:
        """Whether the time is over. The planner has no clock, and calls this between steps."""
        return time.perf_counter() - start > (args.timeout or math.inf)

    if args.cores is not None:
        question = planner.Question.of_cores(args.cores)
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


def _export(args: argparse.Namespace, model: Model, best: Plan) -> Path:
    """Write the planned stages, compared with the model; returns their ``split.json``."""
    from autosplit import api

    deployment = Deployment(best.stages)
    if args.cores is not None:
        # A plan may be for a machine with more cores.
        cores = available() if args.cores <= len(available()) else range(args.cores)
        deployment = deployment.on_cores({"": cores})
    split = api.Split.of(model, deployment, best.period, args.streams or 1)
    return split.export(args.output, predicted=best.period)


def _is_graph_file(args: argparse.Namespace) -> bool:
    """Whether the model is a graph file: a .json file, but not one of ``tvm.ir.save_json``."""
    if args.model.suffix.lower() != ".json":
        return False
    try:
        with open_regular(args.model) as file:
            return b'"root_index"' not in file.read(64)
    except OSError:  # reading the graph reports it
        return True


def _shown(
    args: argparse.Namespace, asked: _Asked, document: dict[str, Any], unit: str, file: Path | None
) -> Iterator[str | Table]:
    """The lines and tables of a plan; ``unit`` is that of its times, empty for a graph file."""
    from autosplit.report.documents import exported

    yield _summary(asked.costs.name, document, unit)
    yield from filter(None, (document["note"], *document.get("disturbances", ())))
    columns = _stage_columns(document, asked, unit)
    yield Table("", tuple(columns), tuple(zip(*columns.values(), strict=True)))
    if "flags" in document:
        yield document["flags"]
    if args.save:
        yield str(args.save)
    yield from exported.lines(file) if file else ()


def _stage_columns(
    document: dict[str, Any], asked: _Asked, unit: str
) -> dict[str, Sequence[object]]:
    """The columns of the table of stages: for a split with devices, else with replicas."""
    stages = document["stages"]
    columns: dict[str, Sequence[object]] = {"stage": range(len(stages))}
    if "devices" in document:
        # For a graph file the document has the names or numbers of the devices.
        columns["device"] = [asked.devices[d] if unit else d for d in document["devices"]]
    # The costs of a graph file have no runtime.
    if any(document["runtimes"]):
        columns["runtime"] = [name or "" for name in document["runtimes"]]
    if document["batch"] > 1:
        columns["batch"] = [document["batch"]] * len(stages)
    columns["ops"] = list(map(len, stages))
    if "devices" not in document:
        columns |= {key: document[key] for key in SHAPE}
    columns[f"load{unit}"] = list(map(digits, document["loads"]))
    if "devices" not in document:
        columns["load / replicas"] = list(map(digits, document["periods"]))
    columns["memory"] = list(map(size, document["memory"]))
    # A single op is first and last, and shown once.
    ends = (dict.fromkeys((*ops[:1], *ops[-1:])) for ops in stages)
    texts = ([asked.titles.get(op, str(op)) for op in pair] for pair in ends)
    columns["first to last op"] = list(map(" … ".join, texts))
    return columns


def _summary(name: str, document: dict[str, Any], unit: str) -> str:
    low, high = document.get("period_interval") or (0.0, 0.0)
    return (
        f"{name}: period {digits(document['period'])}{unit}{between(low, high)}, "
        f"lower bound {digits(document['lower_bound'])}{unit} ({_proof(document)}), "
        f"latency {digits(document['latency'])}{unit}, planned in {document['seconds']:.2f} s"
    )


def _proof(document: Mapping[str, Any]) -> str:
    """What is proven about a plan, in words."""
    if document["optimal"]:
        return "optimal"
    if math.isinf(document["gap"]):
        return "no bound above 0 is proven"
    return f"at most {100 * document['gap']:.2f} % above the best"
