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
import inspect
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
HELPERS = (
    "printable",
    "serialization",
    "versions",
    "units",
    "errors",
    "graph",
    "files",
    "extras",
    "lazy",
    "phases",
)
PURE = ("graph", "cuts", "planner")
Function = tuple[str, str]  # module and qualified name
Call = tuple[Function | None, Function]
STUDY = """\
name = "traced"
stages = 2
model = "net.onnx"

[search]
trials = 1
"""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing")
    args = parser.parse_args()
    before = PAGE.read_text(encoding="utf-8")
    after = filled(before)
    if after == before:
        return 0
    name = PAGE.relative_to(ROOT)
    if args.check:
        print(f"{name}: is not as the code says; run python -m studies.tools.architecture")
    else:
        PAGE.write_text(after, encoding="utf-8")
        print(f"{name}: written")
    return int(args.check)


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


def first_trial() -> list[Call]:
    """The calls between project functions, each once in the order of the first time, from the
    command line to the first stored trial of a study on simulated hardware.
    """
    from autosplit.study.loop.run import StudyLoop
    from studies.simulation.command import main as command

    calls: dict[Call, None] = {}
    stored: list[bool] = []

    def profile(frame: FrameType, event: str, _: Any) -> None:
        callee = _function(frame)
        if stored or callee is None:
            return
        if event == "call" and not _is_importing(frame):
            calls.setdefault((_caller(frame), callee))
        elif event == "return" and callee[1] == StudyLoop._measure.__qualname__:
            stored.append(True)

    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        Path("traced.toml").write_text(STUDY, encoding="utf-8")
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            sys.setprofile(profile)
            try:
                command(["ops=12", "run", "traced.toml"])
            finally:
                sys.setprofile(None)
    return list(calls)


def _function(frame: FrameType) -> Function | None:
    """Module and qualified name of a frame of the project; None for modules and class bodies."""
    module = str(frame.f_globals.get("__name__", ""))
    is_function = frame.f_code.co_flags & inspect.CO_OPTIMIZED
    if not module.startswith("autosplit.") or not is_function:
        return None
    return module.removeprefix("autosplit."), frame.f_code.co_qualname


def _is_importing(frame: FrameType) -> bool:
    """Whether a frame runs while a module is imported."""
    outer = frame.f_back
    while outer and outer.f_globals.get("__name__") != __name__:
        if outer.f_code.co_name == "<module>":
            return True
        outer = outer.f_back
    return False


def _caller(frame: FrameType) -> Function | None:
    """The nearest function of the project that called the frame."""
    outer = frame.f_back
    while outer:
        function = _function(outer)
        if function:
            return function
        outer = outer.f_back
    return None


def _room_lines() -> Iterator[str]:
    yield "flowchart TD"
    for room in ROOMS:
        yield f"    {room}"
    for (room, other), count in sorted(imports().items()):
        if count > 1:
            yield f"    {room} --> {other}"


def _way_lines(calls: list[Call]) -> Iterator[str]:
    """The packages on the way; an arrow has the number of its first call."""
    arrows: dict[tuple[str, str], None] = {}
    for caller, callee in calls:
        if caller:
            arrow = _package(caller), _package(callee)
            is_callback = arrow[0] == "cuts" or (arrow[0] in PURE and arrow[1] not in PURE)
            if arrow[0] != arrow[1] and arrow[1] not in HELPERS and not is_callback:
                arrows.setdefault(arrow)
    yield "flowchart TD"
    for number, (caller_package, callee_package) in enumerate(arrows, 1):
        yield f"    {caller_package} -- {number} --> {callee_package}"


def _package(function: Function) -> str:
    """The package of a function: the room, and within hardware and study the one below it."""
    parts = function[0].split(".")
    depth = 2 if parts[0] in ("hardware", "study") else 1
    return "/".join(parts[:depth])


def _counts(calls: list[Call]) -> str:
    functions = {callee for _, callee in calls}
    files = {module for module, _ in functions}
    lines = ["| room | files | functions |", "|---|---|---|"]
    rooms = Counter(module.split(".")[0] for module in files)
    for room, count in sorted(rooms.items(), key=lambda entry: (-entry[1], entry[0])):
        inside = sum(1 for module, _ in functions if module.split(".")[0] == room)
        lines.append(f"| {room} | {count} | {inside} |")
    lines.append(f"| all | {len(files)} | {len(functions)} |")
    return "\n".join(lines)


def _mermaid(lines: Iterator[str]) -> str:
    return "```mermaid\n" + "\n".join(lines) + "\n```"


def _replace(page: str, name: str, text: str) -> str:
    pattern = re.compile(rf"(<!-- made: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
    return pattern.sub(lambda match: f"{match[1]}{text}\n{match[2]}", page)


if __name__ == "__main__":
    sys.exit(main())
