"""Mutation testing: small changes of core modules, and how many of them a test notices.

    python -m studies.benchmarks.mutation [--each N] [--seed N] [--folder FOLDER] [-o FILE]

mutmut changes the modules that ``tool.mutmut`` of pyproject.toml names, in a copy of the tree, and
runs the tests named there that reach the change. Of each module N changes are drawn by a seed, or
all with ``--each 0``. FOLDER keeps the copy; one that is there already is only read, and a change
that was not tried in it does not count. In it, ``python -m studies.tools.mutants show MUTANT``
prints a change. Bar: 80 % of the changes are noticed; what a change of a message's words or of an
equivalent expression leaves unnoticed is part of the rest. Needs the extra ``dev``.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from studies.benchmarks.result import arguments, at_least, finish

ROOT = Path(__file__).resolve().parents[2]
TREE = ("autosplit", "docs", "studies", "tests", "pyproject.toml", "README.md")
KILLED, SURVIVED, LATE, UNREACHED = "killed", "survived", "timed out", "reached by no test"
OUTCOMES = {0: SURVIVED, 33: UNREACHED, 36: LATE, 24: LATE, -24: LATE, 152: LATE, -9: LATE}
FIRST = "autosplit.files.x_refused*"  # so few that they are there when the others are drawn
SHARE = 0.8


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--each", type=int, default=25, metavar="N", help="changes of a module")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    parser.add_argument("--folder", type=Path, help="where to keep the changed tree")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.folder or Path(temporary)
        is_new = not (folder / "mutants").exists()
        if is_new:
            copy_tree(folder)
            run([FIRST], folder)
        drawn = draw(folder, args.each, args.seed)
        if is_new:
            run([name for names in drawn.values() for name in names], folder)
        outcomes = {module: Counter(read(folder, module, names)) for module, names in drawn.items()}
    total = sum(outcomes.values(), Counter())
    rows = [row(module, count) for module, count in (*outcomes.items(), ("all", total))]
    noticed = total[KILLED] + total[LATE]
    bars = [at_least("share of changes noticed", noticed / max(1, total.total()), SHARE)]
    drawn_number = sum(map(len, drawn.values()))
    note = f"{total.total()} of {drawn_number} changes drawn by seed {args.seed} were tried"
    columns = ("module", "changes", KILLED, LATE, SURVIVED, UNREACHED)
    return finish("mutation", columns, rows, notes=[note], bars=bars, file=args.file)


def copy_tree(folder: Path) -> None:
    for name in TREE:
        source, copy = ROOT / name, folder / name
        if source.is_dir():
            shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, copy)


def run(names: Sequence[str], folder: Path) -> None:
    command = [sys.executable, "-m", "studies.tools.mutants", "run", *names]
    subprocess.run(command, cwd=folder, check=True)


def draw(folder: Path, each: int, seed: int) -> dict[str, list[str]]:
    """Changes by the module that they are of."""
    generator = random.Random(seed)
    drawn = {}
    for file in sorted((folder / "mutants").rglob("*.py.meta")):
        names = sorted(_exit_codes(file))
        if names:
            module = str(file.relative_to(folder / "mutants")).removesuffix(".meta")
            drawn[module] = generator.sample(names, min(each or len(names), len(names)))
    return drawn


def read(folder: Path, module: str, names: Sequence[str]) -> list[str]:
    """What became of the changes of a module that were tried."""
    codes = _exit_codes(folder / "mutants" / f"{module}.meta")
    tried = [code for name in names if (code := codes[name]) is not None]
    return [OUTCOMES.get(code, KILLED) for code in tried]


def row(module: str, count: Counter[str]) -> tuple[object, ...]:
    return module, count.total(), *(count[o] for o in (KILLED, LATE, SURVIVED, UNREACHED))


def _exit_codes(file: Path) -> dict[str, int | None]:
    codes: dict[str, int | None] = json.loads(file.read_text(encoding="utf-8"))["exit_code_by_key"]
    return codes


if __name__ == "__main__":
    sys.exit(main())
