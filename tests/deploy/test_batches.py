import json

import numpy as np
import pytest

import autosplit
from autosplit.deploy.verify import verify
from autosplit.deployment import Deployment
from autosplit.errors import ConfigError
from tests.hardware.test_batches import loaded


@pytest.fixture
def exported(save, tmp_path):
    model = loaded(save)
    half = len(model.graph.ops) // 2
    split = autosplit.api.Split(
        model, (tuple(range(half)), tuple(range(half, len(model.graph.ops)))), batch=3
    )
    split.export(tmp_path / "out")
    return model, tmp_path / "out"


def test_an_export_at_a_batch_takes_and_gives_single_items(exported):
    model, folder = exported
    document = json.loads((folder / "split.json").read_text())
    assert (document["format"], document["batch"]) == (3, 3)
    assert document["model"]["inputs"][0]["shape"] == [1, 4]
    assert document["stages"][0]["inputs"][0]["shape"] == [3, 4]
    expected = model.reference_outputs
    with autosplit.load(folder) as pipeline:
        results = pipeline.run(expected.items[:5])
    for result, outputs in zip(results, expected.along, strict=False):
        np.testing.assert_allclose(result["y"], outputs["y"], rtol=1e-5)
    assert verify(folder).accuracy.equal


@pytest.mark.parametrize(
    ("batch", "reason"), [(2, "where it is read"), (0, "batch"), (10**9, "batch")]
)
def test_a_batch_that_does_not_fit_the_stages_is_refused(exported, batch, reason):
    _, folder = exported
    document = json.loads((folder / "split.json").read_text())
    (folder / "split.json").write_text(json.dumps({**document, "batch": batch}))
    with pytest.raises(ConfigError, match=reason):
        autosplit.load(folder)


def test_programs_of_single_items_refuse_a_batch(save, tmp_path):
    model = loaded(save)
    whole = Deployment.of_split(
        [range(len(model.graph.ops))], ["cores:0"], ["onnxruntime"], batch=2
    )
    deployment = autosplit.Split.of(model, whole)
    with pytest.raises(ConfigError, match="computes 2 at once; use format 'native'"):
        deployment.export(tmp_path / "out", format="onnx")
