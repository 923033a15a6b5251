"""What each command prints fits a narrow terminal, and is whole in a pipe."""

from __future__ import annotations

import contextlib
import io
import json
import re
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from autosplit.cli import main, output
from studies.simulation.command import Hardware, simulated
from tests.cli.test_output import Terminal
from tests.cli.test_plan import GRAPH
from tests.report import graphs
from tests.report.studies import make_study

pytest.importorskip("onnxruntime")
WIDTHS = (40, 60, 80)
SLOW = ("profile MODEL --seconds 0.01", "bench EXPORT --seconds 0.05", "tune MODEL -o tuned")
STUDY = 'model = "net.onnx"\nstages = 2\nsearch.trials = 2\n'


@pytest.fixture(autouse=True, scope="module")
def _hardware() -> Iterator[None]:
    with simulated(Hardware(ops=8)):
        yield


@pytest.fixture
def named(
    branches: Any, exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, str]:
    """The files that the commands are about."""
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    Path("graph.json").write_text(json.dumps(GRAPH))
    Path("net.toml").write_text(STUDY)
    return {"MODEL": str(branches.path), "EXPORT": str(exported)}


@contextlib.contextmanager
def recording(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[Any, ...]]]:
    """The results that a command prints, as functions of ``output`` with their arguments."""
    printed: list[tuple[Any, ...]] = []
    with monkeypatch.context() as patch:
        for name in ("emit_line", "emit_table"):
            real = getattr(output, name)
            patch.setattr(output, name, lambda *texts, real=real: printed.append((real, *texts)))
        yield printed


def flat(values: Any) -> Iterator[Any]:
    """The texts and numbers in lists, without the functions that print them."""
    for value in values:
        if isinstance(value, list | tuple):
            yield from flat(value)
        elif not callable(value):
            yield value


def words(texts: Iterable[str]) -> set[str]:
    """What stands between spaces."""
    return set(chain.from_iterable(map(str.split, texts)))


@pytest.mark.integration
@pytest.mark.parametrize(
    "command",
    [
        "zoo list",
        "doctor",
        "inspect MODEL --folded",
        "split MODEL --after first",
        "plan graph.json --stages 2",
        "plan graph.json --cores 2",
        "show fire.db",
        "run net.toml",
        "verify EXPORT",
        *(pytest.param(command, marks=pytest.mark.integration) for command in SLOW),
    ],
)
def test_what_a_command_prints_fits_a_terminal_and_is_whole_in_a_pipe(
    command: str, named: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if "fire.db" in command:
        make_study(Path("fire.db"), graphs.fire_net(), trials=1)
    with recording(monkeypatch) as printed:
        assert main([named.get(word, word) for word in command.split()]) == 0
    texts = []
    for print_result, title, *table in printed:
        # The rows of a table may come from an iterator.
        texts.append((print_result, title, *map(list, table)))
    printed_words = words(str(text) for text in flat(texts))
    for width in WIDTHS:
        monkeypatch.setenv("COLUMNS", str(width))
        for stream in (Terminal(), io.StringIO()):
            with contextlib.redirect_stdout(stream):
                for print_result, *arguments in texts:
                    print_result(*arguments)
            lines = re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue()).splitlines()
            if stream.isatty():
                # A word of a line that is longer than a terminal stands alone.
                assert not [line for line in lines if len(line) > width and len(line.split()) > 1]
            else:
                assert printed_words - words(lines) == set()
