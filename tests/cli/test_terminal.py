"""Names from models, studies and exports are shown by every command and obeyed by no terminal."""

import ast
from pathlib import Path

import numpy as np
import pytest

from autosplit import cli
from autosplit.cli import main, output
from tests.build import node, onnx_model

HOSTILE = "a\x1b[2J\x1b]0;t\x07\u202eb\u2028c\x9bd"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model whose nodes, tensors and graph have hostile names."""
    first, second = node("MatMul", "x w", "a", HOSTILE), node("MatMul", "a w", "y")
    first.output[0] = second.input[0] = HOSTILE
    second.output[0] = "y\n2"
    weights = {"w": np.eye(4, dtype=np.float32)}
    proto = onnx_model([first, second], outputs=["y\n2"], weights=weights)
    proto.graph.name = HOSTILE
    path = tmp_path_factory.mktemp("hostile") / "net.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


@pytest.fixture
def printed(capfd):
    """Run a command; returns all it printed, of which a terminal obeys nothing."""

    def run(*arguments):
        main([str(a) for a in arguments])
        text = "".join(capfd.readouterr())
        assert all(line.isprintable() for line in text.split("\n"))
        return text

    return run


@pytest.mark.parametrize(
    "arguments",
    [["inspect"], ["inspect", "-f", "json"], ["inspect", "--node", HOSTILE],
     ["inspect", "--node", f"{HOSTILE}?"], ["inspect", "--node", "?", "--debug"],
     ["split", "--after", HOSTILE], ["split", "--after", f"{HOSTILE}?"],
     ["extract", "--ops", HOSTILE], ["profile", "--seconds", "0.01"], ["plan", "--stages", "2"],
     ["bench"], ["verify"], ["run", "--cores", HOSTILE], ["show"],
     ["inspect", "--target", HOSTILE]],
    ids=" ".join,
)  # fmt: skip
def test_a_terminal_obeys_no_name_of_a_model(model, printed, arguments):
    command, *options = arguments
    printed(command, model, *options)


def test_a_terminal_obeys_no_option_file_name_or_progress_line(printed, capfd):
    for words in (["inspect", "a", f"--{HOSTILE}"], [HOSTILE]):
        with pytest.raises(SystemExit):
            printed(*words)
    printed("show", f"{HOSTILE}.toml")
    printed("verify", HOSTILE)
    output.note(HOSTILE)
    assert [line.isprintable() for line in capfd.readouterr().err.split("\n")] == [True] * 2


def test_only_one_module_of_the_command_line_prints():
    for file in Path(cli.__file__).parent.glob("*.py"):
        calls = [n for n in ast.walk(ast.parse(file.read_text())) if isinstance(n, ast.Call)]
        writes = {"print", "sys.stdout.write", "sys.stderr.write"}
        names = {ast.unparse(call.func) for call in calls}
        assert file == Path(output.__file__) or not names & writes, file.name
