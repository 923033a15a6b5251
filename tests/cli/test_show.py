import json
import sqlite3
from pathlib import Path

import pytest

from autosplit.cli import main

STUDY = 'backend = "simulated"\nstages = 2\n[search]\ntrials = 2\n[simulated]\nops = 12\n'


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("AUTOSPLIT_STORAGE", raising=False)
    (tmp_path / "net.toml").write_text(STUDY)
    assert main(["run", "net.toml"]) == 0
    capsys.readouterr()
    return tmp_path


@pytest.mark.parametrize("args", [["net.toml"], ["net.db"], ["net", "--storage", "net.db"], ["net"]])
def test_a_study_is_found_by_file_database_and_name(capsys: pytest.CaptureFixture[str], args: list[str]) -> None:
    assert main(["show", *args, "-f", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["study"]["name"] == "net"
    assert len(found["trials"]) == 2
    assert found["best"]["number"] in (0, 1)
    assert [b["name"] for b in found["baselines"]] == ["one core", "all cores", "replicas"]
    assert found["verdict"]["choice"] in ("split", "replicate", "leave")
    assert found["bound_ms"] > 0


def test_the_table_names_cuts_and_live_tensors(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "net.db"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "best split: trial" in text
    assert "KiB)" in text
    assert "bound for the profile" in text


def test_showing_changes_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (folder / "net.db").read_bytes()
    assert main(["show", "net.db"]) == 0
    assert (folder / "net.db").read_bytes() == before


def test_a_database_that_is_not_there_is_not_made(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "other.db"]) == 2
    assert "does not exist" in capsys.readouterr().err
    assert not (folder / "other.db").exists()


def test_another_database_is_no_study(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = sqlite3.connect(folder / "foreign.db")
    base.execute("CREATE TABLE t (x)")
    base.close()
    assert main(["show", "foreign.db"]) in (2, 3)
    assert "Traceback" not in capsys.readouterr().err
