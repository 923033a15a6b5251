"""Stages for another architecture: compiled and linked here, never loaded here."""

import platform
from pathlib import Path

import pytest

import autosplit
from autosplit.errors import ConfigError, MachineError
from autosplit.hardware.codegen import toolchain
from autosplit.hardware.codegen.target import foreign_triple, target_of
from autosplit.hardware.devices import device
from autosplit.hardware.devices.device import Rpc
from tests import nets

ARM = "llvm -mtriple=aarch64-linux-gnu"
pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="ARM is no foreign architecture everywhere"
)


def test_a_triple_says_whether_code_is_for_this_machine():
    assert foreign_triple(target_of()) is None
    assert foreign_triple(target_of("llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64")) is None
    assert foreign_triple(target_of(ARM)) == "aarch64-linux-gnu"


@pytest.fixture
def exported(save, tmp_path, monkeypatch):
    """A split whose first stage is for an ARM server; its linker joins the bytes of objects."""
    linked = []

    def link(output, objects, triple=None):
        linked.append(triple)
        Path(output).write_bytes(b"".join(Path(file).read_bytes() for file in objects))

    monkeypatch.setattr(toolchain, "link_shared", link)
    monkeypatch.setattr(toolchain, "compiler", lambda triple=None: ("cc",))
    there = "rpc:127.0.0.1:1"
    model = autosplit.load_model(save(nets.residual()), targets={there: ARM})
    model.split([["relu0a"]]).export(tmp_path / "out", [there, str(device.along(1)[0])])
    assert set(linked) == {"aarch64-linux-gnu", None}
    return tmp_path / "out"


def test_a_foreign_stage_is_refused_on_local_cores_and_sent_to_its_server(exported):
    aarch64 = 183  # e_machine of an ELF header, at byte 18 (elf.h)
    header = (exported / "stage0.so").read_bytes()[:20]
    assert header[:4] == b"\x7fELF"
    assert int.from_bytes(header[18:20], "little") == aarch64
    text = f"the split was exported for aarch64, this machine is {platform.machine()}"
    with pytest.raises(MachineError, match=text):
        autosplit.load(exported, [str(device.along(1)[0])] * 2).start()
    text = "no TVM RPC server answers at 127.0.0.1:1 .*start one there: python -m"
    with pytest.raises(MachineError, match=text):
        autosplit.load(exported).start()


def test_targets_are_for_known_devices(save):
    path = save(nets.residual())
    with pytest.raises(ConfigError, match="device 'arm' is unknown"):
        autosplit.load_model(path, targets={"arm": ARM})
    with pytest.raises(ConfigError, match="is not a TVM target"):
        autosplit.load_model(path, targets={"rpc:pi:9090": "nonsense"})
    assert isinstance(device.parse("rpc:pi:9090"), Rpc)
