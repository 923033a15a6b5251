"""``plan --objective latency``: the least latency on the accelerators of a graph file and a CPU."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from autosplit.cli import output
from autosplit.hardware import native_log

if TYPE_CHECKING:
    from autosplit.planner import CostModel


def run(
    costs: CostModel, cpu_times: Sequence[float], stages: int, timeout: float | None, form: str
) -> int:
    """Plan and print."""
    from autosplit.report.documents.placement import placement

    start = time.perf_counter()
    with native_log.off_standard_output():
        document = placement(costs, cpu_times, stages, timeout)
    document["seconds"] = time.perf_counter() - start
    if form == "json":
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
