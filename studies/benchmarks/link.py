"""Linking a further two-stage candidate against lowering and building its stages afresh, as a ratio
in one run.

    python -m studies.benchmarks.link [NET ...] [--repeat N] [-o FILE]

Afresh: the ops of both stages go from unfused Relax through lowering, fusion, kernel compilation
and into a loaded virtual machine, which is what every guess costs without compiled kernels. Linked:
both stages from kernels that exist, up to their loaded virtual machines. The two ways alternate;
medians and ranges are printed. The bar is 1/100 for each net.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median
from typing import Any

from autosplit import api, planner
from autosplit.frontend.onnx import importer
from autosplit.hardware.devices.device import along
from autosplit.lowering.fuse.passes import fuse
from autosplit.lowering.fuse.tensors import require_static
from autosplit.zoo import catalog
from studies.benchmarks.result import arguments, at_least, finish
from studies.simulation.bench import costs_of

BAR = 100
NETS = ("squeezenet", "resnet50", "inception_v1")


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("nets", nargs="*", default=NETS)
    parser.add_argument("--repeat", type=int, default=5)
    args = parser.parse_args()
    rows, bars = [], []
    for net in args.nets:
        fresh, linked = measure(net, args.repeat)
        ratio = median(fresh) / median(linked)
        rows.append((net, spread(fresh), spread(linked), f"1/{ratio:.0f}"))
        bars.append(at_least(f"{net}: building afresh over linking", ratio, BAR, ".0f"))
    columns = ("net", "lower and build afresh, ms", "link and load, ms", "ratio")
    return finish("link", columns, rows, bars=bars, file=args.file)


def measure(net: str, repeat: int) -> tuple[list[float], list[float]]:
    """Milliseconds of both ways, ``repeat`` times each, alternating."""
    import tvm
    from tvm import relax

    path = catalog.cached(net)
    model = api.load_model(path)
    source = importer.load(path)
    costs = costs_of(model.graph, [op.flops or 1.0 for op in model.graph.ops])
    wiring = model.wiring(planner.partition(costs, planner.Question.of_split(2)).split)
    devices = along(2)

    def linked() -> Any:
        return [
            model.runtime.stage(ports, device)
            for ports, device in zip(wiring.stages, devices, strict=True)
        ]

    def afresh() -> Any:
        fused = fuse(source.module, model.target, partial(require_static, source)).fused
        return relax.VirtualMachine(tvm.compile(fused, model.target), tvm.cpu())

    linked()  # the first link also loads TVM's passes, and compiles the kernels if need be
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeat):
        for way, milliseconds in zip((afresh, linked), times, strict=True):
            milliseconds.append(timed(way))
    return times


def timed(way: Callable[[], Any]) -> float:
    start = time.perf_counter()
    way()
    return (time.perf_counter() - start) * 1e3


def spread(samples: Sequence[float]) -> str:
    return f"{median(samples):.1f} ({min(samples):.1f} to {max(samples):.1f})"


if __name__ == "__main__":
    sys.exit(main())
