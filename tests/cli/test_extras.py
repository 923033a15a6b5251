"""A package that is missing is one line with the remedy, and exit code 3."""

import sys

import pytest

from tests.report import graphs
from tests.report.studies import make_study


@pytest.fixture
def without(monkeypatch):
    """Pretend that a package is not installed."""

    def hide(package):
        for name in [n for n in sys.modules if n == package or n.startswith(f"{package}.")]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, package, None)

    return hide


@pytest.mark.parametrize(
    ("package", "extra", "arguments"),
    [
        ("onnx", "onnx", ["zoo", "list"]),
        ("onnx", "onnx", ["inspect", "net.onnx"]),
        ("torch", "torch", ["inspect", "net.pt2"]),
        ("onnxscript", "torch", ["inspect", "net.pt2"]),
        (
            "psycopg",
            "postgres",
            ["show", "study", "--storage", "postgresql+psycopg://me@host/base"],
        ),
        ("optuna_dashboard", "dashboard", ["dashboard", "FINISHED", "--port", "0"]),
        ("waitress", "dashboard", ["dashboard", "FINISHED", "--port", "0"]),
    ],
)
def test_a_package_that_is_missing_is_named_with_the_extra_that_has_it(
    without, said, tmp_path, monkeypatch, package, extra, arguments
):
    monkeypatch.chdir(tmp_path)
    for name in ("net.onnx", "net.pt2"):
        (tmp_path / name).touch()
    if "FINISHED" in arguments:
        make_study(tmp_path / "FINISHED", graphs.chain(), trials=1)
    without(package)
    code, line = said(*arguments)
    assert code == 3
    assert package in line
    assert f"pip install 'autosplit[{extra}]'" in line


def test_a_database_for_another_driver_is_named_with_the_one_that_is_supported(without, said):
    without("psycopg2")
    code, line = said("show", "study", "--storage", "postgresql+psycopg2://me@host/base")
    assert code == 3
    assert line.endswith("write postgresql+psycopg://… and pip install 'autosplit[postgres]'")
