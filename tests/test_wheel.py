"""The files in the wheel and the sdist; the wheel works in an empty folder, away from here."""

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.slow
STUDY = 'model = "net.onnx"\nstages = 2\n[search]\ntrials = 2\n[measure]\nseconds = 0.5\n'


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The sdist, and the wheel that is built from it."""
    pytest.importorskip("build")
    folder = tmp_path_factory.mktemp("built")
    subprocess.run([sys.executable, "-m", "build", "-o", folder, ROOT], check=True)
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return sdist, wheel


@pytest.fixture(scope="module")
def autosplit(built, tmp_path_factory):
    """Runs the wheel's command line in an empty folder, with the packages installed here."""
    site, empty = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("empty")
    pip = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-compile", "--target"]
    subprocess.run([sys.executable, *pip, site, built[1]], check=True)
    environment = {**os.environ, "PYTHONPATH": str(site), "AUTOSPLIT_CACHE": str(empty / "cache")}

    def run(*arguments):
        command = [sys.executable, *arguments]
        return subprocess.check_output(command, cwd=empty, env=environment, text=True)

    assert run("-c", "import autosplit; print(autosplit.__file__)").startswith(str(site))
    (empty / "study.toml").write_text(STUDY)
    return run


def test_the_wheel_holds_every_file_of_the_package_and_nothing_else(built):
    names = set(zipfile.ZipFile(built[1]).namelist())
    files = [file for file in (ROOT / "autosplit").rglob("*") if file.is_file()]
    there = {str(file.relative_to(ROOT)) for file in files if file.suffix != ".pyc"}
    assert {n for n in names if ".dist-info/" not in n} == there
    data = {"deploy/split.schema.json", "report/html/page.html", "py.typed"}
    assert {f"autosplit/{name}" for name in data} <= there
    assert any(n.endswith(".dist-info/licenses/LICENSE") for n in names)


def test_the_sdist_holds_what_a_reader_and_a_tester_need(built):
    with tarfile.open(built[0]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    pages = {"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "SECURITY.md"}
    assert pages | {"mkdocs.yml", "pyproject.toml"} <= names
    assert {"docs/tutorial.md", "studies/quickstart.toml", "tests/conftest.py"} <= names
    assert "autosplit/py.typed" in names


def test_from_a_net_to_a_verified_export(autosplit):
    commands = "doctor; zoo make branches -o net.onnx; inspect net.onnx; plan net.onnx --stages 2; "
    commands += "run study.toml; show study.toml; export study.toml -o out; bench out"
    for arguments in commands.split("; "):
        assert autosplit("-m", "autosplit", *arguments.split())
    assert json.loads(autosplit("-m", "autosplit", "verify", "out", "-f", "json"))["equal"]
