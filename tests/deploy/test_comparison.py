"""An export is written only if its files compute what the model computes, by one comparison."""

from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest

from autosplit import load_model
from autosplit.cli import main
from autosplit.deploy import export as exporting
from autosplit.deploy import manifest_file
from autosplit.deploy.verify import verify
from autosplit.errors import MachineError, MismatchError
from autosplit.hardware.runtimes.registry import AUTO, TVM
from autosplit.hardware.runtimes.tvm.runtime import TvmRuntime
from tests.nets import products


def _spoil(monkeypatch, share):
    """The outputs of TVM's stages that were written to files are too large by a share."""
    real = TvmRuntime.load_stages.__func__

    def off(stage):
        run = lambda values: [v.numpy() * np.float32(1 + share) for v in stage.run(values)]  # noqa: E731
        return Mock(open=stage.open, close=stage.close, run=run)

    load = classmethod(lambda cls, *arguments: list(map(off, real(cls, *arguments))))
    monkeypatch.setattr(TvmRuntime, "load_stages", load)


def test_files_that_compute_something_else_replace_nothing(branches, export, monkeypatch):
    before = export.document
    _spoil(monkeypatch, 0.01)
    with pytest.raises(MismatchError, match=r"outputs of tvm differ.*--runtime.*--tolerance 0\.0"):
        branches.split([["hinted"]]).export(export.folder)
    assert export.document == before


def test_the_manifest_has_items_seed_tolerance_and_error(export):
    comparison = manifest_file.read(export.folder).comparison
    assert (comparison.items, comparison.seed, comparison.tolerance) == (8, 0, 1e-4)
    accuracy = verify(export.folder).accuracy
    assert accuracy.max_rel_error == comparison.max_rel_error


def test_verify_keeps_the_tolerance_of_the_export(branches, tmp_path, monkeypatch):
    _spoil(monkeypatch, 0.01)
    replace(branches, tolerance=0.3).split([["first"]]).export(tmp_path)
    result = verify(tmp_path)
    assert (result.accuracy.equal, result.accuracy.tolerance) == (True, 0.3)
    assert not verify(tmp_path, tolerance=1e-4).accuracy.equal


def test_auto_leaves_out_the_runtime_that_differs(branches, tmp_path, monkeypatch):
    model = replace(branches, runtime_name=AUTO)
    _spoil(monkeypatch, 0.01)
    split = replace(model.split([["first"]]), runtimes=(TVM, TVM))
    file = split.export(tmp_path)
    document = manifest_file.read(tmp_path)
    assert TVM not in [stage.runtime for stage in document.stages]
    assert list(document.comparison.left_out) == [TVM]
    assert "outputs of tvm differ" in document.comparison.left_out[TVM]
    assert main(["verify", str(file.parent)]) == 0


def test_no_other_cause_skips_the_comparison(branches, tmp_path, monkeypatch):
    monkeypatch.setattr(exporting, "LoadedPipeline", Mock(side_effect=MachineError("disk full")))
    with pytest.raises(MachineError, match="disk full"):
        branches.split([["first"]]).export(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_files_for_a_server_that_is_not_here_are_written_but_not_compared(save, tmp_path):
    model = load_model(save(products()), targets={"rpc:127.0.0.1:9": "llvm"})
    model.split([["a"]]).export(tmp_path / "out", devices=["cores:0", "rpc:127.0.0.1:9"])
    comparison = manifest_file.read(tmp_path / "out").comparison
    assert comparison.max_rel_error is None
    assert "rpc:127.0.0.1:9" in (comparison.absent or "")
