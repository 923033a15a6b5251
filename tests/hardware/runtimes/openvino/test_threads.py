"""On which cores OpenVINO's threads run."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from autosplit.hardware.devices import device as devices
from autosplit.hardware.runtimes.openvino import workers

pytest.importorskip("openvino")
CORES = devices.available()
pytestmark = pytest.mark.skipif(
    not devices.can_pin() or len(CORES) < 2, reason="needs two cores and threads that can be pinned"
)
# Two threads on one core show that none takes another core.
FIRST, SECOND, BOTH = (CORES[0],) * 2, (CORES[-1],) * 2, CORES[:2]


@pytest.fixture
def stage(transformer):
    """Makes the whole model as a stage on some cores."""
    model = replace(transformer, runtime_name="openvino")
    return lambda cores: model.runtime.stage(model.stage_source.whole, devices.Cores(cores))


@pytest.fixture
def values(transformer):
    (item,) = transformer.items(1)
    return [item[port.name] for port in transformer.stage_source.whole.inputs]


@pytest.fixture
def thread():
    """A thread for a stage, which changes the affinity of its thread."""
    with ThreadPoolExecutor(1) as executor:
        yield executor


def affinities_while_running(thread, stage, values):
    """The affinities that the stage's thread and OpenVINO's workers have during inferences."""

    def run():
        for _ in range(200):
            stage.run(values)

    thread.submit(stage.open).result()
    number = thread.submit(threading.get_native_id).result()
    running = thread.submit(run)
    of_thread, of_workers = set(), set()
    while not running.done():
        of_thread.add(frozenset(os.sched_getaffinity(number)))
        of_workers |= worker_affinities()
    return of_thread, of_workers


def worker_affinities():
    affinities = set()
    for number in workers.worker_threads():
        with suppress(ProcessLookupError):  # it has just ended
            affinities.add(frozenset(os.sched_getaffinity(number)))
    return affinities


def worker_ticks():
    """How long each worker has worked."""
    ticks = {}
    for number in workers.worker_threads():
        with suppress(FileNotFoundError):  # it has just ended
            text = Path(f"/proc/self/task/{number}/stat").read_text(encoding="utf-8")
            fields = text.rpartition(")")[2].split()
            ticks[number] = int(fields[11]) + int(fields[12])
    return ticks


@pytest.mark.parametrize("core", BOTH)
def test_a_stage_on_one_core_runs_in_its_thread_alone(stage, values, thread, core):
    with closing(stage((core,))) as whole:
        before = worker_ticks()
        of_thread, _ = affinities_while_running(thread, whole, values)
        assert of_thread == {frozenset({core})}
        assert all(before.get(number, 0) == worked for number, worked in worker_ticks().items())


@pytest.mark.parametrize("cores", [FIRST, SECOND, BOTH])
def test_the_threads_of_a_stage_run_on_its_cores(stage, values, thread, cores):
    with closing(stage(cores)) as whole:
        of_thread, of_workers = affinities_while_running(thread, whole, values)
        assert of_thread == of_workers == {frozenset(cores)}


def test_workers_run_on_the_cores_of_all_stages_that_share_them(stage, thread):
    with closing(stage(FIRST)) as first:
        thread.submit(first.open).result()
        with closing(stage(SECOND)) as second:
            thread.submit(second.open).result()
            assert worker_affinities() == {frozenset({*FIRST, *SECOND})}
        assert worker_affinities() == {frozenset(FIRST)}
