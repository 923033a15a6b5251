"""Optuna's own tests of a storage on the storages that autosplit opens.

    python -m studies.benchmarks.optuna_storage [-o FILE]

They come with the package optuna; tests/study/persistence/test_optuna_suite.py runs them on SQLite
and, where it is installed, on PostgreSQL. Bar: all of them pass.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

from studies.benchmarks.result import arguments, at_most, finish

ROOT = Path(__file__).resolve().parents[2]
SUITE = "tests/study/persistence/test_optuna_suite.py"
PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


def main() -> int:
    args = arguments(__doc__).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        words = ("-m", "integration", "-p", "no:cacheprovider", f"--junitxml={report}", SUITE)
        subprocess.run([sys.executable, "-m", "pytest", *words], cwd=ROOT, check=False)
        outcomes = read(report)
    count = Counter(outcomes.values())
    storages = sorted({storage for storage, _ in outcomes})
    rows = []
    for storage in storages:
        of_storage = Counter(o for (s, _), o in outcomes.items() if s == storage)
        rows.append((storage, *(of_storage[o] for o in (PASSED, FAILED, SKIPPED))))
    bars = [at_most("tests that do not pass", count[FAILED] if outcomes else float("nan"), 0)]
    columns = ("storage", PASSED, FAILED, SKIPPED)
    return finish("optuna_storage", columns, rows, bars=bars, file=args.file)


def read(report: Path) -> dict[tuple[str, str], str]:
    """What became of each test, by storage and name; ``report`` is one of pytest in JUnit's XML."""
    outcomes = {}
    for case in ElementTree.parse(report).iter("testcase"):
        kinds = {child.tag for child in case}
        outcome = (
            SKIPPED if "skipped" in kinds else FAILED if kinds & {"failure", "error"} else PASSED
        )
        storage = case.attrib["classname"].rpartition(".Test")[2]
        outcomes[storage, case.attrib["name"]] = outcome
    return outcomes


if __name__ == "__main__":
    sys.exit(main())
