"""Kernel tuning: a few schedules a kernel from MetaSchedule's own design space, built and timed, the best kept in a database.

The database is MetaSchedule's (``database_workload.json`` and ``database_tuning_record.json`` in a folder), so one made by any
other tool on the same kernels serves as well, and what is made here serves others.
"""

from __future__ import annotations

import inspect
import math
import random
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from autosplit.errors import ConfigError, MachineError, line_of
from autosplit.graph import FusedGraph

WORKLOADS, RECORDS = "database_workload.json", "database_tuning_record.json"
MOST = 4  # times the usual number of samples that a kernel is given at most
_PARALLEL_CORES = (
    16  # the design space splits work for so many; a stage with one core runs it in one thread
)


@dataclass(frozen=True)
class Tuned:
    """What came of one kernel: its time in ms before (with a shipped schedule where there is one) and after; ``note`` says
    why it keeps its default.
    """

    kernel: str
    before_ms: float | None
    after_ms: float | None
    tried: int
    note: str = ""


def require(folder: Path) -> None:
    """Raises ConfigError where ``folder`` holds no tuning database."""
    if not all((folder / name).is_file() for name in (WORKLOADS, RECORDS)):
        raise ConfigError(
            f"'{folder}' holds no tuning database ({WORKLOADS}, {RECORDS}); `autosplit tune` makes one"
        )


def database(folder: Path, create: bool = False) -> Any:
    """The database in ``folder``.

    Raises ConfigError where it is damaged, or there is none and none shall be made, MachineError where it cannot be made.
    """
    from tvm.s_tir import meta_schedule as ms

    files = [folder / WORKLOADS, folder / RECORDS]
    if create:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise MachineError(f"cannot write the database '{folder}': {error.strerror}") from error
    else:
        require(folder)
    try:
        return ms.database.JSONDatabase(*map(str, files))
    except Exception as error:
        raise ConfigError(
            f"the tuning database '{folder}' is damaged: {line_of(error, last=True)}"
        ) from error


def tune(
    functions: Mapping[str, Any],
    target: Any,
    folder: Path,
    samples: int = 8,
    seed: int = 0,
    is_over: Callable[[], bool] = lambda: False,
    work: Mapping[str, float] | None = None,
) -> Iterator[Tuned]:
    """Tune the kernels one after the other, those the database knows left out; yields what came of each.

    ``samples`` is for a kernel on average: with ``work``, the arithmetic each does for one item, the heavy ones get more.
    Every record is on disk when it is yielded, so an interrupted run goes on where it stopped. ``is_over`` ends it early.
    Raises as ``database`` does.
    """
    known = database(folder, create=True)
    tries = shares({name: (work or {}).get(name, 0.0) for name in functions}, samples)
    for position, (name, function) in enumerate(functions.items()):
        if is_over():
            return
        yield _tune_one(name, function, target, known, tries[name], seed + position)


def shares(work: Mapping[str, float], samples: int) -> dict[str, int]:
    """How many schedules to try of each kernel, ``samples`` on average: by the square root of its work, since a further
    schedule brings ever less; at least one, at most ``MOST`` times the average. Alike where nothing is known.
    """
    roots = {name: math.sqrt(amount) for name, amount in work.items()}
    whole = sum(roots.values())
    if not whole:
        return dict.fromkeys(work, samples)
    return {
        name: min(MOST * samples, max(1, round(samples * len(work) * root / whole)))
        for name, root in roots.items()
    }


def work_of(graph: FusedGraph) -> dict[str, float]:
    """The floating-point operations of each kernel for one item, over all the ops that call it."""
    found: dict[str, float] = {}
    for op in graph.ops:
        found[op.kernel] = found.get(op.kernel, 0.0) + op.flops
    return found


