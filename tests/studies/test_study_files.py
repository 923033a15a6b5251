from pathlib import Path

import pytest

from autosplit.study.config.study_file import load
from autosplit.zoo import catalog
from studies.benchmarks import zoo_studies
from tests.studies.conftest import STUDIES

FILES = sorted(STUDIES.rglob("*.toml"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(STUDIES).as_posix())
def test_every_study_file_is_sound(file: Path) -> None:
    config = load(file)
    assert config.zoo in catalog.NAMES
    assert f"autosplit run studies/{file.relative_to(STUDIES)}" in file.read_text().splitlines()[0]


@pytest.mark.parametrize("name", zoo_studies.NAMES)
def test_each_net_has_a_study_for_each_runtime(name: str) -> None:
    config = zoo_studies.config_of(name)
    assert f"{config.zoo}_{config.runtime}" == config.name == name
