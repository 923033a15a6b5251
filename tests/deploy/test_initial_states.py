"""States that do not begin at zero."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autosplit.errors import ConfigError
from tests.deploy.exports import add_program
from tests.deploy.manifests import sound


@pytest.mark.parametrize("name", ["onnx", "cpp"])
def test_a_program_that_begins_at_zero_is_refused(tmp_path: Path, name: str) -> None:
    document = sound() | {"initial": {"file": "states.npz", "sha256": "0" * 64}}
    (tmp_path / "split.json").write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(ConfigError, match="do not begin at zero"):
        add_program(tmp_path, name)
    assert [file.name for file in tmp_path.iterdir()] == ["split.json"]
