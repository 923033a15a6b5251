import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import pytest

from autosplit.errors import StageError
from autosplit.hardware.devices import rpc, session
from autosplit.hardware.devices.device import Rpc
from autosplit.hardware.devices.rpc import ServerConnection
from autosplit.hardware.devices.session import Session
from tests.hardware.fakes import PATIENCE_S, wait_for

HERE = Rpc("host", 9090)


class Server:
    """A session as TVM gives one."""

    def __init__(self):
        self.is_up, self.files, self.log = True, {}, []
        self.device = lambda *place: place

    def get_function(self, name):
        def call():
            if not self.is_up:
                raise RuntimeError("socket closed")
            if name == "absent":
                raise AttributeError(name)
            return 4

        return call

    def upload(self, file, target):
        self.log.append(f"upload {target}")
        self.files[target] = Path(file).read_bytes()

    def load_module(self, name):
        if self.files[name] == b"bad":
            raise RuntimeError("cannot load\nundefined symbol: f")
        return ("module", self.files[name])

    def remove(self, name):
        del self.files[name]


@pytest.fixture
def server():
    return Server()


@pytest.fixture
def connection(server):
    return ServerConnection(HERE, Session(server))


def writes(content):
    return lambda file: file.write_bytes(content)


def test_each_library_has_a_name_of_its_own_and_leaves_no_file(connection, server):
    loaded = [connection.load(writes(content)) for content in (b"a", b"a")]
    assert loaded == [("module", b"a")] * 2
    assert server.log == ["upload stage1.so", "upload stage2.so"]
    assert server.files == {}


def test_a_library_that_does_not_load_is_a_failed_stage_and_leaves_no_file(connection, server):
    text = "'rpc:host:9090' failed while a stage was loaded: undefined symbol: f"
    with pytest.raises(StageError, match=text):
        connection.load(writes(b"bad"))
    assert server.files == {}
    assert connection.load(writes(b"good")) == ("module", b"good")


def test_a_server_that_went_away_is_lost_whatever_the_error(connection, server):
    with pytest.raises(StageError, match=r"^ours$"), connection.guarded("a stage ran"):
        raise StageError("ours")  # while it is there
    assert connection.call() == 4
    assert (connection.ask("present"), connection.ask("absent")) == ("4", None)
    server.is_up = False
    assert not connection.is_alive
    with pytest.raises(StageError, match="lost while it was asked"):
        connection.ask("absent")
    text = "'rpc:host:9090' was lost while a stage ran; start its server again"
    with pytest.raises(StageError, match=text), connection.guarded("a stage ran"):
        raise ValueError("nonsense")


def test_two_threads_open_one_connection(monkeypatch, server):
    slow = Mock(side_effect=lambda *_: threading.Event().wait(0.1) or Session(server))
    monkeypatch.setattr(rpc, "open_session", slow)
    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(lambda _: rpc.connect(HERE), range(2))
    assert first is second


def test_a_server_that_is_silent_holds_up_no_other(monkeypatch, server):
    is_over, other = threading.Event(), Rpc("other", 9090)

    def open_session(device, wait_s):
        return Session(server) if device == other or is_over.wait(PATIENCE_S) else None

    monkeypatch.setattr(rpc, "open_session", open_session)
    with ThreadPoolExecutor(2) as threads:
        silent, quick = (threads.submit(rpc.connect, device) for device in (HERE, other))
        try:
            assert quick.result(PATIENCE_S / 2)
            assert not silent.done()
        finally:
            is_over.set()


def test_the_connection_ends_with_the_block_whatever_refers_to_it(monkeypatch, server):
    monkeypatch.setattr(rpc, "open_session", lambda device, wait_s: Session(server))
    with rpc.reached([HERE, Rpc("a", 9090)]) as connections:
        assert [c.device.host for c in connections] == ["a", "host"]  # in one order for all
        connections[1].itself = connections[1]  # as the traceback of an error may do
        assert HERE in rpc._CONNECTIONS
    assert connections == []
    assert HERE not in rpc._CONNECTIONS


def test_a_session_lasts_for_days_as_a_pipeline_may(monkeypatch):
    monkeypatch.setattr("tvm.rpc.connect", connect := Mock())
    session.greet(HERE, 1.0)
    assert connect.call_args.kwargs["session_timeout"] >= 7 * 86_400


def test_an_answer_that_comes_too_late_is_dropped_and_an_error_in_time_is_raised():
    with pytest.raises(TimeoutError, match="of the work itself"):
        session.within(PATIENCE_S, Mock(side_effect=TimeoutError("of the work itself")))
    asked, answers = threading.Event(), []

    def answer():
        asked.wait(PATIENCE_S)
        late = Server()
        answers.append(weakref.ref(late))
        return late

    with pytest.raises(TimeoutError, match="it may be serving another client") as caught:
        session.within(0.01, answer)
    asked.set()
    wait_for(lambda: bool(answers) and answers[0]() is None)
    assert caught.value  # its traceback refers to what waited
