import json

import numpy as np
import pytest

import autosplit
from autosplit.deploy.verify import verify
from autosplit.errors import ConfigError
from tests.hardware.test_batches import loaded


@pytest.fixture
def exported(save, tmp_path):
    model = loaded(save)
    half = len(model.graph.ops) // 2
    stages = tuple(range(half)), tuple(range(half, len(model.graph.ops)))
    split = autosplit.api.Split(model, stages, batch=3)
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


def test_a_batch_that_does_not_fit_the_stages_is_refused(exported):
    _, folder = exported
    document = json.loads((folder / "split.json").read_text())
    (folder / "split.json").write_text(json.dumps({**document, "batch": 2}))
    with pytest.raises(ConfigError, match="where it is read"):
        autosplit.load(folder)
