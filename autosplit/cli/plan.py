"""The provably best split for given costs: of a graph file, or of a model by its measured profile.

  autosplit plan graph.json --stages 6                   the graph file of dnn-partitioning: ids, times, transfers, sizes
  autosplit plan graph.json --stages 4 --k-best 5        the next best splits too
  autosplit plan graph.json --stages 4 --baselines       what simple splits lose against it
  autosplit plan net.onnx --stages 2 -f json             the model's ops, profiled on this machine

Printed are the stages, their loads, the period, and a lower bound no split can beat; equal, the split is optimal.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autosplit.cli import options, output
from autosplit.errors import ConfigError, GraphError

if TYPE_CHECKING:
    from autosplit.planner import CostModel, Plan

HELP = "find the provably best split of a model or of a graph file"


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    options.add_model(parser)
    options.add_backend(parser)
    parser.add_argument(
        "--stages",
        type=options.stages,
        required=True,
        metavar="K",
        help="number of stages, or auto: any number up to the devices (of a graph file up to its maxFPGAs)",
    )
    parser.add_argument("--devices", help="one device a stage for a model (default: a core a stage)")
    parser.add_argument("--timeout", type=float, metavar="S", help="stop after S seconds with the best split so far")
    parser.add_argument("--assign", action="store_true", help="search the order of the devices too")
    parser.add_argument("--allow-empty", action="store_true", help="let stages stay empty")
    parser.add_argument("--max-period", type=float, metavar="T", help="the least latency with a period of at most T")
    parser.add_argument("--k-best", type=int, metavar="N", help="list the N best splits")
    parser.add_argument("--pareto", action="store_true", help="list the front of period, latency and peak memory")
    parser.add_argument("--baselines", action="store_true", help="compare with simple ways to split")
    parser.add_argument("--count", action="store_true", help="count the legal cuts and splits")
    parser.add_argument("--save", type=Path, metavar="FILE", help="write the costs as a graph file other planners read")


def run(args: argparse.Namespace) -> int:
    """Plan and print."""
    if args.timeout is not None and not args.timeout > 0:
        raise ConfigError(f"--timeout {args.timeout} is no time; give more than 0 seconds")
    auto = args.stages == "auto"
    if auto:
        args.stages, args.allow_empty = _most_stages(args), True
    costs = _costs(args)
    start = time.perf_counter()
    deadline = _deadline(start, args.timeout)
    document = _document(args, costs, deadline)
    if auto:
        for split in (document, *document.get("k_best", ()), *document.get("pareto", ())):
            _without_empty(split, alike=costs.devices is None)
    document["seconds"] = time.perf_counter() - start
    if args.save:
        _save(args.save, costs, args.stages)
    if args.format == "json":
        output.emit_json(document)
    else:
        _print(args, costs, document)
    return 0


def read_graph(path: Path) -> CostModel:
    """The cost model of a graph file. Raises GraphError where it cannot be read or is malformed."""
    from autosplit.planner import from_workload

    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise GraphError(f"{path}: cannot be read ({error.strerror}); name a graph file") from error
    except (ValueError, RecursionError) as error:
        raise GraphError(f"{path}: is not JSON ({error}); see the format in the documentation") from error
    try:
        return from_workload(document, path.stem)
    except GraphError as error:
        raise GraphError(f"{path}: {error}") from error


def _most_stages(args: argparse.Namespace) -> int:
    """As many stages as devices: those of the options or the cores of a model, those that a graph file names."""
    if args.model.suffix.lower() != ".json":
        from autosplit import api

        return api.most_stages(options.devices(args.devices))
    if (told := read_graph(args.model).devices) is not None:
        return told
    most = json.loads(args.model.read_text(encoding="utf-8")).get("maxFPGAs")
    if not isinstance(most, int) or isinstance(most, bool) or most < 1:
        raise GraphError(f"{args.model}: maxFPGAs is {most!r}, so --stages auto has no limit; give a number of stages")
    return most


def _without_empty(split: dict[str, Any], alike: bool) -> None:
    """Leave the empty stages out of a split, with their devices; of devices that are alike the first are used."""
    kept = [n for n, ops in enumerate(split["stages"]) if ops]
    for key in ("stages", "loads", "memory", "devices"):
        split[key] = [split[key][n] for n in kept]
    if alike:
        split["devices"] = list(range(len(kept)))


def _costs(args: argparse.Namespace) -> CostModel:
    if args.model.suffix.lower() == ".json":
        if args.shape or args.devices or args.target or args.device_target or args.backend != "tvm":
            raise ConfigError("--shape, --target, --devices and --backend are for models; a graph file has its costs")
        return read_graph(args.model)
    from autosplit import api
    from autosplit.hardware import devices

    model = options.load_model(args)
    return api.measured_costs(model, devices.along(args.stages, options.devices(args.devices)))


def _deadline(start: float, timeout: float | None) -> Callable[[], bool] | None:
    return None if timeout is None else lambda: time.perf_counter() - start > timeout


def _document(args: argparse.Namespace, costs: CostModel, deadline: Callable[[], bool] | None) -> dict[str, Any]:
    """What was asked for, as the JSON document without ``seconds``."""
    from autosplit import cuts, planner

    shared: dict[str, Any] = {"deadline": deadline, "allow_empty": args.allow_empty}
    order = tuple(range(args.stages))
    if args.assign or (costs.devices or 0) > args.stages:
        best = planner.plan_assigned(costs, args.stages, **shared)
        costs, order = costs.on_devices(best.devices) if costs.devices else costs, best.devices
    if args.max_period is not None:
        best = planner.least_latency(costs, args.stages, args.max_period, **shared)
    elif not args.assign:
        best = planner.plan(costs, args.stages, **shared)
    document = _described(costs, best, order) | {
        "lower_bound": best.lower_bound,
        "gap": best.gap,
        "optimal": best.optimal,
        "note": best.note,
    }
    if args.k_best is not None:
        alike = args.allow_empty and costs.devices is None
        found = planner.k_best(costs, args.stages, args.k_best, **shared, empty_last=alike)
        document["k_best"] = [_described(costs, p, order) for p in found]
    if args.pareto:
        front = planner.pareto_front(costs, args.stages, **shared)
        document["pareto"] = [_described(costs, p, order) for p in front.plans]
        document["pareto_complete"] = front.complete
    if args.baselines:
        document["baselines"] = [_baseline(b, best) for b in planner.baselines(costs, args.stages, deadline=deadline)]
    if args.count:
        for key, count in (
            ("cuts", cuts.count(costs.contraction, deadline=deadline)),
            ("splits", cuts.count_splits(costs.contraction, args.stages, deadline=deadline)),
        ):
            document[key] = {"total": count.total, "complete": count.complete}
    return document


def _described(costs: CostModel, plan: Plan, order: tuple[int, ...]) -> dict[str, Any]:
    return {
        "stages": [[costs.ids[i] for i in ops] for ops in plan.stages],
        "loads": list(plan.loads),
        "period": plan.period,
        "latency": plan.latency,
        "bytes_moved": plan.bytes_moved,
        "memory": list(plan.memory),
        "devices": [order[d] for d in range(len(plan.stages))],
    }


def _baseline(baseline: Any, best: Plan) -> dict[str, Any]:
    plan = baseline.plan
    loss = None if plan is None or not best.period else 100 * (plan.period / best.period - 1)
    return {
        "name": baseline.name,
        "period": None if plan is None else plan.period,
        "loss_percent": loss,
        "candidates": baseline.candidates,
        "note": baseline.note,
    }


def _save(path: Path, costs: CostModel, stages: int) -> None:
    from autosplit.planner import to_workload

    try:
        path.write_text(json.dumps(to_workload(costs, stages), indent=1, allow_nan=False), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror}); name another file") from error


def _print(args: argparse.Namespace, costs: CostModel, found: dict[str, Any]) -> None:
    proof = "optimal" if found["optimal"] else f"at most {100 * found['gap']:.2f} % above the best"
    if math.isinf(found["gap"]):
        proof = "no bound above 0 is proven"
    print(
        f"{costs.name}: period {found['period']:.6g}, lower bound {found['lower_bound']:.6g} ({proof}), "
        f"latency {found['latency']:.6g}, {found['seconds']:.2f} s"
    )
    if found["note"]:
        print(found["note"])
    rows = [
        (n, device, len(ops), f"{load:.6g}", f"{memory / 1e6:.1f}", _ends(ops))
        for n, (ops, load, memory, device) in enumerate(
            zip(found["stages"], found["loads"], found["memory"], found["devices"], strict=True)
        )
    ]
    output.emit_table("", ("stage", "device", "ops", "load", "MB", "first to last op"), rows)
    for key, title in (("k_best", "best splits"), ("pareto", "period, latency and peak memory")):
        if key in found:
            output.emit_table(
                title,
                ("split", "period", "latency", "MB moved", "peak MB", "ops a stage"),
                [_split_row(n, p) for n, p in enumerate(found[key])],
            )
    if "baselines" in found:
        rows_ = [
            (b["name"], _cell(b["period"]), _cell(b["loss_percent"]), b["candidates"] or "", b["note"])
            for b in found["baselines"]
        ]
        output.emit_table("baselines", ("split", "period", "loss %", "stages measured", ""), rows_)
    for key in ("cuts", "splits"):
        if key in found:
            print(f"legal {key}: {'' if found[key]['complete'] else 'at least '}{found[key]['total']}")
    if args.save:
        print(args.save)


def _split_row(number: int, plan: dict[str, Any]) -> tuple[object, ...]:
    sizes = " ".join(str(len(ops)) for ops in plan["stages"])
    peak = max(plan["memory"], default=0.0)
    moved = plan["bytes_moved"]
    return number, f"{plan['period']:.6g}", f"{plan['latency']:.6g}", f"{moved / 1e6:.3g}", f"{peak / 1e6:.1f}", sizes


def _ends(ops: list[Any]) -> str:
    return "" if not ops else str(ops[0]) if len(ops) == 1 else f"{ops[0]} … {ops[-1]}"


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"
