"""``plan --objective latency``: the least latency on the accelerators of a graph file and a CPU."""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from autosplit.cli import native_log, output
from autosplit.errors import ConfigError

# What is asked about periods, or of models.
OTHER_OPTIONS = (
    "cores",
    "streams",
    "devices",
    "assign",
    "allow_empty",
    "max_period",
    "k_best",
    "pareto",
    "baselines",
    "count",
    "save",
    "shape",
    "target",
    "device_target",
    "runtime",
)


def run(args: argparse.Namespace) -> int:
    """Plan and print."""
    from autosplit.hardware.profiling import graph_file
    from autosplit.report.documents.placement import placement

    if args.model.suffix.lower() != ".json":
        raise ConfigError("--objective latency is for graph files, which have CPU times")
    for option in OTHER_OPTIONS:
        if getattr(args, option):
            name = option.replace("_", "-")
            raise ConfigError(f"--{name} has no effect on latency; leave it out")
    graph = graph_file.read_graph_file(args.model)
    costs, args.stages = graph.costs, graph.stages(args.stages)
    if args.memory is not None:
        costs = replace(costs, memory=(args.memory,))
    cpu_times = graph.cpu_times()
    start = time.perf_counter()
    with native_log.off_standard_output():
        document = placement(costs, cpu_times, args.stages, args.timeout)
    document["seconds"] = time.perf_counter() - start
    if args.format == "json":
        output.emit_json(document)
    else:
        _print(costs.name, document)
    return 0


def proof(document: Mapping[str, Any]) -> str:
    """What is proven of a plan."""
    if document["optimal"]:
        return "optimal"
    if math.isinf(document["gap"]):
        return "no bound above 0 is proven"
    return f"at most {100 * document['gap']:.2f} % above the best"


def _print(name: str, document: Mapping[str, Any]) -> None:
    output.emit_line(
        f"{name}: latency {document['latency']:.6g}, lower bound {document['lower_bound']:.6g} "
        f"({proof(document)}), planned in {document['seconds']:.2f} s"
    )
    columns = document["stages"], document["loads"], document["memory"]
    rows: list[tuple[object, ...]] = []
    for number, (ops, load, size) in enumerate(zip(*columns, strict=True)):
        rows.append((f"accelerator {number}", len(ops), f"{load:.6g}", f"{size / 1e6:.1f}"))
    rows.append(("CPU", len(document["cpu"]), "", ""))
    output.emit_table("", ("device", "ops", "load", "MB"), rows)