def _tune_one(name: str, function: Any, target: Any, known: Any, samples: int, seed: int) -> Tuned:
    import tvm

    module = tvm.IRModule(
        {"main": function.with_attr("global_symbol", "main").with_attr("tirx.noalias", True)}
    )
    with quiet():
        if known.query_tuning_record(module, target, name) is not None:
            return Tuned(name, None, None, 0, "known to the database")
        arguments = _arguments(module)
        if arguments is None:
            return Tuned(name, None, None, 0, "it takes what no buffer can hold")
        before = _time(tvm.IRModule({"main": _standing(module["main"], target)}), target, arguments)
        best, best_candidate, tried = before, None, 0
        for candidate in _candidates(module, target, samples, seed):
            tried += 1
            after = _time(candidate.sch.mod, target, arguments)
            if after is not None and (best is None or after < best):
                best, best_candidate = after, candidate
        if best_candidate is None or best is None:
            return Tuned(
                name,
                before,
                before,
                tried,
                "no sample was faster" if tried else "it has no schedule to vary",
            )
        _commit(known, module, best_candidate, best, target)
    return Tuned(name, before, best, tried)


def _standing(function: Any, target: Any) -> Any:
    """The kernel as it runs without a database."""
    from autosplit.hardware.codegen.schedules import schedule

    return schedule({"main": function}, target)["main"].with_attr("global_symbol", "main")


def _candidates(module: Any, target: Any, samples: int, seed: int) -> list[Any]:
    """Schedules drawn from the design space; none where the kernel is not one that MetaSchedule can vary."""
    import tvm
    from tvm.s_tir import meta_schedule as ms

    _define_intrinsics()
    attributes = {**dict(target.attrs), "kind": target.kind.name, "num-cores": _PARALLEL_CORES}
    try:
        context = ms.TuneContext(
            mod=module,
            target=tvm.target.Target(attributes),
            space_generator="post-order-apply",
            search_strategy="replay-trace",
            rand_state=random.Random(seed).randrange(1, 1 << 31),
            num_threads=1,
        )
        spaces = context.generate_design_space()
        context.pre_tuning(
            samples, samples, spaces, ms.database.MemoryDatabase(), ms.cost_model.RandomModel()
        )
        return list(context.generate_measure_candidates() or ())
    except Exception:  # TVM raises errors of many kinds for a kernel it has no schedule for
        return []


def _define_intrinsics() -> None:
    """Have TVM define its tensor intrinsics, once, in little time.

    Each goes through TVM's parser, which asks for the whole stack with its source lines and reads the frames only. Where many
    modules are loaded (PyTorch, say) looking up the lines takes half a minute.
    """

    def frames_alone(context: int = 1) -> list[Any]:
        return [
            SimpleNamespace(frame=f, code_context=None)
            for f, _ in traceback.walk_stack(sys._getframe(1))
        ]

    real = inspect.stack
    inspect.stack = frames_alone
    try:
        import_module("tvm.s_tir.tensor_intrin")
    finally:
        inspect.stack = real


def _commit(known: Any, module: Any, candidate: Any, ms_time: float, target: Any) -> None:
    from tvm.s_tir import meta_schedule as ms

    workload = known.commit_workload(module)
    record = ms.database.TuningRecord(
        candidate.sch.trace, workload, [ms_time / 1e3], target, candidate.args_info
    )
    known.commit_tuning_record(record)


def _arguments(module: Any) -> list[Any] | None:
    """Random arguments of a kernel; None where one is no tensor of known shape."""
    import tvm
    from tvm.s_tir.meta_schedule.arg_info import ArgInfo, TensorInfo

    infos = ArgInfo.from_entry_func(module, remove_preproc=True)
    if not all(isinstance(i, TensorInfo) for i in infos):
        return None
    rng = np.random.default_rng(0)
    made = []
    for info in infos:
        shape, dtype = tuple(map(int, info.shape)), str(info.dtype)
        values = rng.standard_normal(shape) if dtype.startswith("float") else np.zeros(shape)
        made.append(tvm.runtime.tensor(values.astype(dtype)))
    return made


def _time(module: Any, target: Any, arguments: list[Any]) -> float | None:
    """The least time in ms of a kernel, which a busy machine disturbs least; None where it cannot be built or run."""
    import tvm

    try:
        built = tvm.tirx.build(module, target=target)
        timer = built.time_evaluator("main", tvm.cpu(), number=1, repeat=5, min_repeat_ms=2)
        return min(map(float, timer(*arguments).results)) * 1e3
    except Exception:  # TVM raises errors of many kinds for a schedule that does not build
        return None


@contextmanager
def quiet() -> Iterator[None]:
    """MetaSchedule warns of every kernel it does not know and of every draw that fails; both are answers here."""
    import logging

    logger = logging.getLogger("tvm.s_tir.meta_schedule")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
