import shutil
import sys

import pytest

from autosplit.cli import main
from studies.simulation.bench import Hardware, simulated

STUDY = 'model = "net.onnx"\nstages = 2\n[search]\ntrials = 2\n'


@pytest.fixture(scope="session")
def _finished_study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished")
    (folder / "net.toml").write_text(STUDY)
    with simulated(Hardware(ops=6)):
        assert main(["run", str(folder / "net.toml"), "--storage", str(folder / "net.db")]) == 0
    return folder


@pytest.fixture(scope="module")
def hardware():
    """All studies run on the simulated hardware of the finished one."""
    with simulated(Hardware(ops=6)):
        yield


@pytest.fixture(autouse=True)
def _working_folder(tmp_path, monkeypatch):
    """Commands run in an empty folder, the test's own, where they store too."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("AUTOSPLIT_STORAGE", raising=False)


@pytest.fixture
def without(monkeypatch):
    """Hide an installed package."""

    def hide(package):
        for name in [n for n in sys.modules if n == package or n.startswith(f"{package}.")]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, package, None)

    return hide


@pytest.fixture
def finished(_finished_study, tmp_path):
    """The files of a finished study on simulated hardware, in the working folder."""
    return shutil.copytree(_finished_study, tmp_path, dirs_exist_ok=True)
