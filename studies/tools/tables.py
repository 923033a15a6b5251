"""Write the tables of studies/results between their markers in docs/explanation/results*.

    python -m studies.tools.tables

A marker is ``<!-- results: NAME -->`` and ends with ``<!-- end -->``; the text between is replaced.
For the NAME of a file in studies/results, it becomes its table, notes, the targets met and missed,
and the line that says how it was made. ``summary`` becomes a line for each result, with the targets
that it misses. A missing result is named as such. A test finds tables that differ from the results.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from autosplit.errors import ConfigError
from studies.benchmarks import result
from studies.benchmarks.result import Result

ROOT = Path(__file__).resolve().parents[2]
SUMMARY = ROOT / "docs" / "explanation" / "results.md"
PAGES = (SUMMARY, *sorted(SUMMARY.with_suffix("").glob("*.md")))
MOST_ROWS, MOST_NOTES = 18, 6  # on a page; the rest is in the file of the result
RESULTS = ROOT / "studies" / "results"
MARKED = re.compile(r"(<!-- results: (?P<name>\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def main() -> None:
    for page in PAGES:
        before = page.read_text(encoding="utf-8")
        after = filled(before, RESULTS)
        if after != before:
            page.write_text(after, encoding="utf-8")
            print(f"{page.relative_to(ROOT)}: written")


def filled(text: str, results: Path) -> str:
    """A page with the text between its markers filled in.

    Raises ConfigError where a result is malformed, or a marker has no end.
    """
    if text.count("<!-- results: ") != len(MARKED.findall(text)):
        raise ConfigError(
            "a marker '<!-- results: NAME -->' has no '<!-- end -->' before the next one; add it"
        )
    return MARKED.sub(lambda m: m[1] + asked(results, m["name"]) + "\n" + m[3], text)


def asked(results: Path, name: str) -> str:
    """The text for a marker, as Markdown."""
    if name == "summary":
        return summary({file.stem: result.read(file) for file in sorted(results.glob("*.json"))})
    file = results / f"{name}.json"
    return benchmark(result.read(file), name) if file.is_file() else "*Not measured yet.*"


def benchmark(measured: Result, name: str) -> str:
    """The first rows and notes, and the bars, of the benchmark in the file ``name``."""
    rows, notes = measured.rows, measured.notes
    lines = [f"- {escaped(note)}" for note in notes[:MOST_NOTES]]
    for what, items, most in (("rows", rows, MOST_ROWS), ("notes", notes, MOST_NOTES)):
        if len(items) > most:
            lines.append(f"- and {len(items) - most} more {what} in `studies/results/{name}.json`")
    lines += [f"- {escaped(line)}" for line in measured.outcome]
    parts = [table(measured.columns, rows[:MOST_ROWS]), "\n".join(lines)]
    return "\n\n".join(p for p in (*parts, f"`{measured.made}`") if p)


def summary(measured: Mapping[str, Result]) -> str:
    """A line for each benchmark: the targets that it meets, and those that it misses."""
    rows = [
        (name, *each.met_and_missed, each.environment.get("autosplit", ""))
        for name, each in measured.items()
    ]
    columns = ("benchmark", "targets met", "missed", "measured with")
    return table(columns, rows) if rows else "*Not measured yet.*"


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    head, *lines = ("| " + " | ".join(map(escaped, cells)) + " |" for cells in (columns, *rows))
    return "\n".join((head, "|" + "---|" * len(columns), *lines))


def escaped(cell: str) -> str:
    """Text that Markdown shows as it is."""
    return re.sub(r"([\\|*<`\[\]])", r"\\\1", " ".join(cell.split()))


if __name__ == "__main__":
    main()
