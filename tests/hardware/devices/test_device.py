import contextlib
import os
import re
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autosplit.errors import ConfigError, MachineError
from autosplit.hardware.codegen import schedules
from autosplit.hardware.codegen.target import foreign_triple, target_of, target_on
from autosplit.hardware.devices import device as devices
from autosplit.hardware.devices.core_kinds import by_kind, memory_node
from autosplit.hardware.devices.device import Cores, Cuda, RayCores, Rpc


@pytest.fixture
def four(monkeypatch):
    monkeypatch.setattr(devices, "available", lambda: (0, 1, 2, 5))


SPELLED = {
    "cores:0": Cores((0,)),
    "cores:0,2": Cores((0, 2)),
    "cores:0-2": Cores((0, 1, 2)),
    "cores:1,0-1,5": Cores((1, 0, 5)),
    "cuda:0": Cuda(0),
    "cuda:999": Cuda(999),
    "ray:pi-4/cores:7-8": RayCores("pi-4", Cores((7, 8))),
    "rpc:h:1": Rpc("h", 1),
    "rpc:10.0.0.7:65535": Rpc("10.0.0.7", 65535),
    "rpc:pi-4.lan:9090/cuda:1": Rpc("pi-4.lan", 9090, kind="cuda", number=1),
    "rpc:pi:9090/board": Rpc("pi", 9090, "board"),
    "tracker:hub:9190/rpi4": Rpc("hub", 9190, "rpi4", by_tracker=True),
    "tracker:hub:9190/jetson/cuda:0": Rpc("hub", 9190, "jetson", by_tracker=True, kind="cuda"),
}


@pytest.mark.usefixtures("four")
@pytest.mark.parametrize(("text", "device"), SPELLED.items())
def test_a_device_is_read_as_it_is_spelled(text, device):
    assert devices.parse(text) == device
    assert devices.parse(str(device)) == device


@pytest.mark.parametrize(
    "text",
    ["", "cores", "cores:", "core:0", "gpu:0", "cores:a", "cores:0-", "cores:-1", "cores:0,",
     "cores:²", "cuda", "cuda:x", "cuda:-1", "cuda:1000", "cuda:1_0", "cuda:+1", "cuda: 1", "rpc",
     "rpc:", "rpc:host", "rpc:host:", "rpc:host:0", "rpc:host:65536", "rpc::9090", "rpc:host:9090/",
     "rpc:host:9090/gpu:0", "rpc:host:9090/cuda:", "rpc:host:9090/a/b", "rpc:ho st:9090", "rpc:h:²",
     "rpc:[::1]:9090", "rpc:::1:9090", "tracker:[fe80::1]:9190/key", "tracker:host:9190",
     "tracker:host:9190/", "tracker:host:9190/cuda:0", "tracker:host:9190/k/cuda:0/x", "ray:",
     "rpc:-h:1", "rpc:h-:1", "rpc:.h:1", "rpc:h.:1", "rpc:h/../x:1", "rpc:h;x:1", "rpc:$(x):1",
     "rpc:h\n:1", "rpc:ü:1", "ray:pi", "ray:pi/", "ray:/cores:0", "ray:pi/cuda:0", "ray:pi/cores:x",
     "ray:a b/cores:0"],
)  # fmt: skip
def test_a_misspelt_device_is_named_with_its_spelling(text):
    named = re.escape(f"device '{' '.join(text.split())}' is ")
    with pytest.raises(ConfigError, match=named + r".*; write \w+"):
        devices.parse(text)


@pytest.mark.usefixtures("four")
@pytest.mark.parametrize(
    ("text", "reason"),
    [("cores:3", "needs core 3; this process may use 0, 1, 2, 5"),
     ("cores:0-9", "needs core 3, 4, 6, 7, 8, 9; this"),
     ("cores:10-29", "needs core 10, 11, 12, 13, 14, 15, 16, 17; this"),
     ("cores:0,2-1", "does not exist: 2-1 is no range"),
     ("cores:0-99999999999", "does not exist: 0-99999999999 is no range")],
)  # fmt: skip
def test_a_core_that_is_not_there_is_named(text, reason):
    with pytest.raises(MachineError, match=f"device '{text}' {reason}"):
        devices.parse(text)


