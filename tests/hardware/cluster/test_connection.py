import os
import socket
import sys
import threading
import time
from collections import OrderedDict, deque
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from autosplit.errors import ConfigError, MachineError
from autosplit.hardware.cluster import connection
from autosplit.hardware.cluster.connection import connected, put, write_files
from autosplit.hardware.cluster.pipeline import RayReplica


def test_without_ray_its_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MachineError, match=r"pip install 'autosplit\[ray\]'"):
        connected()


@pytest.fixture
def ray(monkeypatch):
    """Lets Ray be a module with some functions."""

    def pretend(init=lambda **_: pytest.fail("waits"), is_initialized=False, **functions):
        functions |= {"init": init, "is_initialized": lambda: is_initialized}
        monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(**functions))

    return pretend


@pytest.mark.parametrize("variable", [False, True])
def test_a_cluster_that_is_not_there_is_named_at_once(ray, monkeypatch, variable):
    ray()
    if variable:
        monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    text = r"no Ray cluster at '127\.0\.0\.1:1' \(.*refused\); start one with `ray start --head`"
    with pytest.raises(MachineError, match=text):
        connected(None if variable else "127.0.0.1:1")


def test_a_file_that_leads_out_of_its_folder_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="lies outside its folder"):
        write_files(tmp_path / "in", {"../out.bin": "0"}, [b"x"])
    assert not (tmp_path / "out.bin").exists()


def test_other_versions_are_named_in_one_line(ray):
    def init(**_):
        raise RuntimeError(
            "Version mismatch: The cluster was started with:\n    Ray: 2.60.0\n    Python: 3.11.7\n"
            "This process on node 10.0.0.1 was started with:\n    Ray: 2.59.0\n    Python: 3.11.7\n"
        )

    ray(init)
    text = r"\(Ray: 2\.60\.0, Python: 3\.11\.7, Ray: 2\.59\.0, .*the same Ray and Python"
    with pytest.raises(MachineError, match=text):
        connected("ray://pi:10001")


def test_a_server_that_is_not_ray_s_is_named_at_once(ray):
    ray()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=lambda: listener.accept()[0].sendall(b"SSH-2.0-x")).start()
        with pytest.raises(MachineError, match=r"not answer as Ray does; .* set RAY_USE_TLS"):
            connected(f"127.0.0.1:{listener.getsockname()[1]}")


def test_ray_starts_with_large_values_in_calls_unless_the_user_set_another_size(ray, monkeypatch):
    name, started = "RAY_max_direct_call_object_size", []
    ray(lambda **_: started.append(os.environ[name]))
    monkeypatch.setenv(name, "7")
    connected()
    monkeypatch.delenv(name)
    connected()
    assert started == ["7", str(8 << 20)]


def test_an_address_of_another_cluster_than_that_of_this_process_is_refused(ray):
    there = {"get_runtime_context": lambda: SimpleNamespace(gcs_address="10.0.0.1:6379")}
    ray(lambda **_: None, **there)
    connected("ray://pi:10001")
    ray(is_initialized=True, **there)
    for address in (None, "ray://pi:10001", "10.0.0.1:6379"):
        connected(address)
    with pytest.raises(MachineError, match=r"at '10\.0\.0\.1:6379', not to that at '10\.0\.0\.2"):
        connected("10.0.0.2:6379")


def test_the_content_of_a_file_is_put_once(ray, monkeypatch, tmp_path):
    puts = []
    context = SimpleNamespace(get_node_id=lambda: "node", get_job_id=lambda: "job")

    def put_content(content):
        puts.append(content.tobytes())
        return len(puts)

    ray(is_initialized=True, get_runtime_context=lambda: context, put=put_content)
    monkeypatch.setattr(connection, "_contents", OrderedDict())
    monkeypatch.setattr(connection, "CONTENTS_BYTES", 10)
    file = tmp_path / "stage.so"
    file.write_bytes(b"12345")
    assert [put(file, "a"), put(file, "b"), put(file, "a")] == [1, 2, 1]
    # The one used longest ago goes where they are many bytes.
    assert [put(file, "c"), put(file, "a"), put(file, "b")] == [3, 1, 4]


def test_two_lanes_of_a_replica_give_up_a_state_once_and_a_closed_one_is_not_called_lost():
    class Slow(deque):
        def __len__(self):
            count = super().__len__()
            time.sleep(0.1)  # the other lane comes
            return count

    locks = {"_sending": threading.Lock(), "_receiving": threading.Lock()}
    replica = Mock(unused=Slow([7]), _sent=0, _received=0, **locks)
    replica._submit = lambda request: lambda timeout: []
    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(partial(RayReplica.run, replica), [[], []])) == [[], []]
    assert "is closed" in str(RayReplica._failure(Mock(_submit=None), AttributeError("run")))
