"""Optuna's own tests of a storage on the storages that autosplit opens."""

from collections.abc import Iterator
from pathlib import Path

import optuna
import pytest
from optuna.testing.pytest_storages import StorageTestCase

from autosplit.study.storage import connect, storage_url
from tests.study.server import Server, postgresql

pytestmark = pytest.mark.integration
LEASE = 60


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with postgresql() as running:
        yield running


class TestSQLite(StorageTestCase):
    @pytest.fixture
    def storage(self, tmp_path: Path) -> optuna.storages.BaseStorage:
        return connect(storage_url("suite", str(tmp_path / "suite.db")), LEASE)


class TestPostgreSQL(StorageTestCase):
    @pytest.fixture
    def storage(self, server: Server) -> Iterator[optuna.storages.BaseStorage]:
        with server.database("suite") as url:
            yield connect(url, LEASE)
