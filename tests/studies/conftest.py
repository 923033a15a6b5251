import sys
from pathlib import Path

import pytest

STUDIES = Path(__file__).resolve().parents[2] / "studies"


@pytest.fixture
def bench(monkeypatch):
    """Run the main function of a benchmark with arguments; returns its exit code."""

    def run(module, *arguments):
        monkeypatch.setattr(sys, "argv", [module.__file__, *map(str, arguments)])
        return module.main()

    return run
