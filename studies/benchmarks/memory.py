"""What candidates leave behind: resident memory while one process links, runs and drops candidate
after candidate.

    python -m studies.benchmarks.memory [NET ...] [--candidates 200] [-o FILE]

In a fresh process for each net: two-stage splits chosen at random are linked as pipelines, run once
and dropped; what was freed is given back to the system after each, as a study's worker does. The
interpreter is counted before: with its libraries loaded, after another, tiny net was read, fused,
compiled and run, so that what the compiler sets up once is in place. What is resident above that is
set against the weights of the net plus all tensors between its fused ops, each once. Bars: memory
grows by less than 5 % after the tenth candidate; above the interpreter at most 1.3 times weights
and tensors.
"""

from __future__ import annotations

import gc
import json
import random
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from autosplit import api, cuts
from autosplit.errors import MachineError
from autosplit.graph import FusedGraph
from autosplit.hardware.isolation.worker import release_memory
from studies.benchmarks.finished_study import load
from studies.benchmarks.result import arguments, at_most, finish

GROWTH, SHARE = 5.0, 1.3  # percent; times weights and tensors
TENTH = 10
TINY = "branches"
PAGE = 4096
_MEMORY = Path("/proc/self/statm")


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("nets", nargs="*", default=["squeezenet", "resnet50"])
    parser.add_argument(
        "--candidates", type=int, default=200, help="to link, run and drop (default 200)"
    )
    parser.add_argument(
        "--alone", action="store_true", help="one net in this process; print bytes as JSON"
    )
    args = parser.parse_args()
    if args.alone:
        print(json.dumps(memory(args.nets[0], args.candidates)))
        return 0
    rows, bars = [], []
    for net in args.nets:
        measured = in_fresh_process(net, args.candidates)
        share, grown = weighed(measured)
        numbers = [f"{measured[key] / 1e6:.0f}" for key in ("before", "tenth", "end", "needed")]
        rows.append((net, args.candidates, *numbers, f"{grown:.2f}", f"{share:.2f}"))
        bars.append(at_most(f"{net}: growth after candidate {TENTH}, %", grown, GROWTH, ".2f"))
        bars.append(at_most(f"{net}: resident over weights and tensors", share, SHARE, ".2f"))
    columns = (
        "net",
        "candidates",
        "before MB",
        "tenth MB",
        "end MB",
        "weights and tensors MB",
        "growth %",
        "share",
    )
    notes = [
        f"before: libraries loaded, '{TINY}' compiled and run; share: resident memory above that"
    ]
    return finish("memory", columns, rows, notes=notes, bars=bars, file=args.file)


def weighed(measured: Mapping[str, int]) -> tuple[float, float]:
    """What is resident above the interpreter, over the bytes needed.

    And by how many percent it grew after the tenth.
    """
    above = max(measured["tenth"], measured["end"]) - measured["before"]
    return above / measured["needed"], 100 * (measured["end"] / measured["tenth"] - 1)


def in_fresh_process(net: str, candidates: int) -> dict[str, int]:
    """What ``memory`` finds in a process of its own."""
    print(f"{candidates} candidates of {net}", file=sys.stderr, flush=True)
    command = [
        sys.executable,
        "-m",
        "studies.benchmarks.memory",
        net,
        "--candidates",
        str(candidates),
        "--alone",
    ]
    measured: dict[str, int] = json.loads(
        subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    )
    return measured


def memory(net: str, candidates: int) -> dict[str, int]:
    """Bytes resident before the net, after the tenth candidate and after the last.

    And the bytes it needs.
    """
    run_candidates(TINY, 2)
    before = resident()
    graph, tenth = run_candidates(net, candidates)
    return {"before": before, "tenth": tenth, "end": resident(), "needed": needed(graph)}


def run_candidates(net: str, candidates: int) -> tuple[FusedGraph, int]:
    """Link, run and drop candidates; returns the graph and the bytes resident after the tenth."""
    model = load(net, "tvm")
    items, places, draw = model.items(1), [*range(1, len(model.graph.ops))], random.Random(0)
    tenth = 0
    for number in range(1, candidates + 1):
        cut = cuts.closure(model.graph, [draw.choice(places[:-1])])
        stages = cuts.stages(model.graph, [cut])
        with api.Split(model, stages).pipeline() as pipeline:
            pipeline.run(items)
        del pipeline
        release_memory()
        if number == min(TENTH, candidates):
            tenth = resident()
    return model.graph, tenth


def resident() -> int:
    """Bytes of this process in memory. Raises MachineError where the system does not tell."""
    gc.collect()
    try:
        return int(_MEMORY.read_text().split()[1]) * PAGE
    except OSError as error:
        raise MachineError(
            f"'{_MEMORY}' cannot be read ({error.strerror}); run this benchmark on Linux"
        ) from None


def needed(graph: FusedGraph) -> int:
    """Bytes of the weights and of every tensor between fused ops."""
    return sum(op.weight_bytes for op in graph.ops) + sum(
        tensor.bytes for tensor in graph.tensors.values()
    )


if __name__ == "__main__":
    sys.exit(main())
