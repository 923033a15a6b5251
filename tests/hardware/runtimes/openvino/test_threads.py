import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace

import psutil
import pytest

from autosplit.errors import ModelError
from autosplit.hardware.devices import device as devices
from autosplit.hardware.execution.stage_spec import StageSpec
from autosplit.hardware.runtimes.openvino import runtime

CORES = devices.available()
pytestmark = pytest.mark.skipif(
    not devices.can_pin() or len(CORES) < 2, reason="needs two cores and threads that can be pinned"
)
ROUNDS = 50  # of inferences, in one of which another thread than that of the stage works
# Two threads on one core show that none takes another core.
FIRST, SECOND = (CORES[0],) * 2, (CORES[-1],) * 2


@pytest.fixture
def stage(transformer):
    """Makes the whole model as a stage on some cores."""
    model = replace(transformer, runtime_name="openvino")
    spec = model.stage_source.whole_stage
    return lambda cores: model.runtime.stages(spec, [devices.Cores(cores)])[0]


@pytest.fixture
def values(transformer):
    (item,) = transformer.items(1)
    return [item[port.name] for port in transformer.stage_source.whole_stage.inputs]


@pytest.fixture
def thread():
    """A thread for a stage, which changes the affinity of its thread."""
    with ThreadPoolExecutor(1) as executor:
        yield executor


def native_threads():
    """How long each thread that is not Python's has worked, in seconds."""
    python_threads = {thread.native_id for thread in threading.enumerate()}
    others = (t for t in psutil.Process().threads() if t.id not in python_threads)
    return {thread.id: thread.user_time + thread.system_time for thread in others}


def affinities_while_running(thread, stage, values):
    """The affinities of the stage's thread during inferences, and of the others that work."""

    def run():
        for _ in range(50):
            stage.run(values)

    thread.submit(stage.open).result()
    number = thread.submit(threading.get_native_id).result()
    before, running = native_threads(), thread.submit(run)
    of_thread = set()
    while not running.done():
        of_thread.add(frozenset(os.sched_getaffinity(number)))
    running.result()
    working = [n for n, seconds in native_threads().items() if seconds > before.get(n, 0)]
    return of_thread, {frozenset(os.sched_getaffinity(n)) for n in working}


def affinities_of_helpers(thread, stage, values):
    """The affinities of the threads that help the stage's; a busy machine may delay them."""
    for _ in range(ROUNDS):
        of_thread, of_others = affinities_while_running(thread, stage, values)
        assert of_thread == {frozenset(CORES)}
        if of_others:
            return of_others
    return set()


def test_a_stage_on_one_core_runs_in_its_thread_alone(stage, values, thread):
    core = CORES[-1]
    with closing(stage((core,))) as whole:
        of_thread, of_others = affinities_while_running(thread, whole, values)
        assert (of_thread, of_others) == ({frozenset({core})}, set())
    assert "HWLOC_THISSYSTEM" not in os.environ


def test_a_stage_on_all_cores_uses_them_beside_one_on_one_core(stage, values, thread):
    with closing(stage(CORES)) as whole:
        assert affinities_of_helpers(thread, whole, values) == {frozenset(CORES)}
    with closing(stage(CORES[:1])) as one, closing(stage(CORES)) as whole:
        affinities_while_running(thread, one, values)
        with ThreadPoolExecutor(1) as another:
            assert affinities_of_helpers(another, whole, values) == {frozenset(CORES)}


def processes():
    return set(psutil.Process().children(recursive=True))


@pytest.mark.integration
def test_stages_on_some_cores_have_processes_there(stage, values, transformer, thread):
    before = processes()
    expected = transformer.stage_source.whole_stage.outputs
    with closing(stage(FIRST)) as first, closing(stage(SECOND)) as second:
        for whole, cores in ((first, FIRST), (second, SECOND)):
            (of_thread, _) = affinities_while_running(thread, whole, values)
            assert of_thread == {frozenset(cores)}
            assert [result.shape for result in whole.run(values)] == [p.shape for p in expected]
        threads = [thread.id for child in processes() - before for thread in child.threads()]
        affinities = {frozenset(os.sched_getaffinity(number)) for number in threads}
        assert affinities == {frozenset(FIRST), frozenset(SECOND)}
    assert processes() == before


def test_a_model_that_a_process_refuses_is_a_model_error(stage, tmp_path):
    file = tmp_path / "model.onnx"
    file.write_bytes(b"no model")
    before, ports = processes(), StageSpec.planned((), (), ())
    with pytest.raises(ModelError, match="OpenVINO cannot load the model"):
        runtime.OpenvinoRuntime.load_stages(file, ports, [devices.Cores(FIRST)])
    assert processes() == before
