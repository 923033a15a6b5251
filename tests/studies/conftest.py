"""Fixtures of the benchmarks' tests."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

STUDIES = Path(__file__).resolve().parents[2] / "studies"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Run the main function of a benchmark with arguments; returns its exit code."""

    def run(module: Any, *arguments: object) -> int:
        monkeypatch.setattr(sys, "argv", [module.__file__, *map(str, arguments)])
        code: int = module.main()
        return code

    return run
