"""What holds wherever a stage runs: in a thread, a process, a TVM RPC server or a Ray actor."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

import autosplit
from autosplit.errors import StageError
from autosplit.hardware.devices import device as devices
from autosplit.hardware.execution.pipeline import Pipeline
from autosplit.hardware.measurement.parity import compare
from tests import nets
from tests.hardware.fakes import in_time
from tests.hardware.servers import servers  # noqa: F401  a fixture

pytestmark = pytest.mark.integration
SECONDS = 4.0  # that a stage may be silent; a busy machine needs some for a call
CORES = devices.Cores(devices.available()[:1])


@dataclass
class Host:
    """A pipeline whose only stage is the net; ``hang`` and ``die`` are of its process."""

    pipeline: Pipeline
    hang: Callable[[], object]
    die: Callable[[], object]


class Stage:
    """A stage in a thread that can hang and fail."""

    def __init__(self, stage: Any) -> None:
        self.stage, self.goes_on, self.is_dead = stage, threading.Event(), False
        self.goes_on.set()
        self.open, self.close = stage.open, stage.close

    def die(self) -> None:
        self.is_dead = True

    def run(self, values: Any) -> Any:
        self.goes_on.wait()
        if self.is_dead:
            raise RuntimeError("dead")
        return self.stage.run(values)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    file = tmp_path_factory.mktemp("net") / "net.onnx"
    pytest.importorskip("onnx").save(nets.residual(), file)
    return autosplit.load_model(file, runtime="auto")


def whole(model: Any) -> Any:
    return model.wiring([range(len(model.graph.ops))])


@contextlib.contextmanager
def in_thread(_: Any, model: Any, __: Path) -> Iterator[Host]:
    (ports,) = whole(model).stages
    stage = Stage(model.runtime_of("tvm").stage(ports, CORES))
    with Pipeline(whole(model), [[stage]]) as pipeline:
        yield Host(pipeline, stage.goes_on.clear, stage.die)
        stage.goes_on.set()


@contextlib.contextmanager
def in_process(_: Any, model: Any, folder: Path) -> Iterator[Host]:
    process = pytest.importorskip("autosplit.hardware.runtimes.openvino.process")
    (ports,) = whole(model).stages
    model.runtime_of("openvino").write(ports, folder / "stage.onnx", CORES)
    stage = process.ProcessStage(folder / "stage.onnx", ports, CORES, "f32")
    (child,) = psutil.Process(stage._worker.pid).children()
    with Pipeline(whole(model), [[stage]]) as pipeline:
        yield Host(pipeline, child.suspend, child.kill)


@contextlib.contextmanager
def on_server(request: Any, model: Any, _: Path) -> Iterator[Host]:
    server = request.getfixturevalue("servers")()
    deployment = model.deployment([range(len(model.graph.ops))], [server.device], ["tvm"])
    with model.pipeline(deployment) as pipeline:
        yield Host(pipeline, server.stop, server.kill)
    server.kill()


@contextlib.contextmanager
def in_actor(_: Any, model: Any, folder: Path) -> Iterator[Host]:
    pytest.importorskip("ray")
    from tests.hardware.cluster.clusters import Nodes

    nodes = Nodes()
    with contextlib.closing(nodes):
        model.split([]).export(folder, [str(CORES)])
        with autosplit.load(folder).on_ray([f"ray:left/{CORES}"]) as pipeline:
            (actor,) = nodes.actors(nodes.cluster.head_node)
            yield Host(pipeline, actor.suspend, actor.kill)
            with contextlib.suppress(psutil.NoSuchProcess):
                actor.resume()


HOSTS = {"thread": in_thread, "process": in_process, "server": on_server, "actor": in_actor}


@pytest.fixture(params=HOSTS)
def host(request: Any, model: Any, tmp_path: Path, monkeypatch: Any) -> Iterator[Host]:
    monkeypatch.setattr(devices, "SILENCE_S", SECONDS)
    with HOSTS[request.param](request, model, tmp_path) as host:
        items = model.items(4)
        assert compare(in_time(lambda: host.pipeline.run(items)), model.expected(items)).equal
        yield host


@pytest.mark.parametrize(("event", "text"), [("hang", f"{SECONDS:g} s"), ("die", "")])
def test_a_stage_that_hangs_or_dies_is_named_in_time_with_its_item(
    host: Host, model: Any, event: str, text: str
) -> None:
    getattr(host, event)()
    with pytest.raises(StageError, match=rf"^stage 0 failed: .*{text}.*; items inside: 4$"):
        in_time(lambda: host.pipeline.run(model.items(1)))
    with pytest.raises(StageError, match=r"^stage 0 failed: .*"):
        host.pipeline.submit(model.items(1)[0])
