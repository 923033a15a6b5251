"""A TVM RPC server that is killed, stopped or unplugged in the middle of an item."""

import gc
import signal
import time

import onnx
import pytest

import autosplit
from autosplit.errors import MachineError, StageError
from autosplit.hardware.devices import device as devices
from autosplit.hardware.devices import rpc, session
from tests import nets
from tests.hardware.devices.cable import HOST, Cable
from tests.hardware.servers import servers  # noqa: F401  a fixture

pytestmark = pytest.mark.integration
LIMIT_S = 60.0  # far more than a silence of the tests, far less than one of users


@pytest.fixture
def silence(monkeypatch):
    monkeypatch.setattr(devices, "SILENCE_S", 4.0)
    monkeypatch.setattr(session, "ANSWER_S", 4.0)


@pytest.fixture
def server(servers):  # noqa: F811
    return servers()


@pytest.fixture
def cable(server):
    cable = Cable(server.port)
    yield cable
    cable.close()
    server.kill()


@pytest.fixture(scope="module")
def split(tmp_path_factory):
    file = tmp_path_factory.mktemp("net") / "net.onnx"
    onnx.save(nets.residual(), file)
    return autosplit.load_model(file).split([["relu1a"]])


@pytest.mark.parametrize("event", ["kill", "unplug"])
def test_a_server_lost_in_the_middle_of_an_item_is_one_error_in_time(
    split, server, cable, silence, event
):
    there = f"rpc:{HOST}:{cable.port}"
    here = str(devices.along(1)[0])
    start = time.monotonic()
    with split.pipeline([here, there]) as pipeline:
        pipeline.run(split.model.items(2))
        if event == "unplug":
            cable.unplug_at_next_request()
        else:
            cable.signal_at_next_request(signal.SIGKILL, server.processes)
        with pytest.raises(StageError, match=f"'{there}' was lost while a stage ran"):
            pipeline.run(split.model.items(1))
    assert time.monotonic() - start < LIMIT_S


@pytest.mark.parametrize("event", ["kill", "stop"])
def test_a_pipeline_closes_in_time_without_its_server(split, server, cable, silence, event):
    there = f"rpc:{HOST}:{cable.port}"
    start = time.monotonic()
    with split.pipeline([there, there]) as pipeline:
        pipeline.run(split.model.items(1))
        getattr(server, event)()
    assert time.monotonic() - start < LIMIT_S
    gc.collect()
    assert not rpc.is_connected(devices.parse(there))


def test_a_stopped_server_is_not_there_for_the_next_session(split, server, cable, silence):
    server.stop()
    with pytest.raises(MachineError, match="no answer in 4 s"):
        rpc.connect(devices.parse(server.device))
