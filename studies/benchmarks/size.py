"""How large autosplit is, how long it takes to start, and what an installation takes.

    python -m studies.benchmarks.size [--starts N] [-o FILE]

All lines of a room's files count: Python, the pages in docs, the C++ of exports. The start time is
that of a new process that imports autosplit, in turns with one that imports nothing. The size of a
package is that of its installed files, as it lists them. Bars: each room is within its budget.
"""

from __future__ import annotations

import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, distribution
from itertools import chain
from pathlib import Path

from packaging.requirements import Requirement

from autosplit.hardware.measurement.measure import MS
from autosplit.hardware.measurement.results import spread
from autosplit.units import size
from studies.benchmarks.result import arguments, at_most, finish, shown

ROOT = Path(__file__).resolve().parents[2]
ROOMS = {  # the budget of lines, and the folders with Python or the files
    "cuts, planner": (3_800, "autosplit/cuts autosplit/planner"),
    "study": (3_300, "autosplit/study"),
    "frontend": (2_300, "autosplit/frontend"),
    "lowering": (2_600, "autosplit/lowering"),
    "hardware": (6_800, "autosplit/hardware"),
    "deploy": (1_300, "autosplit/deploy"),
    "report, cli, zoo": (4_300, "autosplit/report autosplit/cli autosplit/zoo"),
    "top level": (1_000, "autosplit/*.py"),
    "autosplit": (27_500, "autosplit"),
    "tests": (24_000, "tests"),
    "studies": (3_000, "studies"),
    "docs": (3_800, "docs/**/*.md"),
    "C++": (900, "autosplit/**/*.[ch]pp"),
}


def main() -> int:
    args = arguments(__doc__, starts=15).parse_args()
    table = [(budget, *counted(places)) for budget, places in ROOMS.values()]
    budgets, lines, files = zip(*table, strict=True)
    rows = [
        {"": name, **dict(zip(ROOMS, values, strict=True))}
        for name, values in (("lines", lines), ("budget", budgets), ("files", files))
    ]
    bars = [at_most(*each, ".0f") for each in zip(ROOMS, lines, budgets, strict=True)]
    starts = [(start_ms("pass"), start_ms("import autosplit")) for _ in range(args.starts)]
    python, package = (shown(spread(times)) for times in zip(*starts, strict=True))
    content = (f for f in (ROOT / "autosplit").rglob("*") if f.is_file() and f.suffix != ".pyc")
    notes = [
        f"a process that imports autosplit takes {package} ms, one of Python alone {python} ms",
        f"the package takes {size(sum(file.stat().st_size for file in content))}, "
        f"{installed('autosplit')}, {installed('autosplit[all]')}",
    ]
    return finish("size", rows, notes=notes, bars=bars, file=args.file)


def counted(places: str) -> tuple[int, int]:
    """The number of lines in some files, and the number of files."""
    patterns = (place if "*" in place else f"{place}/**/*.py" for place in places.split())
    files = list(chain.from_iterable(map(ROOT.glob, patterns)))
    return sum(len(f.read_text(encoding="utf-8").splitlines()) for f in files), len(files)


def start_ms(code: str) -> float:
    """How long a new process of Python takes."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
    return (time.perf_counter() - start) * MS


def installed(requirement: str) -> str:
    """The total size of the packages that a requirement installs besides autosplit, as text."""
    todo, visited, sizes = [Requirement(requirement)], set[str](), dict[str, int | None]()
    while todo:
        asked = todo.pop()
        if str(asked) in visited:
            continue
        visited.add(str(asked))
        try:
            package = distribution(asked.name)
        except PackageNotFoundError:
            sizes[asked.name] = None
            continue
        sizes[package.name] = sum(file.size or 0 for file in package.files or ())
        for further in map(Requirement, package.requires or ()):
            extras, marker = asked.extras or {""}, further.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in extras):
                todo.append(further)
    del sizes["autosplit"]
    missing = [name for name, bytes_of_it in sizes.items() if bytes_of_it is None]
    without = f" (not here: {', '.join(missing)})" if missing else ""
    total = size(sum(filter(None, sizes.values())))
    return f"the {len(sizes)} packages that {requirement} needs {total}{without}"


if __name__ == "__main__":
    sys.exit(main())
