"""A bench in a worker process: a candidate that crashes or hangs is a failed trial."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from autosplit.deployment import Deployment
from autosplit.errors import AutosplitError, StageError
from autosplit.graph import FusedGraph
from autosplit.hardware.bench.worker import BenchDescription, BenchSetting, open_bench
from autosplit.hardware.devices.rpc import RETURN_S
from autosplit.hardware.isolation.process import Worker
from autosplit.hardware.isolation.worker import OpenHandler
from autosplit.hardware.measurement.results import (
    Baseline,
    LinkCost,
    Measurement,
    Profile,
    RealTime,
    SplitResults,
    Spread,
)
from autosplit.hardware.profiling.cost_model import cost_model
from autosplit.planner import CostModel
from autosplit.serialization import dump, load

CANDIDATE_TIMEOUT_S = 600.0  # beyond the time that a candidate is measured for


class IsolatedBench:
    """Implements Bench. After a crash, a timeout or an out-of-memory a fresh worker starts.

    ``open_handler`` is what the worker runs; the default only measures, and cannot export.
    """

    def __init__(self, setting: BenchSetting, open_handler: OpenHandler = open_bench) -> None:
        self._setting = setting
        self._open_handler = open_handler
        # One job may measure several pipelines, each for the budget.
        self._timeout_s = CANDIDATE_TIMEOUT_S + 4 * setting.budget.seconds
        self._worker: Worker | None = None
        # A server that was there once may return; one that never was is not waited for.
        self._wait_s = 0.0
        self.log_tail = ""

    @cached_property
    def _description(self) -> BenchDescription:
        description = load(BenchDescription, self._call("describe"))
        self._wait_s = RETURN_S
        return description

    @property
    def graph(self) -> FusedGraph:
        """See Bench."""
        return self._description.graph

    @property
    def devices(self) -> tuple[str, ...]:
        """See Bench."""
        return self._description.devices

    @property
    def identity(self) -> Mapping[str, str]:
        """See Bench."""
        return self._description.identity

    @property
    def runtimes(self) -> tuple[str, ...]:
        """See Bench."""
        return self._description.runtimes

    @property
    def keep_together(self) -> Mapping[str, Sequence[Sequence[int]]]:
        """See Bench."""
        return self._description.keep_together

    @property
    def regions(self) -> Mapping[str, Sequence[int]]:
        """See Bench."""
        return self._description.regions

    def untuned_share(self) -> float:
        """See Bench."""
        return float(self._call("untuned_share"))

    def profile(self) -> Sequence[Profile]:
        """See Bench."""
        return load(list[Profile], self._call("profile"))

    def links(self) -> Sequence[LinkCost]:
        """See Bench."""
        return load(list[LinkCost], self._call("links"))

    def cost_model(self, profile: Sequence[Profile], links: Sequence[LinkCost]) -> CostModel:
        """See Bench."""
        return cost_model(self.graph, profile, links, self.keep_together)

    def measure(self, deployment: Deployment) -> Measurement:
        """See Bench. Raises StageError if the worker dies; ``log_tail`` is the end of its log."""
        return load(Measurement, self._call("measure", deployment=dump(deployment)))

    def baselines(self) -> Sequence[Baseline]:
        """See Bench."""
        return load(list[Baseline], self._call("baselines"))

    def compare_interleaved(
        self, candidates: Sequence[Deployment], baselines: Sequence[str]
    ) -> tuple[Sequence[Measurement], Mapping[str, Baseline]]:
        """See Bench."""
        answer = self._call(
            "compare_interleaved", candidates=dump(candidates), baselines=list(baselines)
        )
        return load(tuple[list[Measurement], dict[str, Baseline]], answer)

    def real_time(self, deployment: Deployment, rate: float, period: Spread) -> RealTime:
        """See Bench."""
        job = {"deployment": dump(deployment), "rate": rate, "period": dump(period)}
        return load(RealTime, self._call("real_time", **job))

    def export(
        self, deployment: Deployment, folder: Path, results: SplitResults, format: str, onnx: bool
    ) -> Path:
        """See Bench."""
        # The folder of this process may have changed since the worker was started.
        path = str(folder.absolute())
        job = {"deployment": dump(deployment), "folder": path, "results": dump(results)}
        self._call("export", format=format, onnx=onnx, **job)
        return folder / "split.json"

    def close(self) -> None:
        """End the worker; the next job starts another."""
        if self._worker:
            self._worker.close()
            self._worker = None

    def _call(self, kind: str, **arguments: Any) -> Any:
        if self._worker is None:
            document = {"setting": dump(self._setting), "wait_s": self._wait_s}
            self._worker = Worker(self._open_handler, document)
        try:
            return self._worker.call({"kind": kind, **arguments}, self._timeout_s)
        except StageError as error:
            self.log_tail = error.log = self._worker.log_tail()
            if not self._worker.is_alive:
                self.close()
            raise
        except AutosplitError:
            raise
        except BaseException:
            # The answer would be taken for that of the next job.
            self.close()
            raise
