"""The studies' modules import each other by their bare names, as scripts in one folder do."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

STUDIES = Path(__file__).resolve().parents[2] / "studies"
if str(STUDIES) not in sys.path:
    sys.path.insert(0, str(STUDIES))


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Run the main function of a studies' module with arguments; returns its exit code."""

    def run(module: Any, *arguments: object) -> int:
        monkeypatch.setattr(sys, "argv", [f"studies/{module.__name__}.py", *map(str, arguments)])
        code: int = module.main()
        return code

    return run
