import os
import subprocess
import sys
from unittest.mock import Mock

import pytest

import autosplit
from autosplit.cli import COMMANDS, inspect, main
from autosplit.errors import ConfigError, Infeasible, MachineError


@pytest.fixture
def broken(monkeypatch):
    """Let a command fail with an error of one's choice."""
    return lambda error: monkeypatch.setattr(inspect, "run", Mock(side_effect=error))


def test_version_and_help_are_printed(capsys):
    def printed(*words):
        with pytest.raises(SystemExit, match="0"):
            main(list(words))
        return capsys.readouterr().out

    assert printed("--version") == f"autosplit {autosplit.__version__}\n"
    assert printed().startswith("usage: autosplit")
    # The options of a command stand before those of all.
    shown = printed("bench", "--help")
    assert shown.index("--seconds") < shown.index("--debug")


@pytest.mark.parametrize(
    ("words", "program", "said"),
    [
        ("tune net.onnx -o out --sampels 3", "autosplit tune",
         "unknown argument '--sampels'; did you mean '--samples' or '--shape' or '--state'"),
        ("--debug run a.toml", "autosplit run",
         "'--debug' stands before the command; write it after"),
        ("plan net.onnx --stages 2 --backend tvm", "autosplit plan",
         "'--backend' is now called --runtime"),
        ("bench out --items-per-second 5", "autosplit bench",
         "'--items-per-second' is now called --rate"),
        ("plan net.onnx --stages 2 --count", "autosplit plan",
         "'--count' is gone; `autosplit inspect` counts the cuts"),
        ("inpsect net.onnx", "autosplit", "unknown command 'inpsect'; did you mean 'inspect'"),
        ("nonsense", "autosplit",
         f"unknown command 'nonsense'; commands are {', '.join(COMMANDS)}"),
        ("report a.db", "autosplit report", "missing -o/--output"),
        ("--versoin", "autosplit", "unknown argument '--versoin'; did you mean '--version'"),
    ],
)  # fmt: skip
def test_an_unknown_option_is_answered_with_the_nearest_one(capsys, words, program, said):
    with pytest.raises(SystemExit, match="2"):
        main(words.split())
    assert capsys.readouterr().err == f"{program}: {said}; see `{program} --help`\n"


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [(ConfigError("a  wrong\nvalue"), 2, "a wrong value"),
     (Infeasible("none fits"), 1, "none fits"), (MachineError("no disk"), 3, "no disk"),
     (KeyboardInterrupt(), 130, "interrupted"),
     (MemoryError("8 PiB"), 3, "not enough memory: 8 PiB"),
     (MemoryError(), 3, "not enough memory: nothing left"),
     (ZeroDivisionError("a\nb"), 3, "unexpected ZeroDivisionError: a b; --debug shows where")],
)  # fmt: skip
def test_every_error_is_one_line_and_an_exit_code(broken, said, error, code, line):
    broken(error)
    assert said("inspect", "net.onnx") == (code, line)


def test_a_command_says_what_an_interrupt_leaves_behind(broken, said, monkeypatch):
    broken(KeyboardInterrupt())
    monkeypatch.setattr(inspect, "AFTER_INTERRUPT", "; nothing was written", raising=False)
    assert said("inspect", "net.onnx") == (130, "interrupted; nothing was written")


def test_debug_shows_the_traceback(broken, capsys):
    broken(ConfigError("a wrong value"))
    assert main(["inspect", "net.onnx", "--debug"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("Traceback")
    assert lines[-1].endswith("ConfigError: a wrong value")


@pytest.mark.parametrize(("words", "code"), [("zoo list", 0), ("inspect missing.onnx", 2)])
def test_a_reader_that_leaves_is_no_error(words, code):
    command = [sys.executable, "-m", "autosplit", *words.split()]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    process.stdout.close()
    assert process.wait(60) == code


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize(("words", "is_buffered"), [("--help", False), ("zoo list", True)])
def test_an_output_that_takes_nothing_is_one_line_and_exit_code_3(words, is_buffered):
    command = [sys.executable, "-m", "autosplit", *words.split()]
    environment = os.environ | {"PYTHONUNBUFFERED": "" if is_buffered else "1"}
    with open("/dev/full", "w") as full:
        pipes = {"stdout": full, "stderr": subprocess.PIPE}
        ended = subprocess.run(command, **pipes, text=True, env=environment)
    assert ended.returncode == 3
    assert ended.stderr == (
        "autosplit: cannot write standard output: No space left on device; "
        "free the disk or write it elsewhere\n"
    )
    with open("/dev/full", "w") as full:
        missing = [*command[:3], "inspect", "missing.onnx"]
        assert subprocess.run(missing, stderr=full).returncode == 2


@pytest.mark.parametrize(
    ("package", "extra", "words"),
    [("onnx", "onnx", "zoo list"), ("onnx", "onnx", "inspect net.onnx"),
     ("torch", "torch", "inspect net.pt2"), ("onnxscript", "torch", "inspect net.pt2"),
     ("psycopg", "postgres", "show s --storage postgresql+psycopg://me:secret@host/base"),
     ("psycopg2", "postgres", "show s --storage postgresql+psycopg2://me:secret@host/base"),
     ("optuna_dashboard", "dashboard", "dashboard net.db --port 0"),
     ("waitress", "dashboard", "dashboard net.db --port 0"),
     ("psutil", "serve", "serve nowhere"), ("httptools", "serve", "serve nowhere"),
     ("optuna", "all", "bench nowhere --p99 5 --chart x.svg")],
)  # fmt: skip
def test_a_missing_package_is_named_with_its_extra(finished, without, said, package, extra, words):
    for name in ("net.onnx", "net.pt2"):
        (finished / name).touch()
    without(package)
    code, line = said(*words.split())
    assert code == 3
    assert package in line
    assert f"pip install 'autosplit[{extra}]'" in line
    assert "secret" not in line
    assert ("write postgresql+psycopg://… and" in line) == (package == "psycopg2")
