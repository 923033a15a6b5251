"""What holds wherever a stage runs: in a thread, a process, a TVM RPC server or a Ray actor."""

import contextlib
import itertools
import threading
from collections.abc import Callable
from dataclasses import dataclass
from unittest.mock import Mock, patch

import psutil
import pytest

import autosplit
from autosplit.deployment import Deployment
from autosplit.errors import StageError
from autosplit.hardware.devices import device as devices
from autosplit.hardware.execution.pipeline import Pipeline
from autosplit.hardware.measurement.parity import compare
from tests.hardware.cluster.clusters import ray_nodes  # noqa: F401  a fixture
from tests.hardware.fakes import in_time, wait_for
from tests.hardware.servers import Server
from tests.nets import amplifier

pytestmark = pytest.mark.integration
SECONDS = 4.0  # that a stage may be silent; a busy machine needs some for a call
CORES = devices.Cores(devices.available()[:1])


@dataclass
class Host:
    """A pipeline whose only stage is the net; ``hang`` and ``die`` are of its process."""

    pipeline: Pipeline
    hang: Callable[[], object]
    die: Callable[[], object]
    name: str = ""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A net with three states."""
    return amplifier(tmp_path_factory.mktemp("net"))


def whole(model):
    return model.wiring([range(len(model.graph.ops))])


@contextlib.contextmanager
def in_thread(model, *_):
    (ports,) = whole(model).stages
    (stage,), goes_on = model.runtime_of("tvm").stages(ports, [CORES]), threading.Event()
    goes_on.set()
    usual = stage.run
    run = Mock(side_effect=lambda values: goes_on.wait() and usual(values))
    with Pipeline(whole(model), [[Mock(open=stage.open, close=stage.close, run=run)]]) as pipeline:
        yield Host(pipeline, goes_on.clear, lambda: setattr(run, "side_effect", RuntimeError))
        goes_on.set()


@contextlib.contextmanager
def in_process(model, folder, _):
    process = pytest.importorskip("autosplit.hardware.runtimes.openvino.process")
    (ports,) = whole(model).stages
    model.runtime_of("openvino").write(ports, folder / "stage.onnx", CORES)
    with patch.object(devices, "SILENCE_S", 60.0):  # for loading, beside the tests of clusters
        stage = process.ProcessStage(folder / "stage.onnx", ports, CORES, "f32")
    (child,) = psutil.Process(stage._worker._process.pid).children()
    with Pipeline(whole(model), [[stage]]) as pipeline:
        yield Host(pipeline, child.suspend, child.kill, f"OpenVINO on {CORES}")
    assert child not in psutil.Process().children(recursive=True)


@contextlib.contextmanager
def on_server(model, folder, _):
    server = Server(folder / "server.log")
    deployment = Deployment.of_split([range(len(model.graph.ops))], [server.device], ["tvm"])
    with model.pipeline(deployment) as pipeline:
        yield Host(pipeline, server.stop, server.kill)
    server.kill()


@contextlib.contextmanager
def in_actor(model, folder, request):
    pytest.importorskip("ray")
    nodes = request.getfixturevalue("nodes")
    wait_for(lambda: not nodes.actors(nodes.cluster.head_node))
    model.split([]).export(folder, [str(CORES)])
    with autosplit.load(folder).on_ray([f"ray:left/{CORES}"]) as pipeline:
        (actor,) = nodes.actors(nodes.cluster.head_node)
        yield Host(pipeline, actor.suspend, actor.kill)
        with contextlib.suppress(psutil.NoSuchProcess):
            actor.resume()


HOSTS = {"thread": in_thread, "process": in_process, "server": on_server, "actor": in_actor}


@contextlib.contextmanager
def running(name, model, folder, request):
    with patch.object(devices, "SILENCE_S", SECONDS), HOSTS[name](model, folder, request) as host:
        yield host


@pytest.mark.parametrize("name", HOSTS)
@pytest.mark.parametrize(("event", "text"), [("hang", f"{SECONDS:g} s"), ("die", "")])
def test_a_stage_that_hangs_or_dies_is_named_in_time(name, model, tmp_path, request, event, text):
    (item,) = model.items(1)
    with running(name, model, tmp_path, request) as host:
        in_time(lambda: host.pipeline.run([item] * 4))
        end = threading.Timer(0.1, getattr(host, event))
        end.start()
        lost = r"; items inside: \d+(, \d+)*; lost streams: 0$"
        with pytest.raises(StageError, match=rf"^stage 0 failed: .*{text}.*{lost}") as caught:
            in_time(lambda: host.pipeline.run(itertools.repeat(item)))
        # Where it hangs the pipeline may be the first to notice.
        assert event == "hang" or host.name in str(caught.value)
        end.join()
        with pytest.raises(StageError, match=r"^stage 0 failed: .*"):
            host.pipeline.submit(item)
    with pytest.raises(StageError, match="the pipeline is closed"):
        host.pipeline.run([item])


@pytest.mark.parametrize("name", HOSTS)
def test_streams_have_states_that_are_reset_and_taken_over(name, model, tmp_path, request):
    items = model.items(8)
    with running(name, model, tmp_path, request) as host:
        pipeline = host.pipeline
        whole = in_time(lambda: pipeline.run(items, stream="whole"))
        assert compare(whole, model.expected(items)).equal
        for stream in ("a", "b"):
            in_time(lambda s=stream: pipeline.run(items[:4], stream=s))
        pipeline.reset("c", in_time(lambda: pipeline.state("b")))
        for stream in ("a", "b", "c"):
            rest = in_time(lambda s=stream: pipeline.run(items[4:], stream=s))
            assert compare(rest, whole[4:]).equal
        pipeline.reset("a")
        assert compare(in_time(lambda: pipeline.run(items, stream="a")), whole).equal
