"""The result of a benchmark: a table, notes and bars, with the command, date and machine.

``finish`` prints it, writes it to ``-o FILE`` and returns the exit code: 1 where a bar is missed.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import psutil

from autosplit.cli.output import emit_table
from autosplit.errors import ConfigError
from autosplit.hardware.measurement.results import Spread, spread
from autosplit.serialization import load
from autosplit.versions import environment

T = TypeVar("T")

_SHOWN = ("autosplit", "machine", "python", "apache-tvm", "onnxruntime", "openvino", "optuna")


@dataclass(frozen=True)
class Bar:
    """A target: the measured ``value`` of ``what``, and the ``bar`` that it must satisfy."""

    what: str
    value: str
    bar: str
    holds: bool


@dataclass(frozen=True)
class Result:
    """What a benchmark found; ``columns`` and ``rows`` are its table, as text.

    ``minutes``: how long its process ran.
    """

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    bars: tuple[Bar, ...] = ()
    command: str = field(default_factory=lambda: command_line(sys.argv))
    date: str = field(default_factory=lambda: datetime.now(UTC).date().isoformat())
    environment: Mapping[str, str] = field(default_factory=environment)
    minutes: float | None = None

    @property
    def holds(self) -> bool:
        """Whether every bar is reached."""
        return all(bar.holds for bar in self.bars)

    @property
    def met_and_missed(self) -> tuple[str, str]:
        """How many bars are reached, and those that are not."""
        return f"{sum(b.holds for b in self.bars)} of {len(self.bars)}", self._text(False)

    @property
    def outcome(self) -> list[str]:
        """A line for the bars that are reached, and one for those that are not."""
        lines = [f"met: {self._text(True)}", f"missed: {self._text(False)}"]
        return [line for line in lines if not line.endswith(": ")]

    def _text(self, holds: bool) -> str:
        return "; ".join(f"{b.what}: {b.value}, {b.bar}" for b in self.bars if b.holds == holds)

    @property
    def made(self) -> str:
        """One line on how the result was made: command, date and versions."""
        known = self.environment
        versions = ", ".join(f"{key} {known[key]}" for key in _SHOWN if key in known)
        return f"{self.command}, {self.date}, {versions}"


def at_least(what: str, value: float, bar: float, form: str = ".3g") -> Bar:
    """A value that must reach a bar; NaN does not reach it."""
    return Bar(what, format(value, form), f"at least {bar:g}", value >= bar)


def at_most(what: str, value: float, bar: float, form: str = ".3g") -> Bar:
    """A value that must not exceed a bar; NaN counts as exceeding it."""
    return Bar(what, format(value, form), f"at most {bar:g}", value <= bar)


def shown(value: Spread) -> str:
    """A median with its interval, three digits at least."""
    digits = 2 if value.median >= 1 else 4
    return f"{value.median:.{digits}f} ({value.low:.{digits}f} to {value.high:.{digits}f})"


def cell(value: object) -> str:
    """A value in a table."""
    if isinstance(value, Spread):
        return shown(value)
    if isinstance(value, float):
        return f"{value:.2f}" if abs(value) < 1000 else f"{value:.0f}"
    if isinstance(value, int) and value >= 10**9:
        return f"{float(value):.1e}"
    return "" if value is None else str(value)


def percentile(values: Sequence[float]) -> float:
    """The least value that 90 % of all do not exceed."""
    return spread(values, 0.9).median


def arguments(
    description: str | None, nets: Sequence[str] = (), **numbers: float
) -> argparse.ArgumentParser:
    """The parser of a benchmark: ``description`` is its module's docstring; it has ``-o FILE``.

    ``nets`` are those that are measured by default, ``numbers`` further options with defaults.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    if nets:
        parser.add_argument("nets", nargs="*", default=list(nets), metavar="NET")
    for name, default in numbers.items():
        parser.add_argument(f"--{name}", type=type(default), default=default, help="(%(default)s)")
    parser.add_argument("-o", dest="file", type=Path, metavar="FILE", help="write it as JSON")
    return parser


def each(names: Sequence[str], measure: Callable[[str], T]) -> tuple[dict[str, T], Bar]:
    """Measure each of ``names``: the results by name, and the bar that no measurement fails.

    A failure is printed and does not lose other results; it is raised if there are no others.
    """
    measured: dict[str, T] = {}
    for name in names:
        try:
            measured[name] = measure(name)
        except Exception:
            if len(names) == 1:
                raise
            print(f"{name}: {traceback.format_exc()}", file=sys.stderr, flush=True)
    if not measured:
        raise ConfigError(f"{', '.join(names)}: every measurement failed; see above why")
    return measured, at_most("failures", len(names) - len(measured), 0)


def finish(
    name: str,
    rows: Sequence[Mapping[str, object]],
    *,
    notes: Iterable[str] = (),
    bars: Iterable[Bar] = (),
    file: Path | None = None,
) -> int:
    """Print a result, write it to ``file`` and return the exit code: 1 where a bar is missed.

    ``rows``: values by the title of their column.
    """
    cells = tuple(tuple(map(cell, row.values())) for row in rows)
    minutes = round((time.time() - psutil.Process().create_time()) / 60, 1)
    result = Result(name, tuple(rows[0]), cells, tuple(notes), tuple(bars), minutes=minutes)
    emit_table("", result.columns, result.rows)
    print(*result.notes, *result.outcome, result.made, sep="\n")
    if file:
        write(file, asdict(result))
    return int(not result.holds)


def write(file: Path, document: Mapping[str, Any]) -> None:
    """Write a document as JSON, into a folder that is made where it is missing."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(
        json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8"
    )


def read(file: Path) -> Result:
    """Read a result that ``finish`` wrote. Raises ConfigError for any other file."""
    try:
        return load(Result, json.loads(file.read_text(encoding="utf-8")))
    except ValueError as error:
        raise ConfigError(f"'{file}' is no result of a benchmark: {error}") from None


def command_line(argv: Sequence[str]) -> str:
    """The command as one types it in the project's root.

    Absolute paths are shortened to their last part, and ``-o FILE`` is left out.
    """
    words = list(argv[1:])
    if "-o" in words:
        del words[words.index("-o") : words.index("-o") + 2]
    words = [Path(word).name if Path(word).is_absolute() else word for word in words]
    module = Path(argv[0]).stem
    package = "studies.benchmarks" if module == "__main__" else f"studies.benchmarks.{module}"
    return shlex.join(["python", "-m", package, *words])
