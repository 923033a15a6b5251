"""Write the pictures of docs/explanation/architecture.md from the code.

    python -m studies.tools.architecture [--check]

Between the markers of the page stand two Mermaid diagrams and a table: which room imports which,
and the way of a study from the command line to its first measured trial, as traced on simulated
hardware. With --check nothing is written; exits 1 where the page differs from the code.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import io
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "autosplit"
PAGE = ROOT / "docs" / "explanation" / "architecture.md"
ROOMS = ("cli", "report", "study", "deploy", "hardware", "lowering", "frontend", "planner", "cuts")
STUDY = """\
name = "traced"
stages = 2
runtime = "simulated"

[search]
trials = 1

[simulated]
ops = 12
"""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing")
    args = parser.parse_args()
    before = PAGE.read_text(encoding="utf-8")
    after = filled(before)
    if after != before and not args.check:
        PAGE.write_text(after, encoding="utf-8")
    return int(args.check and after != before)


def filled(page: str) -> str:
    """The page with both pictures as the code is now."""
    calls = first_trial()
    page = _replace(page, "rooms", _mermaid(_room_lines()))
    page = _replace(page, "way", _mermaid(_way_lines(calls)))
    return _replace(page, "counts", _counts(calls))


def imports() -> Counter[tuple[str, str]]:
    """How many import statements lead from one room to another."""
    arrows: Counter[tuple[str, str]] = Counter()
    for file in PACKAGE.rglob("*.py"):
        room = file.relative_to(PACKAGE).parts[0]
        if room not in ROOMS:
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("autosplit."):
                other = (node.module or "").split(".")[1]
                if other in ROOMS and other != room:
                    arrows[room, other] += 1
    return arrows


def first_trial() -> list[tuple[str, str]]:
    """Module and name of each project function, in the order of first calls, up to the first
    measured trial of a study on simulated hardware.
    """
    from autosplit.cli import main as command
    from autosplit.study.trials.writer import TrialWriter

    calls: dict[tuple[str, str], None] = {}
    finished: list[bool] = []

    def profile(frame: FrameType, event: str, _: Any) -> None:
        module = str(frame.f_globals.get("__name__", ""))
        name = frame.f_code.co_qualname
        if not module.startswith("autosplit.") or finished or name.startswith("<"):
            return
        if event == "call" and "<" not in name:
            calls.setdefault((module, name))
        elif event == "return" and name == TrialWriter.complete.__qualname__:
            finished.append(True)

    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        Path("traced.toml").write_text(STUDY, encoding="utf-8")
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            sys.setprofile(profile)
            try:
                command(["run", "traced.toml"])
            finally:
                sys.setprofile(None)
    return list(calls)


def _room_lines() -> Iterator[str]:
    yield "flowchart TD"
    for room in ROOMS:
        yield f"    {room}"
    for (room, other), count in sorted(imports().items()):
        if count > 1:
            yield f"    {room} --> {other}"


def _way_lines(calls: list[tuple[str, str]]) -> Iterator[str]:
    """The files on the way, each once, in the order in which the study first enters them."""
    files = list(dict.fromkeys(module for module, _ in calls))
    yield "flowchart TD"
    for number, module in enumerate(files):
        functions = sum(1 for m, _ in calls if m == module)
        label = f"{module.removeprefix('autosplit.')}<br>{functions} functions"
        yield f'    f{number}["{label}"]'
    for number in range(1, len(files)):
        yield f"    f{number - 1} --> f{number}"


def _counts(calls: list[tuple[str, str]]) -> str:
    files = {module for module, _ in calls}
    rooms = Counter(module.split(".")[1] for module in files)
    lines = ["| room | files | functions |", "|---|---|---|"]
    for room, count in rooms.most_common():
        functions = sum(1 for module, _ in calls if module.split(".")[1] == room)
        lines.append(f"| {room} | {count} | {functions} |")
    lines.append(f"| all | {len(files)} | {len(calls)} |")
    return "\n".join(lines)


def _mermaid(lines: Iterator[str]) -> str:
    return "```mermaid\n" + "\n".join(lines) + "\n```"


def _replace(page: str, name: str, text: str) -> str:
    pattern = re.compile(rf"(<!-- made: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
    return pattern.sub(lambda match: f"{match[1]}{text}\n{match[2]}", page)


if __name__ == "__main__":
    sys.exit(main())
