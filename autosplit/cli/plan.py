"""The provably best split for given costs: of a graph file, or of a model by its measured profile.

  autosplit plan graph.json --stages 6                   the graph file of dnn-partitioning: ids, times, transfers, sizes
  autosplit plan graph.json --stages 4 --k-best 5        the next best splits too
  autosplit plan graph.json --stages 4 --baselines       what simple splits lose against it
  autosplit plan net.onnx --stages 2 -f json             the model's ops, profiled on this machine

Printed are the stages, their loads, the period, and a lower bound no split can beat; equal, the split is optimal.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autosplit.cli import options, output
from autosplit.errors import ConfigError
from autosplit.units import digits

if TYPE_CHECKING:
    from autosplit.planner import CostModel

HELP = "find the provably best split of a model or of a graph file"


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    options.add_model(parser)
    options.add_runtime(parser)
    parser.add_argument(
        "--stages",
        type=options.stages,
        required=True,
        metavar="K",
        help="number of stages, or auto: any number up to the devices (of a graph file up to its maxFPGAs)",
    )
    parser.add_argument(
        "--devices", help="one device a stage for a model (default: a core a stage)"
    )
    parser.add_argument(
        "--timeout", type=float, metavar="S", help="stop after S seconds with the best split so far"
    )
    parser.add_argument("--assign", action="store_true", help="search the order of the devices too")
    parser.add_argument("--allow-empty", action="store_true", help="let stages stay empty")
    parser.add_argument(
        "--max-period", type=float, metavar="T", help="the least latency with a period of at most T"
    )
    parser.add_argument("--k-best", type=int, metavar="N", help="list the N best splits")
    parser.add_argument(
        "--pareto", action="store_true", help="list the front of period, latency and peak memory"
    )
    parser.add_argument(
        "--baselines", action="store_true", help="compare with simple ways to split"
    )
    parser.add_argument("--count", action="store_true", help="count the legal cuts and splits")
    parser.add_argument(
        "--save",
        type=Path,
        metavar="FILE",
        help="write the costs as a graph file other planners read",
    )


def run(args: argparse.Namespace) -> int:
    """Plan and print."""
    from autosplit.hardware.profiling import graph_file
    from autosplit.report.documents import plan as planned

    if args.timeout is not None and not args.timeout > 0:
        raise ConfigError(f"--timeout {args.timeout} is no time; give more than 0 seconds")
    if args.max_period is not None and not args.max_period > 0:
        raise ConfigError(f"--max-period {args.max_period} is no period; give more than 0")
    auto = args.stages == "auto"
    if auto:
        args.allow_empty = True
    costs, args.stages = _costs(args)
    start = time.perf_counter()
    deadline = _deadline(start, args.timeout)
    document = planned.document(
        costs,
        args.stages,
        deadline=deadline,
        allow_empty=args.allow_empty,
        assign=args.assign,
        max_period=args.max_period,
        k_best=args.k_best,
        pareto=args.pareto,
        baselines=args.baselines,
        count=args.count,
    )
    if auto:
        planned.leave_out_empty(document, alike=costs.devices is None)
    document["seconds"] = time.perf_counter() - start
    if args.save:
        graph_file.save_graph(args.save, costs, args.stages)
    if args.format == "json":
        output.emit_json(document)
    else:
        _print(args, costs, document)
    return 0


def _costs(args: argparse.Namespace) -> tuple[CostModel, int]:
    """The costs and how many stages are asked for; of a graph file those it has, of a model those measured."""
    from autosplit.hardware.profiling import graph_file

    if args.model.suffix.lower() == ".json":
        if args.shape or args.devices or args.target or args.device_target or args.runtime != "tvm":
            raise ConfigError(
                "--shape, --target, --devices and --runtime are for models; a graph file has its costs"
            )
        if args.stages == "auto":
            return graph_file.graph_and_stages(args.model)
        return graph_file.read_graph(args.model), args.stages
    from autosplit import api
    from autosplit.hardware.devices import device as devices

    named = options.devices(args.devices)
    stages = api.most_stages(named) if args.stages == "auto" else args.stages
    model = options.load_model(args)
    return api.measured_costs(model, devices.along(stages, named)), stages


def _deadline(start: float, timeout: float | None) -> Callable[[], bool] | None:
    return None if timeout is None else lambda: time.perf_counter() - start > timeout


def _print(args: argparse.Namespace, costs: CostModel, found: dict[str, Any]) -> None:
    proof = "optimal" if found["optimal"] else f"at most {100 * found['gap']:.2f} % above the best"
    if math.isinf(found["gap"]):
        proof = "no bound above 0 is proven"
    unit, places = _unit_and_places(args)
    output.emit_line(
        f"{costs.name}: period {found['period']:.6g}{unit}, lower bound {found['lower_bound']:.6g}{unit} ({proof}), "
        f"latency {found['latency']:.6g}{unit}, planned in {found['seconds']:.2f} s"
    )
    if found["note"]:
        output.emit_line(found["note"])
    rows = [
        (
            n,
            places[device] if places else device,
            len(ops),
            f"{load:.6g}",
            f"{memory / 1e6:.1f}",
            _ends(ops),
        )
        for n, (ops, load, memory, device) in enumerate(
            zip(found["stages"], found["loads"], found["memory"], found["devices"], strict=True)
        )
    ]
    output.emit_table("", ("stage", "device", "ops", f"load{unit}", "MB", "first to last op"), rows)
    for key, title in (("k_best", "best splits"), ("pareto", "period, latency and peak memory")):
        if key in found:
            output.emit_table(
                title,
                ("split", f"period{unit}", f"latency{unit}", "MB moved", "peak MB", "ops a stage"),
                [_split_row(n, p) for n, p in enumerate(found[key])],
            )
    if "baselines" in found:
        rows_ = [
            (
                b["name"],
                _cell(b["period"]),
                _cell(b["loss_percent"], 3),
                b["candidates"] or "",
                b["note"],
            )
            for b in found["baselines"]
        ]
        output.emit_table(
            "baselines", ("split", f"period{unit}", "loss %", "stages measured", "note"), rows_
        )
    for key in ("cuts", "splits"):
        if key in found:
            output.emit_line(
                f"legal {key}: {'' if found[key]['complete'] else 'at least '}{found[key]['total']}"
            )
    if args.save:
        output.emit_line(args.save)


def _split_row(number: int, plan: dict[str, Any]) -> tuple[object, ...]:
    sizes = " ".join(str(len(ops)) for ops in plan["stages"])
    peak = max(plan["memory"], default=0.0)
    moved = plan["bytes_moved"]
    return (
        number,
        f"{plan['period']:.6g}",
        f"{plan['latency']:.6g}",
        digits(moved / 1e6),
        f"{peak / 1e6:.1f}",
        sizes,
    )


def _ends(ops: list[Any]) -> str:
    return "" if not ops else str(ops[0]) if len(ops) == 1 else f"{ops[0]} … {ops[-1]}"


def _cell(value: float | None, digits: int = 6) -> str:
    return "" if value is None else f"{value:.{digits}g}"


def _unit_and_places(args: argparse.Namespace) -> tuple[str, tuple[str, ...]]:
    """What a model's times are in and its devices by number; a graph file has neither."""
    if args.model.suffix.lower() == ".json":
        return "", ()
    from autosplit.hardware.devices import device as devices

    return " ms", tuple(map(str, devices.along(args.stages, options.devices(args.devices))))
