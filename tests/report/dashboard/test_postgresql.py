"""A study in PostgreSQL that is shown is never written to."""

import pytest

from autosplit.report.documents.study_reader import find_study
from tests.report import graphs
from tests.report.studies import make_study

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def reader(database_server):
    make_study(database_server.url, graphs.fire_net())
    return find_study("fire", database_server.url)


def test_the_database_itself_refuses_to_be_written_through_a_reader(reader):
    refused = pytest.raises(Exception, match=r"read-only|exception is raised during the commit")
    with refused, reader.open() as study:
        study.set_user_attr("mine", 1)
    with reader.open() as study:
        assert "mine" not in study.user_attrs
