"""A study names its external backends; an installed package brings them to every process."""

import inspect
import os

import pytest

from autosplit.errors import ConfigError, MachineError
from autosplit.hardware.bench.isolated import BenchSetting, IsolatedBench
from autosplit.lowering.external.backend import named
from tests import external_backend, nets
from tests.benches import BRIEF, deployed

PACKAGE = """

def backend():
    from autosplit import Backend

    register()
    return Backend(NAME, patterns(), markers=("relax.astype",))


def broken():
    raise OSError("no driver")


def other():
    return 3
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """An installed package that offers the backend ``reference``, in later processes too."""
    metadata = tmp_path / "fake-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: fake\nVersion: 1.0\n")
    names = {"reference": "backend", "broken": "broken", "other": "other"}
    entries = "".join(f"{name} = fake_backend:{function}\n" for name, function in names.items())
    (metadata / "entry_points.txt").write_text(f"[autosplit.backends]\n{entries}")
    source = inspect.getsource(external_backend) + PACKAGE
    (tmp_path / "fake_backend.py").write_text(source, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    external_backend.register()
    yield
    external_backend.unregister()


@pytest.mark.integration
def test_a_package_offers_a_backend_by_name(package):
    result = named("reference", merge=False, markers=["relax.tanh"], keep_together=[["a", "b"]])
    assert (result.name, result.merge, result.regions) == ("reference", False, (("a", "b"),))
    assert result.markers == ("relax.astype", "relax.tanh")
    assert len(result.patterns) == 5


def test_a_package_that_fails_is_one_line(package):
    with pytest.raises(MachineError, match="no driver"):
        named("broken")
    with pytest.raises(ConfigError, match="returns 3"):
        named("other")


@pytest.mark.integration
def test_a_study_measures_regions_in_its_worker(package, save):
    region = {"backend": "reference", "merge": True, "markers": []}
    region["together"] = [["conv1a", "conv1b"]]
    setting = BenchSetting(save(nets.residual(2)), stages=2, regions=(region,), budget=BRIEF)
    bench = IsolatedBench(setting)
    try:
        ops = bench.description.graph.ops
        external = [i for i, op in enumerate(ops) if op.kernel.startswith("reference_")]
        (profile, *_) = bench.profile()
        (group,) = bench.description.keep_together["tvm"]
        stages = tuple(range(min(group))), tuple(range(min(group), len(ops)))
        result = bench.measure(deployed(bench, stages))
    finally:
        bench.close()
    assert set(group) <= set(external)
    assert all(profile.op_ms[i] > 0 for i in external)
    assert result.max_rel_error < 1e-4
