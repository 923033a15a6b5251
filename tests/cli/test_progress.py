"""Progress on standard error: on a terminal, or where it is asked for."""

import sys

import pytest

from autosplit import phases
from autosplit.cli import main
from autosplit.cli.output import PhaseLines
from tests import nets


@pytest.fixture
def net(save):
    return str(save(nets.net("g (float[2,3] x) => (float[2,3] y) { y = Exp(x) }")))


def test_nothing_is_written_on_a_pipe(net, capsys):
    assert main(["inspect", net]) == 0
    assert capsys.readouterr().err == ""


def test_phases_are_lines_where_they_are_asked_for(net, capsys):
    assert main(["inspect", net, "--progress"]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[0] for line in lines] == ["importing", "lowering"]


def test_a_terminal_shows_phases_in_one_line_that_is_erased(net, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert main(["inspect", net]) == 0
    error = capsys.readouterr().err
    assert "lowering" in error
    assert "\n" not in error
    assert error.endswith("\r\x1b[K")


def test_a_phase_that_counts_is_printed_once_a_second(capsys, monkeypatch):
    seconds = iter([0.0, 0.0, 0.5, 1.5, 1.6])
    monkeypatch.setattr("autosplit.cli.output.time.monotonic", lambda: next(seconds))
    with phases.listening(PhaseLines()):
        for number in (1, 2, 3):
            phases.report(f"compiling kernels {number}/9")
        phases.report("profiling")
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["compiling kernels 1/9", "compiling kernels 3/9", "profiling"]


def test_a_phase_is_part_of_a_step_of_the_whole(capsys):
    with phases.listening(PhaseLines()):
        with phases.step("candidate 3 of 20"):
            phases.report("building")
        phases.report("profiling")
    assert capsys.readouterr().err.splitlines() == ["candidate 3 of 20: building", "profiling"]
