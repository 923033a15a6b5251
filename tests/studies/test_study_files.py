from pathlib import Path

import pytest

from autosplit.study.config.study_file import load
from autosplit.zoo import catalog
from tests.studies.conftest import STUDIES

FILES = sorted(STUDIES.rglob("*.toml"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(STUDIES).as_posix())
def test_every_study_file_is_sound(file: Path) -> None:
    config = load(file)
    assert config.zoo in catalog.NAMES
    assert f"autosplit run studies/{file.relative_to(STUDIES)}" in file.read_text().splitlines()[0]


def test_each_net_has_a_study_for_each_backend_named_as_its_file() -> None:
    found = {file.stem: load(file) for file in (STUDIES / "nets").glob("*.toml")}
    assert sorted(found) == sorted(
        [*catalog.NAMES, *(f"{net}_onnxruntime" for net in catalog.NAMES)]
    )
    assert all(config.name == name for name, config in found.items())
    assert all(config.zoo == name.removesuffix("_onnxruntime") for name, config in found.items())
    assert all(
        config.backend == ("onnxruntime" if name.endswith("_onnxruntime") else "tvm")
        for name, config in found.items()
    )
