"""What TVM logs from C++ does not reach the user; what else is on standard error does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = r"""
import os, sys
from autosplit.cli import native_log

with native_log.hidden():
    os.write(2, b"[01:02:03] /src/codegen_cpu.cc:1: Warning: Unknown pragma\n")
    os.write(2, b"a line of a library\n[01:02:03] /src/x.h:1: Warning: Fast mode segfaults\n")
    print("a line of Python", file=sys.stderr)
    os.write(2, b"no end of line")
print("later", file=sys.stderr)
"""


def test_lines_of_tvm_are_dropped_and_all_others_pass() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, check=True)
    lines = ["a line of Python", "a line of a library", "no end of linelater"]
    assert sorted(done.stderr.decode().splitlines()) == lines


def test_a_terminal_stays_one() -> None:
    main, terminal = os.openpty()
    script = "import sys\nfrom autosplit.cli import native_log\n"
    script += "with native_log.hidden():\n    sys.exit(0 if sys.stderr.isatty() else 1)"
    done = subprocess.run([sys.executable, "-c", script], stderr=terminal, check=False)
    os.close(main)
    os.close(terminal)
    assert done.returncode == 0


@pytest.mark.integration
@pytest.mark.parametrize("arguments", [[], ["--debug"]])
def test_inspect_writes_nothing_of_tvm_s_unless_asked(arguments: list[str], tmp_path: Path) -> None:
    import onnx
    from onnx import helper

    floats = onnx.TensorProto.FLOAT
    indices = helper.make_tensor("i", onnx.TensorProto.INT64, [1, 1], [1])
    data = helper.make_tensor("d", floats, [4], [1.0, 2.0, 3.0, 4.0])
    update = helper.make_tensor("u", floats, [1], [5.0])
    nodes = [
        helper.make_node("ScatterND", ["d", "i", "u"], ["s"]),
        helper.make_node("Add", ["x", "s"], ["y"]),
    ]
    values = [helper.make_tensor_value_info(name, floats, [4]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], [indices, data, update])
    onnx.save(helper.make_model(graph), tmp_path / "net.onnx")
    command = [sys.executable, "-m", "autosplit", "inspect", *arguments, str(tmp_path / "net.onnx")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (".cc:" in done.stderr) == bool(arguments)
