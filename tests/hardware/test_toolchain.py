"""Which linker is taken, and what is said when there is none or it fails."""

import shutil
import sys

import pytest

from autosplit.errors import MachineError
from autosplit.hardware import toolchain

ZIG = (sys.executable, "-m", "ziglang", "cc")


@pytest.fixture
def machine(monkeypatch):
    """Pretend that a machine has some commands, a CC and perhaps ziglang."""

    def pretend(commands=(), cc="", zig=False):
        monkeypatch.setenv("CC", cc)
        monkeypatch.setattr(shutil, "which", lambda name: name if name in commands else None)
        monkeypatch.setattr(toolchain, "_has_zig", lambda: zig)
        toolchain._found.cache_clear()

    yield pretend
    monkeypatch.undo()
    toolchain._found.cache_clear()


@pytest.mark.parametrize(
    ("commands", "cc", "zig", "taken"),
    [
        (["gcc", "clang"], "", True, ("gcc",)),
        (["cc", "gcc"], "", False, ("cc",)),
        (["clang"], "", False, ("clang",)),
        (["cc", "ccache"], "ccache gcc -m64", False, ("ccache", "gcc", "-m64")),
        (["cc"], "absent-cc", False, ("cc",)),
        ([], "", True, ZIG),
    ],
)
def test_the_compiler_is_that_of_cc_or_the_first_there_is(machine, commands, cc, zig, taken):
    machine(commands, cc, zig)
    assert toolchain.compiler() == taken
    assert toolchain.is_available()


def test_without_any_the_remedy_is_named(machine):
    machine()
    assert not toolchain.is_available()
    with pytest.raises(MachineError, match="install gcc or clang"):
        toolchain.compiler()


def script(text):
    return (sys.executable, "-c", text)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("import sys; print('noise'); sys.exit('first\\nundefined symbol: f')", "failed: undefined symbol: f"),
        ("print('only on stdout'); exit(1)", "failed: only on stdout"),
        ("exit(1)", "failed: no message"),
    ],
)
def test_a_linker_that_fails_is_quoted_by_its_last_line(monkeypatch, tmp_path, text, told):
    monkeypatch.setattr(toolchain, "compiler", lambda triple: script(text))
    with pytest.raises(MachineError, match=f"linking 'stage.so' with .* {told}"):
        toolchain.link_shared(tmp_path / "stage.so", [])


def test_a_linker_that_does_not_start_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(toolchain, "compiler", lambda triple: (str(tmp_path / "no-linker"),))
    with pytest.raises(MachineError, match="no-linker' did not run"):
        toolchain.link_shared(tmp_path / "stage.so", [])
