"""A bench whose work is done in a worker process: a candidate that crashes, hangs or eats memory is a failed trial."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

from autosplit.cuts.stages import Stages
from autosplit.errors import AutosplitError, StageError
from autosplit.graph import FusedGraph
from autosplit.hardware.devices.rpc import RETURN_S
from autosplit.hardware.isolation.process import Worker
from autosplit.hardware.measurement.measure import Budget
from autosplit.hardware.measurement.results import Baseline, LinkCost, Measurement, Profile, Spread
from autosplit.hardware.runtimes.registry import TVM
from autosplit.serialization import dump, load

HANDLER = "autosplit.hardware.bench.worker:open_bench"


class IsolatedBench:
    """Implements Bench. After a crash, a hang or an out-of-memory the next job gets a fresh worker.

    ``patience_s`` is how long a candidate may take beyond its measuring time, ``memory`` the worker's address space in bytes.
    ``regions``: the arguments of ``autosplit.lowering.external.backend.named``, one mapping a backend.
    ``handler``: what the worker does, ``module:function``; one that only measures by default.
    """

    def __init__(
        self,
        model: Path,
        *,
        shapes: Mapping[str, Sequence[int]],
        stages: int,
        devices: Sequence[str],
        target: str | None,
        budget: Budget,
        targets: Mapping[str, str] | None = None,
        tuning: Path | None = None,
        runtime: str = TVM,
        regions: Sequence[Mapping[str, Any]] = (),
        patience_s: float = 600.0,
        memory: int | None = None,
        handler: str = HANDLER,
    ) -> None:
        self._setting = {
            "model": str(model),
            "shapes": {name: list(shape) for name, shape in shapes.items()},
            "stages": stages,
            "devices": list(devices),
            "target": target,
            "targets": dict(targets or {}),
            "tuning": str(tuning) if tuning else None,
            "runtime": runtime,
            "regions": [dict(r) for r in regions],
            "measure": asdict(budget),
        }
        self._handler = handler
        self._memory = memory
        self._timeout_s = patience_s + 4 * budget.seconds
        self._worker: Worker | None = None
        self.log_tail = ""

    @cached_property
    def _description(self) -> dict[str, Any]:
        description: dict[str, Any] = self._call({"kind": "describe"})
        return description

    @cached_property
    def graph(self) -> FusedGraph:
        """See Bench."""
        return load(FusedGraph, self._description["graph"])

    @property
    def devices(self) -> tuple[str, ...]:
        """See Bench."""
        return tuple(self._description["devices"])

    @property
    def keep_together(self) -> Sequence[Sequence[int]]:
        """See Bench."""
        found: list[list[int]] = self._description["keep_together"]
        return found

    @property
    def regions(self) -> Mapping[str, Sequence[int]]:
        """See LocalBench."""
        found: dict[str, list[int]] = self._description["regions"]
        return found

    @property
    def untuned(self) -> float:
        """See LocalBench."""
        return float(self._description["untuned"])

    @property
    def identity(self) -> Mapping[str, str]:
        """See Bench."""
        found: dict[str, str] = self._description["identity"]
        return found

    def profile(self) -> Sequence[Profile]:
        """See Bench."""
        return [load(Profile, p) for p in self._call({"kind": "profile"})]

    def links(self) -> Sequence[LinkCost]:
        """See Bench."""
        return [load(LinkCost, c) for c in self._call({"kind": "links"})]

    def measure(self, stages: Stages) -> Measurement:
        """See Bench. A worker that dies is a StageError with the reason; its log's end is in ``log_tail``."""
        return load(Measurement, self._call({"kind": "measure", "stages": stages}))

    def baselines(self) -> Sequence[Baseline]:
        """See Bench."""
        return [load(Baseline, b) for b in self._call({"kind": "baselines"})]

    def duel(self, candidates: Sequence[Stages]) -> tuple[Sequence[Spread], Sequence[Spread]]:
        """See LocalBench."""
        found = self._call({"kind": "duel", "candidates": candidates})
        return [load(Spread, s) for s in found["candidates"]], [
            load(Spread, s) for s in found["baselines"]
        ]

    def export(
        self,
        stages: Stages,
        folder: Path,
        *,
        measured: Measurement | None = None,
        predicted: float | None = None,
        baselines: Sequence[Baseline] = (),
        verdict: str | None = None,
    ) -> Path:
        """Have the worker write a split with what is known of it, where its handler can."""
        job = {
            "kind": "export",
            "stages": stages,
            "folder": str(folder.absolute()),
            "measured": dump(measured) if measured else None,
            "predicted": predicted,
            "baselines": [dump(b) for b in baselines],
            "verdict": verdict,
        }
        self._call(job)
        return folder / "split.json"

    def close(self) -> None:
        """End the worker; the next job would start another."""
        if self._worker:
            self._worker.discard()
            self._worker = None

    def _call(self, job: Mapping[str, Any]) -> Any:
        if self._worker is None:
            wait_s = (
                RETURN_S if "_description" in self.__dict__ else 0.0
            )  # what was there once may be back
            self._worker = Worker(self._handler, self._setting | {"wait_s": wait_s}, self._memory)
        try:
            return self._worker.call(job, self._timeout_s)
        except StageError as error:
            self.log_tail = error.log = self._worker.log_tail()
            if not self._worker.is_alive:
                self.close()
            raise
        except AutosplitError:
            raise
        except BaseException:  # Ctrl-C while waiting: the answer would be taken for the next job's
            self.close()
            raise
