"""Kernel tuning: builds and times a few schedules of each kernel from MetaSchedule's design space.

The fastest goes into the database, if it is faster than the kernel that the rules schedule.
MetaSchedule's ``tune_tir`` is not used: it records slower schedules too, and each of its worker
processes takes a minute to define TVM's tensor intrinsics.
"""

from __future__ import annotations

import inspect
import logging
import math
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import filelock
import numpy as np

from autosplit.errors import MachineError, explained
from autosplit.extras import meta_schedule as ms
from autosplit.extras import tvm
from autosplit.graph import FusedGraph
from autosplit.hardware.codegen.schedules import completed, database, is_scheduled, schedule

# The most samples of one kernel, as a multiple of the average.
MOST = 4
# The design space splits work for so many cores; a stage with one core runs it in one thread.
_PARALLEL_CORES = 16


@dataclass(frozen=True)
class Tuned:
    """The outcome for one kernel.

    Times are by rule (before) and with the database (after); ``note`` says why the rule's is kept.
    """

    kernel: str
    before_ms: float | None
    after_ms: float | None
    tried: int
    note: str = ""


def tune(
    functions: Mapping[str, Any],
    target: Any,
    folder: Path,
    samples: int = 8,
    seed: int = 0,
    is_over: Callable[[], bool] = lambda: False,
    work: Mapping[str, float] | None = None,
) -> Iterator[Tuned]:
    """Tune one kernel after the other, except those the database knows; yields each outcome.

    ``samples`` is the average number of schedules to try: more of a kernel with more ``work`` for
    an item. A record is on disk when its outcome is yielded. ``is_over`` ends the tuning early.
    Raises as ``database`` does, and MachineError while another process tunes into the folder.
    """
    database(folder, create=True)
    with explained(MachineError, f"another process tunes into '{folder}'; give another folder"):
        alone = filelock.FileLock(folder / "writer.lock").acquire(blocking=False)
    with alone:  # each writer numbers the workloads by itself: two would mix up their records
        records = database(folder, create=True)
        tries = shares({name: (work or {}).get(name, 0.0) for name in functions}, samples)
        for position, (name, function) in enumerate(functions.items()):
            if is_over():
                return
            yield _tune_one(name, function, target, records, tries[name], seed + position)


def shares(work: Mapping[str, float], samples: int) -> dict[str, int]:
    """How many schedules to try of each kernel, ``samples`` on average.

    Tries grow with the square root of the work, since further schedules gain less and less; at
    least one, at most ``MOST`` times the average. Without any work, all kernels get the average.
    """
    roots = {name: math.sqrt(amount) for name, amount in work.items()}
    total = sum(roots.values())
    if not total:
        return dict.fromkeys(work, samples)
    tries = {name: round(samples * len(work) * root / total) for name, root in roots.items()}
    return {name: min(MOST * samples, max(1, count)) for name, count in tries.items()}


def work_of(graph: FusedGraph) -> dict[str, float]:
    """The floating-point operations of each kernel for one item, over all the ops that call it."""
    work: dict[str, float] = {}
    for op in graph.ops:
        work[op.kernel] = work.get(op.kernel, 0.0) + op.flops
    return work


def _tune_one(
    name: str, function: Any, target: Any, records: Any, samples: int, seed: int
) -> Tuned:
    if is_scheduled(function):
        return Tuned(name, None, None, 0, "it comes with a schedule")
    main = function.with_attr("global_symbol", "main").with_attr("tirx.noalias", True)
    module = tvm.IRModule({"main": main})
    if records.query_tuning_record(module, target, name) is not None:
        return Tuned(name, None, None, 0, "known to the database")
    arguments = _arguments(module)
    if arguments is None:
        return Tuned(name, None, None, 0, "an argument is not a tensor of fixed shape")
    by_rule = tvm.IRModule({"main": schedule({"main": main}, target)["main"]})
    before = _time(by_rule, target, arguments)
    candidates = _candidates(module, target, samples, seed)
    times = [_time(candidate.sch.mod, target, arguments) for candidate in candidates]
    if candidates and min(times) < before:
        # The least of many noisy times is too low, so the fastest is compared once more.
        fastest = candidates[times.index(min(times))]
        before = _time(by_rule, target, arguments)
        after = _time(fastest.sch.mod, target, arguments)
        if after < before:
            workload, trace = records.commit_workload(module), fastest.sch.trace
            values = trace, workload, [after / 1e3], target, fastest.args_info
            records.commit_tuning_record(ms.database.TuningRecord(*values))
            return Tuned(name, _known(before), after, len(candidates))
    note = "no sample was faster" if candidates else "it has no schedule to vary"
    return Tuned(name, _known(before), _known(before), len(candidates), note)


def _known(time_ms: float) -> float | None:
    return time_ms if time_ms < math.inf else None


def _candidates(module: Any, target: Any, samples: int, seed: int) -> list[Any]:
    """Schedules drawn from the design space; none where MetaSchedule cannot vary the kernel."""
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
            logger=logging.Logger("tuning", logging.ERROR),  # samples that fail are expected
        )
        context.pre_tuning(samples, samples)
        return list(context.generate_measure_candidates() or ())
    except Exception:  # TVM raises errors of many kinds for a kernel without a design space
        return []


def _define_intrinsics() -> None:
    """Let TVM define its tensor intrinsics, with a faster ``inspect.stack`` meanwhile.

    For each, TVM's parser calls ``inspect.stack``, which collects source lines, but only uses the
    frames. Where many modules are loaded (such as PyTorch) these lines take half a minute. Other
    threads that call it meanwhile get the stack without source lines too.
    """

    def frames_alone(context: int = 1) -> list[inspect.FrameInfo]:
        return inspect.getouterframes(sys._getframe(1), context=0)

    original = inspect.stack
    inspect.stack = frames_alone
    try:
        import_module("tvm.s_tir.tensor_intrin")
    finally:
        inspect.stack = original


def _arguments(module: Any) -> list[Any] | None:
    """Random arguments of a kernel; None where an argument is not a tensor of known shape."""
    try:
        infos = ms.arg_info.ArgInfo.from_entry_func(module, remove_preproc=True)
    except TypeError:  # a kernel for tensors of any shape
        return None
    if not all(isinstance(i, ms.arg_info.TensorInfo) for i in infos):
        return None
    rng = np.random.default_rng(0)
    arguments = []
    for info in infos:
        shape, dtype = tuple(map(int, info.shape)), str(info.dtype)
        values = rng.standard_normal(shape) if dtype.startswith("float") else np.zeros(shape)
        arguments.append(tvm.runtime.tensor(values.astype(dtype)))
    return arguments


def _time(module: Any, target: Any, arguments: list[Any]) -> float:
    """The least time of a kernel with one thread in ms, infinite where it cannot be built."""
    try:
        kernel = completed(module["main"], threads=False).with_attr("global_symbol", "main")
        built = tvm.tirx.build(tvm.IRModule({"main": kernel}), target=target)
        timer = built.time_evaluator("main", tvm.cpu(), number=1, repeat=5, min_repeat_ms=2)
        return min(map(float, timer(*arguments).results)) * 1e3
    except Exception:  # TVM raises errors of many kinds for a schedule that does not build
        return math.inf