@pytest.mark.usefixtures("four")
def test_stages_take_the_cores_in_turn_or_as_many_devices_as_there_are_stages():
    assert [d.numbers for d in devices.along(5)] == [(0,), (1,), (2,), (5,), (0,)]
    assert devices.along(2, ["cores:1", "cores:0"]) == (Cores((1,)), Cores((0,)))
    with pytest.raises(ConfigError, match="3 stages need 3 devices, not 1: cores:0"):
        devices.along(3, ["cores:0"])
    with pytest.raises(ConfigError, match="9999 stages are too many; give at most 1024"):
        devices.along(9999)


def test_without_pinning_every_core_is_there(monkeypatch):
    for name in ("sched_getaffinity", "sched_setaffinity"):
        monkeypatch.delattr(os, name, raising=False)
    assert not devices.can_pin()
    assert devices.available() == tuple(range(os.cpu_count()))
    Cores((0,)).bind()
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert devices.available() == (0,)


def test_each_stage_on_a_key_has_a_server_of_its_own_and_all_on_an_address_share_one():
    texts = [f"tracker:t:1/{key}" for key in ("a", "b", "a", "a/cuda:0", "a")]
    along = devices.along(7, [texts[0], "rpc:h:1", *texts[1:], "rpc:h:1"])
    assert [getattr(d, "copy", None) for d in along] == [0, 0, 0, 1, 0, 2, 0]
    assert [str(d) for d in along] == [texts[0], "rpc:h:1", *texts[1:], "rpc:h:1"]


@given(st.text(max_size=30))
def test_any_text_is_a_device_or_an_error_of_ours(text):
    with contextlib.suppress(ConfigError, MachineError):
        assert str(devices.parse(text))


@pytest.mark.parametrize(
    ("enabled", "there", "remedy"),
    [(False, True, "TVM built with CUDA"), (True, False, "nvidia-smi")],
)
def test_a_gpu_that_cannot_be_used_says_why(monkeypatch, enabled, there, remedy):
    import tvm

    monkeypatch.setattr(tvm.runtime, "enabled", lambda name: enabled)
    monkeypatch.setattr(tvm, "cuda", lambda number: SimpleNamespace(exist=there, number=number))
    with pytest.raises(MachineError, match=f"device 'cuda:3' .*{remedy}"):
        Cuda(3).tvm_device()


def write(file, text):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_cores_are_of_one_kind_but_for_the_small_ones_of_intel_and_of_arm(tmp_path):
    assert by_kind((3, 1), tmp_path) == ((3, 1),)
    write(tmp_path / "intel" / "cpu_atom" / "cpus", "4-7\n")
    assert by_kind(range(6), tmp_path / "intel") == ((0, 1, 2, 3), (4, 5))
    for core, capacity in enumerate((446, 1024, 446)):
        write(tmp_path / "system" / "cpu" / f"cpu{core}" / "cpu_capacity", f"{capacity}\n")
    assert by_kind((0, 1, 2), tmp_path) == ((0, 2), (1,))


def test_cores_of_a_node_share_its_memory(tmp_path):
    cores = tmp_path / "system" / "cpu"
    for core, node in enumerate((0, 1, 1)):
        (cores / f"cpu{core}" / f"node{node}").mkdir(parents=True)
    assert [memory_node(core, tmp_path) for core in range(3)] == ["node0", "node1", "node1"]
    without = tmp_path / "without"
    assert memory_node(0, without) == memory_node(1, without)


def test_every_kernel_gets_threads_on_a_gpu(branches):
    target = target_of('{"kind": "cuda", "arch": "sm_80", "host": "llvm"}')
    scheduled = schedules.schedule(branches.lowered.kernels, target, None)
    assert all("thread" in str(function) for function in scheduled.values())


def test_a_gpu_of_a_server_has_the_target_that_is_given(monkeypatch):
    monkeypatch.setattr(devices.Cuda, "tvm_device", lambda self: None)
    alone = '{"kind": "cuda", "arch": "sm_87"}'
    host = ', "host": {"kind": "llvm", "mtriple": "aarch64-linux-gnu"}}'
    target = target_on(Cuda(0), alone[:-1] + host, target_of())
    assert target.attrs["arch"] == "sm_87"
    assert foreign_triple(target) in ("aarch64-linux-gnu", None)
    assert target_on(Cuda(0), alone, target_of()).host.kind.name == "llvm"
