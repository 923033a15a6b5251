"""What version 0.1 wrote still reads: a study in its database, and the split.json of an export."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from autosplit.cli import main
from autosplit.deploy import manifest_file

HERE = Path(__file__).parent


@pytest.fixture
def database(tmp_path: Path) -> Path:
    file = tmp_path / "old.db"
    with sqlite3.connect(file) as connection:
        connection.executescript((HERE / "study-0.1.sql").read_text(encoding="utf-8"))
    return file


def test_the_document_of_a_study_is_unchanged(
    database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", str(database), "-f", "json"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    expected = json.loads((HERE / "study-0.1.json").read_text(encoding="utf-8"))
    document["study"]["storage"] = expected["study"]["storage"]
    assert document == expected


def test_a_study_is_still_drawn(database: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert main(["report", str(database), "-o", str(page)]) == 0
    assert "replicate" in page.read_text(encoding="utf-8")


def test_a_study_is_not_continued_by_other_measurements(
    database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = database.with_name("study.toml")
    study.write_text('name = "old"\nstages = 3\nruntime = "simulated"\n[simulated]\nops = 12\n')
    assert main(["run", str(study), "--storage", f"sqlite:///{database}"]) == 2
    error = capsys.readouterr().err
    assert "autosplit 0.1.0" in error
    assert "--force" in error


def test_split_json_is_still_read(tmp_path: Path) -> None:
    (tmp_path / "split.json").write_text((HERE / "split-0.1.json").read_text(encoding="utf-8"))
    document = manifest_file.read(tmp_path)
    assert [stage.file for stage in document.stages] == ["stage0.so", "stage1.so"]
    assert len(document.wiring().connections) == len(document.connections)
