"""Optuna's own tests of a storage on the storages that autosplit opens."""

import pytest
from optuna.testing.pytest_storages import StorageTestCase

from autosplit.study.storage import connect, storage_url

pytestmark = pytest.mark.integration
LEASE = 60


class TestSQLite(StorageTestCase):
    @pytest.fixture
    def storage(self, tmp_path):
        return connect(storage_url("suite", str(tmp_path / "suite.db")), LEASE)


class TestPostgreSQL(StorageTestCase):
    @pytest.fixture
    def storage(self, database_server):
        with database_server.database("suite") as url:
            yield connect(url, LEASE)
