import pytest

from autosplit.study.config.study_file import load
from autosplit.zoo import catalog
from tests.studies.conftest import STUDIES

FILES = sorted(STUDIES.rglob("*.toml"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(STUDIES).as_posix())
def test_every_study_file_is_sound(file):
    config = load(file)
    assert config.zoo in catalog.NAMES
    assert f"autosplit run studies/{file.relative_to(STUDIES)}" in file.read_text().splitlines()[0]
