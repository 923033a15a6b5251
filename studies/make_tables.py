"""Write the tables of studies/results between their markers in README.md and studies/README.md.

    python studies/make_tables.py [--check]

A marker is ``<!-- results: NAME -->`` and ends with ``<!-- end -->``; what stands between is replaced. NAME is that of a file
in studies/results: its table, notes, bars, and the line that says how it was made; ``NAME bars`` is without the table, and
``NAME table`` without the bars. ``summary`` is the bars of all of them, ``studies`` a row for each file in
studies/results/studies. Where there is no result yet, that is said. With --check nothing is written; exits 1 where a table is
not that of the results.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import outcome
from outcome import Outcome

from autosplit.errors import AutosplitError, ConfigError
from autosplit.study.persistence.records import read_spread

ROOT = Path(__file__).resolve().parents[1]
PAGES = (ROOT / "README.md", ROOT / "studies" / "README.md")
RESULTS = ROOT / "studies" / "results"
MARKED = re.compile(
    r"(<!-- results: (?P<name>[\w-]+)(?: (?P<part>bars|table))? -->\n).*?(<!-- end -->)", re.DOTALL
)
WAYS = ("one core", "all cores", "replicas")
STUDY_COLUMNS = (
    "study",
    "backend",
    "trials",
    "best split, ms",
    *(f"{way}, ms" for way in WAYS),
    "verdict",
)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="write nothing; exit 1 where a table is not that of the results",
    )
    args = parser.parse_args()
    stale = []
    for page in PAGES:
        before = page.read_text(encoding="utf-8")
        after = filled(before, RESULTS)
        if after != before:
            stale.append(page)
            if not args.check:
                page.write_text(after, encoding="utf-8")
    for page in stale:
        print(
            f"{page.relative_to(ROOT)}: {'is not as the results say' if args.check else 'written'}"
        )
    return int(args.check and bool(stale))


def filled(text: str, results: Path) -> str:
    """A page with what its markers ask for. Raises ConfigError where a result is malformed, or a marker has no end."""
    if text.count("<!-- results: ") != len(MARKED.findall(text)):
        raise ConfigError(
            "a marker '<!-- results: NAME -->' has no '<!-- end -->' before the next one; add it"
        )
    return MARKED.sub(lambda m: m[1] + asked(results, m["name"], m["part"]) + "\n" + m[4], text)


def asked(results: Path, name: str, part: str | None) -> str:
    """What a marker asks for, as Markdown."""
    if name == "summary":
        return summary([outcome.read(file) for file in sorted(results.glob("*.json"))])
    if name == "studies":
        return studies(sorted((results / "studies").glob("*.json")))
    file = results / f"{name}.json"
    return benchmark(outcome.read(file), part) if file.is_file() else "*Not measured yet.*"


def benchmark(found: Outcome, part: str | None = None) -> str:
    """The table, notes and bars of a benchmark, or a part of them."""
    parts = []
    if part != "bars":
        parts += [
            table(found.columns, found.rows),
            "\n".join(f"- {escaped(note)}" for note in found.notes),
        ]
    if part != "table" and found.bars:
        parts.append(table(outcome.BAR_COLUMNS, [bar.cells for bar in found.bars]))
    return "\n\n".join(p for p in (*parts, f"`{found.made}`") if p)


def summary(found: Sequence[Outcome]) -> str:
    """The bars of several benchmarks in one table."""
    rows = [(o.name, *bar.cells) for o in found for bar in o.bars]
    return table(("benchmark", *outcome.BAR_COLUMNS), rows) if rows else "*Not measured yet.*"


def studies(files: Sequence[Path]) -> str:
    """A row for each result of a study file, and the lines that say how they were made."""
    documents = {file.stem: _read(file) for file in files}
    if not documents:
        return "*Not measured yet.*"
    rows = [study_row(name, d) for name, d in documents.items()]
    lines = {
        outcome.made("python studies/run_studies.py", d["date"], d["environment"])
        for d in documents.values()
    }
    return "\n\n".join([table(STUDY_COLUMNS, rows), *(f"`{line}`" for line in sorted(lines))])


def study_row(name: str, found: Mapping[str, Any]) -> tuple[str, ...]:
    """A study's best split beside the ways without splitting."""
    best = found["best"] or {}
    periods = {b["name"]: _shown(b["period_ms"]) for b in found["baselines"]}
    backend = "onnxruntime" if name.endswith("_onnxruntime") else "TVM"
    verdict = (found["verdict"] or {}).get("choice", "")
    trials = str(len(found["trials"]))
    own = _shown(best.get("duel_ms") or best.get("period_ms"))
    return (
        name.removesuffix("_onnxruntime"),
        backend,
        trials,
        own,
        *(periods.get(way, "") for way in WAYS),
        verdict,
    )


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    return "\n".join(_lines(columns, rows))


def escaped(cell: str) -> str:
    """Text that Markdown shows as it is."""
    return re.sub(r"([\\|*<`\[\]])", r"\\\1", " ".join(cell.split()))


def _lines(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield "| " + " | ".join(map(escaped, columns)) + " |"
    yield "|" + "---|" * len(columns)
    for row in rows:
        yield "| " + " | ".join(map(escaped, row)) + " |"


def _shown(document: object) -> str:
    spread = read_spread(document)
    return outcome.shown(spread) if spread else ""


def _read(file: Path) -> dict[str, Any]:
    """The result of a study. Raises ConfigError for any other file."""
    try:
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        study_row(file.stem, found)
        outcome.made("", found["date"], found["environment"])
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ConfigError(
            f"'{file}' is no result of a study ({error!r}); make it anew with run_studies.py"
        ) from None
    return found


if __name__ == "__main__":
    try:
        sys.exit(main())
    except AutosplitError as error:
        sys.exit(f"make_tables: {error}")
