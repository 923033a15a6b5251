"""The time of a trial beside building and measuring it: sampler, storage and attributes."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median

from autosplit.deployment import Deployment
from autosplit.hardware.measurement.results import Measurement
from autosplit.planner import CostModel
from autosplit.study.config.study_file import StudyConfig
from autosplit.study.loop.open import open_study
from autosplit.study.loop.run import run_study
from autosplit.study.progress import Progress
from autosplit.study.storage import storage_url
from studies.benchmarks.result import Bar, at_most
from studies.simulation.bench import SimulatedBench, Simulation, graph_of, on_devices

STAGES = (4, 8)
TRIALS, EARLY, LATE = 210, 40, 190  # trials of a study; up to, and from which on, a median is taken
BAR_MS = 100.0
COLUMNS = (
    "graph",
    "ops",
    "K",
    "trials 1 to 40, ms",
    "of the processor",
    "about trial 200, ms",
    "of the processor",
)

Times = tuple[float, float]  # wall and processor, in seconds


class _Timed(SimulatedBench):
    """A bench that notes when it is asked to measure and when it has."""

    marks: list[tuple[Times, Times]]

    def measure(self, deployment: Deployment) -> Measurement:
        begun = _now()
        measured = super().measure(deployment)
        self.marks.append((begun, _now()))
        return measured


def overhead(
    nets: Iterable[tuple[str, CostModel]],
) -> tuple[str, Sequence[str], list[Sequence[object]]]:
    """The table: for each net and number of stages, medians of the time between one measurement and
    the next.
    """
    rows: list[Sequence[object]] = []
    for name, costs in nets:
        for stages in STAGES:
            between = gaps(costs, stages)
            parts = (between[:EARLY], between[LATE:])
            cells = [
                f"{1000 * median(t[which] for t in part):.0f}" for part in parts for which in (0, 1)
            ]
            rows.append((name, len(costs.names), stages, *cells))
    return "overhead", COLUMNS, rows


def bars(rows: Iterable[Sequence[object]]) -> list[Bar]:
    """Wall time of a trial about the 200th."""
    return [
        at_most(f"ms about trial 200, {name}, K={k}", float(str(late)), BAR_MS)
        for name, _, k, _, _, late, _ in rows
    ]


def gaps(costs: CostModel, stages: int, trials: int = TRIALS) -> list[Times]:
    """The time from the end of one measurement to the begin of the next, in a study in SQLite that
    does not converge.
    """
    devices = [f"cores:{i}" for i in range(stages)]
    bench = _Timed(graph_of(costs), costs, on_devices(costs, devices), devices, Simulation())
    bench.marks = []
    search = {"trials": trials, "converge": False}
    config = StudyConfig.model_validate(
        {"name": "overhead", "model": "net.onnx", "stages": stages, "search": search}
    )
    with tempfile.TemporaryDirectory() as folder:
        url = storage_url("overhead", str(Path(folder) / "overhead.db"))
        run_study(open_study(config, bench, url, Progress()), Progress())
    ends = [after for _, after in bench.marks]
    begins = [before for before, _ in bench.marks]
    return [(b[0] - a[0], b[1] - a[1]) for a, b in zip(ends, begins[1:], strict=False)]


def _now() -> Times:
    return time.perf_counter(), time.process_time()
