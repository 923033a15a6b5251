import shutil

import pytest

from autosplit.cli import main
from studies.simulation.command import Hardware, simulated

STUDY = 'model = "net.onnx"\nstages = 2\n[search]\ntrials = 2\n'


@pytest.fixture(scope="session")
def _finished_study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished")
    (folder / "net.toml").write_text(STUDY)
    with simulated(Hardware(ops=6)):
        assert main(["run", str(folder / "net.toml"), "--storage", str(folder / "net.db")]) == 0
    return folder


@pytest.fixture
def finished(_finished_study, tmp_path, monkeypatch):
    """A copy of the folder of a finished study on simulated hardware, as the working folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("AUTOSPLIT_STORAGE", raising=False)
    return shutil.copytree(_finished_study, tmp_path, dirs_exist_ok=True)
