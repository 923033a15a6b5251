"""Code for other machines: what this processor lacks, and stages that are not loaded here."""

import platform
from pathlib import Path

import pytest

import autosplit
from autosplit.errors import ConfigError, MachineError
from autosplit.hardware.codegen import toolchain
from autosplit.hardware.codegen.target import target_of
from autosplit.hardware.devices import device, processor
from tests import nets

V3 = "llvm -mcpu=x86-64-v3"
ON_X86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="is about x86-64")


@pytest.fixture
def cpuinfo(tmp_path, monkeypatch):
    """Let this processor be another, described as Linux does."""

    def write(*lists, key="flags\t\t"):
        file = tmp_path / "cpuinfo"
        entry = "processor\t: {}\n{}: {}\nbugs\t\t: avx2\n\n".format
        file.write_text("".join(entry(i, key, text) for i, text in enumerate(lists)))
        monkeypatch.setattr(processor, "CPUINFO", file)

    return write


SMALL = "fpu sse2 pni ssse3 sse4_1 sse4_2 popcnt"
ARM = '{"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "neoverse-n1"}'


@pytest.mark.parametrize(
    ("lists", "target", "missing"),
    [
        ([f"{SMALL} avx movbe abm f16c"], V3, ("avx2", "bmi", "bmi2", "fma")),
        ([f"{SMALL} avx movbe abm f16c"], "llvm -mcpu=x86-64-v2", ()),
        ([SMALL], "llvm -mcpu=x86-64 -mattr=+avx", ("avx",)),
        ([f"{SMALL} avx", SMALL], "llvm -mcpu=x86-64 -mattr=+avx", ("avx",)),  # unlike cores
        (["fp asimd evtstrm crc32 atomics asimdrdm asimdhp fphp"], ARM, ("dotprod",)),
        ([f"{SMALL} avx"], None, ()),  # a hypervisor hides the rest
        ([], V3, ()),  # a system that lists nothing
        (["pni"], "c", ()),
    ],
)
def test_the_features_that_code_needs_and_a_processor_lacks(cpuinfo, lists, target, missing):
    cpuinfo(*lists, key="Features\t" if target == ARM else "flags\t\t")
    assert processor.missing_features(target_of(target)) == missing


LACKS = "the split was exported for x86-64-v3, this processor lacks avx2, bmi, bmi2, f16c, fma, "


@ON_X86
def test_code_for_another_processor_is_refused_in_one_line(export, said, cpuinfo, save):
    cpuinfo(f"{SMALL} avx")
    export.edit(lambda d: d["environment"].update(target=V3))
    code, line = said("bench", export.folder)
    assert (code, line[: len(LACKS)]) == (3, LACKS)
    code, line = said("profile", save(nets.residual()), "--runtime", "tvm", "--target", V3)
    assert (code, line.split(",")[0]) == (2, "this processor lacks avx2")


FOREIGN = "llvm -mtriple=aarch64-linux-gnu"


@ON_X86
def test_a_foreign_stage_is_refused_here_and_sent_to_its_server(save, tmp_path, monkeypatch):
    """The first stage is for an ARM server; the linker joins the bytes of objects."""
    linked, for_arm = [], tmp_path / "out"

    def link(output, objects, triple=None):
        linked.append(triple)
        Path(output).write_bytes(b"".join(Path(file).read_bytes() for file in objects))

    monkeypatch.setattr(toolchain, "link_shared", link)
    monkeypatch.setattr(toolchain, "compiler", lambda triple=None: ("cc",))
    there = "rpc:127.0.0.1:1"
    model = autosplit.load_model(save(nets.residual()), targets={there: FOREIGN})
    model.split([["relu0a"]]).export(for_arm, [there, str(device.along(1)[0])])
    assert set(linked) == {"aarch64-linux-gnu", None}
    aarch64 = 183  # e_machine of an ELF header, at byte 18 (elf.h)
    header = (for_arm / "stage0.so").read_bytes()[:20]
    assert header[:4] == b"\x7fELF"
    assert int.from_bytes(header[18:20], "little") == aarch64
    text = f"the split was exported for aarch64, this machine is {platform.machine()}"
    with pytest.raises(MachineError, match=text):
        autosplit.load(for_arm, [str(device.along(1)[0])] * 2).start()
    text = "no TVM RPC server answers at 127.0.0.1:1 .*start one there: python -m"
    with pytest.raises(MachineError, match=text):
        autosplit.load(for_arm).start()


def test_targets_are_for_known_devices(save):
    path = save(nets.residual())
    with pytest.raises(ConfigError, match="device 'arm' is unknown"):
        autosplit.load_model(path, targets={"arm": FOREIGN})
    with pytest.raises(ConfigError, match="is not a TVM target"):
        autosplit.load_model(path, targets={"rpc:pi:9090": "nonsense"})
