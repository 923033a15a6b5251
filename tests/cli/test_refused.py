"""What commands refuse, in one line that says what to do; nothing is written."""

import json

import pytest

from tests import nets
from tests.cli.test_plan import GRAPH
from tests.deploy.exports import sound


@pytest.fixture
def folder(finished):
    """The working folder, with a study, a net and a graph file."""
    (finished / "net.onnx").write_bytes(nets.residual().SerializeToString())
    (finished / "g.json").write_text(json.dumps(GRAPH))
    (finished / "split.json").write_text(json.dumps(sound()))
    return finished


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        ("zoo make vgg20", 2, "net 'vgg20': not in the zoo; known: branches"),
        ("zoo make", 2, "needs a NAME"),
        ("zoo list vgg19", 2, "takes no NAME"),
        ("zoo make branches --seed -1", 2, "seed -1"),
        ("dashboard missing.db", 2, "does not exist"),
        ("dashboard missing.toml", 2, "does not exist"),
        ("dashboard nobody --storage net.db", 2, "holds no study 'nobody'; it holds net"),
        ("dashboard net.db --host 0.0.0.0", 2, "add --allow-remote"),
        ("dashboard net.db --allow-remote", 2, "needs --host ADDR"),
        ("dashboard net.db --port 99999", 2, "give --port 1 to 65535"),
        ("dashboard bad:// --storage x", 2, "://"),
        ("inspect net.onnx --node nope", 2, "node 'nope'; `autosplit inspect` lists them"),
        ("inspect net.onnx --node Rleu1a", 2, "; did you mean 'relu1a'"),
        ("profile net.onnx --device gpu:0", 2, "device 'gpu:0'"),
        ("profile net.onnx --device cores:100000", 3, "device 'cores:100000'"),
        ("split net.onnx", 2, "--after is missing"),
        ("split net.onnx --after out0 --replicas 2", 2, "the 2 stages a number from 1"),
        *((f"split net.onnx --after out0 --{option}", 2, f"--{option[:6]}")
          for option in ("devices cores:0", "format onnx", "no-onnx")),
        *((f"inspect net.onnx --node out0 --{option}", 2, "--profile are for the whole graph")
          for option in ("folded", "profile")),
        ("split net.onnx --replicas 1,0", 2, "invalid number of replicas '0'"),
        ("split net.onnx --after nope", 2, "unknown op or source node 'nope'"),
        ("split net.onnx --after out0,nope", 2, "unknown op or source node 'nope'"),
        # The sum of block 1 lies before cut 1 alone.
        ("split net.onnx --after out1 --after out0", 2, "before cut 1: it does not contain op 'op"),
        ("split net.onnx --after out1 --after out1", 2, "is empty (after op 'op"),
        ("split net.onnx --after y", 2, "is empty (after op 'op"),
        ("split net.onnx --after ,", 2, "is empty (before op 'op"),
        *((f"extract net.onnx {words}", 2, "needs --from OP and --to OP, or --ops OP,OP")
          for words in ("", "--from conv1a", "--ops conv1a --to out1")),
        ("extract net.onnx --ops conv0a,out1", 2, "leaves them and returns"),
        ("extract net.onnx --from out1 --to conv0a", 2, "no path"),
        ("extract net.onnx --ops nope", 2, "'nope'"),
        *((f"plan g.json --stages 2 --{option}", 2, "a graph file has its own costs")
          for option in ("shape x=1", "devices cores:0", "target llvm", "device-target a=b",
                         "runtime onnxruntime")),
        ("bench nowhere --chart x.svg", 2, "--chart draws latencies under load; give --rate or "),
        ("bench nowhere --delay 5", 2, "--delay is for items that come by themselves; give --rate"),
        ("plan g.json --stages 2 -o out", 2, "--output writes stages, which a graph file has not"),
        ("plan g.json --stages 2 --save g.json/saved.json", 3, "saved.json': File exists"),
        ("tune net.onnx -o t --samples 0", 2, "invalid number of samples '0'"),
        ("show net.db --storage net.db", 2, "holds no study 'net.db'; it holds net"),
        ("report net --storage my-db://x -o p.html", 2, "is not a database URL"),
        ("show net --storage postgresql+psycopg://u:p@a:secret@h/x", 2, "is not a database URL"),
        *((words, 2, "is read here; name another file to write") for words in (
            "plan g.json --stages 2 --save g.json", "plan net.onnx --stages 2 --save net.onnx",
            "report net.toml -o net.toml", "report net.toml -o net.db",
            "bench . --trace split.json")),
        *((f"plan g.json --cores 2 --{option}", 2, "give --stages instead of --cores")
          for option in ("assign", "allow-empty", "devices cores:0")),
        ("plan g.json --stages 2 --streams 2", 2, "give --cores instead of --stages"),
        *((f"plan g.json {words}", 2, "give --stages K or --cores N, one of them")
          for words in ("", "--cores 2 --stages 2")),
        *((f"plan g.json --stages {count}", 2, "--stages") for count in ("0", "1.5", "9999")),
        ("plan g.json --cores 0", 2, "--cores"),
        ("plan net.onnx --stages 2 --batch 1,5000", 2, "batch is 5000; give at most 4096"),
        ("plan g.json --stages 5", 1, "5 stages are too many"),
        ("plan g.json --stages 2 --memory 15", 1, "memory"),
        *((f"plan g.json --stages 2 {option} {value}", 2, option) for option, value in (
            ("--shape", "x"), ("--timeout", "-1"), ("--k-best", "2"), ("--pareto", ""))),
    ],
)  # fmt: skip
def test_a_command_says_in_one_line_what_to_do_instead(said, folder, words, code, text):
    before = sorted(folder.iterdir())
    exit_code, line = said(*words.split())
    assert (exit_code, text in line) == (code, True), line
    assert sorted(folder.iterdir()) == before
