"""A bench in a worker process: a candidate that crashes or hangs is a failed trial."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar, cast, get_type_hints

from autosplit.deployment import Deployment
from autosplit.errors import AutosplitError, StageError
from autosplit.hardware.bench.interface import Bench, BenchDescription, describe
from autosplit.hardware.bench.worker import BenchSetting, open_bench
from autosplit.hardware.devices.rpc import RETURN_S
from autosplit.hardware.isolation.process import Worker
from autosplit.hardware.isolation.worker import OpenHandler
from autosplit.hardware.measurement.results import (
    Baseline,
    LinkCost,
    LoadTest,
    Measurement,
    Profile,
    SplitResults,
    Spread,
)
from autosplit.planner.workload import Workload
from autosplit.serialization import dump, load

T = TypeVar("T")
CANDIDATE_TIMEOUT_S = 600.0  # beyond the time that a candidate is measured for


class IsolatedBench(Bench):
    """Implements Bench. After a crash, a timeout or an out-of-memory a fresh worker starts.

    ``open_handler`` is what the worker runs; the default only measures, and cannot export.
    """

    def __init__(self, setting: BenchSetting, open_handler: OpenHandler = open_bench) -> None:
        self._setting = setting
        self._open_handler = open_handler
        # One job may measure several pipelines, each for the budget.
        self._timeout_s = CANDIDATE_TIMEOUT_S + 4 * setting.budget.seconds
        self._worker: Worker | None = None
        # Only a server that has answered before is waited for.
        self._wait_s = 0.0
        self.log_tail = ""

    @cached_property
    def description(self) -> BenchDescription:
        """See Bench."""
        description = self._ask(describe)
        self._wait_s = RETURN_S
        return description

    def profile(self) -> Sequence[Profile]:
        """See Bench."""
        return self._ask(Bench.profile)

    def links(self) -> Sequence[LinkCost]:
        """See Bench."""
        return self._ask(Bench.links)

    def measure(self, deployment: Deployment) -> Measurement:
        """See Bench. Raises StageError if the worker dies; ``log_tail`` is the end of its log."""
        return self._ask(Bench.measure, deployment=deployment)

    def baselines(self) -> Sequence[Baseline]:
        """See Bench."""
        return self._ask(Bench.baselines)

    def compare_interleaved(
        self, candidates: Sequence[Deployment], baselines: Sequence[str]
    ) -> tuple[Sequence[Measurement], Mapping[str, Baseline]]:
        """See Bench."""
        compare = Bench.compare_interleaved
        return self._ask(compare, candidates=candidates, baselines=baselines)

    def under_load(self, deployment: Deployment, workload: Workload, period: Spread) -> LoadTest:
        """See Bench."""
        what = {"deployment": deployment, "workload": workload, "period": period}
        return self._ask(Bench.under_load, **what)

    def export(
        self, deployment: Deployment, folder: Path, results: SplitResults, format: str, onnx: bool
    ) -> Path:
        """See Bench."""
        # The folder of this process may have changed since the worker was started.
        what = {"deployment": deployment, "folder": folder.absolute(), "results": results}
        self._ask(Bench.export, format=format, onnx=onnx, **what)
        return folder / "split.json"

    def close(self) -> None:
        """End the worker; the next job starts another."""
        if self._worker:
            self._worker.close()
            self._worker = None

    def _ask(self, method: Callable[..., T], **arguments: Any) -> T:
        """What a method of Bench returns in the worker."""
        if self._worker is None:
            document = {"setting": dump(self._setting), "wait_s": self._wait_s}
            self._worker = Worker(self._open_handler, document)
        try:
            job = {"kind": method.__name__, "arguments": dump(arguments)}
            answer = self._worker.call(job, self._timeout_s)
            return cast(T, load(get_type_hints(method)["return"], answer))
        except StageError as error:
            self.log_tail = error.log = self._worker.log_tail()
            if not self._worker.is_alive:
                self.close()
            raise
        except AutosplitError:
            raise
        except BaseException:
            # Otherwise the late answer would be read as that of the next job.
            self.close()
            raise
