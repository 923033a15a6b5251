import shutil
import sys

import pytest

from autosplit.errors import MachineError
from autosplit.hardware.codegen import toolchain

ZIG = (sys.executable, "-P", "-m", "ziglang", "cc")


@pytest.fixture
def machine(monkeypatch):
    """Pretend that a machine has some commands, a CC and perhaps ziglang."""

    def pretend(commands=(), cc="", zig=False):
        monkeypatch.setenv("CC", cc)
        monkeypatch.setattr(shutil, "which", lambda name: name if name in commands else None)
        monkeypatch.setattr(toolchain, "_has_zig", lambda: zig)
        toolchain._driver.cache_clear()

    yield pretend
    monkeypatch.undo()
    toolchain._driver.cache_clear()


@pytest.mark.parametrize(
    ("commands", "cc", "zig", "taken"),
    [(["gcc", "clang"], "", True, ("gcc",)),
     (["cc", "gcc"], "", False, ("cc",)),
     (["clang"], "", False, ("clang",)),
     (["cc", "ccache"], "ccache gcc -m64", False, ("ccache", "gcc", "-m64")),
     (["cc"], "absent-cc", False, ("cc",)),
     ([], "", True, ZIG)],
)  # fmt: skip
def test_the_compiler_is_that_of_cc_or_the_first_there_is(machine, commands, cc, zig, taken):
    machine(commands, cc, zig)
    assert toolchain.compiler() == taken
    assert toolchain.is_available()


@pytest.mark.parametrize(
    ("commands", "triple", "remedy"),
    [
        ([], None, "install gcc or clang"),
        (["cc", "gcc"], "aarch64-linux-gnu",
         "nothing here links for 'aarch64-linux-gnu'.* install aarch64-linux-gnu-gcc"),
    ],
)  # fmt: skip
def test_without_a_compiler_the_one_to_install_is_named(machine, commands, triple, remedy):
    machine(commands)
    assert toolchain.is_available() == bool(commands)
    with pytest.raises(MachineError, match=remedy):
        toolchain.compiler(triple)


def script(text):
    return (sys.executable, "-c", text)


FAILS = "import sys; print('noise'); sys.exit('first\\nundefined symbol: f')"


@pytest.mark.parametrize(
    ("command", "reason"),
    [(script(FAILS), "linking 'stage.so' with .* failed: undefined symbol: f"),
     (script("print('on stdout'); exit(1)"), "linking 'stage.so' with .* failed: on stdout"),
     (script("exit(1)"), "linking 'stage.so' with .* failed: no message"),
     (script("import time; time.sleep(600)"), "did not run: .*timed out"),
     (("no-linker",), "no-linker' did not run")],
)  # fmt: skip
def test_a_linker_that_fails_or_hangs_is_named(monkeypatch, tmp_path, command, reason):
    monkeypatch.setattr(toolchain, "_TIMEOUT_S", 0.5 if "timed out" in reason else 60)
    monkeypatch.setattr(toolchain, "compiler", lambda triple: command)
    with pytest.raises(MachineError, match=reason):
        toolchain.link_shared(tmp_path / "stage.so", [])


def test_a_linker_imports_nothing_from_the_current_folder(monkeypatch, tmp_path):
    (tmp_path / "queue.py").write_text("raise SystemExit('imported')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", ".")
    monkeypatch.setattr(toolchain, "compiler", lambda triple: script("import queue"))
    toolchain.link_shared(tmp_path / "stage.so", [])


@pytest.mark.parametrize(
    ("triple", "commands", "taken"),
    [
        ("aarch64-unknown-linux-gnu", ["aarch64-unknown-linux-gnu-gcc", "aarch64-linux-gnu-gcc"],
         ("aarch64-unknown-linux-gnu-gcc",)),
        ("aarch64-unknown-linux-gnu", ["aarch64-linux-gnu-gcc", "cc"], ("aarch64-linux-gnu-gcc",)),
        ("aarch64-linux-gnu", ["cc"], (*ZIG, "-target", "aarch64-linux-gnu")),
        ("armv7-unknown-linux-musleabihf", [], (*ZIG, "-target", "armv7-linux-musleabihf")),
        ("armv7l-linux-gnueabihf", ["armv7l-linux-gnueabihf-gcc"], ("armv7l-linux-gnueabihf-gcc",)),
        ("riscv64", [], (*ZIG, "-target", "riscv64-linux-gnu")),
        ("aarch64-linux-android", [], (*ZIG, "-target", "aarch64-linux-gnu")),
    ],
)  # fmt: skip
def test_for_another_machine_a_cross_compiler_links_or_zig(machine, triple, commands, taken):
    machine(commands, zig=True)
    assert toolchain.compiler(triple) == taken
