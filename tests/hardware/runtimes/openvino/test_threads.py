"""On which cores OpenVINO's threads run."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import psutil
import pytest

from autosplit.errors import ModelError, StageError
from autosplit.hardware.devices import device as devices
from autosplit.hardware.execution.pipeline import Pipeline
from autosplit.hardware.execution.wiring import StagePorts
from autosplit.hardware.runtimes.openvino import runtime, workers

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


@pytest.fixture
def process_stage(stage):
    """As ``stage``, while the workers of this process are claimed for other cores."""
    others = workers.claim(devices.Cores(BOTH))
    yield stage
    del others


def processes():
    return set(psutil.Process().children(recursive=True))


def thread_affinities(process):
    return {frozenset(os.sched_getaffinity(thread.id)) for thread in process.threads()}


def test_stages_on_other_cores_have_processes_there(process_stage, values, transformer, thread):
    before = processes()
    expected = transformer.stage_source.whole.outputs
    for cores in (FIRST, SECOND):
        with closing(process_stage(cores)) as whole:
            (of_thread, _) = affinities_while_running(thread, whole, values)
            started = processes() - before
            assert of_thread == {frozenset(cores)}
            assert started
            assert set().union(*map(thread_affinities, started)) == {frozenset(cores)}
            assert [result.shape for result in whole.run(values)] == [p.shape for p in expected]
        assert processes() == before


def test_stages_on_the_same_cores_share_a_process(stage):
    before = processes()
    with closing(stage(FIRST)), closing(stage(FIRST)):
        assert processes() == before


def test_a_process_that_dies_is_an_error_of_its_stage(process_stage, transformer):
    before = processes()
    (item,) = transformer.items(1)
    wiring = transformer.wiring([range(len(transformer.graph.ops))])
    with Pipeline(wiring, [[process_stage(FIRST)]]) as pipeline:
        pipeline.run([item])
        for process in processes() - before:
            process.kill()
        with pytest.raises(StageError, match=f"stage 0 failed: .* OpenVINO on cores:{FIRST[0]}"):
            pipeline.run([item])
    assert processes() == before


def test_a_model_that_a_process_refuses_is_a_model_error(process_stage, tmp_path):
    file = tmp_path / "model.onnx"
    file.write_bytes(b"no model")
    before, ports = processes(), StagePorts((), (), ())
    with pytest.raises(ModelError, match="OpenVINO cannot load the model"):
        runtime.OpenvinoRuntime.load_stages(file, "", ports, [devices.Cores(FIRST)])
    assert processes() == before


def test_times_of_some_cores_are_those_of_a_process(transformer, monkeypatch):
    model = replace(transformer, runtime_name="openvino")
    monkeypatch.setattr(runtime, "ProcessStage", Mock(side_effect=StageError("a process")))
    model.profile(devices.Cores(CORES), seconds=0.05, force=True)
    with pytest.raises(StageError, match="a process"):
        model.profile(devices.Cores(FIRST), seconds=0.05, force=True)
