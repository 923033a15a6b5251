"""A pipeline ends with its references, its process and its stages, and holds none of them up."""

import os
import subprocess
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from unittest.mock import MagicMock, Mock

import pytest

from autosplit.errors import ConfigError, MachineError, StageError
from autosplit.hardware.cluster.pipeline import pipeline_of
from autosplit.hardware.execution import engine as engines
from autosplit.hardware.execution.pipeline import Pipeline
from autosplit.hardware.runtimes import stage_files
from tests.hardware.fakes import PATIENCE_S, chain, in_time, items, wait_for
from tests.nets import net

LEAVE = """
import sys
import numpy as np
import autosplit
pipeline = autosplit.load_model(sys.argv[1]).split([["r"]]).pipeline()
item = {"x": np.zeros((1, 16, 160, 160), np.float32)}
pipeline.run([item])
for _ in range(pipeline.capacity):
    pipeline.submit(item)
print("leaves", flush=True)
"""


@pytest.mark.parametrize("replicas", [(1, 1, 1), (2, 1, 3)])
def test_a_pipeline_without_references_lets_its_threads_end(replicas):
    pipeline, stages = chain(replicas=replicas)
    for item in items(pipeline.capacity):
        pipeline.submit(item)
    next(pipeline.results())
    reference = weakref.ref(pipeline)
    del pipeline
    assert reference() is None
    wait_for(lambda: all(stage.closed == 1 for stage in stages))
    idents = {stage.thread for stage in stages}
    wait_for(lambda: not idents & {thread.ident for thread in threading.enumerate()})


@pytest.mark.parametrize(
    ("method", "replicas", "name"), [("run", 1, "stage 1"), ("open", 2, "replica 0 of stage 1")]
)
def test_what_hangs_does_not_hold_close_up(monkeypatch, method, replicas, name):
    monkeypatch.setattr("autosplit.hardware.execution.engine.CLOSE_TIMEOUT_S", 0.3)
    goes_on, begun = threading.Event(), threading.Event()

    def hang(*values):
        begun.set()
        goes_on.wait(PATIENCE_S)

    pipeline, stages = chain(replicas=(1, replicas, 1))
    setattr(stages[1], method, hang)
    pipeline.submit(items(1)[0])
    assert begun.wait(PATIENCE_S)
    with pytest.warns(RuntimeWarning, match=name):
        pipeline.close()
    assert [stage.closed for stage in stages] == [1, 0, *[1] * replicas]
    goes_on.set()
    wait_for(lambda: stages[1].closed == 1)


@pytest.mark.parametrize(("is_started", "replicas"), [(False, (1, 1, 1)), (True, (1, 2, 1))])
def test_a_fork_gets_an_error(is_started, replicas):
    pipeline, _ = chain(replicas=replicas)
    if is_started:
        pipeline.submit(items(1)[0])
    child = os.fork()
    if child == 0:
        refused, (item,) = 0, items(1)
        for call, *arguments in (
            (pipeline.run, [item]), (pipeline.submit, item), (next, pipeline.results()),
            (pipeline.result, MagicMock()),
        ):  # fmt: skip
            try:
                call(*arguments)
            except StageError:
                refused += 1
        pipeline.close()
        os._exit(refused)
    _, status = in_time(lambda: os.waitpid(child, 0))
    assert os.waitstatus_to_exitcode(status) == 4
    pipeline.close()


def test_a_fork_closes_a_pipeline_whose_batches_wait_for_room():
    gate = threading.Event()
    pipeline, _ = chain(batch=2, before={0: lambda _: gate.wait()})
    with pipeline:
        fill = threading.Thread(target=lambda: [pipeline.enter(item) for item in items(400)])
        fill.start()
        fill.join(0.2)
        assert fill.is_alive()
        child = os.fork()
        if child == 0:
            pipeline.close()
            os._exit(0)
        assert in_time(lambda: os.waitpid(child, 0)) == (child, 0)
        gate.set()
        in_time(fill.join)


@pytest.mark.integration
def test_the_interpreter_ends_cleanly_with_items_inside(save):
    shape = "float[1,16,160,160]"
    body = "c = Conv<pads=[1,1,1,1]>(x, w) r = Relu(c) d = Conv<pads=[1,1,1,1]>(r, v) y = Relu(d)"
    weights = dict.fromkeys("wv", (16, 16, 3, 3))
    file = save(net(f"g ({shape} x) => ({shape} y) {{ {body} }}", weights))

    def leave(threads):
        command = [sys.executable, "-c", LEAVE, file]
        environment = {**os.environ, "TVM_NUM_THREADS": threads}
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)

    with ThreadPoolExecutor(4) as threads:  # at once, so that they disturb each other
        for done in threads.map(leave, ["1", "2", "1", "2"]):
            assert (done.returncode, done.stdout) == (0, "leaves\n"), done.stderr


@pytest.mark.parametrize(("lanes", "is_named"), [(1, True), (2, False)])
def test_an_item_that_waits_for_another_in_its_replica_does_not_hang(lanes, is_named):
    usual, stages = chain()
    pipeline = Pipeline(usual.wiring, [[stage] for stage in stages], lanes=[lanes] * 3)
    waits = Mock(side_effect=[False] * (2 * engines._TICKS) + [True])
    engine = pipeline._engine
    engine._ended, engine._lanes[0][0].item = Mock(wait=waits), 3
    with closing(pipeline):
        engine._watch()
        assert pipeline.has_failed == is_named


def test_both_lanes_of_a_replica_call_it_at_once():
    both = threading.Barrier(2)
    usual, stages = chain(before={0: lambda _: both.wait(PATIENCE_S)})
    with Pipeline(usual.wiring, [[stage] for stage in stages], lanes=[2, 1, 1]) as pipeline:
        assert len(in_time(lambda: pipeline.run(items(6)))) == 6
        assert pipeline.replicas == (1, 1, 1)


def test_a_stage_whose_loading_hangs_is_named_in_time(branches, monkeypatch):
    goes_on = threading.Event()
    monkeypatch.setattr(type(branches.runtime), "stages", lambda *_: goes_on.wait(60))
    monkeypatch.setattr(stage_files, "LOAD_S", 0.1)
    with pytest.raises(MachineError, match=r"a stage does not load on cores:\d+: no answer.*hangs"):
        branches.split([]).pipeline()
    goes_on.set()


def test_a_pipeline_that_is_refused_leaves_no_stage_open():
    other, stages = chain()
    with pytest.raises(ConfigError, match="depth is 0; let at least 1 item be inside"):
        pipeline_of(other.wiring, [[stage] for stage in stages], depth=0)
    assert [stage.closed for stage in stages] == [1, 1, 1]
