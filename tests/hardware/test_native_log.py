"""What TVM logs from C++ does not reach the user; what else is on standard error does."""

import os
import subprocess
import sys

import numpy as np
import pytest

from autosplit.hardware import native_log
from tests.nets import net

SCRIPT = r"""
import os, sys
from autosplit.hardware import native_log

with native_log.hidden():
    os.write(2, b"[01:02:03] /src/codegen_cpu.cc:1: Warning: Unknown pragma\n")
    os.write(2, b"a line of a library\n[01:02:03] /src/x.h:1: Warning: Fast mode segfaults\n")
    print("a line of Python", file=sys.stderr)
    os.write(2, b"no end of line")
print("later", file=sys.stderr)
"""


def test_lines_of_tvm_are_dropped_and_all_others_pass():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, check=True)
    lines = ["a line of Python", "a line of a library", "no end of linelater"]
    assert sorted(done.stderr.decode().splitlines()) == lines


def test_a_terminal_stays_one():
    main, terminal = os.openpty()
    script = "import sys\nfrom autosplit.hardware import native_log\n"
    script += "with native_log.hidden(in_program=True):\n    sys.exit(not sys.stderr.isatty())"
    done = subprocess.run([sys.executable, "-c", script], stderr=terminal, check=False)
    for end in (main, terminal):
        os.close(end)
    assert done.returncode == 0


def test_contexts_nest_and_the_outermost_decides(capfd):
    line = b"[01:02:03] /src/codegen_cpu.cc:1: Warning: Unknown pragma\n"
    with native_log.hidden():
        with native_log.hidden():
            os.write(2, line)
        os.write(2, line)
    with native_log.hidden(False), native_log.hidden():
        os.write(2, line)
    assert capfd.readouterr().err == line.decode()


@pytest.fixture
def noisy(save):
    """An ONNX file that TVM compiles kernels with a warning for, when it is read and later."""
    # Smaller constants are not folded by TVM.
    weights = {"i": np.array([[1]]), "d": np.ones(2048, np.float32), "u": np.float32([5])}
    text = """g (float[2048] x) => (float[2048] z) {
        s = ScatterND(d, i, u)  y = Add(x, s)  z = ScatterND(y, i, u)
    }"""
    return save(net(text, weights))


@pytest.mark.integration
def test_a_command_writes_what_tvm_does_where_asked(noisy):
    command = [sys.executable, "-m", "autosplit", "inspect", "--debug", str(noisy)]
    assert ".cc:" in subprocess.run(command, capture_output=True, text=True, check=True).stderr


IN_PYTHON = """
import autosplit, sys
model = autosplit.load_model(sys.argv[1], runtime="tvm")
split = model.split([[model.graph.ops[0].name]])
with split.pipeline() as pipeline:
    pipeline.run(model.items(2))
split.export(sys.argv[2])
with autosplit.load(sys.argv[2]) as pipeline:
    pipeline.run(model.items(2))
"""


@pytest.mark.integration
def test_the_python_api_writes_nothing_of_tvm_s(noisy, tmp_path, monkeypatch):
    monkeypatch.setenv("AUTOSPLIT_CACHE", str(tmp_path / "cache"))  # so that kernels are compiled
    command = [sys.executable, "-c", IN_PYTHON, str(noisy), str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")
