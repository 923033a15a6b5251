import pytest

from autosplit.hardware.measurement.results import Spread
from studies.benchmarks import result

ROWS = [("squeezenet", 3.5), ("resnet50", 38)]


def finish(file=None, *bars):
    return result.finish("link", ["net", "ms"], ROWS, notes=["a note"], bars=bars, file=file)


def test_a_missed_bar_is_the_exit_code():
    reached, missed = result.at_most("error %", 5.0, 5.0), result.at_most("error %", 5.1, 5.0)
    assert (finish(), finish(None, reached), finish(None, reached, missed)) == (0, 0, 1)


def test_a_failure_loses_no_other_measurement(capsys):
    measured, bar = result.each(["first", "", "last"], lambda name: name[0])
    assert measured == {"first": "f", "last": "l"}
    assert not bar.holds
    assert "IndexError" in capsys.readouterr().err


def test_what_is_written_is_read_again(tmp_path):
    finish(tmp_path / "new" / "link.json", result.at_least("share", 0.5, 0.95))
    written = result.read(tmp_path / "new" / "link.json")
    assert (written.name, written.columns, written.notes) == ("link", ("net", "ms"), ("a note",))
    assert written.rows == (("squeezenet", "3.5"), ("resnet50", "38"))
    assert written.bars[0].cells == ("share", "0.5", "at least 0.95", "MISSED")
    assert not written.holds
    assert written.environment["machine"]
    assert written.command.startswith("python -m studies.benchmarks")


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ((1, 2), (3, 4), "gain"),
        ((3, 4), (1, 2), "loss"),
        ((1, 3), (3, 4), "tie"),
        ((1, 9), (3, 4), "tie"),
    ],
)
def test_periods_whose_intervals_overlap_are_a_tie(ours, theirs, expected):
    assert result.compared(Spread(2, *ours), Spread(3, *theirs)) == expected


@pytest.mark.parametrize(
    ("value", "least", "most"),
    [
        (1.0, True, True), (1.001, True, False), (0.999, False, True),
        (float("nan"), False, False),
    ],
)  # fmt: skip
def test_a_bar_is_reached_by_its_own_value(value, least, most):
    assert result.at_least("x", value, 1.0).holds is least
    assert result.at_most("x", value, 1.0).holds is most


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["studies/benchmarks/__main__.py"], "python -m studies.benchmarks"),
        (["link.py", "-o", "x.json", "net"], "python -m studies.benchmarks.link net"),
        (["link.py", "net", "-o"], "python -m studies.benchmarks.link net"),
        (["link.py", "two words"], "python -m studies.benchmarks.link 'two words'"),
        (["link.py", "rel/folder"], "python -m studies.benchmarks.link rel/folder"),
    ],
)
def test_a_command_is_told_as_one_types_it(argv, text):
    assert result.command_line(argv) == text
